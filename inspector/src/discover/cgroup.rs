//! Cgroup paths, and whether a cgroup is frozen.

use std::{
    fs::File,
    io::Read,
    path::{Component, Path, PathBuf},
};

/// Most bytes of one of these files.
const LIMIT: u64 = 1 << 20;

/// Where the freezer's files are: the unified hierarchy and the old freezer controller's, as far as they are mounted.
#[derive(Clone, Debug, Default)]
pub(super) struct Freezers {
    unified: Option<PathBuf>,
    freezer: Option<PathBuf>,
}

/// The cgroup of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cgroup {
    /// Its path in its hierarchy.
    pub(super) path: String,
    /// It is frozen, or is being frozen; `None`: not known.
    pub(super) frozen: Option<bool>,
}

impl Freezers {
    /// Looks for the mounts in `/proc/self/mountinfo`.
    pub(super) fn find() -> Self {
        read(Path::new("/proc/self/mountinfo")).map(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(mountinfo: &str) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            // proc(5): six fields, optional ones, a hyphen, then the type, the source and the super block's options.
            let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
            let Some(point) = mount.split(' ').nth(4) else { continue };
            let mut rest = filesystem.split(' ');
            match rest.next() {
                Some("cgroup2") => found.unified = found.unified.or_else(|| Some(point.into())),
                Some("cgroup")
                    if rest.nth(1).is_some_and(|options| options.split(',').any(|o| o == "freezer")) =>
                {
                    found.freezer = found.freezer.or_else(|| Some(point.into()));
                }
                _ => {}
            }
        }
        found
    }

    /// The cgroup of a process.
    pub(super) fn of(&self, pid: u32) -> Option<Cgroup> {
        let (unified, freezer) = paths(&read(Path::new(&format!("/proc/{pid}/cgroup")))?);
        let by_freezer = freezer.as_deref().and_then(|path| {
            let state = read(&inside(self.freezer.as_deref()?, path)?.join("freezer.state"))?;
            Some(matches!(state.trim(), "FROZEN" | "FREEZING"))
        });
        let by_events = unified.as_deref().and_then(|path| {
            let events = read(&inside(self.unified.as_deref()?, path)?.join("cgroup.events"))?;
            events.lines().find_map(|line| line.strip_prefix("frozen ")).map(|value| value.trim() == "1")
        });
        let frozen = match (by_freezer, by_events) {
            (None, None) => None,
            (one, other) => Some(one == Some(true) || other == Some(true)),
        };
        Some(Cgroup { path: unified.or(freezer)?, frozen })
    }
}

/// The path in the unified hierarchy, and the one in the freezer's.
fn paths(cgroup: &str) -> (Option<String>, Option<String>) {
    let (mut unified, mut freezer) = (None, None);
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if id == "0" && controllers.is_empty() {
            unified = Some(path.to_owned());
        } else if controllers.split(',').any(|controller| controller == "freezer") {
            freezer = Some(path.to_owned());
        }
    }
    (unified, freezer)
}

/// The folder of a cgroup below a mount point; none for a path that leads out of our cgroup namespace (`/../…`).
fn inside(mount: &Path, path: &str) -> Option<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    relative.components().all(|part| matches!(part, Component::Normal(_))).then(|| mount.join(relative))
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LIMIT).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hierarchies_are_found() {
        let mountinfo = "\
            30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
            36 30 0:32 / /sys/fs/cgroup/freezer rw shared:15 - cgroup cgroup rw,freezer\n\
            37 30 0:33 / /sys/fs/cgroup/cpu rw shared:16 - cgroup cgroup rw,cpu\n";
        let found = Freezers::parse(mountinfo);
        assert_eq!(found.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(found.freezer.as_deref(), Some(Path::new("/sys/fs/cgroup/freezer")));
    }

    #[test]
    fn paths_of_both_versions_are_split() {
        let (unified, freezer) = paths("7:freezer:/docker/a\n3:cpu,cpuacct:/x\n0::/docker/b:c\n");
        assert_eq!((unified.as_deref(), freezer.as_deref()), (Some("/docker/b:c"), Some("/docker/a")));
        assert_eq!(paths("junk\n"), (None, None));
    }

    #[test]
    fn a_path_out_of_the_namespace_is_not_followed() {
        assert_eq!(inside(Path::new("/m"), "/../../etc"), None);
        assert_eq!(inside(Path::new("/m"), "/a/b").as_deref(), Some(Path::new("/m/a/b")));
        assert_eq!(inside(Path::new("/m"), "/").as_deref(), Some(Path::new("/m/")));
    }
}
