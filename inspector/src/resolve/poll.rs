//! `poll`, `select` and their kin.

use super::{
    scene::Blocked,
    socket, targets, text,
    time::{self, Timeout},
    zmq,
};
use crate::model::{FdKind, Wait, WaitKind, fd::EpollTarget};

/// `POLLIN`.
const IN: u32 = 1;
/// `POLLPRI`.
const PRI: u32 = 2;
/// `POLLOUT`.
const OUT: u32 = 4;

/// A wait for one of several descriptors. With no descriptor it is a sleep; with one, whoever is at its other end has
/// to act; with several, nobody in particular has, unless all but one are the process's own.
pub(super) fn resolve(blocked: &Blocked<'_>) -> Wait {
    let select = matches!(blocked.name, "select" | "pselect6");
    let timeout = match blocked.name {
        "poll" => Timeout::milliseconds(blocked, blocked.argument(2)),
        "ppoll" => Timeout::relative_at(blocked, blocked.argument(2)),
        _ => time::of_select(blocked),
    };
    let count = if select { blocked.argument(0) & 0xffff_ffff } else { blocked.argument(1) };
    if count == 0 {
        return time::asleep(timeout);
    }
    let polled: Vec<(i32, u32)> = if select { select_set(blocked) } else { poll_set(blocked) };
    let awaited = polled.iter().map(|&(fd, events)| EpollTarget { fd, events, inode: 0 });
    let awaited = targets::expand(blocked, awaited);
    let targets = targets::list(blocked, &awaited);
    let mut wait = Wait { kind: WaitKind::Poll, targets, ..Wait::default() };
    match polled.as_slice() {
        [(fd, events)] => {
            let open = blocked.open(*fd);
            wait.text = format!(
                "{} for {} on {}",
                blocked.name,
                text::events(*events),
                text::descriptor(blocked.scene, open)
            );
            wait.fd = Some(*fd);
            if let Some(FdKind::Socket { inode }) = open.map(|open| &open.kind) {
                wait.inode = Some(*inode);
                wait = socket::describe(blocked.scene.socket(*inode), wait);
            }
            wait.open_ended =
                matches!(open.map(|o| &o.kind), Some(FdKind::Epoll { .. } | FdKind::EventFd { .. }))
                    || wait.open_ended;
            wait.owners = match open.map(|open| &open.kind) {
                Some(FdKind::Epoll { .. }) => targets::only_owners(blocked, &awaited),
                _ => targets::others(blocked, *fd, *events),
            };
        }
        [] => wait.text = format!("{} on {count} descriptors that could not be read", blocked.name),
        several => {
            wait.text = format!("{} on {} descriptors", blocked.name, several.len());
            wait.owners = targets::only_owners(blocked, &awaited);
            wait.open_ended = true;
        }
    }
    timeout.of(zmq::refine(blocked, wait))
}

/// The `struct pollfd` array: descriptor at 0 (negative: ignored), awaited events at 4, 8 bytes each.
fn poll_set(blocked: &Blocked<'_>) -> Vec<(i32, u32)> {
    let first = blocked.argument(0);
    (0..blocked.argument(1).min(1024))
        .map_while(|index| blocked.thread.saved_u64(first.checked_add(index * 8)?))
        .map(|entry| (entry as u32 as i32, (entry >> 32) as u32 & 0xffff))
        .filter(|&(fd, _)| fd >= 0)
        .collect()
}

/// The three bitmaps of longs.
fn select_set(blocked: &Blocked<'_>) -> Vec<(i32, u32)> {
    let count = (blocked.argument(0) & 0xffff_ffff).min(8192);
    let bit = |set: usize, fd: u64| {
        let address = blocked.argument(set);
        let word =
            (address != 0).then(|| blocked.thread.saved_u64(address.checked_add(fd / 64 * 8)?)).flatten();
        word.is_some_and(|word| word >> (fd % 64) & 1 == 1)
    };
    (0..count)
        .filter_map(|fd| {
            let events = [(1, IN), (2, OUT), (3, PRI)];
            let awaited =
                events.into_iter().filter(|&(set, _)| bit(set, fd)).fold(0, |bits, (_, event)| bits | event);
            (awaited != 0).then_some((fd as i32, awaited))
        })
        .collect()
}
