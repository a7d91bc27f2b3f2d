//! Futex waits, decoded by the shape of the object around the word, not by the command: glibc waits for a mutex with
//! three different commands, and `FUTEX_WAIT` alone covers two of its eleven kinds of wait.
//!
//! Layouts: glibc `sysdeps/nptl/bits/{struct_mutex,struct_rwlock,thread-shared-types}.h` and `nptl/` of 2.28–2.41,
//! 64-bit, the same on x86-64 and aarch64. Commands: `include/uapi/linux/futex.h`.

mod barrier;
mod condvar;
mod gil;
mod holder;
mod join;
pub(super) mod musl;
mod mutex;
mod named;
mod python_lock;
mod rwlock;
mod semaphore;
#[cfg(test)]
mod tests;
mod waitv;

use super::{
    scene::Blocked,
    time::{Clock, Timeout},
};
use crate::model::{Certainty, SharedObject, Wait, WaitKind};

/// `FUTEX_PRIVATE_FLAG`; `FUTEX2_PRIVATE` is the same bit.
const PRIVATE: u64 = 128;
/// `FUTEX_CLOCK_REALTIME`.
const CLOCK_REALTIME: u64 = 256;
/// Largest thread id (`PID_MAX_LIMIT`, `include/linux/threads.h`).
const MAX_TID: u32 = 1 << 22;

/// What a wait does on its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// Sleep while the word holds the expected value.
    Wait,
    /// Lock a priority-inheriting mutex: the kernel reads the owner from the word.
    LockPi,
    /// As [`Self::Wait`], until another thread moves the waiter to the PI mutex that is the second word.
    WaitRequeuePi,
}

/// One thread's futex wait.
struct Futex<'a> {
    blocked: Blocked<'a>,
    /// Address of the word.
    word: u64,
    /// The value that the word must hold for the thread to sleep.
    expected: u32,
    command: Command,
    private: bool,
    timeout: Timeout,
    /// What the word is for other processes that map its memory.
    shared: Option<SharedObject>,
}

/// Decodes a futex wait; an object that no decoder recognises keeps its address and kind `futex`.
pub(super) fn resolve(blocked: &Blocked<'_>) -> Option<Wait> {
    if blocked.name == "futex_waitv" {
        return Some(waitv::resolve(blocked));
    }
    Some(decode(&Futex::new(*blocked)?))
}

