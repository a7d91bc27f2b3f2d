//! `_Py_DebugOffsets`: how CPython describes its own layout from 3.13 on (Include/internal/pycore_runtime.h in 3.13,
//! pycore_debug_offsets.h after). It lies at the start of `_PyRuntime`, in memory that the target controls: every number is
//! checked against the size of its section before it is used.

use super::{
    bytes::u64_at,
    layout::{
        Attributes, CodeLayout, CurrentFrame, FrameLayout, GilPlace, InterpreterLayout, Layout, LineTable,
        ObjectLayout, Position, ThreadLayout, Variables,
    },
    tables,
};

/// What the table begins with.
pub(super) const COOKIE: &[u8; 8] = b"xdebugpy";

/// `sizeof(_Py_DebugOffsets)` of 3.15, the longest known.
pub(super) const LENGTH: usize = 888;

/// No structure of CPython's is larger than this (`_PyRuntimeState` of 3.12 has 459 944 bytes).
const MAX_STRUCT: u64 = 16 << 20;

/// What the table said.
#[derive(Debug)]
pub(super) struct DebugOffsets {
    pub(super) layout: Layout,
    /// `PY_VERSION_HEX`.
    pub(super) version: u32,
}

/// Reads the words of the table in order, section by section.
struct Words<'a> {
    bytes: &'a [u8],
    next: usize,
}

impl Words<'_> {
    fn word(&mut self) -> Option<u64> {
        let value = u64_at(self.bytes, self.next)?;
        self.next += 8;
        Some(value)
    }

    /// A section: its size, then `N` offsets of members that must lie inside it.
    fn section<const N: usize>(&mut self) -> Option<(u64, [usize; N])> {
        let size = self.word().filter(|&size| size <= MAX_STRUCT)?;
        let mut members = [0; N];
        for member in &mut members {
            *member = usize::try_from(self.word().filter(|&offset| offset < size)?).ok()?;
        }
        Some((size, members))
    }

    /// `N` more offsets of the section before.
    fn members<const N: usize>(&mut self) -> Option<[usize; N]> {
        let mut members = [0; N];
        for member in &mut members {
            *member = usize::try_from(self.word().filter(|&offset| offset < MAX_STRUCT)?).ok()?;
        }
        Some(members)
    }

    /// A section of `members` offsets that are of no interest.
    fn skip(&mut self, members: usize) {
        self.next += (members + 1) * 8;
    }
}

/// Whether the bytes are such a table.
pub(super) fn is_table(bytes: &[u8]) -> bool {
    bytes.starts_with(COOKIE)
}

/// Parses the table; `None` where it is none, of an unknown release, or not sound.
pub(super) fn parse(bytes: &[u8]) -> Option<DebugOffsets> {
    if !is_table(bytes) {
        return None;
    }
    let mut words = Words { bytes, next: 8 };
    let version = u32::try_from(words.word()?).ok()?;
    let (major, minor) = ((version >> 24) as u8, (version >> 16) as u8);
    if major != 3 || !(13..=15).contains(&minor) {
        return None;
    }
    let free_threaded = words.word()? != 0;
    let (_, [_finalizing, interpreters_head]) = words.section()?;
    let interpreter = interpreter(&mut words, minor)?;
    let thread = thread(&mut words, minor)?;
    if minor >= 15 {
        words.word()?; // err_stackitem.exc_value
    }
    let with_tlbc = free_threaded && minor >= 14;
    let frame = frame(&mut words, minor, with_tlbc)?;
    let code = code(&mut words, minor, with_tlbc)?;
    let object = objects(&mut words, minor, free_threaded)?;
    let code = CodeLayout { exception_table: Some(object.header + 24), ..code };
    let release = (major, minor);
    let layout =
        Layout { release, free_threaded, interpreters_head, interpreter, thread, frame, code, object };
    Some(DebugOffsets { layout, version })
}

fn interpreter(words: &mut Words<'_>, minor: u8) -> Option<InterpreterLayout> {
    let with_gil = |next, id, threads_head, modules, gil| InterpreterLayout {
        next,
        id,
        threads_head,
        modules,
        gil: GilPlace::Interpreter(gil),
    };
    if minor >= 14 {
        let (_, [id, next, threads, _main, _gc, modules, _sys, _builtins, gil, _own_gil]) =
            words.section()?;
        // The GIL's enabled, locked and holder, code_object_generation, tlbc_generation.
        words.next += 5 * 8;
        Some(with_gil(next, id, threads, modules, gil))
    } else {
        let (_, [id, next, threads, _gc, modules, _sys, _builtins, gil, _own_gil]) = words.section()?;
        // The GIL's enabled, locked and holder.
        words.next += 3 * 8;
        Some(with_gil(next, id, threads, modules, gil))
    }
}

fn thread(words: &mut Words<'_>, minor: u8) -> Option<ThreadLayout> {
    let (_, [_prev, next, interp, current_frame]) = words.section()?;
    if minor >= 15 {
        // base_frame, last_profiled_frame, last_profiled_frame_seq
        words.next += 3 * 8;
    }
    let [ident, native_id, datastack] = words.members()?;
    // status; in 3.15 also holds_gil, gil_requested, current_exception, exc_state
    words.next += if minor >= 15 { 5 * 8 } else { 8 };
    Some(ThreadLayout {
        next,
        interp,
        ident,
        native_id: Some(native_id),
        frame: CurrentFrame::Direct(current_frame),
        datastack: Some(datastack),
    })
}

