//! Locks of Python: `threading.Lock` and all that is built on it.
//!
//! Up to 3.12 (3.13.0 for `threading.Lock`) the lock is a `sem_t` on the heap. From 3.13 on the waiter parks: the word
//! lies in a `struct wait_entry` on the waiter's own stack, and the eight bytes before it hold the address of the lock
//! (`Python/parking_lot.c`). Neither records an owner. *Which* call waits is told by the Python frames ([`call`]); which
//! object, and who holds it, by what was read of them ([`holders`]).

mod call;
mod holders;
#[cfg(test)]
mod tests;

use super::{Futex, semaphore};
use crate::model::{Owner, PythonLock, PythonWait, Wait, WaitKind};

/// Farthest that a `wait_entry` lies above the stack pointer: the frames of the futex call between them.
const STACK_REACH: u64 = 16 * 1024;

pub(super) fn decode(futex: &Futex<'_>) -> Option<Wait> {
    let blocked = &futex.blocked;
    blocked.process.python.as_ref()?;
    let parked = parked_on(futex);
    let known = blocked.thread.python.as_ref().and_then(|python| python.waits_on.as_ref());
    // What was read of its frames belongs to this wait.
    let known = known.filter(|lock| lock.address == futex.word || Some(lock.address) == parked);
    let through_lock = blocked.native_above_python().any(|frame| call::is_lock_function(&frame.function));
    let has_python = blocked.python().next().is_some();
    // Without a native stack the object's shape and a Python frame must do.
    let guessed = !blocked.has_native() && has_python && (parked.is_some() || semaphore::shape(futex));
    if known.is_none() && !through_lock && !guessed {
        return None;
    }
    let call = call::name(futex).or_else(|| call::by_type(known?.object.type_name.as_str()));
    let address = parked.unwrap_or(futex.word);
    let owners = known.map_or_else(Vec::new, |lock| holders::owners(futex, lock));
    Some(Wait {
        kind: WaitKind::PythonLock,
        text: known.map_or_else(|| without_object(call, address), |lock| text(futex, call, lock, &owners)),
        address: Some(address),
        flavour: call.map(str::to_owned),
        python_object: known.map(|lock| PythonWait {
            type_name: lock.object.type_name.clone(),
            address: lock.object.address,
            path: lock.object.path.clone(),
            state: lock.object.state.clone(),
        }),
        owners,
        ..Wait::default()
    })
}

/// Without symbols a `Lock`, an `RLock` and a `SimpleQueue` look the same from here.
fn without_object(call: Option<&str>, address: u64) -> String {
    match call {
        // It has one, in the object around this lock.
        Some(call @ "RLock.acquire") => format!("{call}, lock {address:#x}, whose owner was not read"),
        Some(call) => format!("{call}, lock {address:#x}, which records no owner"),
        None => format!("lock {address:#x}, which records no owner"),
    }
}

/// `RLock 0x7f… (self._send_lock of Sender), held by Thread-4 (tid 4711), count 2`; `Queue.get on Queue 0x7f… (…), 0 items`.
fn text(futex: &Futex<'_>, call: Option<&str>, lock: &PythonLock, owners: &[Owner]) -> String {
    let object = &lock.object;
    let name = ["threading.", "queue."].iter().find_map(|module| object.type_name.strip_prefix(module));
    let name = name.unwrap_or(&object.type_name);
    let takes = call.is_none_or(|call| call.ends_with("Lock.acquire"));
    let call = if takes { String::new() } else { format!("{} on ", call.unwrap_or_default()) };
    let path = object.path.as_ref().map(|path| format!(" ({path})")).unwrap_or_default();
    let state = object.state.as_ref().map(|state| format!(", {state}")).unwrap_or_default();
    let held = holders::text(futex, lock, owners);
    let held = if held.is_empty() && takes { ", which records no owner".to_owned() } else { held };
    format!("{call}{name} {:#x}{path}{state}{held}", object.address)
}

/// The lock that a parked thread waits for.
fn parked_on(futex: &Futex<'_>) -> Option<u64> {
    let release = futex.blocked.process.python.as_ref()?.release;
    let sp = futex.blocked.thread.registers?.sp;
    let above = futex.word.checked_sub(sp)?;
    let address = futex.at_u64(-8).filter(|&address| address >= 4096)?;
    (release >= (3, 13) && above < STACK_REACH).then_some(address)
}
