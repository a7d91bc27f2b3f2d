//! Where the members of CPython's structures lie, for one build of CPython.

/// Offsets in bytes, of one CPython build.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Major and minor version.
    pub(super) release: (u8, u8),
    /// Built with `--disable-gil`.
    pub(super) free_threaded: bool,
    /// `_PyRuntimeState.interpreters.head`.
    pub(super) interpreters_head: usize,
    pub(super) interpreter: InterpreterLayout,
    pub(super) thread: ThreadLayout,
    pub(super) frame: FrameLayout,
    pub(super) code: CodeLayout,
    pub(super) object: ObjectLayout,
}

/// `PyInterpreterState`.
#[derive(Clone, Debug)]
pub(super) struct InterpreterLayout {
    pub(super) next: usize,
    pub(super) id: usize,
    pub(super) threads_head: usize,
    /// The dictionary `sys.modules`.
    pub(super) modules: usize,
    pub(super) gil: GilPlace,
}

/// Where the GIL lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GilPlace {
    /// In `_PyRuntimeState`, at this offset (until 3.11).
    Runtime(usize),
    /// Behind a pointer in `PyInterpreterState`, at this offset (from 3.12).
    Interpreter(usize),
}

/// `PyThreadState`.
#[derive(Clone, Debug)]
pub(super) struct ThreadLayout {
    pub(super) next: usize,
    pub(super) interp: usize,
    /// `thread_id`: `pthread_self()`.
    pub(super) ident: usize,
    /// `native_thread_id` (from 3.11).
    pub(super) native_id: Option<usize>,
    pub(super) frame: CurrentFrame,
    /// `datastack_chunk`; `datastack_top` and `datastack_limit` follow it (from 3.11).
    pub(super) datastack: Option<usize>,
}

impl ThreadLayout {
    /// How many bytes of a thread state hold all that is read of it.
    pub(super) fn length(&self) -> usize {
        let frame = match self.frame {
            CurrentFrame::Object(offset) | CurrentFrame::Direct(offset) => offset,
            CurrentFrame::CFrame { pointer, .. } => pointer,
        };
        let datastack = self.datastack.map_or(0, |offset| offset + 16);
        let native = self.native_id.unwrap_or(0);
        [self.next, self.interp, self.ident, native, frame, datastack].into_iter().max().unwrap_or(0) + 8
    }
}

/// How a thread state leads to its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CurrentFrame {
    /// To a `PyFrameObject` (until 3.10).
    Object(usize),
    /// To a `_PyCFrame` on the C stack, whose `current_frame` lies at the second offset (3.11, 3.12).
    CFrame {
        /// `PyThreadState.cframe`.
        pointer: usize,
        /// `_PyCFrame.current_frame`.
        current: usize,
    },
    /// To a `_PyInterpreterFrame` (from 3.13).
    Direct(usize),
}

/// `PyFrameObject` until 3.10, `_PyInterpreterFrame` after.
#[derive(Clone, Debug)]
pub(super) struct FrameLayout {
    /// `f_code`, from 3.13 `f_executable`.
    pub(super) code: usize,
    /// `f_back`, from 3.11 `previous`.
    pub(super) previous: usize,
    /// Where execution is.
    pub(super) position: Position,
    /// `owner` (from 3.11).
    pub(super) owner: Option<usize>,
    /// `is_entry` (3.11 only).
    pub(super) is_entry: Option<usize>,
    /// `tlbc_index` (free-threaded, from 3.14).
    pub(super) tlbc_index: Option<usize>,
    /// `f_globals`.
    pub(super) globals: usize,
    /// `f_localsplus`: variables, then the evaluation stack.
    pub(super) slots: usize,
    /// `f_iblock`, the number of open blocks; `f_blockstack` begins 8 bytes behind it (until 3.10).
    pub(super) blocks: Option<usize>,
}

impl FrameLayout {
    /// How many bytes of a frame hold all that is read of it.
    pub(super) fn length(&self) -> usize {
        let position = match self.position {
            Position::ByteOffset(offset) | Position::UnitOffset(offset) | Position::Pointer(offset) => offset,
        };
        let wide = [self.code, self.previous, position].into_iter().max().unwrap_or(0) + 8;
        let byte = self.owner.max(self.is_entry).map_or(0, |offset| offset + 1);
        wide.max(byte).max(self.tlbc_index.map_or(0, |offset| offset + 4))
    }
}

/// How a frame stores its place in the byte code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// `f_lasti`, in bytes (3.8, 3.9).
    ByteOffset(usize),
    /// `f_lasti`, in code units of two bytes (3.10).
    UnitOffset(usize),
    /// A pointer into the byte code: `prev_instr` (3.11, 3.12), `instr_ptr` (from 3.13).
    Pointer(usize),
}

