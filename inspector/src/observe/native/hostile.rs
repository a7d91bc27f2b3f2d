//! What a hostile target can show: noise for a stack, damaged files. Nothing panics, loops or grows without bound.

use std::{cell::Cell, fs, io::Write as _, rc::Rc, sync::OnceLock};

use proptest::prelude::*;

use super::{
    WalkOptions, Walker,
    image::{Image, Source},
    row, symbols,
};
use crate::{
    model::{Registers, StackEnd},
    observe::{
        frames::FrameTable,
        helper::protocol::ThreadRequest,
        maps::Maps,
        memory::{MemoryError, Piece, TargetMemory},
    },
};

/// Memory that holds, everywhere, what misleads an unwinder most: code addresses, stack addresses, and noise.
struct Noise {
    seed: u64,
    code: Vec<(u64, u64)>,
    stack: u64,
    calls: Cell<u64>,
}

impl Noise {
    fn word(&self, address: u64) -> u64 {
        let mixed = (address ^ self.seed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let chosen = (mixed >> 8) as usize;
        match mixed % 4 {
            0 | 1 => self
                .code
                .get(chosen % self.code.len())
                .map_or(0, |(start, end)| start + (mixed >> 16) % (end - start)),
            2 => self.stack.wrapping_add((mixed >> 16) % 65536),
            _ => mixed,
        }
    }

    fn fill(&self, address: u64, bytes: &mut [u8]) {
        for (index, byte) in bytes.iter_mut().enumerate() {
            let at = address.wrapping_add(index as u64);
            *byte = self.word(at & !7).to_le_bytes().get((at & 7) as usize).copied().unwrap_or_default();
        }
    }
}

impl TargetMemory for Noise {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        self.calls.set(self.calls.get() + 1);
        self.fill(address, buffer);
        Ok(())
    }

    fn read_many(&self, pieces: &mut [Piece]) {
        self.calls.set(self.calls.get() + 1);
        for piece in pieces {
            self.fill(piece.address, &mut piece.bytes);
            piece.filled = piece.bytes.len();
        }
    }

    fn calls(&self) -> u64 {
        self.calls.get()
    }
}

fn own_code() -> Vec<(u64, u64)> {
    let maps = Maps::read(std::process::id()).expect("own maps");
    maps.iter()
        .filter(|mapping| mapping.executable && mapping.has_file())
        .map(|mapping| (mapping.start, mapping.end))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_stack_of_noise_ends(seed in any::<u64>(), fp in any::<u64>(), sp_at in 0..3_usize) {
        let code = own_code();
        let stack = 0x7fff_0000_0000;
        let memory = Noise { seed, code, stack, calls: Cell::new(0) };
        let threads: Vec<ThreadRequest> = (0..20)
            .map(|tid| {
                let sp = [stack + 512, seed, u64::MAX - 7].get(sp_at).copied().unwrap_or_default();
                let pc = memory.word(u64::from(tid) * 8);
                let fp = if tid % 2 == 0 { fp } else { stack + 4096 };
                ThreadRequest { tid, registers: Some(Registers { pc, sp, fp, lr: seed }), ..ThreadRequest::default() }
            })
            .collect();
        let mut frames = FrameTable::default();
        let mut walker = Walker::new(Rc::new(memory), std::process::id(), &WalkOptions::default()).expect("own maps");
        let read = walker.walk(&threads, &|_| None, &mut frames);
        prop_assert_eq!(read.threads.len(), 20);
        for (_, stack) in &read.threads {
            prop_assert!(!stack.frames.is_empty() && stack.frames.len() <= 512);
            prop_assert!(stack.end != StackEnd::NotWalked);
        }
    }
}

/// A small real image.
fn real_image() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| fs::read("/bin/true").expect("/bin/true"))
}

/// Reads a damaged image as the walk would, and asks for rows and names all over it.
fn use_image(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("file");
    file.write_all(bytes).expect("written");
    let file = file.reopen().expect("opened");
    let Ok(image) = Image::read(&Source::File(&file), 1 << 30) else { return };
    if let Ok(tables) = &image.tables {
        for svma in (0..1 << 15).step_by(61) {
            row::look_up(tables, svma).ok();
        }
    }
    symbols::in_file(&symbols::symbolizer(), &file, &[0, 0x1000, 0x2345, 0x4000, u64::MAX]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_harms_nothing(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in prop::option::of(any::<prop::sample::Index>()),
        at_headers in any::<bool>(),
    ) {
        let mut bytes = real_image().to_vec();
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let length = if at_headers { bytes.len().min(1024) } else { bytes.len() };
        for (index, value) in damage {
            if length > 0 {
                bytes[index.index(length)] = value;
            }
        }
        use_image(&bytes);
    }

    #[test]
    fn damaged_unwind_tables_harm_nothing(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60),
    ) {
        let mut file = tempfile::NamedTempFile::new().expect("file");
        file.write_all(real_image()).expect("written");
        let image = Image::read(&Source::File(file.as_file()), 1 << 30).expect("a real image");
        let mut tables = image.tables.expect("with tables");
        let mut frames = tables.frames.to_vec();
        let mut index = tables.index.to_vec();
        for (at, value) in damage {
            let place = at.index(frames.len());
            frames[place] = value;
            let place = at.index(index.len());
            index[place] ^= value & 1;
        }
        tables.frames = frames.into();
        tables.index = index.into();
        for svma in (0..1 << 15).step_by(29) {
            row::look_up(&tables, svma).ok();
        }
    }
}

#[test]
fn a_table_longer_than_its_room_is_refused() {
    let mut file = tempfile::NamedTempFile::new().expect("file");
    file.write_all(real_image()).expect("written");
    let read = |room| Image::read(&Source::File(file.as_file()), room).expect("headers are read");
    let whole = read(1 << 30).table_bytes();
    assert_eq!(read(whole).table_bytes(), whole);
    // Not even the index has room; the index has, and with it the frames have not.
    for room in [16, whole - 1] {
        assert!(read(room).tables.expect_err("no room").contains("too long"));
    }
}

#[test]
fn an_endless_expression_ends() {
    // DW_OP_lit0, DW_OP_skip -4: a jump back to itself.
    let row = row::Computed {
        cfa: row::Place::Expression(vec![0x30, 0x2f, 0xfc, 0xff]),
        frame: row::Saved::Unchanged,
        back: row::Saved::At(-8),
        encoding: gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 },
    };
    let result = super::expression::step(&row, Registers::default(), |_| Ok(0));
    assert!(result.is_err());
}
