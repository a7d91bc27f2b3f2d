//! Writing a result to a file: whole or not at all, readable by its owner only.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::interrupt;

/// Says early, before anything is captured, that a file cannot be written.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    if let Ok(existing) = fs::symlink_metadata(path)
        && !existing.is_file()
        && !existing.is_symlink()
    {
        bail!("cannot write {}: it exists and is not a regular file", path.display());
    }
    let folder = folder_of(path);
    let is_folder = fs::metadata(folder)
        .with_context(|| format!("cannot write {}: its folder {}", path.display(), folder.display()))?
        .is_dir();
    if !is_folder {
        bail!("cannot write {}: {} is not a folder", path.display(), folder.display());
    }
    Ok(())
}

/// Writes `content` beside `path` and renames it into place. A capture holds command lines and addresses of other
/// users' processes, so the file is made with mode 0600.
pub(super) fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    check(path)?;
    let unfinished = unfinished_path(path);
    interrupt::guarded(&unfinished, || {
        let written = fill(&unfinished, content).and_then(|()| fs::rename(&unfinished, path));
        if written.is_err() {
            // It may not have come into being at all.
            fs::remove_file(&unfinished).ok();
        }
        written
    })
    .with_context(|| format!("cannot write {}, nothing was left of it", path.display()))
}

fn fill(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    // Some file systems find out only now that the disk is full.
    file.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn unfinished_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    folder_of(path).join(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_is_replaced_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        fs::write(&path, "an older and longer report").unwrap();
        write(&path, b"{}\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{}\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["report.json"]);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(&folder.path().join("no/report.json"), b"{}").unwrap_err();
        assert!(format!("{error:#}").contains("/no: No such file or directory"), "{error:#}");
        assert_eq!(names(folder.path()), Vec::<OsString>::new());
    }

    #[test]
    fn what_is_not_a_regular_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.json");
        fs::create_dir(&path).unwrap();
        let error = write(&path, b"{}").unwrap_err();
        assert!(format!("{error:#}").contains("not a regular file"), "{error:#}");
        assert!(path.is_dir());
    }
}
