//! Python objects by their type, read many at a time: the first bytes of each, and of each type what is asked of it.

use std::collections::HashMap;

use super::super::{
    bytes::{u32_at, u64_at},
    layout::ObjectLayout,
    reader::Reader,
    strings,
};

/// Read of each object: all members of a lock, a cell or a bound method.
const HEAD: usize = 80;

/// Most objects of one process.
const MAX_OBJECTS: usize = 1 << 16;

/// Longest name of a type; a longer one is cut off.
const MAX_NAME: usize = 96;

/// `Py_TPFLAGS_HEAPTYPE`, `Py_TPFLAGS_TYPE_SUBCLASS` (Include/object.h).
const HEAP_TYPE: u64 = 1 << 9;
const TYPE_SUBCLASS: u64 = 1 << 31;

/// What an object is, as far as waits go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `threading.Lock`.
    Lock,
    /// `threading.RLock`.
    RLock,
    /// `queue.SimpleQueue`.
    SimpleQueue,
    /// What `multiprocessing`'s locks are made of.
    SemLock,
    /// What `Thread.join` waits for, from 3.13 on.
    ThreadHandle,
    /// A variable that a closure shares.
    Cell,
    /// A method bound to an object.
    Bound,
    /// A function that needs its object beside it.
    Function,
    /// A `list` or `deque`: its length is known.
    Sized,
    /// A `socket.socket` or one of its subclasses by the usual names.
    Socket,
    /// An instance of a class that Python code made.
    Instance,
    Other,
}

#[derive(Debug)]
pub(super) struct Type {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// `tp_basicsize`.
    pub(super) size: u64,
}

#[derive(Debug)]
struct Object {
    type_: u64,
    bytes: Vec<u8>,
}

/// Every object that was looked at.
pub(super) struct Objects<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) layout: &'a ObjectLayout,
    known: HashMap<u64, Object>,
    types: HashMap<u64, Type>,
}

impl<'a> Objects<'a> {
    pub(super) fn new(reader: &'a Reader<'a>, layout: &'a ObjectLayout) -> Self {
        Self { reader, layout, known: HashMap::new(), types: HashMap::new() }
    }

    /// Reads those that are not known yet. What is no object with a type is left out.
    pub(super) fn load(&mut self, addresses: impl IntoIterator<Item = u64>) {
        let new = addresses.into_iter().filter(|address| !self.known.contains_key(address));
        let mut new = strings::distinct(new);
        new.truncate(MAX_OBJECTS.saturating_sub(self.known.len()));
        let heads = self.reader.prefixes(new.iter().map(|&address| (address, HEAD)));
        let found: Vec<(u64, Object)> = new
            .into_iter()
            .zip(heads)
            .filter_map(|(address, bytes)| {
                let type_ = u64_at(&bytes, self.layout.type_).filter(|&type_| type_ != 0)?;
                // Nobody refers to an object that was freed. Free-threaded builds count elsewhere.
                let alive = self.layout.header != 16 || u32_at(&bytes, 0)? != 0;
                alive.then_some((address, Object { type_, bytes }))
            })
            .collect();
        self.load_types(found.iter().map(|(_, object)| object.type_));
        self.known.extend(found.into_iter().filter(|(_, object)| self.types.contains_key(&object.type_)));
    }

    fn load_types(&mut self, types: impl Iterator<Item = u64>) {
        let new = strings::distinct(types.filter(|type_| !self.types.contains_key(type_)));
        let layout = self.layout;
        let length = layout.type_name.max(layout.type_basicsize).max(layout.type_flags) + 8;
        let bodies = self.reader.many(new.iter().map(|&type_| (type_, length)));
        let bodies: Vec<(u64, Vec<u8>)> =
            new.into_iter().zip(bodies).filter_map(|(type_, body)| Some((type_, body?))).collect();
        let pointer = |body: &[u8]| u64_at(body, layout.type_name).unwrap_or(0);
        let names = self.reader.prefixes(bodies.iter().map(|(_, body)| (pointer(body), MAX_NAME)));
        self.types.extend(bodies.into_iter().zip(names).filter_map(|((address, body), name)| {
            let name = text(&name)?;
            let (size, flags) = (u64_at(&body, layout.type_basicsize)?, u64_at(&body, layout.type_flags)?);
            let kind = kind(&name, flags);
            Some((address, Type { name, kind, size }))
        }));
    }

