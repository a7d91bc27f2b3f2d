//! Batched, budgeted reads, and windows that turn pointer chains into few reads.

use std::{cell::Cell, collections::BTreeMap};

use crate::observe::{
    maps::Maps,
    memory::{Piece, TargetMemory},
};

/// Most bytes that one reading of a process copies: a bound on what a hostile target can make us hold.
const BUDGET: usize = 512 << 20;

/// Most pieces that one reading of a process asks for.
const MAX_PIECES: usize = 4 << 20;

/// Reads of one process under a budget.
pub(super) struct Reader<'a> {
    memory: &'a dyn TargetMemory,
    bytes_left: Cell<usize>,
    pieces_left: Cell<usize>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(memory: &'a dyn TargetMemory) -> Self {
        Self { memory, bytes_left: Cell::new(BUDGET), pieces_left: Cell::new(MAX_PIECES) }
    }

    /// Reads of the same process under a budget of its own, for what may not cost the rest.
    pub(super) fn beside(&self, bytes: usize, pieces: usize) -> Self {
        Self { memory: self.memory, bytes_left: Cell::new(bytes), pieces_left: Cell::new(pieces) }
    }

    /// Whether the budget is used up: nothing more will be read.
    pub(super) fn exhausted(&self) -> bool {
        self.bytes_left.get() == 0 || self.pieces_left.get() == 0
    }

    /// Reads `(address, length)` each, in order, in one round. `None`: not all of it could be read, or the budget is
    /// used up.
    pub(super) fn many(&self, wanted: impl IntoIterator<Item = (u64, usize)>) -> Vec<Option<Vec<u8>>> {
        self.pieces(wanted)
            .into_iter()
            .map(|piece| (piece.filled == piece.bytes.len() && piece.filled > 0).then_some(piece.bytes))
            .collect()
    }

    /// Like [`Self::many`], but keeps what could be read of a piece that reaches into unmapped memory.
    pub(super) fn prefixes(&self, wanted: impl IntoIterator<Item = (u64, usize)>) -> Vec<Vec<u8>> {
        self.pieces(wanted)
            .into_iter()
            .map(|mut piece| {
                piece.bytes.truncate(piece.filled);
                piece.bytes
            })
            .collect()
    }

    /// One stretch.
    pub(super) fn one(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        self.many([(address, length)]).pop().flatten()
    }

    /// One pointer.
    pub(super) fn pointer(&self, address: u64) -> Option<u64> {
        super::bytes::u64_at(&self.one(address, 8)?, 0)
    }

    fn pieces(&self, wanted: impl IntoIterator<Item = (u64, usize)>) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = wanted
            .into_iter()
            .map(|(address, length)| {
                // A null page, or what would wrap around, is never worth a call.
                let sound = address >= 4096 && address.checked_add(length as u64).is_some();
                Piece::new(address, if sound && self.spend(length) { length } else { 0 })
            })
            .collect();
        if pieces.iter().all(|piece| !piece.bytes.is_empty()) {
            self.memory.read_many(&mut pieces);
        } else {
            let mut real: Vec<Piece> =
                pieces.iter().filter(|piece| !piece.bytes.is_empty()).cloned().collect();
            self.memory.read_many(&mut real);
            let mut real = real.into_iter();
            for slot in pieces.iter_mut().filter(|piece| !piece.bytes.is_empty()) {
                if let Some(piece) = real.next() {
                    *slot = piece;
                }
            }
        }
        pieces
    }

    fn spend(&self, length: usize) -> bool {
        let (bytes, pieces) = (self.bytes_left.get(), self.pieces_left.get());
        if bytes < length || pieces == 0 {
            self.bytes_left.set(0);
            return false;
        }
        self.bytes_left.set(bytes - length);
        self.pieces_left.set(pieces - 1);
        true
    }
}

/// How much is read before and behind an address that a chain leads to. Objects of one kind that were made one after
/// the other lie near each other; a list that is linked newest first leads downwards.
const BEFORE: u64 = 96 << 10;
const BEHIND: u64 = 32 << 10;

/// Memory around the objects of a pointer chain, so that following it costs one read a neighbourhood, not one an object.
pub(super) struct Windows<'a, 'm> {
    reader: &'a Reader<'m>,
    maps: &'a Maps,
    read: BTreeMap<u64, Vec<u8>>,
}

impl<'a, 'm> Windows<'a, 'm> {
    pub(super) fn new(reader: &'a Reader<'m>, maps: &'a Maps) -> Self {
        Self { reader, maps, read: BTreeMap::new() }
    }

    /// `length` bytes at `address`.
    pub(super) fn get(&mut self, address: u64, length: usize) -> Option<&[u8]> {
        let end = address.checked_add(length as u64)?;
        if self.held(address, end).is_none() {
            let (start, bytes) = self.fetch(address, length, end)?;
            self.read.insert(start, bytes);
        }
        self.held(address, end)
    }

    fn held(&self, address: u64, end: u64) -> Option<&[u8]> {
        let (&start, bytes) = self.read.range(..=address).next_back()?;
        bytes.get(usize::try_from(address - start).ok()?..usize::try_from(end - start).ok()?)
    }

    fn fetch(&self, address: u64, length: usize, end: u64) -> Option<(u64, Vec<u8>)> {
        if let Some(region) = self.maps.at(address).filter(|region| end <= region.end) {
            let start = region.start.max(address.saturating_sub(BEFORE));
            let stop = region.end.min(end.saturating_add(BEHIND));
            if let Some(bytes) = self.reader.one(start, usize::try_from(stop - start).ok()?) {
                return Some((start, bytes));
            }
        }
        Some((address, self.reader.one(address, length)?))
    }
}
