//! Memory that means harm: whatever it holds, reading it ends, within bounds, without a panic.

use std::cell::Cell;

use proptest::prelude::*;

use super::{debug_offsets, layout::Layout, locate::Found, reader::Reader, snapshot, tables};
use crate::observe::{
    frames::FrameTable,
    helper::protocol::ThreadRequest,
    maps::Maps,
    memory::{MemoryError, Piece, TargetMemory},
};

/// Where the memory lies.
pub(super) const BASE: u64 = 0x7f00_0000_0000;
/// How far it reaches: the same words over and over.
pub(super) const SPAN: u64 = 64 << 20;

/// A few words, repeated over a large stretch of memory, so that nearly every pointer into it leads somewhere.
#[derive(Debug)]
pub(super) struct Echo {
    pub(super) words: Vec<u64>,
    pub(super) calls: Cell<u64>,
}

impl Echo {
    fn byte(&self, address: u64) -> u8 {
        let at = address - BASE;
        let word = self.words[(at / 8) as usize % self.words.len()];
        word.to_le_bytes()[(at % 8) as usize]
    }
}

impl TargetMemory for Echo {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        self.calls.set(self.calls.get() + 1);
        let length = buffer.len();
        let end = address.checked_add(length as u64);
        if address < BASE || end.is_none_or(|end| end > BASE + SPAN) {
            return Err(MemoryError { address, length, errno: libc::EFAULT });
        }
        for (offset, byte) in buffer.iter_mut().enumerate() {
            *byte = self.byte(address + offset as u64);
        }
        Ok(())
    }

    fn read_many(&self, pieces: &mut [Piece]) {
        for piece in pieces {
            if self.read(piece.address, &mut piece.bytes).is_ok() {
                piece.filled = piece.bytes.len();
            }
        }
    }

    fn calls(&self) -> u64 {
        self.calls.get()
    }
}

/// The layout that a runtime of 3.13 describes, offsets small enough for the echo.
fn described(free_threaded: bool) -> Option<Layout> {
    let mut bytes = debug_offsets::COOKIE.to_vec();
    bytes.extend(0x030d_00f0u64.to_le_bytes());
    bytes.extend(u64::from(free_threaded).to_le_bytes());
    // Sizes are 4096, the first offset of each section 16, the next 24 and so on.
    for members in [2u64, 12, 8, 5, 9, 1, 3, 2, 2, 2, 1, 2, 2, 3] {
        bytes.extend(4096u64.to_le_bytes());
        for member in 0..members {
            bytes.extend((16 + member * 8).to_le_bytes());
        }
    }
    bytes.extend([0; 64]);
    // `PyObject`'s size has to be a plausible one.
    let object = (3 + 3 + 13 + 9 + 6 + 10) * 8;
    bytes[object..object + 8].copy_from_slice(&32u64.to_le_bytes());
    debug_offsets::parse(&bytes).map(|table| table.layout)
}

pub(super) fn layouts() -> Vec<Layout> {
    let described = [described(false), described(true)].into_iter().flatten();
    (8..=12).filter_map(|minor| tables::of((3, minor))).chain(described).collect()
}

/// Words that look like what the reader hopes for: pointers into the memory, small numbers, flags, text.
pub(super) fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..SPAN / 8).prop_map(|at| BASE + at * 8),
        4 => (0u64..64).prop_map(|at| BASE + at * 8),
        2 => 0u64..64,
        1 => Just(0),
        1 => any::<u64>(),
        1 => Just(u64::from_le_bytes(*b"code\0\0\0\0")),
        1 => Just(0x6564_6f63_0000_0064),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_memory_holds_reading_it_ends(words in proptest::collection::vec(word(), 1..96), which in 0usize..7, tell in any::<bool>()) {
        let layouts = layouts();
        prop_assert_eq!(layouts.len(), 7);
        let memory = Echo { words, calls: Cell::new(0) };
        let found = Found {
            runtime: BASE,
            version: tell.then_some(0x030b_07f0),
            layouts: layouts.get(which).cloned().into_iter().collect(),
        };
        let maps = Maps::parse(format!("{BASE:x}-{:x} rw-p 00000000 00:00 0\n", BASE + SPAN).as_bytes());
        let threads = [ThreadRequest { tid: 1, ns_tid: 1, ..ThreadRequest::default() }];
        let mut frames = FrameTable::default();
        let read = snapshot::read_runtime(&Reader::new(&memory), 1, &maps, &found, &threads, false, &mut frames);
        if let Ok(read) = read {
            prop_assert!(read.threads.iter().all(|(_, thread)| thread.frames.len() <= 1 << 16));
        }
    }

    /// As above, with an interpreter and thread states that are sound, so that what lies behind them is reached.
    #[test]
    fn behind_sound_thread_states_anything_may_lie(mut words in proptest::collection::vec(word(), 64), which in 0usize..7) {
        // The memory repeats after these words: every structure begins with them, and `next` of the last one is null.
        let layouts = layouts();
        let layout = &layouts[which];
        let mut put = |offset: usize, value: u64| words[offset / 8 % 64] = value;
        put(layout.thread.next, 0);
        put(layout.interpreter.next, 0);
        put(layout.interpreters_head, BASE);
        put(layout.interpreter.threads_head, BASE);
        put(layout.thread.interp, BASE);
        let memory = Echo { words, calls: Cell::new(0) };
        let found = Found { runtime: BASE, version: Some(0x030b_07f0), layouts: vec![layout.clone()] };
        let maps = Maps::parse(format!("{BASE:x}-{:x} rw-p 00000000 00:00 0\n", BASE + SPAN).as_bytes());
        let mut frames = FrameTable::default();
        if let Ok(read) = snapshot::read_runtime(&Reader::new(&memory), 1, &maps, &found, &[], false, &mut frames) {
            prop_assert!(read.runtime.interpreters.len() <= 256);
        }
    }
}
