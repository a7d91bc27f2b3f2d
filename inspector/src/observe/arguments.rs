//! Which user memory a blocked system call's arguments point to. Pure; the helper reads what is named here.
//!
//! Sources: the calls' prototypes in `include/linux/syscalls.h`, structure sizes in `include/uapi/linux` (64-bit).

use crate::model::{SavedMemory, Syscall, WaitvWord};

/// Bytes kept on each side of a futex word: enough for every glibc object (a condition variable reaches 44 bytes
/// before its word, a mutex 40 after).
const FUTEX_SIDE: u64 = 64;
/// Most `pollfd` entries kept.
const MAX_POLL: u64 = 1024;
/// Most descriptors of a `select` kept.
const MAX_SELECT: u64 = 8192;
/// Most bytes kept of a socket address (`sizeof(struct sockaddr_storage)`).
const MAX_SOCKADDR: u64 = 128;
/// Bytes of a path kept.
const MAX_PATH: u64 = 256;
/// Most operations of a `semop` kept.
const MAX_SEMOPS: u64 = 64;
/// `sizeof(struct timespec)` and of `struct timeval`.
const TIMESPEC: u64 = 16;
/// Pages are the unit that can be unmapped: a piece that crosses one is cut there, so that a missing page costs only
/// the bytes on it.
const PAGE: u64 = 4096;

/// The stretches of user memory, `(address, length)`, that say what the call waits on and until when. At most a few
/// tens of KiB; empty for a call that keeps nothing in memory and for an architecture that is not known.
pub fn wanted(arch: &str, syscall: &Syscall) -> Vec<(u64, usize)> {
    let mut pieces = Pieces::default();
    let [a0, a1, a2, a3, a4, a5] = syscall.arguments;
    match syscall.name(arch).unwrap_or_default() {
        "futex" => {
            pieces.futex(a0);
            // The mutex that a FUTEX_WAIT_REQUEUE_PI is moved to.
            if a1 & 0x7f == 11 {
                pieces.futex(a4);
            }
            // FUTEX_WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2: the other commands use the argument as a
            // number.
            if matches!(a1 & 0x7f, 0 | 6 | 9 | 11 | 13) {
                pieces.add(a3, TIMESPEC);
            }
        }
        "futex_wait" => {
            pieces.futex(a0);
            pieces.add(a4, TIMESPEC);
        }
        "futex_waitv" => {
            pieces.add(a0, WaitvWord::bytes(a1));
            pieces.add(a3, TIMESPEC);
        }
        "poll" => pieces.add(a0, a1.min(MAX_POLL).saturating_mul(8)),
        "ppoll" => {
            pieces.add(a0, a1.min(MAX_POLL).saturating_mul(8));
            pieces.add(a2, TIMESPEC);
        }
        "select" | "pselect6" => {
            // Bitmaps of longs.
            let bytes = (a0 & 0xffff_ffff).min(MAX_SELECT).div_ceil(64).saturating_mul(8);
            for set in [a1, a2, a3] {
                pieces.add(set, bytes);
            }
            pieces.add(a4, TIMESPEC);
        }
        "nanosleep" => pieces.add(a0, TIMESPEC),
        "clock_nanosleep" => pieces.add(a2, TIMESPEC),
        "epoll_pwait2" => pieces.add(a3, TIMESPEC),
        "connect" => pieces.add(a1, (a2 & 0xffff_ffff).min(MAX_SOCKADDR)),
        "sendto" => pieces.add(a4, (a5 & 0xffff_ffff).min(MAX_SOCKADDR)),
        "recvmmsg" | "mq_timedsend" | "mq_timedreceive" => pieces.add(a4, TIMESPEC),
        "semop" => pieces.add(a1, operations(a2)),
        "semtimedop" => {
            pieces.add(a1, operations(a2));
            pieces.add(a3, TIMESPEC);
        }
        "rt_sigtimedwait" => {
            pieces.add(a0, 8);
            pieces.add(a2, TIMESPEC);
        }
        "io_getevents" | "io_pgetevents" => pieces.add(a4, TIMESPEC),
        // `struct io_uring_getevents_arg`, behind IORING_ENTER_EXT_ARG.
        "io_uring_enter" if a3 & 8 != 0 => pieces.add(a4, 24),
        // `struct flock`.
        "fcntl" => pieces.add(a2, 32),
        "open" => pieces.add(a0, MAX_PATH),
        "openat" | "openat2" => pieces.add(a1, MAX_PATH),
        _ => {}
    }
    pieces.0
}

/// Bytes of a number of `struct sembuf`.
fn operations(count: u64) -> u64 {
    (count & 0xffff_ffff).min(MAX_SEMOPS).saturating_mul(6)
}

/// What the memory that was read leads to: both sides of each word of a `futex_waitv`.
pub fn wanted_next(arch: &str, syscall: &Syscall, saved: &[SavedMemory]) -> Vec<(u64, usize)> {
    let mut pieces = Pieces::default();
    if syscall.name(arch) == Some("futex_waitv") {
        for word in WaitvWord::saved(syscall, saved) {
            pieces.futex(word.address);
        }
    }
    pieces.0
}

