//! Python strings and byte strings, read many at a time.

use std::collections::HashMap;

use super::{
    bytes::{u32_at, u64_at},
    layout::ObjectLayout,
    reader::Reader,
};

/// Longest string that is read, in characters; the rest is cut off.
const MAX_CHARACTERS: u64 = 4096;

/// Largest byte string that is read: a line table of a function of a million instructions.
const MAX_BYTES: u64 = 4 << 20;

/// Read at first: the header and the text of most strings.
const HEAD: usize = 160;

/// Like [`HEAD`], for byte strings.
const BYTES_HEAD: usize = 512;

/// Where a string's characters lie.
struct Text {
    offset: u64,
    length: u64,
    width: usize,
    /// The text lies behind a pointer at `offset` instead (a subclass of `str`).
    indirect: bool,
}

fn text(head: &[u8], layout: &ObjectLayout) -> Option<Text> {
    let length = u64_at(head, layout.string_length)?.min(MAX_CHARACTERS);
    let state = u32_at(head, layout.string_state)? >> layout.string_kind_bit;
    let (kind, compact, ascii) = (state & 7, state & 8 != 0, state & 16 != 0);
    let width = match kind {
        1 | 2 | 4 => kind as usize,
        _ => return None,
    };
    let offset = if ascii && compact { layout.ascii_text } else { layout.other_text } as u64;
    Some(Text { offset, length, width, indirect: !compact })
}

fn decode(bytes: &[u8], width: usize) -> String {
    let character = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    bytes
        .chunks_exact(width)
        .map(|unit| match *unit {
            [byte] => char::from(byte),
            [low, high] => character(u32::from(u16::from_le_bytes([low, high]))),
            [a, b, c, d] => character(u32::from_le_bytes([a, b, c, d])),
            _ => char::REPLACEMENT_CHARACTER,
        })
        .collect()
}

/// The strings at `addresses`; one that is not readable or no string is left out.
pub(super) fn strings(
    reader: &Reader<'_>,
    layout: &ObjectLayout,
    addresses: impl IntoIterator<Item = u64>,
) -> HashMap<u64, String> {
    let addresses = distinct(addresses);
    let heads = reader.prefixes(addresses.iter().map(|&address| (address, HEAD)));
    let mut done = HashMap::with_capacity(addresses.len());
    let mut rest: Vec<(u64, u64, usize, usize)> = Vec::new();
    for (&address, head) in addresses.iter().zip(&heads) {
        let Some(text) = text(head, layout) else { continue };
        let length = text.length as usize * text.width;
        let start = text.offset as usize;
        if text.indirect {
            if let Some(pointer) = u64_at(head, start) {
                rest.push((address, pointer, length, text.width));
            }
        } else if let Some(bytes) = head.get(start..start + length) {
            done.insert(address, decode(bytes, text.width));
        } else {
            rest.push((address, address.wrapping_add(text.offset), length, text.width));
        }
    }
    let bytes = reader.many(rest.iter().map(|&(_, text, length, _)| (text, length)));
    for ((address, _, length, width), bytes) in rest.into_iter().zip(bytes) {
        match bytes {
            Some(bytes) => done.insert(address, decode(&bytes, width)),
            None if length == 0 => done.insert(address, String::new()),
            None => None,
        };
    }
    done
}

/// The byte strings at `addresses`; one that is not readable, or too large, is left out.
pub(super) fn byte_strings(
    reader: &Reader<'_>,
    layout: &ObjectLayout,
    addresses: impl IntoIterator<Item = u64>,
) -> HashMap<u64, Vec<u8>> {
    let addresses = distinct(addresses);
    let heads = reader.prefixes(addresses.iter().map(|&address| (address, BYTES_HEAD)));
    let mut done = HashMap::with_capacity(addresses.len());
    let mut rest: Vec<(u64, usize)> = Vec::new();
    for (&address, head) in addresses.iter().zip(&heads) {
        let Some(length) = u64_at(head, layout.bytes_length).filter(|&length| length <= MAX_BYTES) else {
            continue;
        };
        let (start, length) = (layout.bytes_text, length as usize);
        match start.checked_add(length).and_then(|end| head.get(start..end)) {
            Some(bytes) => {
                done.insert(address, bytes.to_vec());
            }
            None => rest.push((address, length)),
        }
    }
    let start = layout.bytes_text as u64;
    let bytes = reader.many(rest.iter().map(|&(address, length)| (address.wrapping_add(start), length)));
    done.extend(rest.iter().zip(bytes).filter_map(|(&(address, _), bytes)| Some((address, bytes?))));
    done
}

/// Each address once, ascending.
pub(super) fn distinct(addresses: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut addresses: Vec<u64> = addresses.into_iter().filter(|&address| address != 0).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
