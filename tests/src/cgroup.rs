//! Cgroups of a test's own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Which of a host's hierarchies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 1, with this controller.
    Controller(&'static str),
    /// Version 2.
    Unified,
}

impl Hierarchy {
    /// Where it is mounted, if it is.
    pub fn mount(self) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let is_it = |words: &Vec<&str>| match (self, words.get(2..4)) {
            (Self::Unified, Some(&["cgroup2", _])) => true,
            (Self::Controller(name), Some(&["cgroup", options])) => options.split(',').any(|o| o == name),
            _ => false,
        };
        lines.find(is_it).and_then(|words| words.get(1).map(PathBuf::from))
    }

    /// The one that has the CPU controller, and its mount.
    pub fn of_cpu() -> Result<(Self, PathBuf)> {
        let first = Self::Controller("cpu");
        if let Some(mount) = first.mount() {
            return Ok((first, mount));
        }
        let mount =
            Self::Unified.mount().context("no cgroup hierarchy with the CPU controller is mounted")?;
        Ok((Self::Unified, mount))
    }
}

/// A cgroup below one of the test's own, all removed when dropped; the processes in it go to the root.
#[derive(Debug)]
pub struct Group {
    mount: PathBuf,
    /// Its path, as `/proc/PID/cgroup` shows it.
    pub path: String,
    undo: Vec<(PathBuf, String)>,
}

impl Group {
    /// Makes `/inspector-test-NUMBER` and below it `path` (empty, or `/a/b`).
    pub fn new(hierarchy: Hierarchy, path: &str) -> Result<Self> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mount = hierarchy.mount().with_context(|| format!("{hierarchy:?} is not mounted"))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = format!("/inspector-test-{}-{number}{path}", std::process::id());
        let group = Self { mount, path, undo: Vec::new() };
        fs::create_dir_all(group.folder()).with_context(|| format!("cannot make cgroup {}", group.path))?;
        if hierarchy == Hierarchy::Unified {
            group.delegate_cpu();
        }
        Ok(group)
    }

    /// Version 2 has a controller only where the parent says so; the root may not hand every one on.
    fn delegate_cpu(&self) {
        let mut folder = self.mount.clone();
        for part in self.path.split('/').filter(|part| !part.is_empty()) {
            fs::write(folder.join("cgroup.subtree_control"), "+cpu").ok();
            folder.push(part);
        }
    }

    /// Its folder.
    pub fn folder(&self) -> PathBuf {
        self.mount.join(self.path.trim_start_matches('/'))
    }

    /// The topmost one, which is the test's own: its path and folder.
    pub fn top(&self) -> (String, PathBuf) {
        let top = self.path.split('/').nth(1).unwrap_or_default();
        (format!("/{top}"), self.mount.join(top))
    }

    /// Moves a process into it.
    pub fn add(&self, pid: u32) -> Result<()> {
        fs::write(self.folder().join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("cannot move process {pid} into cgroup {}", self.path))
    }

    /// Writes a file of `folder`, and `undone` into it in the end.
    pub fn set(&mut self, folder: &Path, file: &str, value: &str, undone: &str) -> Result<()> {
        let place = folder.join(file);
        fs::write(&place, value).with_context(|| format!("cannot write {value} to {}", place.display()))?;
        self.undo.push((place, undone.to_owned()));
        Ok(())
    }

    /// Gives the cgroup at `folder` `quota_ms` of CPU time for each 100 ms.
    pub fn limit_cpu(&mut self, folder: &Path, quota_ms: u32) -> Result<()> {
        let quota = quota_ms * 1000;
        if folder.join("cpu.max").exists() {
            return self.set(folder, "cpu.max", &format!("{quota} 100000"), "max");
        }
        if !folder.join("cpu.cfs_quota_us").exists() {
            bail!("cgroup {} has no CPU quota", self.path);
        }
        fs::write(folder.join("cpu.cfs_period_us"), "100000")?;
        self.set(folder, "cpu.cfs_quota_us", &quota.to_string(), "-1")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (place, value) in self.undo.iter().rev() {
            fs::write(place, value).ok();
        }
        let mut folder = self.folder();
        while folder.starts_with(&self.mount) && folder != self.mount {
            for pid in fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default().lines() {
                fs::write(self.mount.join("cgroup.procs"), pid).ok();
            }
            fs::remove_dir(&folder).ok();
            folder.pop();
        }
    }
}
