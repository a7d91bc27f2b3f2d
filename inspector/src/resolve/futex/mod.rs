//! Futex waits, decoded by the shape of the object around the word, not by the command: glibc waits for a mutex with
//! three different commands, and `FUTEX_WAIT` alone covers two of its eleven kinds of wait.
//!
//! Layouts: glibc `sysdeps/nptl/bits/{struct_mutex,struct_rwlock,thread-shared-types}.h` and `nptl/` of 2.28–2.41,
//! 64-bit, the same on x86-64 and aarch64. Commands: `include/uapi/linux/futex.h`.

mod condvar;
mod gil;
mod join;
pub(super) mod musl;
mod mutex;
mod python_lock;
mod rwlock;
mod semaphore;
#[cfg(test)]
mod tests;

use super::{
    scene::Blocked,
    time::{Clock, Timeout},
};
use crate::model::{Certainty, Owner, Thread, Wait, WaitKind};

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
}

/// Decodes a futex wait; an object that no decoder recognises keeps its address and kind `futex`.
pub(super) fn resolve(blocked: &Blocked<'_>) -> Option<Wait> {
    let Some(futex) = Futex::new(*blocked) else {
        return (blocked.name == "futex_waitv").then(|| several(blocked));
    };
    let decoders: [fn(&Futex<'_>) -> Option<Wait>; 7] = [
        gil::decode,
        python_lock::decode,
        join::decode,
        mutex::decode,
        rwlock::decode,
        condvar::decode,
        semaphore::decode,
    ];
    // Another C library's objects mean other things by the same numbers.
    let musl: [fn(&Futex<'_>) -> Option<Wait>; 3] = [gil::decode, python_lock::decode, musl::decode];
    let decoders = if blocked.scene.uses_musl(blocked.process) { &musl[..] } else { &decoders[..] };
    let wait = decoders.iter().find_map(|decode| decode(&futex)).unwrap_or_else(|| Wait {
        kind: WaitKind::Futex,
        text: format!("futex {:#x}", futex.word),
        address: Some(futex.word),
        ..Wait::default()
    });
    // The GIL's slices of 5 ms only ask the holder to let go; nothing ends that wait but the lock itself.
    Some(if wait.kind == WaitKind::Gil { wait } else { futex.timeout.of(wait) })
}

fn several(blocked: &Blocked<'_>) -> Wait {
    let timeout = Timeout::absolute_at(blocked, Clock::from_id(blocked.argument(4)), blocked.argument(3));
    timeout.of(Wait {
        kind: WaitKind::Futex,
        text: format!("any of {} futexes", blocked.argument(1)),
        ..Wait::default()
    })
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
            // WAIT_BITSET, WAIT_REQUEUE_PI.
            9 | 11 => (Command::Wait, Timeout::absolute_at(&blocked, clock, at)),
            6 => (Command::LockPi, Timeout::absolute_at(&blocked, Clock::Realtime, at)),
            13 => (Command::LockPi, Timeout::absolute_at(&blocked, clock, at)),
            _ => return None,
        };
        let expected = blocked.argument(2) as u32;
        Some(Self { blocked, word, expected, command, private: operation & PRIVATE != 0, timeout })
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

    /// The live thread that user memory calls `tid`: of this process; for an object that several processes share also
    /// of another captured one, outside PID namespaces, where thread ids mean the same everywhere.
    fn live(&self, tid: u32) -> Option<(u32, &'a Thread)> {
        if tid == 0 || tid > MAX_TID {
            return None;
        }
        let process = self.blocked.process;
        if let Some(thread) = self.blocked.scene.thread_by_ns_tid(process, tid) {
            return Some((process.pid, thread));
        }
        if self.private || process.ns_pids.len() > 1 {
            return None;
        }
        let (other, thread) = self.blocked.scene.thread(tid)?;
        (other.ns_pids.len() <= 1).then_some((other.pid, thread))
    }

    /// A thread of another process is likely only: nothing tells that it maps the same memory, and a word in memory
    /// that is not shared can name anybody.
    fn owner(&self, pid: u32, thread: &Thread, evidence: String) -> Owner {
        let certainty = likely_unless(pid == self.blocked.process.pid, self.blocked.certainty());
        Owner { pid, tid: Some(thread.tid), certainty, evidence }
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
