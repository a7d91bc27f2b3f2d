//! System V semaphores and message queues, in the IPC namespace of those who wait on them.
//!
//! `semctl` and `/proc/sysvipc/msg` answer for the namespace of the thread that asks (`ipc/namespace.c`), and give pids of
//! its own PID namespace, which is the host's. Another IPC namespace is visited by a thread that ends afterwards (needs
//! CAP_SYS_ADMIN).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    time::Duration,
};

use rustix::thread::LinkNameSpaceType;

use crate::{
    model::{Gap, IpcKind, IpcObject, Semaphore},
    patience::Patience,
    visit::visit,
};

/// Most semaphores kept of one set (`SEMMSL` is 32000 unless set).
const MAX_SEMAPHORES: i32 = 256;
/// Most objects kept.
const MAX_OBJECTS: usize = 256;
/// Most bytes read of `/proc/sysvipc/msg`.
const MAX_BYTES: u64 = 4 << 20;

/// The objects of one namespace, with the processes that wait on each.
type Objects = BTreeMap<(IpcKind, i32), Vec<u32>>;

/// Reads the objects that threads wait on: the process, the kind and the id of each.
pub(super) fn read(wanted: &BTreeSet<(u32, IpcKind, i32)>) -> (Vec<IpcObject>, Vec<Gap>) {
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    let mut patience = Patience::default();
    let own = fs::metadata("/proc/thread-self/ns/ipc").map(|metadata| metadata.ino()).ok();
    let mut by_namespace: BTreeMap<u64, (fs::File, Objects)> = BTreeMap::new();
    for &(pid, kind, id) in wanted.iter().take(MAX_OBJECTS) {
        let opened = patience.run(Duration::ZERO, move || {
            let handle = fs::File::open(format!("/proc/{pid}/ns/ipc"))?;
            Ok::<_, std::io::Error>((handle.metadata()?.ino(), handle))
        });
        let why = match opened {
            Ok(Ok((namespace, handle))) => {
                let (_, objects) = by_namespace.entry(namespace).or_insert_with(|| (handle, Objects::new()));
                objects.entry((kind, id)).or_default().push(pid);
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(late) => late.to_string(),
        };
        let reason =
            format!("its IPC namespace {why}; who used its System V semaphores and queues last is not known");
        gaps.push(Gap::process("fds", pid, reason));
    }
    for (namespace, (handle, objects)) in by_namespace {
        let all = || -> Vec<IpcObject> {
            objects.into_iter().filter_map(|((kind, id), pids)| one(kind, id, pids)).collect()
        };
        let read = if own == Some(namespace) {
            Ok(all())
        } else {
            let ask = |joined: rustix::io::Result<()>| {
                joined.map_err(|error| format!("cannot join it: {error} (needs CAP_SYS_ADMIN)"))?;
                Ok(all())
            };
            visit(&handle, LinkNameSpaceType::InterProcessCommunication, ask)
                .unwrap_or_else(|| Err("the visiting thread failed".to_owned()))
        };
        match read {
            Ok(objects) => found.extend(objects),
            Err(why) => {
                let reason = format!(
                    "IPC namespace {namespace}: {why}; who used its System V semaphores and queues last is not known"
                );
                gaps.push(Gap::host("fds", reason));
            }
        }
    }
    (found, gaps)
}

/// `None`: removed meanwhile, or not ours to read.
fn one(kind: IpcKind, id: i32, pids: Vec<u32>) -> Option<IpcObject> {
    let object = match kind {
        IpcKind::Semaphores => IpcObject { semaphores: semaphores(id), ..IpcObject::default() },
        IpcKind::Queue => queue(&super::fds::read_bounded("/proc/sysvipc/msg", MAX_BYTES).ok()?, id)?,
    };
    Some(IpcObject { kind, id, pids, ..object })
}

fn semaphores(id: i32) -> Vec<Semaphore> {
    let get = |number: i32, what: i32| {
        // SAFETY: these commands take no fourth argument and return a number.
        u32::try_from(unsafe { libc::semctl(id, number, what) }).ok()
    };
    // A number that the set does not have ends it (EINVAL).
    (0..MAX_SEMAPHORES)
        .map_while(|number| Some(Semaphore { value: get(number, GETVAL)?, last: get(number, GETPID)? }))
        .collect()
}

/// Commands of `semctl` (`include/uapi/linux/sem.h`).
const GETPID: i32 = 11;
const GETVAL: i32 = 12;

/// `KEY MSQID PERMS CBYTES QNUM LSPID LRPID …` (`ipc/msg.c`, `sysvipc_msg_proc_show`).
fn queue(text: &str, id: i32) -> Option<IpcObject> {
    text.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.get(1)?.parse() != Ok(id) {
            return None;
        }
        Some(IpcObject {
            bytes: words.get(3)?.parse().ok()?,
            messages: words.get(4)?.parse().ok()?,
            last_sender: words.get(5)?.parse().ok()?,
            last_receiver: words.get(6)?.parse().ok()?,
            ..IpcObject::default()
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_queue_is_found_by_its_id() {
        let text = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n\
                    0          3   600          12          2    71    72     0     0     0     0          0          0 1764500000\n";
        let found = queue(text, 3).unwrap();
        assert_eq!((found.bytes, found.messages, found.last_sender, found.last_receiver), (12, 2, 71, 72));
        assert_eq!(queue(text, 4), None);
    }

    #[test]
    fn a_set_of_our_own_says_who_changed_it() {
        // SAFETY: makes a set of two semaphores, changes one, and removes it; the fourth argument of SETVAL is an int.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, 2, 0o600) };
        assert!(id >= 0);
        let mut operation = libc::sembuf { sem_num: 1, sem_op: 3, sem_flg: 0 };
        // SAFETY: one operation, which lives through the call.
        assert_eq!(unsafe { libc::semop(id, &raw mut operation, 1) }, 0);
        let own = std::process::id();
        let (found, gaps) = read(&BTreeSet::from([(own, IpcKind::Semaphores, id)]));
        // SAFETY: IPC_RMID takes no fourth argument.
        unsafe { libc::semctl(id, 0, libc::IPC_RMID) };
        assert_eq!(gaps, []);
        assert_eq!(found[0].pids, [own]);
        let expected = [Semaphore { value: 0, last: 0 }, Semaphore { value: 3, last: own }];
        assert_eq!(found[0].semaphores, expected);
    }

    proptest! {
        #[test]
        fn any_table_is_survived(text in "[ 0-9\n-]{0,200}") {
            drop(queue(&text, 3));
        }
    }
}
