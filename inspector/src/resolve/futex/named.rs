//! Locks that are known by the functions above the futex call: those of other runtimes, and glibc's that have no shape.
//!
//! None of them records its owner in a way that is documented. A stripped program has no such names: its locks stay plain
//! futexes. Sources: Rust `library/std/src/sys/sync`, parking_lot 0.12, Go `src/runtime/lock_futex.go`, libstdc++
//! `bits/atomic_wait.h`, Abseil `absl/synchronization`, libgomp `config/linux`.

mod rules;

use rules::{MODULES, RULES, Rule};

use super::Futex;
use crate::model::{Frame, Wait};

/// Frames that a lock's own functions fill at most.
const REACH: usize = 12;

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    let frames: Vec<&Frame> = frames(futex);
    // Below pthread functions the object has a shape, which says more.
    let inner = frames.iter().find(|frame| !is_plumbing(frame));
    if inner.is_some_and(|frame| has_shape(&frame.function)) {
        return None;
    }
    let found = frames.iter().filter_map(|frame| rule(frame));
    // The first of those that say most.
    let best = found.fold(None, |best: Option<&Rule>, rule| match best {
        Some(best) if best.level >= rule.level => Some(best),
        _ => Some(rule),
    });
    let (kind, flavour) = match best {
        Some(rule) => (rule.kind, rule.flavour),
        None => by_module(&frames)?,
    };
    Some(Wait {
        kind,
        text: format!("{flavour} at {:#x}, which records no owner", futex.word),
        address: Some(futex.word),
        flavour: Some(flavour.to_owned()),
        ..Wait::default()
    })
}

impl Futex<'_> {
    /// One of the innermost functions is such a one.
    pub(super) fn below(&self, fits: impl Fn(&str) -> bool) -> bool {
        frames(self).iter().any(|frame| fits(&frame.function))
    }

    /// A lock function of glibc made the call: one with a name, or code of libc without one (its functions that take robust
    /// and timed locks are not exported; other runtimes call through `syscall`). A lock of theirs may bear the same numbers
    /// by chance.
    pub(super) fn in_glibc(&self) -> bool {
        const FUNCTIONS: [&str; 6] =
            ["pthread_mutex_", "pthread_cond_", "pthread_rwlock_", "mtx_lock", "mtx_timedlock", "cnd_"];
        let inner =
            frames(self).first().is_some_and(|frame| frame.function.starts_with("0x") && in_libc(frame));
        inner || self.below(|function| FUNCTIONS.iter().any(|name| function.contains(name)))
    }
}

fn frames<'a>(futex: &Futex<'a>) -> Vec<&'a Frame> {
    futex.blocked.native_above_python().take(REACH).collect()
}

fn rule(frame: &Frame) -> Option<&'static Rule> {
    RULES.iter().find(|rule| {
        let function = frame.function.as_str();
        if rule.whole {
            rule.marks.contains(&function)
        } else {
            rule.marks.iter().all(|mark| function.contains(mark))
        }
    })
}

/// By the library whose code made the call, where its functions have no names.
fn by_module(frames: &[&Frame]) -> Option<(crate::model::WaitKind, &'static str)> {
    let caller = frames.iter().find(|frame| !is_plumbing(frame) && !in_libc(frame))?;
    let module = caller.module.as_deref().and_then(|module| module.rsplit('/').next())?;
    let (_, kind, flavour) = MODULES.iter().find(|(name, ..)| module.starts_with(name))?;
    Some((*kind, *flavour))
}

/// Says nothing of the lock: the system call's wrapper, and code without a name in libc.
fn is_plumbing(frame: &Frame) -> bool {
    let function = frame.function.as_str();
    let wrapper = function == "syscall"
        || function.contains("futex_abstimed_wait")
        || function.contains("futex_wait")
        || function.contains("lll_lock_wait");
    wrapper || (function.starts_with("0x") && in_libc(frame))
}

fn in_libc(frame: &Frame) -> bool {
    let module = frame.module.as_deref().and_then(|module| module.rsplit('/').next()).unwrap_or_default();
    ["libc.so", "libc-", "libpthread", "ld-"].iter().any(|name| module.starts_with(name))
}

/// Functions whose objects have a shape that is decoded.
fn has_shape(function: &str) -> bool {
    let function = function.trim_start_matches('_');
    let once = function.starts_with("pthread_once");
    let prefixes = ["pthread_", "sem_", "new_sem_", "mtx_", "cnd_", "thrd_", "flockfile", "Py", "take_gil"];
    !once && prefixes.iter().any(|prefix| function.starts_with(prefix))
}
