//! Programs in containers of a test's own (`tests/fixtures/containers/enter.c`), without any container engine.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Fixture, compile, eventually, procfs};

/// A folder to make a root file system in. It is in memory: overlayfs refuses layers that lie inside each other, and the
/// host's root can be the lowest one.
fn folder() -> Result<TempDir> {
    let made = TempDir::new_in("/dev/shm");
    made.context("cannot make a folder in /dev/shm, which must be a tmpfs")
}

/// The files that a container sees.
#[derive(Debug)]
pub struct Image {
    folder: TempDir,
    /// The host's files are below its own.
    over_host: bool,
}

impl Image {
    /// Nothing but what is added.
    pub fn empty() -> Result<Self> {
        Ok(Self { folder: folder()?, over_host: false })
    }

    /// What is added, over the host's files.
    pub fn over_host() -> Result<Self> {
        Ok(Self { over_host: true, ..Self::empty()? })
    }

    /// Where the image's file at `path` lies outside.
    pub fn place(&self, path: &Path) -> PathBuf {
        self.folder.path().join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Copies a file of the host to `path`.
    pub fn add(&self, file: &Path, path: &Path) -> Result<()> {
        let place = self.place(path);
        fs::create_dir_all(place.parent().context("a folder")?)?;
        fs::copy(file, &place).with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(())
    }

    /// Adds a program under its own path, with the libraries that `ldd` names.
    pub fn add_program(&self, program: &Path) -> Result<()> {
        self.add(program, program)?;
        let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for path in text.split_whitespace().filter(|word| word.starts_with('/')) {
            self.add(Path::new(path), Path::new(path))?;
        }
        Ok(())
    }
}

/// How a container differs from the usual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// It has a user namespace: its root is user 100000 outside.
    pub user: bool,
    /// Its root was entered by `chroot` alone.
    pub only_chroot: bool,
    /// It shares the host's PID namespace.
    pub hosts_pids: bool,
    /// It has the host's `/sys`.
    pub sys: bool,
    /// Its host name.
    pub hostname: Option<&'a str>,
}

/// A program that runs in one, as process 1 there.
#[derive(Debug)]
pub struct Container {
    /// The program outside, which waits for the one inside.
    pub fixture: Fixture,
    /// The host's pid of the program inside.
    pub pid: u32,
    _base: TempDir,
}

impl Container {
    /// The command that runs a program of an image in a container, and the folder that it needs meanwhile.
    pub fn command(image: &Image, options: Options<'_>, program: &Path) -> Result<(Command, TempDir)> {
        let base = folder()?;
        let mut command = Command::new(compile::c("containers/enter.c", &[])?);
        command.args(options.user.then_some("-u")).args(options.only_chroot.then_some("-c"));
        command.args(options.hosts_pids.then_some("-p")).args(options.sys.then_some("-s"));
        command.args(options.hostname.iter().flat_map(|name| ["-n", name]));
        let lower = image.folder.path().display();
        let lower = if image.over_host { format!("{lower}:/") } else { lower.to_string() };
        command.arg(base.path()).arg(lower).arg(program);
        Ok((command, base))
    }

    /// Runs a program of an image until it says `ready`, with what it said.
    pub fn start<A: AsRef<OsStr>>(
        image: &Image,
        options: Options<'_>,
        program: &Path,
        arguments: &[A],
    ) -> Result<(Self, Value)> {
        let (mut command, base) = Self::command(image, options, program)?;
        command.args(arguments);
        let (fixture, facts) = Fixture::ready(command)?;
        let pid = only_child(fixture.pid())?;
        Ok((Self { fixture, pid, _base: base }, facts))
    }

    /// The host's tid of the thread that calls itself `inner`.
    pub fn tid(&self, inner: &Value) -> Result<u32> {
        let inner = inner.as_u64().with_context(|| format!("{inner} is no tid"))?;
        let is_it = |&tid: &u32| {
            procfs::status_numbers(self.pid, tid, "NSpid").is_some_and(|ids| ids.last() == Some(&inner))
        };
        procfs::tids(self.pid).into_iter().find(is_it).with_context(|| format!("there is no thread {inner}"))
    }

    /// Replaces the file at `path` inside, as a package manager does: the old one is deleted.
    pub fn replace(&self, path: &Path, by: &Path) -> Result<()> {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        let place = root.join(path.strip_prefix("/").unwrap_or(path));
        fs::remove_file(&place)?;
        fs::copy(by, &place)?;
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        ensure!(maps.contains("(deleted)"), "{} was not in use", path.display());
        Ok(())
    }
}

/// The child of a process that has one.
pub fn only_child(pid: u32) -> Result<u32> {
    eventually(&format!("process {pid} has a child"), || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    })
}
