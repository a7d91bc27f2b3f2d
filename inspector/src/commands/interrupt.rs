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
    let Some(status) = runtime.block_on(first_signal(ignored())) else { return };
    // The lock is kept: a file that is about to be started is not.
    let unfinished = unfinished();
    if let Some(path) = unfinished.as_deref() {
        std::fs::remove_file(path).ok();
    }
    std::process::exit(status);
}

/// Waits for one of the signals; gives the exit status that a shell would report for it. A signal that we were started
/// with ignored (`nohup`, a shell's background job) stays ignored.
async fn first_signal(ignored: u64) -> Option<i32> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let (ended, mut first) = tokio::sync::mpsc::channel(1);
    for kind in kinds {
        let number = kind.as_raw_value();
        if ignored & (1 << (number - 1)) != 0 {
            continue;
        }
        let mut incoming = signal(kind).ok()?;
        let ended = ended.clone();
        tokio::spawn(async move {
            if incoming.recv().await.is_some() {
                // Full: another signal came first.
                ended.try_send(128 + number).ok();
            }
        });
    }
    drop(ended);
    first.recv().await
}

/// Signals that we were started with ignored, one bit each (proc_pid_status(5), `SigIgn`).
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}
