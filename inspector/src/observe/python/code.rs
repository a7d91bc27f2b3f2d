//! Code objects: what a frame runs, and at which line.

use std::collections::HashMap;

use super::{
    bytes::{i32_at, u64_at},
    layout::{Layout, ObjectLayout},
    lines,
    reader::Reader,
    stack::{Place, RawFrame},
    strings,
};
use crate::{
    model::{Frame, FrameKind},
    observe::frames::FrameTable,
};

/// Most distinct code objects of one process.
const MAX_CODES: usize = 1 << 16;

/// What a frame runs.
#[derive(Debug)]
enum Executable {
    Code(Code),
    /// Something that is no function of anybody's: a stand-in of the interpreter's own.
    Internal,
}

#[derive(Debug)]
struct Code {
    function: String,
    file: String,
    first_line: i32,
    /// The line table; `None`: it could not be read, and no line is known.
    table: Option<Vec<u8>>,
    /// Where the byte code begins (from 3.11).
    start: u64,
    /// Bytes of byte code (from 3.11).
    length: i64,
    /// Bytes before the first traceable instruction: a frame that has not passed them is not complete (from 3.11).
    traceable: i64,
    /// `co_tlbc` (free-threaded, from 3.14).
    copies: u64,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    /// Its index in the frame table.
    Frame(u32),
    /// A frame of the interpreter's own, or one that has not begun: not shown.
    Hidden,
    /// Its code could not be read, or its place lies outside it: it moved while it was read.
    Torn,
    /// The frame table is full.
    Full,
}

/// All code objects that the frames of one process run.
#[derive(Debug, Default)]
pub(super) struct CodeCache {
    known: HashMap<u64, Executable>,
    /// Where a thread's own copy of the byte code begins, by code object and index.
    copies: HashMap<(u64, u32), u64>,
    resolved: HashMap<(u64, Place), Resolved>,
}