/// The futex words that the call waits for; those of a `futex_waitv` from what was read of its array.
pub fn futex_words(arch: &str, syscall: &Syscall, saved: &[SavedMemory]) -> Vec<u64> {
    match syscall.name(arch) {
        Some("futex" | "futex_wait") => vec![syscall.arguments[0]],
        Some("futex_waitv") => WaitvWord::saved(syscall, saved).iter().map(|word| word.address).collect(),
        _ => Vec::new(),
    }
}

#[derive(Default)]
struct Pieces(Vec<(u64, usize)>);

impl Pieces {
    /// The object around a futex word. The word and what follows stay one piece where a page boundary allows.
    fn futex(&mut self, word: u64) {
        if word == 0 {
            return;
        }
        let before = word.min(FUTEX_SIDE);
        self.add(word - before, before);
        self.add(word, FUTEX_SIDE);
    }

    fn add(&mut self, address: u64, length: u64) {
        if address == 0 || length == 0 || address.checked_add(length).is_none() {
            return;
        }
        // A small structure across a page boundary is kept whole: half of it says nothing.
        if length <= TIMESPEC {
            self.0.push((address, length as usize));
            return;
        }
        let end = address + length;
        let mut start = address;
        while start < end {
            let stop = end.min((start / PAGE + 1).saturating_mul(PAGE));
            self.0.push((start, (stop - start) as usize));
            start = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(name: &str, arguments: [u64; 6]) -> Syscall {
        let number = syscalls::x86_64::Sysno::iter().find(|call| call.name() == name).unwrap().id() as u32;
        Syscall { number, arguments, restarted: false }
    }

    #[test]
    fn futex_keeps_both_sides_of_the_word_and_the_timeout() {
        let pieces = wanted("x86_64", &call("futex", [0x7000_0100, 0x189, 0, 0x7fff_0010, 0, 0]));
        assert_eq!(pieces, [(0x7000_00c0, 64), (0x7000_0100, 64), (0x7fff_0010, 16)]);
    }

    #[test]
    fn a_wake_count_is_not_taken_for_a_timeout() {
        let pieces = wanted("x86_64", &call("futex", [0x7000_0100, 3 | 128, 1, 0x7fff_ffff, 0, 0]));
        assert_eq!(pieces.len(), 2);
    }

    #[test]
    fn a_page_boundary_cuts() {
        let pieces = wanted("x86_64", &call("futex", [0x7000_0ff0, 128, 2, 0, 0, 0]));
        assert_eq!(pieces, [(0x7000_0fb0, 64), (0x7000_0ff0, 16), (0x7000_1000, 48)]);
    }

    #[test]
    fn every_word_of_a_waitv_is_kept_with_its_surroundings() {
        let syscall = call("futex_waitv", [0x7000_0ff0, 2, 0, 0, 0, 0]);
        assert_eq!(
            wanted("x86_64", &syscall),
            [(0x7000_0ff0, 16), (0x7000_1000, 32)],
            "the array, on two pages"
        );
        let array: Vec<u8> = [2, 0x6000_0100, 2, 0, 0x5000_0200, 2]
            .iter()
            .flat_map(|&word: &u64| word.to_le_bytes())
            .collect();
        let (first, second) = array.split_at(16);
        let piece = |address, bytes: &[u8]| SavedMemory { address, bytes: bytes.to_vec() };
        let saved = [piece(0x7000_1000, second), piece(0x7000_0ff0, first)];
        let next = wanted_next("x86_64", &syscall, &saved);
        assert_eq!(next, [(0x6000_00c0, 64), (0x6000_0100, 64), (0x5000_01c0, 64), (0x5000_0200, 64)]);
        assert_eq!(futex_words("x86_64", &syscall, &saved), [0x6000_0100, 0x5000_0200]);
        assert!(wanted_next("x86_64", &syscall, &[]).is_empty());
    }

    #[test]
    fn the_same_call_has_another_number_elsewhere() {
        let aarch64 = Syscall { number: 98, arguments: [0x1000, 128, 2, 0, 0, 0], restarted: false };
        assert_eq!(wanted("aarch64", &aarch64).first(), Some(&(0x0fc0, 64)));
        assert!(wanted("riscv64", &aarch64).is_empty());
    }

    proptest! {
        #[test]
        fn a_hostile_array_is_bounded(count: u64, bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let syscall = call("futex_waitv", [0x1000, count, 0, 0, 0, 0]);
            let saved = [SavedMemory { address: 0x1000, bytes }];
            prop_assert!(wanted_next("x86_64", &syscall, &saved).len() <= 4 * WaitvWord::MOST);
        }

        #[test]
        fn bounded_whatever_the_arguments(number in 0u32..500, arguments: [u64; 6]) {
            for arch in ["x86_64", "aarch64"] {
                let pieces = wanted(arch, &Syscall { number, arguments, restarted: false });
                prop_assert!(pieces.len() <= 64);
                for (address, length) in pieces {
                    prop_assert!(length > 0 && length <= 4096);
                    prop_assert!(address.checked_add(length as u64).is_some());
                }
            }
        }
    }
}
