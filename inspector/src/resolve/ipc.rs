//! System V semaphores and message queues, POSIX message queues.
//!
//! None of them has an owner: anybody who may use the object can end the wait. What is known is who used it last.

use std::collections::HashMap;

use super::{
    scene::{self, Blocked},
    text,
    time::Timeout,
};
use crate::model::{Certainty, FdKind, IpcKind, IpcObject, Owner, Wait, WaitKind};

/// Most operations of one call looked at (`SEMOPM` is 500 unless set).
const MAX_OPERATIONS: u64 = 64;
/// `sizeof(struct sembuf)`.
const SEMBUF: u64 = 6;

/// `semop`, `semtimedop`: likely who changed the semaphore last.
pub(super) fn semaphore(blocked: &Blocked<'_>) -> Wait {
    let timeout = match blocked.name {
        "semtimedop" => Timeout::relative_at(blocked, blocked.argument(3)),
        _ => Timeout::NONE,
    };
    let id = blocked.fd(0);
    let set = object(blocked, IpcKind::Semaphores, id);
    let value = |number: u16| set.and_then(|set| set.semaphores.get(usize::from(number)));
    let waiting = waiting(&operations(blocked), |number| value(number).map(|semaphore| semaphore.value));
    let (text, owners) = match waiting {
        Some((number, change)) => {
            let aim =
                if change == 0 { "to be 0".to_owned() } else { format!("for {}", change.unsigned_abs()) };
            let now =
                value(number).map(|semaphore| format!(", which is {}", semaphore.value)).unwrap_or_default();
            let last = value(number).map_or(0, |semaphore| semaphore.last);
            let (by, owners) = last_user(blocked, last, "changed");
            (format!("System V semaphore {number} of set {id} {aim}{now}{by}"), owners)
        }
        None => (format!("System V semaphore set {id}"), Vec::new()),
    };
    timeout.of(Wait {
        kind: WaitKind::Semaphore,
        text,
        flavour: Some("sysv".to_owned()),
        owners,
        open_ended: true,
        ..Wait::default()
    })
}

/// `msgrcv`, `msgsnd`: likely who sent or received last.
pub(super) fn queue(blocked: &Blocked<'_>) -> Wait {
    let id = blocked.fd(0);
    let queue = object(blocked, IpcKind::Queue, id);
    let (verb, last, did) = match blocked.name {
        "msgrcv" => ("receive from", queue.map_or(0, |queue| queue.last_sender), "sent to"),
        _ => ("send to", queue.map_or(0, |queue| queue.last_receiver), "received from"),
    };
    let (by, owners) = last_user(blocked, last, did);
    let within = queue.map(|queue| format!(" of {} messages, {} bytes", queue.messages, queue.bytes));
    Wait {
        kind: WaitKind::Other,
        text: format!("{verb} System V message queue {id}{}{by}", within.unwrap_or_default()),
        flavour: Some("sysv-queue".to_owned()),
        owners,
        open_ended: true,
        ..Wait::default()
    }
}

/// `mq_receive`, `mq_send` and their timed forms: likely the others who have the queue open the other way.
pub(super) fn posix_queue(blocked: &Blocked<'_>) -> Wait {
    let fd = blocked.fd(0);
    let open = blocked.open(fd);
    let (verb, missing) = match blocked.name {
        "mq_timedreceive" => ("receive from", libc::O_RDONLY),
        _ => ("send to", libc::O_WRONLY),
    };
    let own = blocked.process.pid;
    let owners = open.and_then(scene::object).map_or_else(Vec::new, |object| {
        let evidence = "has the message queue open as well";
        blocked.owners(object, Certainty::Likely, evidence, |holder| {
            holder.pid != own && holder.access != missing as u32
        })
    });
    let name = match open.map(|open| &open.kind) {
        Some(FdKind::File { path }) => path.clone(),
        _ => text::descriptor(blocked.scene, open),
    };
    // Absolute, on the wall clock (mq_receive(3)).
    let timeout = Timeout::absolute_at(blocked, super::time::Clock::Realtime, blocked.argument(4));
    timeout.of(Wait {
        kind: WaitKind::Other,
        text: format!("{verb} message queue {name}"),
        flavour: Some("mqueue".to_owned()),
        fd: Some(fd),
        owners,
        open_ended: true,
        ..Wait::default()
    })
}

