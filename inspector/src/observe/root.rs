//! Paths as a target sees them, looked up without leaving its root.

use std::{fs::File, io};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

/// A handle (`O_PATH`: no driver runs, nothing can be read) of what process `pid` has at `path`.
///
/// `/proc/PID/root` followed by a path is not enough: the kernel resolves a symbolic link in it from *our* root, so that
/// the target could point us at any file or device of the host. Linux 5.6 (`openat2`).
pub(super) fn look_up(pid: u32, path: &str) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, format!("/proc/{pid}/root"), flags | OFlags::DIRECTORY, Mode::empty())?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(File::from(openat2(&root, path, flags, Mode::empty(), inside)?))
}

/// Like [`look_up`], but for a path without symbolic links, as `/proc/PID/maps` shows it: one that has some was made to
/// mislead.
pub(super) fn look_up_plain(pid: u32, path: &str) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, format!("/proc/{pid}/root"), flags | OFlags::DIRECTORY, Mode::empty())?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    Ok(File::from(openat2(&root, path, flags, Mode::empty(), inside)?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_or_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "text").expect("written");
        symlink(&file, &link).expect("linked");
        let pid = std::process::id();
        let (file, link) = (file.to_str().expect("UTF-8"), link.to_str().expect("UTF-8"));
        assert!(look_up(pid, link).is_ok_and(|found| found.metadata().is_ok_and(|found| found.is_file())));
        assert!(look_up_plain(pid, file).is_ok());
        assert!(look_up_plain(pid, link).is_err());
        assert!(look_up(pid, "/proc/self/exe").is_err(), "a magic link leads anywhere");
    }
}
