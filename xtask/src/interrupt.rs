//! Ctrl-C and SIGTERM: a flag that every wait looks at, so that what was started is ended on the way out.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn remember(_signal: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP only set the flag.
pub(crate) fn watch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores into an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, remember as *const () as libc::sighandler_t) };
    }
}

/// An error once somebody asked this program to end.
pub(crate) fn check() -> Result<()> {
    if ASKED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}