/// The first operation that cannot be done, those before it done: it is the one that waits (`ipc/sem.c`,
/// `perform_atomic_semop`). Of a semaphore whose value is not known, one that can wait.
fn waiting(operations: &[(u16, i16)], value: impl Fn(u16) -> Option<u32>) -> Option<(u16, i16)> {
    let mut changed: HashMap<u16, i64> = HashMap::new();
    for &(number, change) in operations {
        let Some(value) = value(number) else {
            if change <= 0 {
                return Some((number, change));
            }
            continue;
        };
        let now = changed.entry(number).or_insert(i64::from(value));
        let after = *now + i64::from(change);
        if after < 0 || (change == 0 && after != 0) {
            return Some((number, change));
        }
        *now = after;
    }
    None
}

fn object<'a>(blocked: &Blocked<'a>, kind: IpcKind, id: i32) -> Option<&'a IpcObject> {
    let pid = blocked.process.pid;
    let is_it = |object: &&IpcObject| object.kind == kind && object.id == id && object.pids.contains(&pid);
    blocked.scene.capture.ipc.iter().find(is_it)
}

/// `struct sembuf`: the semaphore's number (u16) at 0, the change (i16) at 2, flags at 4.
fn operations(blocked: &Blocked<'_>) -> Vec<(u16, i16)> {
    let first = blocked.argument(1);
    let count = (blocked.argument(2) & 0xffff_ffff).min(MAX_OPERATIONS);
    let one = |index: u64| {
        let bytes = blocked.thread.saved(first.checked_add(index * SEMBUF)?, SEMBUF as usize)?;
        let number = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
        Some((number, i16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?)))
    };
    (0..count).map_while(one).collect()
}

/// What is said of the last user, and it as an owner where it is another process that lives.
fn last_user(blocked: &Blocked<'_>, pid: u32, did: &str) -> (String, Vec<Owner>) {
    if pid == 0 || pid == blocked.process.pid {
        return (String::new(), Vec::new());
    }
    let capture = blocked.scene.capture;
    let lives = capture.process(pid).is_some() || capture.bystanders.iter().any(|beside| beside.pid == pid);
    if !lives {
        let gone = format!("; pid {pid}, which {did} it last, is gone");
        return (if blocked.scene.saw_all_holders() { gone } else { String::new() }, Vec::new());
    }
    let evidence = format!("{did} it last");
    (String::new(), vec![Owner { pid, tid: None, certainty: Certainty::Likely, evidence }])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_operation_that_waits_is_the_first_that_cannot_be_done() {
        let values = |number| [Some(0), Some(2), None].get(usize::from(number)).copied().flatten();
        assert_eq!(waiting(&[(0, -1)], values), Some((0, -1)));
        assert_eq!(waiting(&[(1, 0), (0, -1)], values), Some((1, 0)));
        // What came before counts.
        assert_eq!(waiting(&[(0, 3), (0, -2), (1, -2), (1, -1)], values), Some((1, -1)));
        assert_eq!(waiting(&[(0, 1), (1, -2)], values), None);
        assert_eq!(waiting(&[(2, 1), (2, -1)], values), Some((2, -1)));
    }

    proptest! {
        #[test]
        fn any_operations_are_survived(operations in proptest::collection::vec((0u16..4, any::<i16>()), 0..64), values: [u32; 3]) {
            let found = waiting(&operations, |number| values.get(usize::from(number)).copied());
            prop_assert!(found.is_none_or(|found| operations.contains(&found)));
        }
    }
}
