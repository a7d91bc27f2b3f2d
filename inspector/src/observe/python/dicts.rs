//! Dictionaries, read many at a time (Objects/dictobject.c, Include/internal/pycore_dict.h).

use std::collections::HashMap;

use super::{
    bytes::{u8_at, u64_at},
    layout::{Attributes, KeysLayout, ObjectLayout},
    reader::Reader,
    strings,
};

/// Most entries of one dictionary, and bytes of its hash index.
const MAX_ENTRIES: u64 = 1 << 20;
const MAX_INDEX: u64 = 16 << 20;

/// Key strings that are read in one round while a name is looked for.
const ROUND: usize = 1024;

/// `sizeof` the head of `PyDictValues` from 3.13 on; before, the values begin at once.
pub(super) const VALUES_HEAD: u64 = 8;

/// One entry; `value` is 0 in a table that instances share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The key's hash; 0 where the table holds strings only and keeps none.
    pub(super) hash: u64,
    pub(super) key: u64,
    pub(super) value: u64,
}

/// A table of keys: where its entries lie, how many and how large they are.
struct Shape {
    entries: u64,
    count: u64,
    with_hash: bool,
}

fn shape(layout: KeysLayout, address: u64, head: &[u8]) -> Option<Shape> {
    let (index, entries, count, with_hash) = match layout {
        KeysLayout::Sized => {
            let size = u64_at(head, 8).filter(|&size| size <= MAX_INDEX)?;
            let width = if size <= 0xff {
                1
            } else if size <= 0xffff {
                2
            } else {
                4
            };
            (size * width, 40, u64_at(head, 32)?, true)
        }
        KeysLayout::Logarithmic => {
            let index = 1u64.checked_shl(u32::from(u8_at(head, 9)?))?;
            (index, 32, u64_at(head, 24)?, u8_at(head, 10)? == 0)
        }
    };
    let sound = index <= MAX_INDEX && count <= MAX_ENTRIES;
    sound.then(|| Shape { entries: address.wrapping_add(entries + index), count, with_hash })
}

/// The entries of the key tables at `addresses`; one that is not sound, or has more than `most`, is left out.
pub(super) fn tables(
    reader: &Reader<'_>,
    layout: &ObjectLayout,
    addresses: impl IntoIterator<Item = u64>,
    most: u64,
) -> HashMap<u64, Vec<Entry>> {
    let addresses = strings::distinct(addresses);
    let heads = reader.many(addresses.iter().map(|&address| (address, 40)));
    let shapes: Vec<(u64, Shape)> = addresses
        .into_iter()
        .zip(heads)
        .filter_map(|(address, head)| Some((address, shape(layout.keys, address, &head?)?)))
        .filter(|(_, shape)| shape.count <= most)
        .collect();
    let size = |shape: &Shape| if shape.with_hash { 24 } else { 16 };
    let bytes = reader.many(
        shapes
            .iter()
            .map(|(_, shape)| (shape.entries, usize::try_from(shape.count).unwrap_or(0) * size(shape))),
    );
    shapes
        .into_iter()
        .zip(bytes)
        .filter_map(|((address, shape), bytes)| {
            if shape.count == 0 {
                return Some((address, Vec::new()));
            }
            let entries = bytes?
                .chunks_exact(size(&shape))
                .filter_map(|entry| {
                    let (hash, at) = if shape.with_hash { (u64_at(entry, 0)?, 8) } else { (0, 0) };
                    Some(Entry { hash, key: u64_at(entry, at)?, value: u64_at(entry, at + 8)? })
                })
                .collect();
            Some((address, entries))
        })
        .collect()
}

/// The entries of the dictionary at `address`, deleted ones included (their value is 0).
pub(super) fn entries(reader: &Reader<'_>, layout: &ObjectLayout, address: u64) -> Option<Vec<Entry>> {
    let head = reader.one(address.wrapping_add(layout.dict_keys as u64), 16)?;
    let (keys, values) = (u64_at(&head, 0)?, u64_at(&head, 8)?);
    let mut entries = tables(reader, layout, [keys], MAX_ENTRIES).remove(&keys)?;
    if values != 0 {
        let start = values.wrapping_add(values_head(layout));
        let values = reader.one(start, entries.len() * 8)?;
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.value = u64_at(&values, index * 8)?;
        }
    }
    Some(entries)
}

/// What lies before the values of a dictionary that shares its keys.
pub(super) fn values_head(layout: &ObjectLayout) -> u64 {
    if matches!(layout.attributes, Attributes::Inline(_)) { VALUES_HEAD } else { 0 }
}

/// For each table, the index of the entry whose key is each of `names` (ASCII).
pub(super) fn find_all<const N: usize>(
    reader: &Reader<'_>,
    layout: &ObjectLayout,
    tables: &[&[Entry]],
    names: [&str; N],
) -> Vec<[Option<usize>; N]> {
    let mut found = vec![[None; N]; tables.len()];
    let length = layout.ascii_text + names.iter().map(|name| name.len()).max().unwrap_or(0);
    let keys: Vec<(usize, usize, u64)> = tables
        .iter()
        .enumerate()
        .flat_map(|(table, entries)| {
            entries.iter().enumerate().map(move |(index, entry)| (table, index, entry.key))
        })
        .filter(|&(_, _, key)| key != 0)
        .collect();
    for round in keys.chunks(ROUND) {
        if found.iter().all(|names| names.iter().all(Option::is_some)) {
            break;
        }
        let texts = reader.prefixes(round.iter().map(|&(_, _, key)| (key, length)));
        for (&(table, index, _), text) in round.iter().zip(texts) {
            let Some(found) = found.get_mut(table) else { continue };
            for (slot, name) in found.iter_mut().zip(names) {
                let same_length = u64_at(&text, layout.string_length) == Some(name.len() as u64);
                let start = layout.ascii_text;
                if same_length && text.get(start..start + name.len()) == Some(name.as_bytes()) {
                    *slot = Some(index);
                }
            }
        }
    }
    found
}

/// The value of the string key `name` in the dictionary at `address`.
pub(super) fn get(reader: &Reader<'_>, layout: &ObjectLayout, address: u64, name: &str) -> Option<u64> {
    let entries = entries(reader, layout, address)?;
    let [index] = find_all(reader, layout, &[&entries], [name]).pop()?;
    entries.get(index?).map(|entry| entry.value).filter(|&value| value != 0)
}
