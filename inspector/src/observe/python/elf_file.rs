//! Where a mapped file defines `_PyRuntime`, from the file itself: for a program that does not export the symbol. A symbol
//! table names it, or the section `.PyRuntime` holds nothing else (from 3.11 on, `Py_UNUSED`'s neighbour
//! `GENERATE_DEBUG_SECTION` in Include/internal/pycore_runtime.h).

use std::{fs::File, io, os::unix::fs::MetadataExt as _};

use object::{
    Endianness,
    elf::{FileHeader64, SHT_DYNSYM, SHT_SYMTAB},
    read::{
        ReadCache,
        elf::{FileHeader, ProgramHeader, SectionHeader, Sym},
    },
};
use rustix::fs::{FileType, Mode, OFlags};

use super::maps::Region;
use crate::observe::root;

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

/// Opens the file that is mapped at `region` in process `pid`, without ever opening what is not a regular file. A file
/// that has the path by now and is another one would give addresses that are wrong: its inode must be the mapped one.
/// (Devices are not compared: btrfs and overlayfs show another one to `stat` than to `maps`.)
fn open(pid: u32, region: &Region) -> Option<File> {
    let named = || {
        let named = root::look_up(pid, &region.path)?;
        let same = named.metadata()?.ino() == region.inode;
        same.then_some(named).ok_or_else(|| io::Error::other("another file has its path"))
    };
    mapped(pid, region).or_else(|_| named()).ok().and_then(|handle| {
        let status = rustix::fs::fstat(&handle).ok()?;
        let size = u64::try_from(status.st_size).ok()?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile || size > MAX_FILE {
            return None;
        }
        let reopened = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::open(reopened, flags, Mode::empty()).ok().map(File::from)
    })
}

/// A handle of the very file that is mapped at `region`.
fn mapped(pid: u32, region: &Region) -> io::Result<File> {
    let path = format!("/proc/{pid}/map_files/{:x}-{:x}", region.start, region.end);
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map(File::from)?)
}

/// Whether who opens `region`'s path below `/proc/PID/root` gets the file that is mapped there, of at most `limit` bytes,
/// and no link, device or pipe in its place.
pub(super) fn is_at_its_path(pid: u32, region: &Region, limit: u64) -> bool {
    let (Ok(mapped), Ok(named)) = (mapped(pid, region), root::look_up_plain(pid, &region.path)) else {
        return false;
    };
    match (mapped.metadata(), named.metadata()) {
        (Ok(mapped), Ok(named)) => {
            named.is_file()
                && named.len() <= limit
                && (mapped.dev(), mapped.ino()) == (named.dev(), named.ino())
        }
        _ => false,
    }
}

/// Where the file mapped at `region` defines `name`, or has the section `section`.
pub(super) fn find(pid: u32, region: &Region, name: &str, section: &str) -> Option<Definition> {
    let cache = ReadCache::new(open(pid, region)?);
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

#[cfg(test)]
mod tests {
    use super::{super::maps::Maps, *};

    #[test]
    fn a_file_that_took_the_path_of_the_mapped_one_is_not_opened() {
        let pid = std::process::id();
        let maps = Maps::read(pid).unwrap();
        let own = std::fs::metadata("/proc/self/exe").unwrap().ino();
        let region = maps.regions().iter().find(|region| region.inode == own).unwrap();
        assert!(open(pid, region).is_some());
        // No such mapping: only the path is left to go by.
        let by_path = Region { start: region.start + 1, ..region.clone() };
        assert!(open(pid, &by_path).is_some());
        assert!(open(pid, &Region { inode: own + 1, ..by_path }).is_none());
    }
}
