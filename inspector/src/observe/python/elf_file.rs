//! Where a mapped file defines `_PyRuntime`, from the file itself: for a program that does not export the symbol. A symbol
//! table names it, or the section `.PyRuntime` holds nothing else (from 3.11 on, `Py_UNUSED`'s neighbour
//! `GENERATE_DEBUG_SECTION` in Include/internal/pycore_runtime.h).

use object::{
    Endianness,
    elf::{FileHeader64, SHT_DYNSYM, SHT_SYMTAB},
    read::{
        ReadCache,
        elf::{FileHeader, ProgramHeader, SectionHeader, Sym},
    },
};

use crate::observe::{mapped_file, maps::Mapping};

/// Largest file that is looked into, and largest table that is read from it.
const MAX_FILE: u64 = 4 << 30;
const MAX_TABLE: u64 = 128 << 20;

/// A symbol or section, as the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    /// Address relative to the load bias.
    pub(super) address: u64,
    /// Address of the first loaded segment, page-aligned.
    pub(super) first: u64,
}

/// Where the file mapped at `region` defines `name`, or has the section `section`.
pub(super) fn find(pid: u32, region: &Mapping, name: &str, section: &str) -> Option<Definition> {
    let file = mapped_file::open(pid, region).ok()?;
    if file.metadata().ok()?.len() > MAX_FILE {
        return None;
    }
    let cache = ReadCache::new(file);
    let data = &cache;
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let first = header
        .program_headers(endian, data)
        .ok()?
        .iter()
        .find(|program| program.p_type(endian) == object::elf::PT_LOAD)
        .map(|program| program.p_vaddr(endian) & !0xfff)?;
    let sections = header.sections(endian, data).ok()?;
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let small = sections
            .iter()
            .filter(|entry| entry.sh_type(endian) == kind)
            .all(|entry| entry.sh_size(endian) <= MAX_TABLE);
        let Ok(symbols) = small.then(|| sections.symbols(endian, data, kind)).transpose() else { continue };
        let found = symbols.iter().flat_map(|table| table.iter().map(move |symbol| (table, symbol))).find(
            |(table, symbol)| {
                symbol.st_shndx(endian).0 != 0
                    && symbol.name(endian, table.strings()).is_ok_and(|text| text == name.as_bytes())
            },
        );
        if let Some((_, symbol)) = found {
            return Some(Definition { address: symbol.st_value(endian), first });
        }
    }
    let (_, entry) = sections.section_by_name(endian, section.as_bytes())?;
    Some(Definition { address: entry.sh_addr(endian), first })
}
