//! Eventfds and signals.

use super::{
    kernel,
    scene::{Blocked, Object},
    text,
    time::Timeout,
};
use crate::model::{Certainty, Wait, WaitKind};

/// A blocked read (the count is 0) or write (the count is full) of an eventfd. Nobody owns it; processes that share it
/// are the only ones who can signal it, besides the waiter's own threads.
pub(super) fn eventfd(blocked: &Blocked<'_>, id: Option<u64>, count: u64) -> Wait {
    let own = blocked.process.pid;
    let owners = id.map_or_else(Vec::new, |id| {
        let evidence = format!("shares eventfd {id}");
        blocked.owners(Object::EventFd(id), Certainty::Likely, &evidence, |holder| holder.pid != own)
    });
    let name = id.map(|id| format!(" {id}")).unwrap_or_default();
    let alone = owners.is_empty() && blocked.scene.saw_all_holders();
    let by = if alone { ": only threads of its own process have it" } else { "" };
    Wait {
        kind: WaitKind::Eventfd,
        text: format!("eventfd{name} (count {count}){by}"),
        fd: Some(blocked.fd(0)),
        owners,
        open_ended: true,
        ..Wait::default()
    }
}

/// `pause`, `sigsuspend`, `sigtimedwait`, a read of a signalfd.
pub(super) fn signal(blocked: &Blocked<'_>) -> Wait {
    let timeout = match blocked.name {
        "rt_sigtimedwait" => Timeout::relative_at(blocked, blocked.argument(2)),
        _ => Timeout::NONE,
    };
    let fd = matches!(blocked.name, "read" | "readv").then(|| blocked.fd(0));
    let set = (blocked.name == "rt_sigtimedwait")
        .then(|| blocked.thread.saved_u64(blocked.argument(0)))
        .flatten()
        // A read of a signalfd; the other calls have no descriptor.
        .or_else(|| Some(blocked.open(fd?)?.details.as_ref()?.signals))
        .map(text::signals)
        .unwrap_or_default();
    timeout.of(Wait { kind: WaitKind::Signal, text: format!("a signal{set}"), fd, ..Wait::default() })
}

/// A blocked read or write of something that no other decoder knows: inotify, fanotify, userfaultfd, a perf event.
pub(super) fn other(blocked: &Blocked<'_>) -> Wait {
    let fd = blocked.fd(0);
    let what = text::descriptor(blocked.scene, blocked.open(fd));
    Wait {
        kind: WaitKind::Other,
        text: format!("{} of {what}", blocked.name),
        fd: Some(fd),
        kernel_function: kernel::reason(blocked.kernel()).map(str::to_owned),
        ..Wait::default()
    }
}
