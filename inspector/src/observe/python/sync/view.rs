//! Variables and evaluation stacks of frames, read many at a time.

use std::collections::HashMap;

use super::{
    super::{
        bytes::{u32_at, u64_at},
        code::CodeCache,
        layout::{Layout, Variables},
        reader::Reader,
        stack::RawFrame,
        strings,
    },
    live,
};

/// Most variables of one frame that are read, and most that its code may have.
const MAX_READ: usize = 64;
const MAX_VARIABLES: usize = 4096;

/// Most entries of an evaluation stack that are read.
const MAX_STACK: usize = 64;

/// Bits of a `_PyStackRef` that are not address (from 3.14 on).
const STACKREF_TAG: u64 = 3;

/// How much of a frame is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Variables and stack.
    All,
    /// What is certainly on its stack.
    Live,
}

/// One frame.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Its function, without what it is defined in.
    pub(super) function: String,
    pub(super) file: String,
    /// Variables that have a value: the string that names them, the value.
    pub(super) variables: Vec<(u64, u64)>,
    /// Everything that its evaluation stack may hold, old values included.
    pub(super) stack: Vec<u64>,
    /// How many of those are certainly in use.
    pub(super) live: usize,
    /// The dictionary of its globals.
    pub(super) globals: u64,
}

/// What of a code object tells how its frames lie.
#[derive(Debug, Default)]
struct Shape {
    names: Vec<u64>,
    stack: usize,
    handlers: Option<Vec<u8>>,
}

/// Reads `frames`, in their order; one that cannot be read, or runs no code of anybody's, is `None`.
pub(super) fn read(
    reader: &Reader<'_>,
    layout: &Layout,
    codes: &CodeCache,
    frames: &[(RawFrame, Depth)],
) -> Vec<Option<View>> {
    let shapes = shapes(reader, layout, frames.iter().map(|(frame, _)| frame.code));
    let depths = depths(reader, layout, codes, &shapes, frames);
    let at = |frame: &RawFrame, offset: usize| frame.address.wrapping_add(offset as u64);
    let mut wanted: Vec<(u64, usize)> = Vec::new();
    for ((frame, depth), live) in frames.iter().zip(&depths) {
        let shape = shapes.get(&frame.code);
        let variables = shape.map_or(0, |shape| shape.names.len());
        let (read, stack) = match depth {
            Depth::All => (variables.min(MAX_READ), shape.map_or(0, |shape| shape.stack.min(MAX_STACK))),
            Depth::Live => (0, *live),
        };
        let slots = layout.frame.slots;
        wanted.push((at(frame, layout.frame.globals), if read > 0 { 8 } else { 0 }));
        wanted.push((at(frame, slots), read * 8));
        wanted.push((at(frame, slots + variables * 8), stack * 8));
    }
    let mut pieces = reader.prefixes(wanted).into_iter();
    let mut views = Vec::with_capacity(frames.len());
    for ((frame, _), live) in frames.iter().zip(depths) {
        let (globals, variables, stack) = (pieces.next(), pieces.next(), pieces.next());
        let place = codes.place(frame).zip(shapes.get(&frame.code));
        views.push(place.map(|((function, file, _), shape)| {
            let variables = words(layout, &variables.unwrap_or_default());
            let stack = words(layout, &stack.unwrap_or_default());
            View {
                function: function.rsplit('.').next().unwrap_or(function).to_owned(),
                file: file.to_owned(),
                variables: shape.names.iter().copied().zip(variables).filter(|pair| pair.1 != 0).collect(),
                live: live.min(stack.len()),
                stack,
                globals: globals.and_then(|bytes| u64_at(&bytes, 0)).unwrap_or(0),
            }
        }));
    }
    views
}

fn words(layout: &Layout, bytes: &[u8]) -> Vec<u64> {
    let mask = if layout.release >= (3, 13) { !STACKREF_TAG } else { !0 };
    (0..bytes.len() / 8).filter_map(|index| Some(u64_at(bytes, index * 8)? & mask)).collect()
}

