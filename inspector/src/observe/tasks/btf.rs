//! Where the running kernel keeps its members, by its own type information.
//!
//! One pass over `/sys/kernel/btf/vmlinux` (format: `include/uapi/linux/btf.h`), keeping only where each type begins: a
//! general BTF library builds name tables of more than a hundred thousand types for the thirty members wanted here.

use std::{fs, io};

/// The running kernel's types.
pub(super) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
/// Most qualifiers and type definitions in a row: a loop in damaged data ends here.
const MAX_CHAIN: usize = 32;
/// Deepest nesting of anonymous structures.
const MAX_DEPTH: usize = 16;

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FWD: u32 = 7;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// A type's id; 0 is `void`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypeId(pub(super) u32);

/// A member: where it is in the structure it was looked up in, and its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Byte offset.
    pub(super) offset: u32,
    /// Its type.
    pub(super) of: TypeId,
}

/// Types, parsed as far as lookups need.
#[derive(Debug)]
pub(super) struct Btf {
    data: Vec<u8>,
    /// Where each type's entry begins in `data`, by id less one.
    entries: Vec<u32>,
    strings: (usize, usize),
}

/// Something that programs are attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attachable {
    id: u32,
    kind: u32,
    /// As the kernel's types call it.
    pub(super) name: String,
}

#[derive(Clone, Copy)]
struct Entry {
    name: u32,
    kind: u32,
    /// Members carry a bit-field size in the top byte of their offset.
    kind_flag: bool,
    count: usize,
    size_or_type: u32,
    /// Where what follows the fixed part begins.
    body: usize,
}

