//! Symbols of an ELF image out of the target's memory: no file is opened, so a deleted, replaced or unreachable file and
//! another mount namespace make no difference. gABI; the hash table is the GNU one (`DT_GNU_HASH`), which every linker of
//! the last fifteen years writes.

use object::elf::{
    DT_GNU_HASH, DT_NULL, DT_STRTAB, DT_SYMTAB, ELFCLASS64, ELFDATA2LSB, ELFMAG, PT_DYNAMIC, PT_LOAD,
};

use super::{
    bytes::{u16_at, u32_at, u64_at},
    reader::Reader,
};

/// Most program headers and dynamic entries that are looked at.
const MAX_HEADERS: usize = 128;
const MAX_DYNAMIC: usize = 512;

/// Longest chain of symbols with one hash bucket that is followed.
const MAX_CHAIN: u32 = 4096;

/// A loaded ELF file.
#[derive(Debug)]
pub(super) struct Image<'a, 'm> {
    reader: &'a Reader<'m>,
    /// What is added to an address of the file.
    bias: u64,
    symbols: u64,
    strings: u64,
    hash: HashTable,
}

#[derive(Debug)]
struct HashTable {
    count: u32,
    first_symbol: u32,
    buckets: u64,
    chains: u64,
}

/// A defined symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Address in the target.
    pub(super) address: u64,
    /// Bytes.
    pub(super) size: u64,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// The load bias of the image whose first byte is mapped at `base`.
pub(super) fn load_bias(header: &[u8], program_headers: &[u8], base: u64) -> Option<u64> {
    let count = usize::from(u16_at(header, 56)?).min(MAX_HEADERS);
    let first = (0..count)
        .map(|index| index * 56)
        .find(|&at| u32_at(program_headers, at) == Some(PT_LOAD.0))
        .and_then(|at| u64_at(program_headers, at + 16))?;
    Some(base.wrapping_sub(first & !0xfff))
}

impl<'a, 'm> Image<'a, 'm> {
    /// The image whose ELF header is mapped at `base`; `None` where there is none or it has no dynamic symbols.
    pub(super) fn open(reader: &'a Reader<'m>, base: u64) -> Option<Self> {
        let header = reader.one(base, 64)?;
        let sound = header.starts_with(&ELFMAG)
            && header.get(4) == Some(&ELFCLASS64.0)
            && header.get(5) == Some(&ELFDATA2LSB.0);
        if !sound || u16_at(&header, 54)? != 56 {
            return None;
        }
        let count = usize::from(u16_at(&header, 56)?).min(MAX_HEADERS);
        let programs = reader.one(base.checked_add(u64_at(&header, 32)?)?, count * 56)?;
        let bias = load_bias(&header, &programs, base)?;
        let dynamic =
            (0..count).map(|index| index * 56).find(|&at| u32_at(&programs, at) == Some(PT_DYNAMIC.0))?;
        let address = bias.wrapping_add(u64_at(&programs, dynamic + 16)?);
        let length = usize::try_from(u64_at(&programs, dynamic + 40)?).ok()?.min(MAX_DYNAMIC * 16);
        let entries = reader.one(address, length)?;
        let entry = |tag: i64| {
            (0..length / 16)
                .map(|index| index * 16)
                .take_while(|&at| u64_at(&entries, at) != Some(DT_NULL.0.cast_unsigned()))
                .find(|&at| u64_at(&entries, at) == Some(tag.cast_unsigned()))
                .and_then(|at| u64_at(&entries, at + 8))
                // glibc relocates these entries in place, musl does not.
                .map(|value| if value < base { bias.wrapping_add(value) } else { value })
        };
        let hash = entry(DT_GNU_HASH.0)?;
        let head = reader.one(hash, 16)?;
        let (count, first_symbol, bloom) = (u32_at(&head, 0)?, u32_at(&head, 4)?, u32_at(&head, 8)?);
        let buckets = hash.checked_add(16)?.checked_add(u64::from(bloom) * 8)?;
        let chains = buckets.checked_add(u64::from(count) * 4)?;
        let hash = HashTable { count: (count > 0).then_some(count)?, first_symbol, buckets, chains };
        Some(Self { reader, bias, symbols: entry(DT_SYMTAB.0)?, strings: entry(DT_STRTAB.0)?, hash })
    }

    /// The defined symbol `name`.
    pub(super) fn symbol(&self, name: &str) -> Option<Symbol> {
        let hash = gnu_hash(name.as_bytes());
        let HashTable { count, first_symbol, buckets, chains } = self.hash;
        let slot = buckets.wrapping_add(u64::from(hash % count) * 4);
        let first = u32_at(&self.reader.one(slot, 4)?, 0)?;
        if first < first_symbol {
            return None;
        }
        for index in (first..u32::MAX).take(MAX_CHAIN as usize) {
            let link = chains.wrapping_add(u64::from(index - first_symbol) * 4);
            let value = u32_at(&self.reader.one(link, 4)?, 0)?;
            if value | 1 == hash | 1
                && let Some(symbol) = self.entry(index, name)
            {
                return Some(symbol);
            }
            if value & 1 == 1 {
                return None;
            }
        }
        None
    }

    fn entry(&self, index: u32, name: &str) -> Option<Symbol> {
        let symbol = self.reader.one(self.symbols.wrapping_add(u64::from(index) * 24), 24)?;
        let text = self.strings.wrapping_add(u64::from(u32_at(&symbol, 0)?));
        let found = self.reader.one(text, name.len() + 1)?;
        let same = found.strip_suffix(&[0]) == Some(name.as_bytes());
        let defined = u16_at(&symbol, 6)? != 0;
        (same && defined).then_some(Symbol {
            address: self.bias.wrapping_add(u64_at(&symbol, 8)?),
            size: u64_at(&symbol, 16)?,
        })
    }
}

/// The hash of `DT_GNU_HASH` (Bernstein's, from 5381).
fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{maps::Maps, memory::ProcessReader};

    #[test]
    fn libc_symbols_are_found_where_they_are() {
        let memory = ProcessReader::new(std::process::id());
        let reader = Reader::new(&memory);
        let maps = Maps::read(std::process::id()).unwrap();
        let libc = maps.iter().find(|region| region.file_name().starts_with("libc.so")).unwrap();
        let image = Image::open(&reader, libc.start).unwrap();
        let getpid = image.symbol("getpid").unwrap();
        // SAFETY: a lookup of a constant name.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getpid".as_ptr()) } as u64;
        assert_eq!(getpid.address, expected);
        assert_eq!(image.symbol("_thread_db_pthread_tid").unwrap().size, 12);
        assert_eq!(image.symbol("no_such_symbol"), None);
    }
}
