//! The file behind a mapping, opened without trusting its path.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use super::{maps::Mapping, root};

/// The file that `mapping` of process `pid` maps.
///
/// Through `/proc/PID/map_files`, which names the very file, deleted or of another mount namespace alike (needs
/// `CAP_CHECKPOINT_RESTORE`, before 5.9 `CAP_SYS_ADMIN`); else through the path below `/proc/PID/root`, if the inode
/// there is the mapped one. Devices are not compared: btrfs and overlayfs show another one to `stat` than to `maps`.
///
/// A device or a pipe is never opened: the first open is by `O_PATH`, which runs no driver, and only a regular file
/// is opened again for reading. An open can block on a network file system; only the helper process makes one.
pub(super) fn open(pid: u32, mapping: &Mapping) -> io::Result<File> {
    match exact(pid, mapping).and_then(|place| open_regular(&place)) {
        Ok(file) => Ok(file),
        Err(error) => {
            let file = open_regular(&root::look_up(pid, &mapping.path)?)?;
            if file.metadata()?.ino() == mapping.file.1 { Ok(file) } else { Err(error) }
        }
    }
}

/// Whether who opens the mapping's path below `/proc/PID/root` gets the file that is mapped there, of at most `limit` bytes,
/// and no link, device or pipe in its place.
pub(super) fn is_at_its_path(pid: u32, mapping: &Mapping, limit: u64) -> bool {
    let (Ok(mapped), Ok(named)) = (exact(pid, mapping), root::look_up_plain(pid, &mapping.path)) else {
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

/// A handle of the very file that is mapped.
fn exact(pid: u32, mapping: &Mapping) -> io::Result<File> {
    place(Path::new(&format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end)))
}

fn place(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
}

/// Opens what `place` (`O_PATH`) is for reading, if it is a regular file.
fn open_regular(place: &File) -> io::Result<File> {
    let kind = place.metadata()?.file_type();
    if !kind.is_file() {
        let what =
            if kind.is_char_device() || kind.is_block_device() { "a device" } else { "not a regular file" };
        return Err(io::Error::other(format!("it is {what}")));
    }
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
        .open(path_of(place))
}

/// A path to an open file that no rename can divert.
pub(super) fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::{super::maps::Maps, *};

    #[test]
    fn opens_the_mapped_file() {
        let pid = std::process::id();
        let maps = Maps::read(pid).expect("own maps");
        let own = std::fs::metadata("/proc/self/exe").expect("own executable").ino();
        let mapping = maps.iter().find(|mapping| mapping.file.1 == own).expect("own executable is mapped");
        assert_eq!(open(pid, mapping).expect("opens").metadata().expect("stat").ino(), own);

        let moved = Mapping { start: mapping.start + 1, ..mapping.clone() };
        assert_eq!(open(pid, &moved).expect("by path").metadata().expect("stat").ino(), own);
        let replaced = Mapping { file: (0, mapping.file.1 + 1), ..moved };
        assert!(open(pid, &replaced).is_err(), "another inode is another file");
    }

    #[test]
    fn opens_no_device_and_no_pipe() {
        let refused = |path: &Path| open_regular(&place(path).expect("a handle")).is_err();
        assert!(refused(Path::new("/dev/zero")));
        let directory = tempfile::tempdir().expect("directory");
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        assert!(refused(&pipe));
    }
}