fn frame(words: &mut Words<'_>, minor: u8, with_tlbc: bool) -> Option<FrameLayout> {
    let (_, [previous, code, position, slots, owner]) = words.section()?;
    let mut tlbc_index = None;
    if minor >= 14 {
        let _stackpointer = words.word()?;
        let index = words.word()?;
        if with_tlbc {
            tlbc_index = Some(usize::try_from(index).ok().filter(|&index| index < 4096)?);
        }
    }
    Some(FrameLayout {
        code,
        previous,
        position: Position::Pointer(position),
        owner: Some(owner),
        is_entry: None,
        tlbc_index,
        // `f_funcobj` and `f_globals` follow `previous` (`_PyInterpreterFrame`, Include/internal/pycore_frame.h in 3.13,
        // pycore_interpframe_structs.h after).
        globals: previous + 16,
        slots,
        blocks: None,
    })
}

fn code(words: &mut Words<'_>, minor: u8, with_tlbc: bool) -> Option<CodeLayout> {
    let (size, [filename, name, qualname, line_table, first_line, _args, names, _kinds, bytecode]) =
        words.section()?;
    let mut tlbc = None;
    if minor >= 14 {
        let offset = words.word()?;
        if with_tlbc {
            tlbc = Some(usize::try_from(offset).ok().filter(|&offset| (offset as u64) < size)?);
        }
    }
    Some(CodeLayout {
        filename,
        name,
        qualname: Some(qualname),
        first_line,
        line_table,
        table: LineTable::Locations,
        bytecode: Some(bytecode),
        // `int _co_firsttraceable; void *co_extra; char co_code_adaptive[]` end the structure (Include/cpython/code.h);
        // a free-threaded build has `_PyCodeArray *co_tlbc` between the last two from 3.14 on.
        first_traceable: bytecode.checked_sub(if with_tlbc { 24 } else { 16 }),
        tlbc,
        variables: Variables::Together(names),
        // `int co_stacksize, co_firstlineno` (Include/cpython/code.h).
        stack_size: first_line.checked_sub(4)?,
        // `co_consts, co_names, co_exceptiontable` are the first members behind `PyObject_VAR_HEAD`; set once the size of
        // that is known.
        exception_table: None,
    })
}

fn objects(words: &mut Words<'_>, minor: u8, free_threaded: bool) -> Option<ObjectLayout> {
    let (header, [type_]) = words.section()?;
    let header = usize::try_from(header).ok().filter(|header| (16..=64).contains(header))?;
    let base = tables::object_from_3_12();
    // What the table does not tell lies behind a `PyObject_HEAD` that may be larger than the usual 16 bytes.
    let shift = header - base.header;
    let (type_name, type_flags);
    let mut type_basicsize = base.type_basicsize + shift;
    let mut type_dictoffset = base.type_dictoffset + shift;
    let mut type_cached_keys = base.type_cached_keys + shift;
    if minor >= 15 {
        let (_, [name, _repr, flags, basicsize, dictoffset]) = words.section()?;
        (type_name, type_flags, type_basicsize, type_dictoffset) = (name, flags, basicsize, dictoffset);
        let (_, [cached_keys]) = words.section()?;
        type_cached_keys = cached_keys;
    } else {
        let (_, [name, _repr, flags]) = words.section()?;
        (type_name, type_flags) = (name, flags);
    }
    let (_, [tuple_items, _size]) = words.section()?;
    words.skip(2); // list
    if minor >= 14 {
        words.skip(3); // set
    }
    let (_, [dict_keys, _values]) = words.section()?;
    words.skip(1); // float
    let (_, [_tag, int_digits]) = words.section()?;
    let (_, [bytes_length, bytes_text]) = words.section()?;
    let (string_size, [string_state, string_length]) = words.section()?;
    let ascii_text = usize::try_from(words.word()?).ok().filter(|&size| (size as u64) <= string_size)?;
    Some(ObjectLayout {
        header,
        type_,
        string_length,
        string_state,
        // `interned` is a byte of its own in free-threaded builds from 3.14 on (Include/cpython/unicodeobject.h).
        string_kind_bit: if free_threaded && minor >= 14 { 8 } else { base.string_kind_bit },
        ascii_text,
        // `Py_ssize_t utf8_length; char *utf8` follow the ASCII header.
        other_text: ascii_text + 16,
        bytes_length,
        bytes_text,
        tuple_items,
        dict_keys,
        keys: base.keys,
        type_name,
        type_basicsize,
        type_flags,
        type_dictoffset,
        type_cached_keys,
        // `MANAGED_DICT_OFFSET`, Include/internal/pycore_object.h.
        attributes: Attributes::Inline(if free_threaded { 8 } else { 24 }),
        int_digits,
        int_tagged: true,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hostile_tables_never_panic(version in 0x030d_0000u64..0x0311_0000, words in proptest::collection::vec(any::<u64>(), 0..120)) {
            let mut bytes = COOKIE.to_vec();
            bytes.extend(version.to_le_bytes());
            for word in words {
                bytes.extend(word.to_le_bytes());
            }
            if let Some(table) = parse(&bytes) {
                prop_assert!(table.layout.thread.length() <= MAX_STRUCT as usize + 32);
            }
        }

        #[test]
        fn small_offsets_are_taken_or_refused_without_panic(minor in 12u64..17, words in proptest::collection::vec(0u64..5000, 120)) {
            let mut bytes = COOKIE.to_vec();
            bytes.extend((0x0300_0000 | (minor << 16)).to_le_bytes());
            for word in words {
                bytes.extend(word.to_le_bytes());
            }
            let _ = parse(&bytes);
        }
    }
}