fn decode(futex: &Futex<'_>) -> Wait {
    // Who names the lock knows more than a shape, which other libraries' locks can have by chance.
    let decoders: [fn(&Futex<'_>) -> Option<Wait>; 9] = [
        gil::decode,
        python_lock::decode,
        join::decode,
        named::decode,
        mutex::decode,
        rwlock::decode,
        barrier::decode,
        condvar::decode,
        semaphore::decode,
    ];
    if futex.command == Command::WaitRequeuePi {
        return futex.timeout.of(with_object(futex, requeue(futex)));
    }
    // Another C library's objects mean other things by the same numbers.
    let musl: [fn(&Futex<'_>) -> Option<Wait>; 4] =
        [gil::decode, python_lock::decode, named::decode, musl::decode];
    let uses_musl = futex.blocked.scene.uses_musl(futex.blocked.process);
    let decoders = if uses_musl { &musl[..] } else { &decoders[..] };
    let wait = decoders.iter().find_map(|decode| decode(futex)).unwrap_or_else(|| Wait {
        kind: WaitKind::Futex,
        text: format!("futex {:#x}", futex.word),
        address: Some(futex.word),
        ..Wait::default()
    });
    let wait = with_object(futex, wait);
    // The GIL's slices of 5 ms only ask the holder to let go; nothing ends that wait but the lock itself.
    if wait.kind == WaitKind::Gil { wait } else { futex.timeout.of(wait) }
}

/// Whether a waiter was moved to the mutex already is not to be seen: it sleeps in the same place of the kernel
/// (`kernel/futex/requeue.c`), and neither word tells. So the mutex is named, and its holder is nobody's owner.
fn requeue(futex: &Futex<'_>) -> Wait {
    let mutex = futex.blocked.argument(4);
    let holder =
        futex.blocked.thread.saved_u32(mutex).map(|word| word & mutex::TID_MASK).filter(|&tid| tid != 0);
    let held = holder.map_or_else(String::new, |tid| format!(", held by tid {tid}"));
    Wait {
        kind: WaitKind::Futex,
        text: format!("futex {:#x}, to be moved to the PI mutex {mutex:#x}{held}", futex.word),
        address: Some(futex.word),
        flavour: Some("requeue-pi".to_owned()),
        ..Wait::default()
    }
}

/// Where other processes can map the memory too, what lies there is named as all of them know it.
fn with_object(futex: &Futex<'_>, wait: Wait) -> Wait {
    let Some(object) = futex.blocked.process.shared_object(wait.address.unwrap_or(futex.word)) else {
        return wait;
    };
    let text = format!("{}, in shared memory {}+{:#x}", wait.text, object.path, object.offset);
    Wait { text, object: Some(object), ..wait }
}

impl<'a> Futex<'a> {
    /// `None` for a command that does not wait on its first word alone.
    fn new(blocked: Blocked<'a>) -> Option<Self> {
        let word = blocked.argument(0);
        if blocked.name == "futex_wait" {
            let timeout =
                Timeout::absolute_at(&blocked, Clock::from_id(blocked.argument(5)), blocked.argument(4));
            return Some(Self {
                blocked,
                word,
                expected: blocked.argument(1) as u32,
                command: Command::Wait,
                private: blocked.argument(3) & PRIVATE != 0,
                timeout,
                shared: blocked.process.shared_object(word),
            });
        }
        if blocked.name != "futex" {
            return None;
        }
        let operation = blocked.argument(1);
        let realtime = operation & CLOCK_REALTIME != 0;
        let clock = if realtime { Clock::Realtime } else { Clock::Monotonic };
        let at = blocked.argument(3);
        let (command, timeout) = match operation & !(PRIVATE | CLOCK_REALTIME) {
            0 => (Command::Wait, Timeout::relative_at(&blocked, at)),
            9 => (Command::Wait, Timeout::absolute_at(&blocked, clock, at)),
            11 => (Command::WaitRequeuePi, Timeout::absolute_at(&blocked, clock, at)),
            6 => (Command::LockPi, Timeout::absolute_at(&blocked, Clock::Realtime, at)),
            13 => (Command::LockPi, Timeout::absolute_at(&blocked, clock, at)),
            _ => return None,
        };
        let expected = blocked.argument(2) as u32;
        let private = operation & PRIVATE != 0;
        let shared = blocked.process.shared_object(word);
        Some(Self { blocked, word, expected, command, private, timeout, shared })
    }

    /// The saved 32-bit word at `offset` from the futex word.
    fn at(&self, offset: i64) -> Option<u32> {
        self.blocked.thread.saved_u32(self.word.checked_add_signed(offset)?)
    }

    /// The saved 64-bit word at `offset` from the futex word.
    fn at_u64(&self, offset: i64) -> Option<u64> {
        self.blocked.thread.saved_u64(self.word.checked_add_signed(offset)?)
    }

    /// The futex word, if it still holds what the thread sleeps for: memory that has moved on proves nothing.
    fn value(&self) -> Option<u32> {
        self.at(0).filter(|&value| self.command == Command::LockPi || value == self.expected)
    }

    /// The address `back` bytes before the futex word: the beginning of the object.
    fn base(&self, back: u64) -> Option<u64> {
        self.word.checked_sub(back)
    }
}

/// Weaker of two.
const fn likely_unless(proven: bool, certainty: Certainty) -> Certainty {
    if proven { certainty } else { Certainty::Likely }
}
