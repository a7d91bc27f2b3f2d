//! How much of a frame's evaluation stack is certainly in use. The stack pointer itself is in a register while the frame
//! runs, and slots keep old values; but code inside a `with` or `try` runs on top of at least what the stack held when the
//! block was entered, and the frame or its code says how much that was.

use super::super::bytes::{i32_at, u32_at};

/// `CO_MAXBLOCKS` (Include/cpython/code.h).
const MAX_BLOCKS: usize = 20;

/// Bytes of `f_iblock`, `f_executing` or `f_state`, and `f_blockstack`, until 3.10.
pub(super) const BLOCKS: usize = 8 + MAX_BLOCKS * BLOCK;

/// `sizeof(PyTryBlock)`: type, handler, level (Include/cpython/frameobject.h).
const BLOCK: usize = 12;

/// Most entries of the stack that are looked at.
const MAX_DEPTH: usize = 64;

/// Until 3.10: the highest level of an open block. `bytes` begin at `f_iblock`.
pub(super) fn by_blocks(bytes: &[u8]) -> usize {
    let count = u32_at(bytes, 0).map_or(0, |count| count as usize);
    if count > MAX_BLOCKS {
        return 0;
    }
    let levels = (0..count).filter_map(|index| usize::try_from(i32_at(bytes, 8 + index * BLOCK + 8)?).ok());
    levels.max().filter(|&level| level <= MAX_DEPTH).unwrap_or(0)
}

/// From 3.11 on: the depth that the exception table gives for `position`, bytes from the beginning of the byte code
/// (Objects/exception_handling_notes.txt: start, length, target, and depth with a flag; entries do not overlap).
pub(super) fn by_exception_table(table: &[u8], position: i64) -> usize {
    let Ok(unit) = u64::try_from(position / 2) else { return 0 };
    let mut bytes = table.iter().copied();
    while let (Some(start), Some(length), Some(_target), Some(depth)) =
        (varint(&mut bytes), varint(&mut bytes), varint(&mut bytes), varint(&mut bytes))
    {
        if (start..start.saturating_add(length)).contains(&unit) {
            return usize::try_from(depth >> 1).ok().filter(|&depth| depth <= MAX_DEPTH).unwrap_or(0);
        }
    }
    0
}

/// Six bits a byte, highest first; bit 6 says that more follow, bit 7 marks the first byte of an entry.
fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0_u64;
    for _byte in 0..6 {
        let byte = bytes.next()?;
        value = value << 6 | u64::from(byte & 63);
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_exception_table_says_how_deep_a_with_block_stands() {
        // `with lock: g()` of CPython 3.12: units 3..14 → 23 at depth 1, 23..28 → 32 at depth 3, both with the flag.
        let table = [0x83, 11, 23, 3, 0x97, 5, 32, 7];
        assert_eq!(by_exception_table(&table, 4), 0, "still in BEFORE_WITH: the lock is not taken yet");
        assert_eq!(by_exception_table(&table, 6), 1);
        assert_eq!(by_exception_table(&table, 27), 1);
        assert_eq!(by_exception_table(&table, 28), 0, "__exit__ is being called");
        assert_eq!(by_exception_table(&table, 46), 3);
        assert_eq!(by_exception_table(&table, -2), 0);
    }

    #[test]
    fn blocks_that_are_closed_do_not_count() {
        let mut bytes = vec![0; BLOCKS];
        bytes[0] = 1;
        bytes[8 + 8] = 2;
        bytes[8 + BLOCK + 8] = 5;
        assert_eq!(by_blocks(&bytes), 2);
        bytes[0] = 21;
        assert_eq!(by_blocks(&bytes), 0);
    }

    proptest! {
        #[test]
        fn hostile_tables_end_within_bounds(table in proptest::collection::vec(any::<u8>(), 0..400), position: i64) {
            prop_assert!(by_exception_table(&table, position) <= MAX_DEPTH);
            prop_assert!(by_blocks(&table) <= MAX_DEPTH);
        }
    }
}