/// For each frame, how much of its evaluation stack is certainly in use.
fn depths(
    reader: &Reader<'_>,
    layout: &Layout,
    codes: &CodeCache,
    shapes: &HashMap<u64, Shape>,
    frames: &[(RawFrame, Depth)],
) -> Vec<usize> {
    let Some(blocks) = layout.frame.blocks else {
        let by_table = |frame: &RawFrame| {
            let table = shapes.get(&frame.code)?.handlers.as_deref()?;
            Some(live::by_exception_table(table, codes.place(frame)?.2))
        };
        return frames.iter().map(|(frame, _)| by_table(frame).unwrap_or(0)).collect();
    };
    let blocks = frames.iter().map(|(frame, _)| (frame.address.wrapping_add(blocks as u64), live::BLOCKS));
    let level = |bytes: Option<Vec<u8>>| bytes.map_or(0, |bytes| live::by_blocks(&bytes));
    reader.many(blocks).into_iter().map(level).collect()
}

fn shapes(reader: &Reader<'_>, layout: &Layout, codes: impl Iterator<Item = u64>) -> HashMap<u64, Shape> {
    let codes = strings::distinct(codes);
    let bytes = reader.many(codes.iter().map(|&code| (code, layout.code.length())));
    let codes: Vec<(u64, Vec<u8>)> =
        codes.into_iter().zip(bytes).filter_map(|(code, bytes)| Some((code, bytes?))).collect();
    let tuples = |bytes: &[u8]| -> Vec<u64> {
        let offsets: &[usize] = match &layout.code.variables {
            Variables::ByKind(offsets) => offsets,
            Variables::Together(offset) => std::slice::from_ref(offset),
        };
        offsets.iter().map(|&offset| u64_at(bytes, offset).unwrap_or(0)).collect()
    };
    let items = items(reader, layout, codes.iter().flat_map(|(_, bytes)| tuples(bytes)));
    let table = |bytes: &[u8]| u64_at(bytes, layout.code.exception_table?);
    let tables =
        strings::byte_strings(reader, &layout.object, codes.iter().filter_map(|(_, bytes)| table(bytes)));
    let shape = |(code, bytes): (u64, Vec<u8>)| {
        // All of them, or where the stack begins is not known.
        let names: Option<Vec<&Vec<u64>>> = tuples(&bytes).iter().map(|tuple| items.get(tuple)).collect();
        let names: Vec<u64> = names?.into_iter().flatten().copied().collect();
        let stack = usize::try_from(u32_at(&bytes, layout.code.stack_size)?).ok()?;
        let handlers = table(&bytes).and_then(|table| tables.get(&table).cloned());
        (names.len() <= MAX_VARIABLES).then_some((code, Shape { names, stack, handlers }))
    };
    codes.into_iter().filter_map(shape).collect()
}

/// The items of tuples.
fn items(reader: &Reader<'_>, layout: &Layout, tuples: impl Iterator<Item = u64>) -> HashMap<u64, Vec<u64>> {
    let tuples = strings::distinct(tuples);
    let sizes = reader.many(tuples.iter().map(|&tuple| (tuple.wrapping_add(layout.object.header as u64), 8)));
    let sound: Vec<(u64, usize)> = tuples
        .into_iter()
        .zip(sizes)
        .filter_map(|(tuple, size)| Some((tuple, usize::try_from(u64_at(&size?, 0)?).ok()?)))
        .filter(|&(_, size)| size <= MAX_VARIABLES)
        .collect();
    let start = layout.object.tuple_items as u64;
    let items = reader.many(sound.iter().map(|&(tuple, size)| (tuple.wrapping_add(start), size * 8)));
    let read = |((tuple, size), items): ((u64, usize), Option<Vec<u8>>)| {
        let items = if size == 0 { Vec::new() } else { items? };
        Some((tuple, items.chunks_exact(8).filter_map(|item| u64_at(item, 0)).collect()))
    };
    sound.into_iter().zip(items).filter_map(read).collect()
}
