//! Dictionaries and instance attributes, read many at a time (Objects/dictobject.c, Include/internal/pycore_dict.h).

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

/// Most entries of a dictionary that holds one object's attributes: a `Thread` has some fifteen.
const MAX_ATTRIBUTES: u64 = 1024;

/// Key strings that are read in one round while a name is looked for.
const ROUND: usize = 1024;

/// `sizeof` the head of `PyDictValues` from 3.13 on; before, the values begin at once.
const VALUES_HEAD: u64 = 8;

/// `Py_TPFLAGS_INLINE_VALUES` and `Py_TPFLAGS_MANAGED_DICT` (Include/object.h).
const INLINE_VALUES: u64 = 1 << 2;
const MANAGED_DICT: u64 = 1 << 4;

/// Before an object that has a managed dictionary: at most four words.
const PREHEADER: u64 = 32;

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
fn tables(
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

fn values_head(layout: &ObjectLayout) -> u64 {
    if matches!(layout.attributes, Attributes::Inline(_)) { VALUES_HEAD } else { 0 }
}

/// For each table, the index of the entry whose key is each of `names` (ASCII).
fn find_all<const N: usize>(
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

/// Where one instance keeps its attributes.
#[derive(Clone, Copy, Debug)]
enum Place {
    Dictionary(u64),
    /// Values beside a table of keys that all instances share.
    Values {
        keys: u64,
        values: u64,
    },
}

/// The attributes `names` of each of `objects`, as addresses of their values. An object that keeps them in slots, or
/// cannot be read, has none.
pub(super) fn attributes<const N: usize>(
    reader: &Reader<'_>,
    layout: &ObjectLayout,
    objects: &[u64],
    names: [&str; N],
) -> Vec<[Option<u64>; N]> {
    let places = places(reader, layout, objects);
    let places = through_dictionaries(reader, layout, places);
    let tables = tables(reader, layout, places.iter().filter_map(|place| Some((*place)?.0)), MAX_ATTRIBUTES);
    let addresses: Vec<u64> = tables.keys().copied().collect();
    let slices: Vec<&[Entry]> = tables.values().map(Vec::as_slice).collect();
    let indices: HashMap<u64, [Option<usize>; N]> =
        addresses.into_iter().zip(find_all(reader, layout, &slices, names)).collect();
    let mut found = vec![[None; N]; objects.len()];
    let mut wanted: Vec<(usize, usize, u64)> = Vec::new();
    for (object, place) in places.iter().enumerate() {
        let Some((keys, values)) = *place else { continue };
        let (Some(table), Some(indices)) = (tables.get(&keys), indices.get(&keys)) else { continue };
        for (name, index) in indices.iter().enumerate() {
            let Some(index) = *index else { continue };
            if values != 0 {
                wanted.push((object, name, values.wrapping_add(index as u64 * 8)));
            } else if let (Some(found), Some(entry)) = (found.get_mut(object), table.get(index))
                && let Some(slot) = found.get_mut(name)
            {
                *slot = Some(entry.value).filter(|&value| value != 0);
            }
        }
    }
    let values = reader.many(wanted.iter().map(|&(_, _, address)| (address, 8)));
    for ((object, name, _), value) in wanted.into_iter().zip(values) {
        if let Some(slot) = found.get_mut(object).and_then(|found| found.get_mut(name)) {
            *slot = value.and_then(|value| u64_at(&value, 0)).filter(|&value| value != 0);
        }
    }
    found
}

/// What of a type tells where its instances keep their attributes.
struct Instances {
    flags: u64,
    dictionary: u64,
    size: u64,
    keys: u64,
}

fn places(reader: &Reader<'_>, layout: &ObjectLayout, objects: &[u64]) -> Vec<Option<Place>> {
    let length = PREHEADER as usize + layout.type_ + 8;
    let heads = reader.many(objects.iter().map(|&object| (object.wrapping_sub(PREHEADER), length)));
    let type_of = |head: &[u8]| u64_at(head, PREHEADER as usize + layout.type_);
    let types = strings::distinct(heads.iter().flatten().filter_map(|head| type_of(head)));
    let bodies = reader.many(types.iter().map(|&type_| (type_, layout.type_cached_keys + 8)));
    let types: HashMap<u64, Instances> = types
        .into_iter()
        .zip(bodies)
        .filter_map(|(type_, body)| {
            let body = body?;
            Some((
                type_,
                Instances {
                    flags: u64_at(&body, layout.type_flags)?,
                    dictionary: u64_at(&body, layout.type_dictoffset)?,
                    size: u64_at(&body, layout.type_basicsize)?,
                    keys: u64_at(&body, layout.type_cached_keys)?,
                },
            ))
        })
        .collect();
    let mut places: Vec<Option<Place>> = Vec::with_capacity(objects.len());
    let mut pointers: Vec<(usize, u64)> = Vec::new();
    for (index, (&object, head)) in objects.iter().zip(&heads).enumerate() {
        let known = head.as_ref().and_then(|head| Some((head, types.get(&type_of(head)?)?)));
        places.push(known.and_then(|(head, type_)| {
            if layout.attributes != Attributes::Dictionary && type_.flags & MANAGED_DICT != 0 {
                return managed(layout.attributes, type_, object, head);
            }
            // A negative offset belongs to objects of variable size: no thread is one.
            if (1..1 << 16).contains(&type_.dictionary) {
                pointers.push((index, object.wrapping_add(type_.dictionary)));
            }
            None
        }));
    }
    let dictionaries = reader.many(pointers.iter().map(|&(_, address)| (address, 8)));
    for ((index, _), dictionary) in pointers.into_iter().zip(dictionaries) {
        if let Some(place) = places.get_mut(index) {
            *place = dictionary.and_then(|bytes| u64_at(&bytes, 0)).map(Place::Dictionary);
        }
    }
    places
}

/// Where an object with a managed dictionary keeps its attributes; `head` begins [`PREHEADER`] bytes before the object.
fn managed(attributes: Attributes, type_: &Instances, object: u64, head: &[u8]) -> Option<Place> {
    let values = |values: u64| Place::Values { keys: type_.keys, values };
    Some(match attributes {
        Attributes::Dictionary => return None,
        Attributes::Pair => match u64_at(head, 0)? {
            0 => Place::Dictionary(u64_at(head, 8)?),
            pointer => values(pointer),
        },
        Attributes::Tagged => match u64_at(head, 8)? {
            pointer if pointer & 1 == 1 => values(pointer.wrapping_add(1)),
            pointer => Place::Dictionary(pointer),
        },
        Attributes::Inline(before) => {
            match u64_at(head, usize::try_from(PREHEADER.checked_sub(before)?).ok()?)? {
                0 if type_.flags & INLINE_VALUES != 0 => {
                    values(object.wrapping_add(type_.size).wrapping_add(VALUES_HEAD))
                }
                pointer => Place::Dictionary(pointer),
            }
        }
    })
}

/// Follows dictionaries to their table of keys and, where instances share it, their values (else 0).
fn through_dictionaries(
    reader: &Reader<'_>,
    layout: &ObjectLayout,
    places: Vec<Option<Place>>,
) -> Vec<Option<(u64, u64)>> {
    let dictionaries = places.iter().filter_map(|place| match place {
        Some(Place::Dictionary(address)) => Some((address.wrapping_add(layout.dict_keys as u64), 16)),
        _ => None,
    });
    let mut heads = reader.many(dictionaries).into_iter();
    places
        .into_iter()
        .map(|place| match place? {
            Place::Values { keys, values } => Some((keys, values)),
            Place::Dictionary(_) => {
                let head = heads.next()??;
                let (keys, values) = (u64_at(&head, 0)?, u64_at(&head, 8)?);
                let values = if values == 0 { 0 } else { values.wrapping_add(values_head(layout)) };
                Some((keys, values))
            }
        })
        .collect()
}
