//! `/proc/PID/maps`: which file's bytes, or which stack, lie at an address.

use std::{fs::File, io::Read as _, io::Result};

/// Most bytes of `maps` that are read: a bound on what a hostile target can make us hold. The kernel's default limit of
/// 65530 mappings (`vm.max_map_count`) fits several times over.
const MAX_BYTES: u64 = 64 << 20;

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    /// First address.
    pub(super) start: u64,
    /// First address after it.
    pub(super) end: u64,
    /// It may be read.
    pub(super) readable: bool,
    /// It may be written to.
    pub(super) writable: bool,
    /// Code may run there.
    pub(super) executable: bool,
    /// Others who map the same see what is written.
    pub(super) shared: bool,
    /// Offset of `start` in the file.
    pub(super) offset: u64,
    /// The file's device, as `maps` prints it, and its inode; inode 0: no file.
    pub(super) file: (u64, u64),
    /// Path in the target's mount namespace, without ` (deleted)`; or a name such as `[vdso]`; empty for none.
    pub(super) path: String,
}

impl Mapping {
    /// A file is mapped.
    pub(super) fn has_file(&self) -> bool {
        self.file.1 != 0
    }

    /// The path's last part; empty for anonymous memory.
    pub(super) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The path's last part, for sentences.
    pub(super) fn name(&self) -> &str {
        Some(self.file_name()).filter(|name| !name.is_empty()).unwrap_or("anonymous memory")
    }
}

/// A process's mappings, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Maps(Vec<Mapping>);

impl Maps {
    /// Reads `/proc/PID/maps`. It blocks while somebody holds the target's `mmap_lock` for writing.
    pub(super) fn read(pid: u32) -> Result<Self> {
        let mut text = Vec::new();
        File::open(format!("/proc/{pid}/maps"))?.take(MAX_BYTES).read_to_end(&mut text)?;
        Ok(Self::parse(&text))
    }

    /// Lines that do not read as a mapping are left out.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut mappings: Vec<Mapping> = text.split(|&byte| byte == b'\n').filter_map(parse_line).collect();
        mappings.sort_by_key(|mapping| mapping.start);
        Self(mappings)
    }

    /// The mapping that holds `address`.
    pub(super) fn at(&self, address: u64) -> Option<&Mapping> {
        let after = self.0.partition_point(|mapping| mapping.start <= address);
        self.0.get(after.checked_sub(1)?).filter(|mapping| address < mapping.end)
    }

    /// All mappings, by address.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.0.iter()
    }
}

/// `start-end perms offset major:minor inode [path]` (fs/proc/task_mmu.c, `show_map_vma`).
fn parse_line(line: &[u8]) -> Option<Mapping> {
    let line = String::from_utf8_lossy(line);
    let mut rest: &str = &line;
    let mut field = || {
        let (word, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail.trim_start_matches(' ');
        word
    };
    let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
    let (start, end) = field().split_once('-')?;
    let permissions = field();
    let offset = hexadecimal(field())?;
    let (major, minor) = field().split_once(':')?;
    let device = hexadecimal(major)? << 20 | hexadecimal(minor)?;
    let inode = field().parse().ok()?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let allows = |letter| permissions.contains(letter);
    (start < end).then(|| Mapping {
        start,
        end,
        readable: allows('r'),
        writable: allows('w'),
        executable: allows('x'),
        shared: allows('s'),
        offset,
        file: (device, inode),
        path: rest.strip_suffix(" (deleted)").unwrap_or(rest).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_mapping_with_spaces_in_its_path() {
        let maps = Maps::parse(
            b"7f00-8000 r-xp 00001000 fd:01 1234                       /tmp/a b.so (deleted)\nnonsense\n\
              1000-2000 rw-p 00000000 00:00 0                          [stack]\n\
              3000-4000 ---p 00000000 00:00 0 \n9f00-9e00 rw-p 00000000 00:00 0 \naf00-b",
        );
        assert_eq!(maps.iter().count(), 3);
        let code = maps.at(0x7f10).expect("mapped");
        assert_eq!((code.path.as_str(), code.name(), code.offset), ("/tmp/a b.so", "a b.so", 0x1000));
        assert!(code.executable && code.readable && !code.writable && code.has_file());
        assert_eq!(code.file, (0xfd << 20 | 1, 1234));
        let stack = maps.at(0x1fff).expect("mapped");
        assert!(!stack.executable && stack.writable && !stack.has_file());
        assert_eq!(
            maps.at(0x3000).map(|guard| (guard.name(), guard.readable)),
            Some(("anonymous memory", false))
        );
        assert_eq!(maps.at(0x2000), None);
        assert_eq!(maps.at(0x8000), None);
        assert_eq!(maps.at(0), None);
    }

    #[test]
    fn finds_its_own_code() {
        let maps = Maps::read(std::process::id()).expect("own maps");
        let here = finds_its_own_code as fn() as usize as u64;
        assert!(maps.at(here).is_some_and(|mapping| mapping.executable && mapping.has_file()));
    }
}
