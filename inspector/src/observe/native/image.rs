//! What a walk needs of one ELF image: where it is loaded, and its unwind tables.
//!
//! Everything is found through the program headers, as the target's own unwinder finds it, so one way serves files,
//! the vDSO, and images read from memory.

use std::{fs::File, io, os::unix::fs::FileExt as _, sync::Arc};

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use object::{
    Endianness, elf,
    pod::{self, Pod},
    read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _},
};

use crate::observe::{maps::Mapping, memory::TargetMemory};

type FileHeader = elf::FileHeader64<Endianness>;
type ProgramHeader = elf::ProgramHeader64<Endianness>;
type SectionHeader = elf::SectionHeader64<Endianness>;

const ENDIAN: Endianness = Endianness::Little;
/// Most program headers and section headers looked at; real images have tens.
const MAX_PROGRAM_HEADERS: usize = 512;
const MAX_SECTION_HEADERS: usize = 4096;
/// Most bytes of `.eh_frame` and `.eh_frame_hdr` together that an image may have. The most that was seen is libtorch_cpu's
/// 19 MiB (PyTorch for CUDA 13), of all that vLLM and SGLang install.
pub(super) const MAX_IMAGE_TABLES: u64 = 64 << 20;
/// User addresses end below this on every supported layout (five-level paging: 57 bits), so sums do not overflow.
const MAX_ADDRESS: u64 = 1 << 57;

/// Where an image's bytes come from.
pub(super) enum Source<'a> {
    /// The mapped file.
    File(&'a File),
    /// The target's memory; the image's first byte is at this address.
    Memory(&'a dyn TargetMemory, u64),
}

/// The unwind tables of an image and where they belong.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// `.eh_frame_hdr`.
    pub(super) index: Arc<[u8]>,
    /// Its address as the image states it.
    pub(super) index_svma: u64,
    /// `.eh_frame`, and maybe some bytes after it.
    pub(super) frames: Arc<[u8]>,
    /// Its address as the image states it.
    pub(super) frames_svma: u64,
}

/// An ELF image.
#[derive(Clone, Debug)]
pub(super) struct Image {
    segments: Vec<Segment>,
    /// Lowest address that the image states.
    pub(super) base_svma: u64,
    /// The tables, or why there are none.
    pub(super) tables: Result<Tables, String>,
}

/// One `PT_LOAD`.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    svma: u64,
    file_size: u64,
    executable: bool,
}

/// The start of the page of `address`.
pub(super) fn page_start(address: u64) -> u64 {
    address & !(rustix::param::page_size() as u64 - 1)
}

impl Image {
    /// Reads the headers and the unwind tables, of at most `room` bytes together. The error is one clause.
    pub(super) fn read(source: &Source<'_>, room: u64) -> Result<Self, String> {
        let bytes = source.at_offset(0, size_of::<FileHeader>() as u64).map_err(|error| error.to_string())?;
        let (header, _) = pod::from_bytes::<FileHeader>(&bytes).map_err(|()| "it is too short")?;
        let little = header.e_ident.data == elf::ELFDATA2LSB && header.e_ident.class == elf::ELFCLASS64;
        if header.e_ident.magic != elf::ELFMAG || !little {
            return Err("it is not a 64-bit little-endian ELF image".into());
        }
        let count = usize::from(header.e_phnum(ENDIAN)).min(MAX_PROGRAM_HEADERS);
        let programs: Vec<ProgramHeader> = source
            .array(header.e_phoff(ENDIAN), count)
            .map_err(|error| format!("its program headers: {error}"))?;
        let segments: Vec<Segment> = programs
            .iter()
            .filter(|program| program.p_type(ENDIAN) == elf::PT_LOAD)
            .map(|program| Segment {
                offset: program.p_offset(ENDIAN),
                svma: program.p_vaddr(ENDIAN),
                file_size: program.p_filesz(ENDIAN),
                executable: program.p_flags(ENDIAN).contains(elf::PF_X),
            })
            .filter(|segment| segment.svma < MAX_ADDRESS && segment.offset < MAX_ADDRESS)
            .collect();
        let base_svma = segments.iter().map(|segment| page_start(segment.svma)).min();
        let mut image = Self {
            segments,
            base_svma: base_svma.ok_or("it has no loadable segment")?,
            tables: Err(String::new()),
        };
        image.tables = image.read_tables(source, header, &programs, room);
        Ok(image)
    }

    /// Bytes of its unwind tables.
    pub(super) fn table_bytes(&self) -> u64 {
        self.tables.as_ref().map_or(0, |tables| (tables.index.len() + tables.frames.len()) as u64)
    }

    /// What must be added to the image's own addresses to get the target's, by one of its mappings.
    pub(super) fn bias(&self, mapping: &Mapping) -> Option<u64> {
        // The kernel and ld.so map whole pages, so a mapping may begin before its segment, on a page of the file that the
        // segment before it ends on (as lld lays images out, rustc's linker): that page is mapped twice, once as code.
        let holds = |segment: &&Segment| {
            (page_start(segment.offset)..segment.offset.saturating_add(segment.file_size))
                .contains(&mapping.offset)
        };
        let mut holders = self.segments.iter().filter(holds);
        let segment = holders
            .clone()
            .find(|segment| segment.executable == mapping.executable)
            .or_else(|| holders.next())?;
        let svma = segment.svma.wrapping_sub(segment.offset).wrapping_add(mapping.offset);
        Some(mapping.start.wrapping_sub(svma))
    }

