//! CPython's global interpreter lock: a wait on the condition variable inside its `_gil_runtime_state`.

use super::Futex;
use crate::model::{Certainty, Gil, Owner, Stability, Thread, Wait, WaitKind};

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    let runtime = futex.blocked.process.python.as_ref()?;
    let gil = runtime
        .gils()
        .find(|gil| gil.cond.is_some_and(|(start, end)| (start..end).contains(&futex.word)))
        .or_else(|| by_frames(futex))?;
    let holder = gil.first().filter(|sample| sample.locked).and_then(|sample| sample.holder);
    let thread = holder.and_then(|tid| futex.blocked.scene.thread(tid)).map(|(_, thread)| thread);
    let owners: Vec<Owner> = thread.map(|thread| owner(futex, gil, thread)).into_iter().collect();
    let by = match thread {
        Some(thread) => format!(" held by {} (tid {})", thread.name(), thread.tid),
        None => String::new(),
    };
    Some(Wait {
        kind: WaitKind::Gil,
        text: format!("GIL {:#x}{by}", gil.address),
        address: Some(gil.address),
        owners,
        ..Wait::default()
    })
}

/// A waiter wakes every 5 ms to ask again, so it seldom stands still. Its system call, which the kernel told, shows that
/// it waited; that this thread held the GIL then is proven if the holder has not run around that moment, or if every
/// reading of the GIL shows it with the same switch number.
fn owner(futex: &Futex<'_>, gil: &Gil, thread: &Thread) -> Owner {
    let kept = gil.samples.len() > 1
        && gil.samples.iter().all(|sample| {
            sample.locked
                && sample.holder == Some(thread.tid)
                && gil.first().is_some_and(|first| first.switch_number == sample.switch_number)
        });
    let still = kept || thread.stability == Stability::Stable;
    let evidence = format!("holder of the GIL at {:#x}", gil.address);
    let certainty = if still { Certainty::Proven } else { futex.blocked.certainty() };
    Owner { pid: futex.blocked.process.pid, tid: Some(thread.tid), certainty, evidence }
}

/// `take_gil` on the native stack, in a process with one GIL: the condition variable's place was not known.
fn by_frames<'a>(futex: &Futex<'a>) -> Option<&'a Gil> {
    if !futex.blocked.native_above_python().any(|frame| frame.function == "take_gil") {
        return None;
    }
    let mut gils = futex.blocked.process.python.as_ref()?.gils();
    let only = gils.next()?;
    gils.next().is_none().then_some(only)
}