/// `PyCodeObject`.
#[derive(Clone, Debug)]
pub(super) struct CodeLayout {
    pub(super) filename: usize,
    pub(super) name: usize,
    /// `co_qualname` (from 3.11).
    pub(super) qualname: Option<usize>,
    pub(super) first_line: usize,
    /// `co_lnotab` until 3.9, `co_linetable` after.
    pub(super) line_table: usize,
    pub(super) table: LineTable,
    /// `co_code_adaptive` (from 3.11): the byte code itself.
    pub(super) bytecode: Option<usize>,
    /// `_co_firsttraceable` (from 3.11), in code units.
    pub(super) first_traceable: Option<usize>,
    /// `co_tlbc` (free-threaded, from 3.14).
    pub(super) tlbc: Option<usize>,
    pub(super) variables: Variables,
    /// `co_stacksize`.
    pub(super) stack_size: usize,
    /// `co_exceptiontable` (from 3.11).
    pub(super) exception_table: Option<usize>,
}

impl CodeLayout {
    /// How many bytes of a code object hold all that is read of it.
    pub(super) fn length(&self) -> usize {
        let rest = [self.qualname, self.first_traceable, self.tlbc, self.exception_table];
        let rest = rest.into_iter().flatten().max().unwrap_or(0);
        let names = match self.variables {
            Variables::ByKind(tuples) => tuples.into_iter().max().unwrap_or(0),
            Variables::Together(tuple) => tuple,
        };
        let known =
            [self.filename, self.name, self.first_line, self.line_table, self.stack_size, names, rest];
        known.into_iter().max().unwrap_or(0) + 8
    }
}

/// Where a code object keeps the names of its variables, in the order of a frame's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variables {
    /// In the tuples `co_varnames`, `co_cellvars` and `co_freevars` (until 3.10).
    ByKind([usize; 3]),
    /// In the tuple `co_localsplusnames` (from 3.11).
    Together(usize),
}

/// How line numbers are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineTable {
    /// `co_lnotab` (until 3.9; Objects/lnotab_notes.txt).
    Lnotab,
    /// PEP 626 (3.10; Objects/lnotab_notes.txt).
    Ranges,
    /// PEP 657 (from 3.11; Objects/locations.md).
    Locations,
}

/// Objects that names and strings are read from.
#[derive(Clone, Debug)]
pub(super) struct ObjectLayout {
    /// `sizeof(PyObject)`: 16, or 32 in a free-threaded build.
    pub(super) header: usize,
    /// `PyObject.ob_type`.
    pub(super) type_: usize,
    /// `PyASCIIObject.length`.
    pub(super) string_length: usize,
    /// `PyASCIIObject.state`.
    pub(super) string_state: usize,
    /// Lowest bit of `state.kind`; `compact` and `ascii` follow its three bits.
    pub(super) string_kind_bit: u32,
    /// `sizeof(PyASCIIObject)`: where the text of an ASCII string begins.
    pub(super) ascii_text: usize,
    /// `sizeof(PyCompactUnicodeObject)`: where the text of another string begins.
    pub(super) other_text: usize,
    /// `PyBytesObject.ob_size`.
    pub(super) bytes_length: usize,
    /// `PyBytesObject.ob_sval`.
    pub(super) bytes_text: usize,
    /// `PyTupleObject.ob_item`; `ob_size` follows the object's head.
    pub(super) tuple_items: usize,
    /// `PyDictObject.ma_keys`; `ma_values` follows.
    pub(super) dict_keys: usize,
    pub(super) keys: KeysLayout,
    /// `PyTypeObject.tp_name`.
    pub(super) type_name: usize,
    /// `PyTypeObject.tp_basicsize`.
    pub(super) type_basicsize: usize,
    /// `PyTypeObject.tp_flags`.
    pub(super) type_flags: usize,
    /// `PyTypeObject.tp_dictoffset`.
    pub(super) type_dictoffset: usize,
    /// `PyHeapTypeObject.ht_cached_keys`.
    pub(super) type_cached_keys: usize,
    pub(super) attributes: Attributes,
    /// The digits of a `PyLongObject`.
    pub(super) int_digits: usize,
    /// `lv_tag` follows its head, not `ob_size` (from 3.12).
    pub(super) int_tagged: bool,
}

/// `PyDictKeysObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeysLayout {
    /// `dk_size` at 8, `dk_nentries` at 32, indices at 40, entries of hash, key and value (until 3.10).
    Sized,
    /// `dk_log2_size`, `dk_log2_index_bytes`, `dk_kind` at 8, `dk_nentries` at 24, indices at 32 (from 3.11).
    Logarithmic,
}

/// Where an instance keeps its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attributes {
    /// A dictionary at `tp_dictoffset` (until 3.10).
    Dictionary,
    /// Values pointer four words before the object, dictionary three words before it (3.11).
    Pair,
    /// Three words before the object: a dictionary, or, tagged with the lowest bit, values (3.12).
    Tagged,
    /// Dictionary pointer this many bytes before the object; without one, values inline behind `tp_basicsize` (from 3.13).
    Inline(u64),
}