    fn read_tables(
        &self,
        source: &Source<'_>,
        header: &FileHeader,
        programs: &[ProgramHeader],
        room: u64,
    ) -> Result<Tables, String> {
        let Some(program) = programs.iter().find(|program| program.p_type(ENDIAN) == elf::PT_GNU_EH_FRAME)
        else {
            return Err("it has no unwind table (no PT_GNU_EH_FRAME)".into());
        };
        let index_svma = program.p_vaddr(ENDIAN);
        let fits = |size: u64, room: u64| {
            if size <= room { Ok(size) } else { Err(format!("its unwind table of {size} bytes is too long")) }
        };
        let size = fits(program.p_filesz(ENDIAN), room)?;
        let room = room - size;
        let index =
            self.at_svma(source, index_svma, size).map_err(|error| format!("its .eh_frame_hdr: {error}"))?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(index_svma);
        let parsed = EhFrameHdr::new(&index, LittleEndian).parse(&bases, 8);
        let frames_svma = match parsed.map(|header| header.eh_frame_ptr()) {
            Ok(Pointer::Direct(svma)) => svma,
            Ok(Pointer::Indirect(_)) => return Err("its .eh_frame_hdr points to .eh_frame indirectly".into()),
            Err(error) => return Err(format!("its .eh_frame_hdr is damaged: {error}")),
        };
        let size = source
            .section_size(header, frames_svma)
            .or_else(|| {
                // To the end of its segment: the table says itself where it ends.
                let segment = self.segment_of(frames_svma)?;
                Some((segment.svma.saturating_add(segment.file_size) - frames_svma).min(room))
            })
            .ok_or("its .eh_frame lies outside of the image")?;
        let frames = self
            .at_svma(source, frames_svma, fits(size, room)?)
            .map_err(|error| format!("its .eh_frame: {error}"))?;
        Ok(Tables { index: index.into(), index_svma, frames: frames.into(), frames_svma })
    }

    fn segment_of(&self, svma: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| {
            svma.checked_sub(segment.svma).is_some_and(|distance| distance < segment.file_size)
        })
    }

    fn at_svma(&self, source: &Source<'_>, svma: u64, size: u64) -> io::Result<Vec<u8>> {
        let outside = || io::Error::other(format!("{size} bytes at {svma:#x} lie outside of the image"));
        match *source {
            Source::File(_) => {
                let segment = self.segment_of(svma).ok_or_else(outside)?;
                source.at_offset((svma - segment.svma).saturating_add(segment.offset), size)
            }
            Source::Memory(..) => {
                source.at_offset(svma.checked_sub(self.base_svma).ok_or_else(outside)?, size)
            }
        }
    }
}

impl Source<'_> {
    /// `size` bytes from `offset`, all of them. The caller bounds `size`; a file that is shorter is an error before
    /// anything is allocated.
    fn at_offset(&self, offset: u64, size: u64) -> io::Result<Vec<u8>> {
        match *self {
            Self::File(file) => {
                let length = file.metadata()?.len();
                if offset.checked_add(size).is_none_or(|end| end > length) {
                    return Err(io::Error::other(format!(
                        "the file ends before {size} bytes at {offset:#x}"
                    )));
                }
                let mut bytes = vec![0; size as usize];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(bytes)
            }
            Self::Memory(memory, base) => {
                let mut bytes = vec![0; size as usize];
                memory.read(base.wrapping_add(offset), &mut bytes).map_err(io::Error::other)?;
                Ok(bytes)
            }
        }
    }

    fn array<T: Pod + Copy>(&self, offset: u64, count: usize) -> io::Result<Vec<T>> {
        let bytes = self.at_offset(offset, (count * size_of::<T>()) as u64)?;
        let (items, _) =
            pod::slice_from_bytes::<T>(&bytes, count).map_err(|()| io::Error::other("misaligned"))?;
        Ok(items.to_vec())
    }

    /// Size of the section that begins at `svma`, from a file's section headers (memory does not hold them).
    fn section_size(&self, header: &FileHeader, svma: u64) -> Option<u64> {
        let Self::File(_) = self else { return None };
        let count = usize::from(header.e_shnum(ENDIAN)).min(MAX_SECTION_HEADERS);
        let sections: Vec<SectionHeader> = self.array(header.e_shoff(ENDIAN), count).ok()?;
        let section = sections.iter().find(|section| {
            section.sh_addr(ENDIAN) == svma
                && section.sh_type(ENDIAN) != elf::SHT_NOBITS
                && section.sh_size(ENDIAN) > 0
        })?;
        Some(section.sh_size(ENDIAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_file_that_two_segments_share_belongs_to_each_as_it_is_mapped() {
        let segment = |offset, svma, file_size, executable| Segment { offset, svma, file_size, executable };
        let image = Image {
            segments: vec![segment(0, 0, 0x3_34ac, false), segment(0x3_34b0, 0x3_44b0, 0x8_6680, true)],
            base_svma: 0,
            tables: Err(String::new()),
        };
        let mapping = |start, offset, executable| Mapping {
            start,
            end: start + 0x1000,
            offset,
            executable,
            ..Mapping::default()
        };
        assert_eq!(image.bias(&mapping(0x5000_0000, 0, false)), Some(0x5000_0000));
        assert_eq!(image.bias(&mapping(0x5003_4000, 0x3_3000, true)), Some(0x5000_0000));
        assert_eq!(image.bias(&mapping(0x5000_0000, 0x100_0000, true)), None);
    }
}