impl CodeCache {
    /// Reads the code of all `frames` that is not known yet.
    pub(super) fn load<'f>(
        &mut self,
        reader: &Reader<'_>,
        layout: &Layout,
        frames: impl Iterator<Item = &'f RawFrame> + Clone,
    ) {
        let new = frames.clone().map(|frame| frame.code).filter(|code| !self.known.contains_key(code));
        let mut addresses = strings::distinct(new);
        addresses.truncate(MAX_CODES.saturating_sub(self.known.len()));
        let objects = reader.many(addresses.iter().map(|&address| (address, layout.code.length())));
        let objects: Vec<(u64, Vec<u8>)> = addresses
            .into_iter()
            .zip(objects)
            .filter_map(|(address, bytes)| Some((address, bytes?)))
            .collect();
        let types = code_types(reader, &layout.object, objects.iter().map(|(_, bytes)| bytes.as_slice()));
        let (codes, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(|(_, bytes)| {
            u64_at(bytes, layout.object.type_).is_some_and(|type_| types.get(&type_) == Some(&true))
        });
        for (address, bytes) in others {
            // `None` and the like; a type that cannot be read is no object at all.
            if u64_at(&bytes, layout.object.type_).is_some_and(|type_| types.contains_key(&type_)) {
                self.known.insert(address, Executable::Internal);
            }
        }
        self.add(reader, layout, &codes);
        self.load_copies(reader, layout, frames);
    }

    fn add(&mut self, reader: &Reader<'_>, layout: &Layout, codes: &[(u64, Vec<u8>)]) {
        let offsets = &layout.code;
        let name = offsets.qualname.unwrap_or(offsets.name);
        let texts = strings::strings(
            reader,
            &layout.object,
            codes
                .iter()
                .flat_map(|(_, bytes)| [u64_at(bytes, name), u64_at(bytes, offsets.filename)])
                .flatten(),
        );
        let tables = strings::byte_strings(
            reader,
            &layout.object,
            codes.iter().filter_map(|(_, bytes)| u64_at(bytes, offsets.line_table)),
        );
        for (address, bytes) in codes {
            let text = |offset: usize| texts.get(&u64_at(bytes, offset)?).cloned();
            let code = match (text(name), text(offsets.filename)) {
                // The interpreter's own stand-ins (`_Py_InitCleanup`) have no file.
                (_, Some(file)) if file.is_empty() || file == "<shim>" => Executable::Internal,
                _ if u64_at(bytes, offsets.filename) == Some(0) => Executable::Internal,
                (Some(function), Some(file)) => Executable::Code(Code {
                    function,
                    file,
                    first_line: i32_at(bytes, offsets.first_line).unwrap_or(0),
                    table: u64_at(bytes, offsets.line_table).and_then(|table| tables.get(&table).cloned()),
                    start: offsets.bytecode.map_or(0, |offset| address.wrapping_add(offset as u64)),
                    // `ob_size`, right behind the object's head, counts code units.
                    length: u64_at(bytes, layout.object.header)
                        .and_then(|units| i64::try_from(units).ok()?.checked_mul(2))
                        .unwrap_or(0),
                    traceable: offsets
                        .first_traceable
                        .and_then(|offset| i32_at(bytes, offset))
                        .map_or(0, |units| i64::from(units) * 2),
                    copies: offsets.tlbc.and_then(|offset| u64_at(bytes, offset)).unwrap_or(0),
                }),
                _ => continue,
            };
            self.known.insert(*address, code);
        }
    }

    /// Free-threaded builds give each thread its copy of the byte code: `struct { Py_ssize_t size; char *entries[]; }`
    /// behind `co_tlbc` (Include/internal/pycore_code.h).
    fn load_copies<'f>(
        &mut self,
        reader: &Reader<'_>,
        layout: &Layout,
        frames: impl Iterator<Item = &'f RawFrame>,
    ) {
        if layout.code.tlbc.is_none() {
            return;
        }
        let mut wanted: Vec<(u64, u32, u64)> = frames
            .filter(|frame| !self.copies.contains_key(&(frame.code, frame.copy)))
            .filter_map(|frame| match self.known.get(&frame.code)? {
                Executable::Code(code) if code.copies != 0 => Some((frame.code, frame.copy, code.copies)),
                _ => None,
            })
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let sizes = reader.many(wanted.iter().map(|&(_, _, copies)| (copies, 8)));
        let entry = |copies: u64, index: u32| copies.wrapping_add(8 + u64::from(index) * 8);
        let entries = reader.many(wanted.iter().map(|&(_, index, copies)| (entry(copies, index), 8)));
        for ((&(code, index, _), size), start) in wanted.iter().zip(sizes).zip(entries) {
            let inside = size.and_then(|size| u64_at(&size, 0)).is_some_and(|size| u64::from(index) < size);
            if let Some(start) =
                start.and_then(|start| u64_at(&start, 0)).filter(|&start| inside && start != 0)
            {
                self.copies.insert((code, index), start);
            }
        }
    }

    /// Bytes from the beginning of the byte code to where the frame is; `None`: that is not in it.
    fn offset(&self, frame: &RawFrame, code: &Code) -> Option<i64> {
        let address = match frame.place {
            Place::Offset(offset) => return Some(offset),
            Place::Address(address) => address,
        };
        let start = self.copies.get(&(frame.code, frame.copy)).copied().unwrap_or(code.start);
        let position = address.wrapping_sub(start).cast_signed();
        // `prev_instr` of a frame that has not begun points to the unit before the byte code.
        (-2..code.length).contains(&position).then_some(position)
    }

    /// Function, file and place (bytes from the beginning) of a frame that runs code of somebody's.
    pub(super) fn place(&self, frame: &RawFrame) -> Option<(&str, &str, i64)> {
        match self.known.get(&frame.code)? {
            Executable::Code(code) => Some((&code.function, &code.file, self.offset(frame, code)?)),
            Executable::Internal => None,
        }
    }

    /// Interns the frame, its function, file and line.
    pub(super) fn resolve(&mut self, layout: &Layout, frame: &RawFrame, table: &mut FrameTable) -> Resolved {
        let Some(executable) = self.known.get(&frame.code) else { return Resolved::Torn };
        let Executable::Code(code) = executable else { return Resolved::Hidden };
        let position = match frame.place {
            Place::Offset(offset) => offset,
            Place::Address(_) => {
                let Some(position) = self.offset(frame, code) else { return Resolved::Torn };
                if position < code.traceable && !frame.generator {
                    return Resolved::Hidden;
                }
                position
            }
        };
        let key = (frame.code, Place::Offset(position));
        if let Some(&known) = self.resolved.get(&key) {
            return known;
        }
        let interned = table.intern(Frame {
            kind: FrameKind::Python,
            function: code.function.clone(),
            file: Some(code.file.clone()),
            line: code
                .table
                .as_ref()
                .and_then(|table| lines::line(layout.code.table, table, code.first_line, position)),
            module: None,
            address: None,
        });
        let resolved = interned.map_or(Resolved::Full, Resolved::Frame);
        self.resolved.insert(key, resolved);
        resolved
    }
}

/// Of each type among the objects, whether it is `code`; a type whose name cannot be read is left out.
fn code_types<'b>(
    reader: &Reader<'_>,
    layout: &ObjectLayout,
    objects: impl Iterator<Item = &'b [u8]>,
) -> HashMap<u64, bool> {
    let types = strings::distinct(objects.filter_map(|bytes| u64_at(bytes, layout.type_)));
    let pointers = reader.many(types.iter().map(|&type_| (type_.wrapping_add(layout.type_name as u64), 8)));
    let pointers: Vec<(u64, u64)> = types
        .into_iter()
        .zip(pointers)
        .filter_map(|(type_, bytes)| Some((type_, u64_at(&bytes?, 0)?)))
        .collect();
    let names = reader.many(pointers.iter().map(|&(_, name)| (name, 5)));
    pointers
        .into_iter()
        .zip(names)
        .filter_map(|((type_, _), name)| Some((type_, name?.as_slice() == b"code\0")))
        .collect()
}