impl Btf {
    /// The running kernel's.
    ///
    /// # Minimum kernel version
    /// 5.4, built with `CONFIG_DEBUG_INFO_BTF`.
    pub(super) fn of_running_kernel() -> io::Result<Self> {
        Self::parse(fs::read(VMLINUX)?).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Finds where each type begins. `None`: not little-endian BTF, or a kind of type that is newer than this code
    /// (its length is not known, so nothing behind it can be found).
    pub(super) fn parse(data: Vec<u8>) -> Option<Self> {
        if u16::from_le_bytes(data.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let header = word(&data, 4)? as usize;
        let section = |offset: usize, length: usize| {
            let start = header.checked_add(word(&data, offset)? as usize)?;
            let end = start.checked_add(word(&data, length)? as usize)?;
            (end <= data.len()).then_some((start, end))
        };
        let types = section(8, 12)?;
        let strings = section(16, 20)?;
        let mut entries = Vec::with_capacity((types.1 - types.0) / 24);
        let mut at = types.0;
        while at < types.1 {
            entries.push(at as u32);
            let entry = entry_at(&data, at)?;
            let body = match entry.kind {
                KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                KIND_ARRAY => 12,
                KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => entry.count * 12,
                KIND_ENUM | KIND_FUNC_PROTO => entry.count * 8,
                kind if kind <= KIND_ENUM64 => 0,
                _ => return None,
            };
            at = entry.body + body;
        }
        Some(Self { data, entries, strings })
    }

    /// The structure called `name`.
    pub(super) fn structure(&self, name: &str) -> Option<TypeId> {
        self.named(KIND_STRUCT, name)
    }

    /// The function called `name`.
    pub(super) fn function(&self, name: &str) -> Option<TypeId> {
        self.named(KIND_FUNC, name)
    }

    /// The member that a dotted path names, seen from the start of the structure `within`. Anonymous structures and
    /// unions are looked through. `None` for a bit-field too: it has no byte offset.
    pub(super) fn member(&self, within: TypeId, path: &str) -> Option<Member> {
        let mut found = Member { offset: 0, of: within };
        for name in path.split('.') {
            let inner = self.direct_member(found.of, name, 0)?;
            found = Member { offset: found.offset.checked_add(inner.offset)?, of: inner.of };
        }
        Some(found)
    }

    /// What a pointer points to.
    pub(super) fn pointee(&self, pointer: TypeId) -> Option<TypeId> {
        let entry = self.entry(self.plain(pointer)?)?;
        (entry.kind == KIND_PTR).then(|| self.plain(TypeId(entry.size_or_type))).flatten()
    }

    /// What an array holds.
    pub(super) fn element(&self, array: TypeId) -> Option<TypeId> {
        let entry = self.entry(self.plain(array)?)?;
        let element = (entry.kind == KIND_ARRAY).then(|| word(&self.data, entry.body)).flatten()?;
        self.plain(TypeId(element))
    }

    /// Size in bytes of a structure, union, integer or enumeration.
    pub(super) fn size(&self, of: TypeId) -> Option<u32> {
        let entry = self.entry(self.plain(of)?)?;
        match entry.kind {
            KIND_PTR => Some(8),
            KIND_INT | KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_ENUM64 => Some(entry.size_or_type),
            _ => None,
        }
    }

    /// Functions and tracepoints (definitions called `btf_trace_NAME`) by their names, looked up in one pass. One that the
    /// kernel does not have is missing; one that it describes twice (a weak stub's beside the function's) comes once.
    pub(super) fn attachable(&self, functions: &[&str], tracepoints: &[&str]) -> Vec<Attachable> {
        let called = |entry: &Entry, prefix: &str, names: &[&str]| {
            let text = self.text(entry.name)?;
            let name = text.strip_prefix(prefix.as_bytes())?;
            names.iter().any(|wanted| wanted.as_bytes() == name).then(|| String::from_utf8_lossy(text).into())
        };
        let mut found: Vec<Attachable> = (1..=self.entries.len() as u32)
            .filter_map(|id| {
                let entry = self.entry(TypeId(id))?;
                let name = match entry.kind {
                    KIND_FUNC => called(&entry, "", functions),
                    KIND_TYPEDEF => called(&entry, "btf_trace_", tracepoints),
                    _ => None,
                };
                Some(Attachable { id, kind: entry.kind, name: name? })
            })
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|a, b| a.name == b.name);
        found
    }

    fn named(&self, kind: u32, name: &str) -> Option<TypeId> {
        (1..=self.entries.len() as u32).map(TypeId).find(|&id| {
            self.entry(id).is_some_and(|entry| entry.kind == kind && self.is_called(entry.name, name))
        })
    }

    fn direct_member(&self, within: TypeId, name: &str, depth: usize) -> Option<Member> {
        let entry = self.entry(self.plain(within)?)?;
        if !matches!(entry.kind, KIND_STRUCT | KIND_UNION) || depth > MAX_DEPTH {
            return None;
        }
        (0..entry.count).find_map(|index| {
            let at = entry.body + index * 12;
            let (member, of, bits) =
                (word(&self.data, at)?, word(&self.data, at + 4)?, word(&self.data, at + 8)?);
            let (bit_field, bits) =
                if entry.kind_flag { (bits >> 24 != 0, bits & 0xff_ffff) } else { (false, bits) };
            let here = Member { offset: bits / 8, of: TypeId(of) };
            if member == 0 {
                let inner = self.direct_member(here.of, name, depth + 1)?;
                return Some(Member { offset: here.offset.checked_add(inner.offset)?, of: inner.of });
            }
            (!bit_field && bits % 8 == 0 && self.is_called(member, name)).then_some(here)
        })
    }

    /// The type without its qualifiers and definitions.
    fn plain(&self, mut id: TypeId) -> Option<TypeId> {
        for _ in 0..MAX_CHAIN {
            let entry = self.entry(id)?;
            match entry.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    id = TypeId(entry.size_or_type);
                }
                _ => return Some(id),
            }
        }
        None
    }

    fn entry(&self, id: TypeId) -> Option<Entry> {
        entry_at(&self.data, *self.entries.get((id.0 as usize).checked_sub(1)?)? as usize)
    }

    /// The string at `name`, without its end.
    fn text(&self, name: u32) -> Option<&[u8]> {
        let start = self.strings.0.checked_add(name as usize)?;
        let rest = self.data.get(start..self.strings.1)?;
        rest.get(..rest.iter().position(|&byte| byte == 0)?)
    }

    fn is_called(&self, name: u32, wanted: &str) -> bool {
        let start = self.strings.0.saturating_add(name as usize);
        let end = start.saturating_add(wanted.len());
        end < self.strings.1
            && self.data.get(start..end) == Some(wanted.as_bytes())
            && self.data.get(end) == Some(&0)
    }
}

