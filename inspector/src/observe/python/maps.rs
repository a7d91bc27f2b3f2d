//! The target's memory map, read in bounded form.

use std::{
    fs::File,
    io::{self, Read},
};

/// Most bytes of `/proc/PID/maps` that are read: about 300 000 mappings.
const MAX_BYTES: u64 = 32 << 20;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Offset of `start` in the file.
    pub(super) offset: u64,
    /// Inode of the file; 0 for anonymous memory.
    pub(super) inode: u64,
    /// Path as the kernel prints it; empty for anonymous memory.
    pub(super) path: String,
}

impl Region {
    /// The last part of the path, without the ` (deleted)` that the kernel adds.
    pub(super) fn file_name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or(path)
    }
}

/// All mappings, ascending.
#[derive(Debug, Default)]
pub(super) struct Maps {
    regions: Vec<Region>,
}

impl Maps {
    /// Reads `/proc/PID/maps`. It blocks while somebody holds the target's `mmap_lock` for writing.
    pub(super) fn read(pid: u32) -> io::Result<Self> {
        let mut text = Vec::new();
        File::open(format!("/proc/{pid}/maps"))?.take(MAX_BYTES).read_to_end(&mut text)?;
        Ok(Self::parse(&text))
    }

    /// Parses the text of a maps file (`show_map_vma`, fs/proc/task_mmu.c); a line that is cut short is left out.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut regions: Vec<Region> = text.split(|&byte| byte == b'\n').filter_map(parse_line).collect();
        regions.sort_by_key(|region| region.start);
        Self { regions }
    }

    /// The mappings, ascending.
    pub(super) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The mapping that holds `address`.
    pub(super) fn find(&self, address: u64) -> Option<&Region> {
        let after = self.regions.partition_point(|region| region.start <= address);
        self.regions.get(after.checked_sub(1)?).filter(|region| address < region.end)
    }
}

fn parse_line(line: &[u8]) -> Option<Region> {
    let line = String::from_utf8_lossy(line);
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let mut fields = rest.splitn(4, ' ');
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let _device = fields.next()?;
    let inode_and_path = fields.next()?;
    let (inode, path) = inode_and_path.split_once(' ').unwrap_or((inode_and_path, ""));
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    Some(Region {
        start,
        end: (end > start).then_some(end)?,
        readable: permissions.starts_with('r'),
        writable: permissions.get(1..2) == Some("w"),
        offset: u64::from_str_radix(offset, 16).ok()?,
        inode: inode.trim_end().parse().ok()?,
        path: path.trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_and_broken_ones_left_out() {
        let maps = Maps::parse(
            b"7f00-8f00 rw-p 00001000 08:01 1234       /usr/lib/a b.so (deleted)\n\
              0100-0200 r--p 00000000 00:00 0 \nrubbish\n9f00-9e00 rw-p 00000000 00:00 0 \naf00-b",
        );
        assert_eq!(maps.regions().len(), 2);
        let region = maps.find(0x7f00).unwrap();
        assert_eq!(region.file_name(), "a b.so");
        assert_eq!((region.offset, region.writable, region.readable), (0x1000, true, true));
        assert_eq!((region.inode, maps.find(0x100).unwrap().inode), (1234, 0));
        assert!(maps.find(0x8f00).is_none());
        assert!(maps.find(0x50).is_none());
        assert_eq!(maps.find(0x1ff).unwrap().path, "");
    }

    #[test]
    fn own_maps_hold_own_code() {
        let maps = Maps::read(std::process::id()).unwrap();
        let code = own_maps_hold_own_code as *const () as u64;
        assert!(maps.find(code).unwrap().path.contains("inspector"));
    }
}
