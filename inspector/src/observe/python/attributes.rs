//! Instance attributes, read many at a time (Objects/dictobject.c, Include/internal/pycore_object.h).

use std::collections::HashMap;

use super::{
    bytes::u64_at,
    dicts::{Entry, VALUES_HEAD, find_all, tables, values_head},
    layout::{Attributes, ObjectLayout},
    reader::Reader,
    strings,
};

/// Most entries of a dictionary that holds one object's attributes: a `Thread` has some fifteen, an engine's scheduler some
/// hundreds.
const MAX_ATTRIBUTES: u64 = 1024;

/// `Py_TPFLAGS_INLINE_VALUES` and `Py_TPFLAGS_MANAGED_DICT` (Include/object.h).
const INLINE_VALUES: u64 = 1 << 2;
const MANAGED_DICT: u64 = 1 << 4;

/// Before an object that has a managed dictionary: at most four words.
const PREHEADER: u64 = 32;

/// All attributes of each of `objects`, as the addresses of name and value, `most` of each. An object that keeps them in
/// slots, or cannot be read, has none.
pub(super) fn all(
    reader: &Reader<'_>,
    layout: &ObjectLayout,
    objects: &[u64],
    most: usize,
) -> Vec<Vec<(u64, u64)>> {
    let places = places(reader, layout, objects);
    let places = through_dictionaries(reader, layout, places);
    let tables = tables(reader, layout, places.iter().filter_map(|place| Some((*place)?.0)), MAX_ATTRIBUTES);
    let shared = |&(keys, values): &(u64, u64)| Some((values, tables.get(&keys)?.len().min(most)));
    let pieces: Vec<(u64, usize)> =
        places.iter().flatten().filter(|place| place.1 != 0).filter_map(shared).collect();
    let mut values = reader.many(pieces.iter().map(|&(address, count)| (address, count * 8))).into_iter();
    places
        .iter()
        .map(|place| {
            let &(keys, own) = place.as_ref()?;
            let entries = tables.get(&keys)?;
            let entries = entries.get(..most).unwrap_or(entries);
            if own == 0 {
                return Some(entries.iter().map(|entry| (entry.key, entry.value)).collect::<Vec<_>>());
            }
            let bytes = values.next()??;
            let pair = |(index, entry): (usize, &Entry)| Some((entry.key, u64_at(&bytes, index * 8)?));
            Some(entries.iter().enumerate().filter_map(pair).collect())
        })
        .map(|pairs: Option<Vec<(u64, u64)>>| {
            let mut pairs = pairs.unwrap_or_default();
            pairs.retain(|&(key, value)| key != 0 && value != 0);
            pairs
        })
        .collect()
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
