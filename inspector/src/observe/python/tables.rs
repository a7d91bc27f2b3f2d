//! Layouts of CPython 3.8–3.12, which do not describe themselves, and what `_Py_DebugOffsets` leaves out after that.
//!
//! Every number is `offsetof` or `sizeof` as gcc computes it on x86-64 from the headers that the releases 3.8.18, 3.9.18,
//! 3.10.13, 3.11.7, 3.12.1 and 3.13.0 install (Include/internal/pycore_{runtime,interp,pystate,gil,frame,dict}.h,
//! Include/cpython/{pystate,frameobject,code,unicodeobject,dictobject}.h). Offsets do not change within a minor version.

use super::layout::{
    Attributes, CodeLayout, CurrentFrame, FrameLayout, GilPlace, InterpreterLayout, KeysLayout, Layout,
    LineTable, ObjectLayout, Position, ThreadLayout, Variables,
};

/// The layout of a release without debug offsets; `None` for one that is not known.
pub(super) fn of(release: (u8, u8)) -> Option<Layout> {
    match release {
        (3, 8) => Some(v3_8()),
        (3, 9) => Some(v3_9()),
        (3, 10) => Some(v3_10()),
        (3, 11) => Some(v3_11()),
        (3, 12) => Some(v3_12()),
        _ => None,
    }
}

fn v3_8() -> Layout {
    Layout {
        release: (3, 8),
        free_threaded: false,
        interpreters_head: 32,
        interpreter: InterpreterLayout {
            next: 0,
            id: 16,
            threads_head: 8,
            modules: 56,
            gil: GilPlace::Runtime(1152),
        },
        thread: ThreadLayout {
            next: 8,
            interp: 16,
            ident: 176,
            native_id: None,
            frame: CurrentFrame::Object(24),
            datastack: None,
        },
        frame: FrameLayout {
            code: 32,
            previous: 24,
            position: Position::ByteOffset(104),
            owner: None,
            is_entry: None,
            tlbc_index: None,
            globals: 48,
            slots: 360,
            blocks: Some(112),
        },
        code: CodeLayout {
            filename: 104,
            name: 112,
            qualname: None,
            first_line: 40,
            line_table: 120,
            table: LineTable::Lnotab,
            bytecode: None,
            first_traceable: None,
            tlbc: None,
            variables: Variables::ByKind([72, 88, 80]),
            stack_size: 32,
            exception_table: None,
        },
        object: ObjectLayout { type_cached_keys: 872, ..object_until_3_10() },
    }
}

fn v3_9() -> Layout {
    Layout {
        release: (3, 9),
        interpreter: InterpreterLayout {
            next: 0,
            id: 24,
            threads_head: 8,
            modules: 856,
            gil: GilPlace::Runtime(352),
        },
        object: ObjectLayout { type_cached_keys: 864, ..object_until_3_10() },
        ..v3_8()
    }
}

fn v3_10() -> Layout {
    let base = v3_9();
    Layout {
        release: (3, 10),
        frame: FrameLayout {
            position: Position::UnitOffset(96),
            slots: 352,
            blocks: Some(104),
            ..base.frame
        },
        code: CodeLayout { table: LineTable::Ranges, ..base.code },
        object: object_until_3_10(),
        ..base
    }
}

fn v3_11() -> Layout {
    Layout {
        release: (3, 11),
        free_threaded: false,
        interpreters_head: 40,
        interpreter: InterpreterLayout {
            next: 0,
            id: 48,
            threads_head: 16,
            modules: 888,
            gil: GilPlace::Runtime(360),
        },
        thread: ThreadLayout {
            next: 8,
            interp: 16,
            ident: 152,
            native_id: Some(160),
            frame: CurrentFrame::CFrame { pointer: 56, current: 8 },
            datastack: Some(296),
        },
        frame: FrameLayout {
            code: 32,
            previous: 48,
            position: Position::Pointer(56),
            owner: Some(69),
            is_entry: Some(68),
            tlbc_index: None,
            globals: 8,
            slots: 72,
            blocks: None,
        },
        code: CodeLayout {
            filename: 112,
            name: 120,
            qualname: Some(128),
            first_line: 72,
            line_table: 136,
            table: LineTable::Locations,
            bytecode: Some(184),
            first_traceable: Some(168),
            tlbc: None,
            variables: Variables::Together(96),
            stack_size: 68,
            exception_table: Some(40),
        },
        object: ObjectLayout {
            keys: KeysLayout::Logarithmic,
            attributes: Attributes::Pair,
            ..object_until_3_10()
        },
    }
}

fn v3_12() -> Layout {
    Layout {
        release: (3, 12),
        free_threaded: false,
        interpreters_head: 40,
        interpreter: InterpreterLayout {
            next: 0,
            id: 8,
            threads_head: 72,
            modules: 944,
            gil: GilPlace::Interpreter(384),
        },
        thread: ThreadLayout {
            next: 8,
            interp: 16,
            ident: 136,
            native_id: Some(144),
            frame: CurrentFrame::CFrame { pointer: 56, current: 0 },
            datastack: Some(232),
        },
        frame: FrameLayout {
            code: 0,
            previous: 8,
            position: Position::Pointer(56),
            owner: Some(70),
            is_entry: None,
            tlbc_index: None,
            globals: 24,
            slots: 72,
            blocks: None,
        },
        code: CodeLayout {
            filename: 112,
            name: 120,
            qualname: Some(128),
            first_line: 68,
            line_table: 136,
            table: LineTable::Locations,
            bytecode: Some(192),
            first_traceable: Some(176),
            tlbc: None,
            variables: Variables::Together(96),
            stack_size: 64,
            exception_table: Some(40),
        },
        object: ObjectLayout { attributes: Attributes::Tagged, ..object_from_3_12() },
    }
}

fn object_until_3_10() -> ObjectLayout {
    ObjectLayout {
        header: 16,
        type_: 8,
        string_length: 16,
        string_state: 32,
        string_kind_bit: 2,
        ascii_text: 48,
        other_text: 72,
        bytes_length: 16,
        bytes_text: 32,
        tuple_items: 24,
        dict_keys: 32,
        keys: KeysLayout::Sized,
        type_name: 24,
        type_basicsize: 32,
        type_flags: 168,
        type_dictoffset: 288,
        type_cached_keys: 872,
        attributes: Attributes::Dictionary,
        int_digits: 24,
        int_tagged: false,
    }
}

/// `wstr` left the string header in 3.12.
pub(super) fn object_from_3_12() -> ObjectLayout {
    ObjectLayout {
        ascii_text: 40,
        other_text: 56,
        keys: KeysLayout::Logarithmic,
        type_cached_keys: 880,
        attributes: Attributes::Inline(24),
        int_tagged: true,
        ..object_until_3_10()
    }
}
