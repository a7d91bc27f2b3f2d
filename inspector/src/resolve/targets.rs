//! The descriptors that a poll or epoll waits on: sets within sets, and whom the wait leads to.

use super::{
    Direction, pipe,
    scene::{Blocked, Object},
    socket, text,
};
use crate::model::{Certainty, Fd, FdKind, Owner, fd::EpollTarget, wait::WaitTarget};

/// Most descriptors listed.
const MAX_TARGETS: usize = 256;
/// How deep sets are looked into that are members of sets; the kernel allows five levels (`fs/eventpoll.c`,
/// `EP_MAX_NESTS`).
const MAX_DEPTH: usize = 4;
/// `POLLOUT`.
const OUT: u32 = 4;

/// One descriptor that is awaited.
#[derive(Clone, Copy)]
pub(super) struct Awaited<'a> {
    pub target: EpollTarget,
    /// What has its number now, unless that is known to be another file.
    pub open: Option<&'a Fd>,
    /// The set that it is a member of, where that is itself a member of the one waited on.
    pub through: Option<i32>,
}

/// The descriptors, those of sets among them in place of the sets.
pub(super) fn expand<'a>(
    blocked: &Blocked<'a>,
    targets: impl IntoIterator<Item = EpollTarget>,
) -> Vec<Awaited<'a>> {
    let mut found = Vec::new();
    collect(blocked, targets, None, 0, &mut found);
    found
}

fn collect<'a>(
    blocked: &Blocked<'a>,
    targets: impl IntoIterator<Item = EpollTarget>,
    through: Option<i32>,
    depth: usize,
    found: &mut Vec<Awaited<'a>>,
) {
    for target in targets {
        if found.len() >= MAX_TARGETS {
            return;
        }
        let open = blocked.open(target.fd).filter(|open| is_same(open, target));
        match open.map(|open| &open.kind) {
            Some(FdKind::Epoll { targets }) if depth + 1 < MAX_DEPTH && !targets.is_empty() => {
                collect(blocked, targets.iter().copied(), Some(target.fd), depth + 1, found);
            }
            _ => found.push(Awaited { target, open, through }),
        }
    }
}

/// A set keeps what was added to it while a copy of the descriptor lives; the number may be another file's by now.
fn is_same(open: &Fd, target: EpollTarget) -> bool {
    // All others share one inode.
    let (FdKind::Socket { inode } | FdKind::Pipe { inode, .. }) = open.kind else { return true };
    target.inode == 0 || target.inode == inode
}

/// For the report.
pub(super) fn list(blocked: &Blocked<'_>, awaited: &[Awaited<'_>]) -> Vec<WaitTarget> {
    let one = |awaited: &Awaited<'_>| {
        let Awaited { target, open, through } = *awaited;
        let found = text::target(blocked.scene, open, target.fd, target.events);
        if open.is_some() || target.inode == 0 {
            return WaitTarget { through, ..found };
        }
        // Known by its inode alone.
        let socket = blocked.scene.socket(target.inode);
        let what = socket.map_or_else(|| "a file".to_owned(), text::socket);
        WaitTarget { text: format!("{what} whose descriptor was closed"), through, ..found }
    };
    awaited.iter().map(one).collect()
}

/// What somebody else can do about one of several descriptors.
enum Stake {
    /// Nothing: only the process itself makes it ready, or time does.
    Own,
    /// These can make it ready.
    Others(Vec<Owner>),
    /// Anybody can.
    Anybody,
}

/// Who has to act, where of several descriptors one alone can be made ready by another process. Never proven: what the
/// thread does when one of the others wakes it is not known.
pub(super) fn only_owners(blocked: &Blocked<'_>, awaited: &[Awaited<'_>]) -> Vec<Owner> {
    let mut only: Option<Vec<Owner>> = None;
    for one in awaited {
        match stake(blocked, one) {
            Stake::Own => {}
            Stake::Others(owners) if only.is_none() => only = Some(owners),
            Stake::Others(_) | Stake::Anybody => return Vec::new(),
        }
    }
    let one_of_many = |owner: Owner| Owner {
        certainty: Certainty::Likely,
        evidence: format!("{}; no other descriptor of the wait leads to another process", owner.evidence),
        ..owner
    };
    only.unwrap_or_default().into_iter().map(one_of_many).collect()
}

fn stake(blocked: &Blocked<'_>, one: &Awaited<'_>) -> Stake {
    let Some(open) = one.open else { return Stake::Anybody };
    match &open.kind {
        FdKind::TimerFd { .. } => return Stake::Own,
        FdKind::EventFd { id: Some(id), .. } if blocked.scene.holders(Object::EventFd(*id)).len() <= 1 => {
            return Stake::Own;
        }
        _ => {}
    }
    let owners = others(blocked, one.target.fd, one.target.events);
    if owners.is_empty() {
        return Stake::Anybody;
    }
    let own = blocked.process.pid;
    // A pipe or a pair of sockets to itself, by which an event loop is woken.
    if owners.iter().all(|owner| owner.pid == own) { Stake::Own } else { Stake::Others(owners) }
}

/// Who is at the other end of a descriptor.
pub(super) fn others(blocked: &Blocked<'_>, fd: i32, events: u32) -> Vec<Owner> {
    let own = blocked.process.pid;
    match blocked.open(fd).map(|open| &open.kind) {
        Some(FdKind::Socket { inode }) => socket::peers(blocked, blocked.scene.socket(*inode)),
        Some(FdKind::Pipe { .. }) => {
            let direction = if events & OUT == 0 { Direction::In } else { Direction::Out };
            pipe::others(blocked, fd, direction)
        }
        Some(FdKind::EventFd { id: Some(id), .. }) => {
            let evidence = format!("shares eventfd {id}");
            let object = Object::EventFd(*id);
            blocked.owners(object, Certainty::Likely, &evidence, |holder| holder.pid != own)
        }
        Some(&FdKind::PidFd { pid }) if pid > 0 => {
            let pid = pid.unsigned_abs();
            vec![Owner { pid, tid: None, certainty: blocked.certainty(), evidence: "pidfd".to_owned() }]
        }
        _ => Vec::new(),
    }
}
