//! `epoll_wait` and its kin.

use super::{scene::Blocked, targets, time::Timeout};
use crate::model::{FdKind, Wait, WaitKind};

/// A wait on an epoll set. Whoever makes any of its descriptors ready ends it: an idle event loop waits for everybody and
/// names nobody, unless all but one of its descriptors are the process's own.
pub(super) fn resolve(blocked: &Blocked<'_>) -> Wait {
    let timeout = match blocked.name {
        "epoll_pwait2" => Timeout::relative_at(blocked, blocked.argument(3)),
        _ => Timeout::milliseconds(blocked, blocked.argument(3)),
    };
    let fd = blocked.fd(0);
    let (watched, text) = match blocked.open(fd).map(|open| &open.kind) {
        Some(FdKind::Epoll { targets }) => {
            let awaited = targets::expand(blocked, targets.iter().copied());
            let nested = awaited.iter().any(|one| one.through.is_some());
            let within = if nested {
                format!(" ({} with those of the sets in it)", awaited.len())
            } else {
                String::new()
            };
            (awaited, format!("epoll set {fd} of {} descriptors{within}", targets.len()))
        }
        // The descriptors were not read, or it was opened since.
        _ => (Vec::new(), format!("epoll set {fd}, which could not be read")),
    };
    timeout.of(Wait {
        kind: WaitKind::Epoll,
        text,
        fd: Some(fd),
        targets: targets::list(blocked, &watched),
        owners: targets::only_owners(blocked, &watched),
        open_ended: true,
        ..Wait::default()
    })
}
