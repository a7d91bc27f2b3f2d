//! Line numbers out of CPython's three packed tables.

use super::layout::LineTable;

/// The line of the instruction at byte `position`; `None` where the table says that it has none, or is broken. A negative
/// position is a frame that has not begun.
pub(super) fn line(kind: LineTable, table: &[u8], first_line: i32, position: i64) -> Option<u32> {
    let line = if position < 0 {
        Some(first_line)
    } else {
        match kind {
            LineTable::Lnotab => Some(lnotab(table, first_line, position)),
            LineTable::Ranges => ranges(table, first_line, position),
            LineTable::Locations => locations(table, first_line, position),
        }
    };
    line.and_then(|line| u32::try_from(line).ok())
}

/// Until 3.9: pairs of an unsigned address step and a signed line step (Objects/lnotab_notes.txt).
fn lnotab(table: &[u8], first_line: i32, position: i64) -> i32 {
    let mut address = 0i64;
    let mut line = first_line;
    for pair in table.chunks_exact(2) {
        let &[step, lines] = pair else { break };
        address += i64::from(step);
        if address > position {
            break;
        }
        line = line.wrapping_add(i32::from(lines.cast_signed()));
    }
    line
}

/// 3.10: pairs of a range's length and its line step; -128 is a range without a line (PEP 626).
fn ranges(table: &[u8], first_line: i32, position: i64) -> Option<i32> {
    let mut end = 0i64;
    let mut line = first_line;
    for pair in table.chunks_exact(2) {
        let &[length, step] = pair else { break };
        let step = step.cast_signed();
        if step != -128 {
            line = line.wrapping_add(i32::from(step));
        }
        end += i64::from(length);
        if position < end {
            return (step != -128).then_some(line);
        }
    }
    None
}

/// From 3.11: entries of a code and a length in code units, then what the code says (PEP 657, Objects/locations.md).
fn locations(table: &[u8], first_line: i32, position: i64) -> Option<i32> {
    let mut bytes = table.iter().copied();
    let mut end = 0i64;
    let mut line = first_line;
    while let Some(first) = bytes.next() {
        let code = (first >> 3) & 15;
        let length = i64::from(first & 7) + 1;
        let mut has_line = true;
        match code {
            // Short forms: the columns in one byte.
            0..=9 => {
                bytes.next()?;
            }
            // The line step is in the code, the columns in two bytes.
            10..=12 => {
                line = line.wrapping_add(i32::from(code) - 10);
                bytes.next()?;
                bytes.next()?;
            }
            13 => line = line.wrapping_add(signed(varint(&mut bytes)?)),
            14 => {
                line = line.wrapping_add(signed(varint(&mut bytes)?));
                for _end_line_and_columns in 0..3 {
                    varint(&mut bytes)?;
                }
            }
            _ => has_line = false,
        }
        end += length * 2;
        if position < end {
            return has_line.then_some(line);
        }
    }
    None
}

/// Six bits a byte, lowest first; bit 6 says that more follow.
fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..32).step_by(6) {
        let byte = bytes.next()?;
        value |= u32::from(byte & 63).wrapping_shl(shift);
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

/// The sign is in the lowest bit.
fn signed(value: u32) -> i32 {
    let magnitude = (value >> 1).cast_signed();
    if value & 1 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lnotab_steps_forward_and_back() {
        // (0, +1) (8, +2) (10, -1)
        let table = [0, 1, 8, 2, 10, 255];
        let at = |position| line(LineTable::Lnotab, &table, 10, position);
        assert_eq!(at(-1), Some(10));
        assert_eq!(at(0), Some(11));
        assert_eq!(at(7), Some(11));
        assert_eq!(at(8), Some(13));
        assert_eq!(at(400), Some(12));
    }

    #[test]
    fn ranges_without_a_line_have_none() {
        let table = [4, 1, 2, 128, 6, 255];
        let at = |position| line(LineTable::Ranges, &table, 10, position);
        assert_eq!(at(0), Some(11));
        assert_eq!(at(4), None);
        assert_eq!(at(6), Some(10));
        assert_eq!(at(12), None);
    }

    proptest! {
        #[test]
        fn hostile_tables_never_panic(table in proptest::collection::vec(any::<u8>(), 0..400), first: i32, position: i64) {
            for kind in [LineTable::Lnotab, LineTable::Ranges, LineTable::Locations] {
                let _ = line(kind, &table, first, position);
            }
        }
    }
}
