//! `epoll_wait` and its kin.

use super::{scene::Blocked, text, time::Timeout};
use crate::model::{FdKind, Wait, WaitKind};

/// Most descriptors listed.
const MAX_TARGETS: usize = 256;

/// A wait on an epoll set. Whoever makes any of its descriptors ready ends it, so it names no owner: an idle event
/// loop waits for everybody.
pub(super) fn resolve(blocked: &Blocked<'_>) -> Wait {
    let timeout = match blocked.name {
        "epoll_pwait2" => Timeout::relative_at(blocked, blocked.argument(3)),
        _ => Timeout::milliseconds(blocked, blocked.argument(3)),
    };
    let fd = blocked.fd(0);
    let (watched, text) = match blocked.open(fd).map(|open| &open.kind) {
        Some(FdKind::Epoll { targets }) => {
            (targets.as_slice(), format!("epoll set {fd} of {} descriptors", targets.len()))
        }
        // The descriptors were not read, or it was opened since.
        _ => (&[][..], format!("epoll set {fd}, which could not be read")),
    };
    let targets = watched
        .iter()
        .take(MAX_TARGETS)
        .map(|target| text::target(blocked.scene, blocked.process, target.fd, target.events))
        .collect();
    timeout.of(Wait { kind: WaitKind::Epoll, text, fd: Some(fd), targets, ..Wait::default() })
}
