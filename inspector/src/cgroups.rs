//! Where cgroups are: the paths of a process, and the folders of the hierarchies; for `discover` and `observe`.
//!
//! Paths are relative to the cgroup namespace of who asks (`cgroup_namespaces(7)`), and a container mounts what belongs to
//! it alone. An agent that shares the host's PID namespace finds the host's view at process 1: [`as_host`] asks from
//! there, and [`Hierarchies`] knows the mounts below `/proc/1/root`.

use std::{
    fs::{self, File},
    io::Read,
    path::{Component, Path, PathBuf},
};

use rustix::thread::LinkNameSpaceType;

use crate::visit::visit;

/// Most bytes of one of these files.
const LIMIT: u64 = 1 << 20;
/// Most ancestors looked at; nobody nests deeper.
const MAX_DEPTH: usize = 64;

/// `/proc/PID/ns/cgroup` in the initial cgroup namespace (`PROC_CGROUP_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_NAMESPACE: &str = "cgroup:[4026531835]";
/// Who lives there: the host's first process, which may forbid to be looked at, and the kernel's first thread.
const HOSTS_OWN: [u32; 2] = [1, 2];

/// Does `work` where cgroup paths are the host's, as far as that is allowed (`CAP_SYS_ADMIN`). `None`: it failed.
pub(crate) fn as_host<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let is_initial =
        |place: &str| fs::read_link(place).is_ok_and(|link| link.as_os_str() == INITIAL_NAMESPACE);
    if is_initial("/proc/self/ns/cgroup") {
        return Some(work());
    }
    let mut places = HOSTS_OWN.iter().map(|pid| format!("/proc/{pid}/ns/cgroup"));
    let Some(host) = places.find(|place| is_initial(place)).and_then(|place| File::open(place).ok()) else {
        // Paths are relative to our own namespace then, and most lead out of it.
        return Some(work());
    };
    visit(&host, LinkNameSpaceType::ControlGroup, |_| work())
}

/// Where the roots of the hierarchies are, as far as they are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hierarchies {
    /// Version 2.
    pub(crate) unified: Option<PathBuf>,
    /// The freezer controller of version 1.
    pub(crate) freezer: Option<PathBuf>,
    /// The CPU controller of version 1.
    pub(crate) cpu: Option<PathBuf>,
}

impl Hierarchies {
    /// Looks in our own mounts, then in those of process 1. To be called where paths are the host's.
    pub(crate) fn find() -> Self {
        let mounts = |file: &str, root: &str| {
            read(Path::new(file)).map(|text| Self::parse(&text, Path::new(root))).unwrap_or_default()
        };
        let own = mounts("/proc/thread-self/mountinfo", "/");
        let first = mounts("/proc/1/mountinfo", "/proc/1/root");
        Self {
            unified: own.unified.or(first.unified),
            freezer: own.freezer.or(first.freezer),
            cpu: own.cpu.or(first.cpu),
        }
    }