/// Type information that holds what is given under its id and nothing else.
///
/// aya wants its own `Btf` to look up an id, and needs about 60 ms to parse the kernel's; this costs 2 ms.
pub(super) fn excerpt(of: &[Attachable]) -> Vec<u8> {
    const HEADER: u32 = 24;
    let last = of.iter().map(|wanted| wanted.id).max().unwrap_or(0);
    let mut strings = vec![0];
    let mut named = std::collections::HashMap::new();
    for wanted in of {
        named.insert(wanted.id, [strings.len() as u32, wanted.kind << 24, 0]);
        strings.extend(wanted.name.as_bytes());
        strings.push(0);
    }
    let types = last * 12;
    let mut out = Vec::with_capacity((HEADER + types) as usize + strings.len());
    out.extend(MAGIC.to_le_bytes());
    out.extend([1, 0]); // version, flags
    for field in [HEADER, 0, types, types, strings.len() as u32] {
        out.extend(field.to_le_bytes());
    }
    for id in 1..=last {
        for field in named.get(&id).copied().unwrap_or([0, KIND_FWD << 24, 0]) {
            out.extend(field.to_le_bytes());
        }
    }
    out.extend(strings);
    out
}

fn entry_at(data: &[u8], at: usize) -> Option<Entry> {
    let info = word(data, at.checked_add(4)?)?;
    Some(Entry {
        name: word(data, at)?,
        kind: info >> 24 & 0x1f,
        kind_flag: info >> 31 != 0,
        count: (info & 0xffff) as usize,
        size_or_type: word(data, at.checked_add(8)?)?,
        body: at.checked_add(12)?,
    })
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_members_of_the_running_kernel() {
        let btf = Btf::of_running_kernel().expect("this kernel's BTF");
        let task = btf.structure("task_struct").unwrap();
        let pid = btf.member(task, "pid").unwrap();
        let tgid = btf.member(task, "tgid").unwrap();
        assert_eq!(tgid.offset, pid.offset + 4, "pid and tgid are neighbours");
        assert_eq!(btf.size(pid.of), Some(4));
        let comm = btf.member(task, "comm").unwrap();
        assert_eq!(btf.element(comm.of).and_then(|of| btf.size(of)), Some(1));
        let mm = btf.member(task, "mm").unwrap();
        let mm = btf.pointee(mm.of).unwrap();
        assert_eq!(Some(mm), btf.structure("mm_struct"));
        assert!(btf.member(mm, "mmap_lock.count").is_some(), "through an anonymous structure");
        assert!(btf.member(task, "no_such_member").is_none());
        assert!(btf.function("bpf_iter_task").is_some());
    }

    #[test]
    fn what_programs_attach_to_keeps_its_id() {
        let btf = Btf::of_running_kernel().expect("this kernel's BTF");
        let found = btf.attachable(&["bpf_iter_task", "no_such_function"], &["sys_enter", "no_such_point"]);
        assert_eq!(found.len(), 2, "{found:?}");
        let excerpt = Btf::parse(excerpt(&found)).unwrap();
        assert_eq!(excerpt.function("bpf_iter_task"), btf.function("bpf_iter_task"));
        let point = |btf: &Btf| btf.named(KIND_TYPEDEF, "btf_trace_sys_enter");
        assert!(point(&btf).is_some());
        assert_eq!(point(&excerpt), point(&btf));
    }

    #[test]
    fn damaged_types_are_refused() {
        assert!(Btf::parse(Vec::new()).is_none());
        let mut data = fs::read(VMLINUX).unwrap();
        data.truncate(4096);
        assert!(Btf::parse(data).is_none(), "sections reach beyond the data");
    }
}
