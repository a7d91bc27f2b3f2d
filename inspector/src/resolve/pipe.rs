//! Waits on pipes and FIFOs.

use super::{
    Direction,
    scene::{self, Blocked, Holder},
};
use crate::model::{FdKind, Owner, Wait, WaitKind};

/// A blocked read or write of the pipe `inode`.
pub(super) fn resolve(blocked: &Blocked<'_>, inode: u64, path: Option<&str>, direction: Direction) -> Wait {
    let what = path.map_or_else(|| format!("pipe #{inode}"), |path| format!("fifo {path}"));
    let (kind, text) = match direction {
        Direction::In => (WaitKind::PipeRead, format!("read from {what}")),
        Direction::Out => (WaitKind::PipeWrite, format!("write to {what}, which is full")),
    };
    Wait {
        kind,
        text,
        fd: Some(blocked.fd(0)),
        inode: Some(inode),
        owners: others(blocked, blocked.fd(0), direction),
        ..Wait::default()
    }
}

/// The processes at the other end, by the access mode of their descriptors. The waiter's own process counts only where
/// nobody else is there.
pub(super) fn others(blocked: &Blocked<'_>, fd: i32, direction: Direction) -> Vec<Owner> {
    let Some(open) = blocked.open(fd) else { return Vec::new() };
    let (Some(object), FdKind::Pipe { inode, path }) = (scene::object(open), &open.kind) else {
        return Vec::new();
    };
    let (missing, end) = match direction {
        Direction::In => (libc::O_RDONLY as u32, "writing"),
        Direction::Out => (libc::O_WRONLY as u32, "reading"),
    };
    let name = path.as_ref().map_or_else(|| format!("pipe #{inode}"), |path| format!("fifo {path}"));
    let evidence = format!("holds the {end} end of {name}");
    let own = blocked.process.pid;
    let at_end = |holder: &Holder| holder.access != missing;
    let others =
        blocked.owners(object, blocked.certainty(), &evidence, |holder| at_end(holder) && holder.pid != own);
    if others.is_empty() {
        return blocked.owners(object, blocked.certainty(), &evidence, at_end);
    }
    others
}