    /// The type of a loaded object.
    pub(super) fn type_of(&self, address: u64) -> Option<&Type> {
        self.types.get(&self.known.get(&address)?.type_)
    }

    pub(super) fn kind(&self, address: u64) -> Kind {
        self.type_of(address).map_or(Kind::Other, |type_| type_.kind)
    }

    /// The word at `offset` behind the head of a loaded object.
    pub(super) fn word(&self, address: u64, offset: usize) -> Option<u64> {
        u64_at(&self.known.get(&address)?.bytes, self.layout.header.checked_add(offset)?)
    }

    /// The half word there.
    pub(super) fn half(&self, address: u64, offset: usize) -> Option<u32> {
        u32_at(&self.known.get(&address)?.bytes, self.layout.header.checked_add(offset)?)
    }

    /// What a cell holds, or a method is bound to; anything else is itself. `PyCellObject.ob_ref` follows the head;
    /// `m_self` and `im_self` follow one word behind it (Include/cpython/{cellobject,methodobject,classobject}.h).
    pub(super) fn behind(&self, address: u64) -> u64 {
        match self.kind(address) {
            Kind::Cell => self.word(address, 0).unwrap_or(0),
            Kind::Bound => self.word(address, 8).unwrap_or(0),
            _ => address,
        }
    }

    /// Loads what is behind cells and bound methods, a method in a cell included.
    pub(super) fn load_behind(&mut self, addresses: &[u64]) {
        for _step in 0..2 {
            let behind: Vec<u64> =
                addresses.iter().map(|&address| self.behind(self.behind(address))).collect();
            self.load(behind);
        }
    }

    /// The value of a loaded `int` of at most two digits (Include/cpython/longintrepr.h).
    pub(super) fn int(&self, address: u64) -> Option<u64> {
        let bytes = &self.known.get(&address)?.bytes;
        if !matches!(self.type_of(address)?.name.as_str(), "int" | "bool") {
            return None;
        }
        let size = u64_at(bytes, self.layout.header)?;
        // `lv_tag` from 3.12 on, whose two lowest bits are the sign and the third a flag; `ob_size` before.
        let (digits, positive) =
            if self.layout.int_tagged { (size >> 3, size & 3 != 2) } else { (size, size < 3) };
        let digit = |index: usize| u32_at(bytes, self.layout.int_digits + index * 4).map(u64::from);
        match digits {
            _ if !positive => None,
            0 => Some(0),
            1 => digit(0),
            2 => Some(digit(0)? | (digit(1)? << 30)),
            _ => None,
        }
    }
}

fn kind(name: &str, flags: u64) -> Kind {
    match name {
        "_thread.lock" => Kind::Lock,
        "_thread.RLock" => Kind::RLock,
        "_queue.SimpleQueue" => Kind::SimpleQueue,
        "_multiprocessing.SemLock" => Kind::SemLock,
        "_thread._ThreadHandle" => Kind::ThreadHandle,
        "cell" => Kind::Cell,
        "builtin_function_or_method" | "builtin_method" | "method" | "method-wrapper" => Kind::Bound,
        "function" | "method_descriptor" | "wrapper_descriptor" => Kind::Function,
        "list" | "collections.deque" => Kind::Sized,
        "socket" | "_socket.socket" | "SSLSocket" => Kind::Socket,
        _ if flags & HEAP_TYPE != 0 && flags & TYPE_SUBCLASS == 0 => Kind::Instance,
        _ => Kind::Other,
    }
}

/// A name up to its end; `None` for what is none.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let name = String::from_utf8_lossy(bytes.get(..end)?);
    (!name.is_empty() && !name.chars().any(char::is_control)).then(|| name.into_owned())
}