    /// The mounts of whole hierarchies; mount points are below `root`.
    fn parse(mountinfo: &str, root: &Path) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            // proc(5): six fields, optional ones, a hyphen, then the type, the source and the super block's options.
            let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
            let mut fields = mount.split(' ').skip(3);
            // A mount whose root is another one shows only a part of the hierarchy.
            let (Some("/"), Some(point)) = (fields.next(), fields.next()) else { continue };
            // Spaces are written as escapes; nobody mounts cgroups there.
            let point = root.join(point.trim_start_matches('/'));
            let mut rest = filesystem.split(' ');
            let kind = rest.next();
            let options = rest.nth(1).unwrap_or_default();
            let controls = |controller: &str| options.split(',').any(|option| option == controller);
            let set = |place: &mut Option<PathBuf>| {
                place.get_or_insert_with(|| point.clone());
            };
            match kind {
                Some("cgroup2") => set(&mut found.unified),
                Some("cgroup") => {
                    if controls("freezer") {
                        set(&mut found.freezer);
                    }
                    if controls("cpu") {
                        set(&mut found.cpu);
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// The cgroups of a process or a thread: one in each hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Membership(Vec<(String, String)>);

impl Membership {
    /// Of a process.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Some(Self::parse(&read(Path::new(&format!("/proc/{pid}/cgroup")))?))
    }

    /// Of one of its threads: with version 1 and in threaded cgroups they can differ.
    pub(crate) fn of_thread(pid: u32, tid: u32) -> Option<Self> {
        Some(Self::parse(&read(Path::new(&format!("/proc/{pid}/task/{tid}/cgroup")))?))
    }

    /// `hierarchy-ID:controllers:path` (cgroups(7)); version 2 has no controllers.
    pub(crate) fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// The path in the unified hierarchy.
    pub(crate) fn unified(&self) -> Option<&str> {
        self.0.iter().find_map(|(controllers, path)| controllers.is_empty().then_some(path.as_str()))
    }

    /// The path in the hierarchy of a controller of version 1.
    pub(crate) fn controller(&self, name: &str) -> Option<&str> {
        let controls = |controllers: &str| controllers.split(',').any(|controller| controller == name);
        self.0.iter().find_map(|(controllers, path)| controls(controllers).then_some(path.as_str()))
    }

    /// The paths in all hierarchies, as the kernel lists them.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, path)| path.as_str())
    }
}

/// A cgroup and its ancestors, innermost first, without the root: each one's path and folder. Empty for a path that leads
/// out of our cgroup namespace (`/../…`).
pub(crate) fn lineage(mount: &Path, path: &str) -> Vec<(String, PathBuf)> {
    let relative = Path::new(path.trim_start_matches('/'));
    if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
        return Vec::new();
    }
    let group = |relative: &Path| (format!("/{}", relative.display()), mount.join(relative));
    relative.ancestors().take_while(|part| !part.as_os_str().is_empty()).take(MAX_DEPTH).map(group).collect()
}

/// Reads a short file.
pub(crate) fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LIMIT).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_hierarchies_are_found() {
        let mountinfo = "\
            30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
            36 30 0:32 / /sys/fs/cgroup/freezer rw shared:15 - cgroup cgroup rw,freezer\n\
            37 30 0:33 / /sys/fs/cgroup/cpu,cpuacct rw shared:16 - cgroup cgroup rw,cpu,cpuacct\n";
        let found = Hierarchies::parse(mountinfo, Path::new("/"));
        assert_eq!(found.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(found.freezer.as_deref(), Some(Path::new("/sys/fs/cgroup/freezer")));
        assert_eq!(found.cpu.as_deref(), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        let part = "31 30 0:27 /docker/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                    32 30 0:27 / /host rw - cgroup2 cgroup2 rw\n";
        let found = Hierarchies::parse(part, Path::new("/elsewhere"));
        assert_eq!(found.unified.as_deref(), Some(Path::new("/elsewhere/host")));
    }

    #[test]
    fn paths_of_both_versions_are_split() {
        let both = Membership::parse("7:freezer:/docker/a\n3:cpu,cpuacct:/x\n0::/docker/b:c\n");
        assert_eq!((both.unified(), both.controller("freezer")), (Some("/docker/b:c"), Some("/docker/a")));
        assert_eq!((both.controller("cpu"), both.controller("memory")), (Some("/x"), None));
        assert_eq!(Membership::parse("junk\n"), Membership::default());
    }

    #[test]
    fn a_path_out_of_the_namespace_is_not_followed() {
        assert_eq!(lineage(Path::new("/m"), "/../../etc"), []);
        let pair = |path: &str, folder: &str| (path.to_owned(), PathBuf::from(folder));
        assert_eq!(lineage(Path::new("/m"), "/a/b"), [pair("/a/b", "/m/a/b"), pair("/a", "/m/a")]);
        assert_eq!(lineage(Path::new("/m"), "/"), []);
    }

    #[test]
    fn our_own_paths_are_read() {
        let seen = as_host(|| (Membership::of(std::process::id()), Hierarchies::find()));
        let (own, _) = seen.expect("a thread");
        assert!(own.expect("cgroups").paths().all(|path| path.starts_with('/')));
    }

    proptest! {
        #[test]
        fn nothing_leads_out_of_the_mount(path in "(/[a-z.]{0,3}){0,80}") {
            for (name, folder) in lineage(Path::new("/m"), &path) {
                prop_assert!(folder.starts_with("/m") && name.starts_with('/'));
                prop_assert!(folder.components().all(|part| part != Component::ParentDir));
            }
        }
    }
}
