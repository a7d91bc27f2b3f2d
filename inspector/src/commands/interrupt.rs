//! Ctrl-C, SIGTERM and SIGHUP end the command at once and leave nothing behind.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// The file that is being written and does not have its name yet.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Starts to watch for signals, on a thread of its own: the command may be in a system call that does not return.
pub(super) fn watch() -> anyhow::Result<()> {
    thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread")?;
    Ok(())
}

/// Runs `write` on `path`; a signal in the middle removes the file.
pub(super) fn guarded<T>(path: &Path, write: impl FnOnce() -> T) -> T {
    *unfinished() = Some(path.to_owned());
    let result = write();
    *unfinished() = None;
    result
}

fn unfinished() -> std::sync::MutexGuard<'static, Option<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[allow(clippy::exit, reason = "a signal ends the command wherever its other threads are")]
fn wait() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let status = runtime.block_on(async {
        let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()))
        else {
            return None;
        };
        tokio::select! {
            _ = interrupt.recv() => Some(130),
            _ = terminate.recv() => Some(143),
            _ = hangup.recv() => Some(129),
        }
    });
    let Some(status) = status else { return };
    // The lock is kept: a file that is about to be started is not.
    let unfinished = unfinished();
    if let Some(path) = unfinished.as_deref() {
        std::fs::remove_file(path).ok();
    }
    std::process::exit(status);
}
