//! The cgroups of processes: path, container, and which of them is frozen.

use std::collections::BTreeMap;

use super::container;
use crate::{
    cgroups::{Hierarchies, Membership, as_host, lineage, read},
    model::Container,
};

/// What the cgroups of a process say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cgroup {
    /// Its path: in the hierarchy that names its container, else in the first where it is not in the root.
    pub(crate) path: Option<String>,
    pub(crate) container: Option<Container>,
    /// A cgroup of it is frozen, or is being frozen; `None`: not known.
    pub(crate) frozen: Option<bool>,
    /// The cgroups that somebody froze, innermost first: its own or ancestors, of either version.
    pub(crate) frozen_cgroups: Vec<String>,
}

/// The cgroups of processes; those that are gone are left out.
pub(crate) fn of(pids: impl IntoIterator<Item = u32> + Send) -> BTreeMap<u32, Cgroup> {
    let all = as_host(|| {
        let hierarchies = Hierarchies::find();
        let one = |pid| Some((pid, describe(&hierarchies, &Membership::of(pid)?)));
        pids.into_iter().filter_map(one).collect()
    });
    all.unwrap_or_default()
}

fn describe(hierarchies: &Hierarchies, membership: &Membership) -> Cgroup {
    let (path, container) = place(membership);
    let mut cgroup = Cgroup { path, container, ..Cgroup::default() };
    freezer(hierarchies, membership, &mut cgroup);
    unified(hierarchies, membership, &mut cgroup);
    cgroup
}

fn place(membership: &Membership) -> (Option<String>, Option<Container>) {
    let named = membership.paths().find_map(|path| Some((path, container::of(path)?)));
    if let Some((path, container)) = named {
        return (Some(path.to_owned()), Some(container));
    }
    let usual = [membership.unified(), membership.controller("freezer"), membership.controller("cpu")];
    let first = usual.iter().flatten().find(|path| **path != "/").or_else(|| usual.iter().flatten().next());
    (first.map(|path| (*path).to_owned()), None)
}

/// Version 1: a frozen cgroup freezes those below it, and each says whether it was asked itself
/// (Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst).
fn freezer(hierarchies: &Hierarchies, membership: &Membership, cgroup: &mut Cgroup) {
    let (Some(mount), Some(path)) = (&hierarchies.freezer, membership.controller("freezer")) else { return };
    for (index, (name, folder)) in lineage(mount, path).into_iter().enumerate() {
        if index == 0 {
            let state = read(&folder.join("freezer.state"));
            note(cgroup, state.map(|state| matches!(state.trim(), "FROZEN" | "FREEZING")));
        }
        if read(&folder.join("freezer.self_freezing")).is_some_and(|asked| asked.trim() == "1") {
            cgroup.frozen_cgroups.push(name);
        }
    }
}

/// Version 2 (Documentation/admin-guide/cgroup-v2.rst).
fn unified(hierarchies: &Hierarchies, membership: &Membership, cgroup: &mut Cgroup) {
    let (Some(mount), Some(path)) = (&hierarchies.unified, membership.unified()) else { return };
    for (index, (name, folder)) in lineage(mount, path).into_iter().enumerate() {
        if index == 0 {
            let frozen = |events: String| {
                events.lines().find_map(|line| line.strip_prefix("frozen ")).map(|value| value.trim() == "1")
            };
            note(cgroup, read(&folder.join("cgroup.events")).and_then(frozen));
        }
        if read(&folder.join("cgroup.freeze")).is_some_and(|asked| asked.trim() == "1") {
            cgroup.frozen_cgroups.push(name);
        }
    }
}

fn note(cgroup: &mut Cgroup, frozen: Option<bool>) {
    if let Some(frozen) = frozen {
        cgroup.frozen = Some(frozen || cgroup.frozen == Some(true));
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_path_is_where_the_container_is() {
        let id = "0123456789abcdef".repeat(4);
        let text = format!("9:freezer:/other\n4:memory:/docker/{id}\n0::/\n");
        let (path, container) = place(&Membership::parse(&text));
        assert_eq!(path, Some(format!("/docker/{id}")));
        assert_eq!(container.and_then(|container| container.id), Some(id));
        let path = |text: &str| place(&Membership::parse(text)).0;
        assert_eq!(path("6:freezer:/a\n0::/\n").as_deref(), Some("/a"));
        assert_eq!(path("6:freezer:/\n0::/\n").as_deref(), Some("/"));
        assert_eq!(path(""), None);
    }

    fn files(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).expect("a folder");
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("written");
        }
    }

    #[test]
    fn the_frozen_ones_of_a_lineage_are_told() {
        let root = tempfile::tempdir().expect("a folder");
        let (v1, v2) = (root.path().join("v1"), root.path().join("v2"));
        files(&v1.join("a"), &[("freezer.state", "FROZEN\n"), ("freezer.self_freezing", "1\n")]);
        files(&v1.join("a/b"), &[("freezer.state", "FROZEN\n"), ("freezer.self_freezing", "0\n")]);
        files(&v2.join("c"), &[("cgroup.events", "populated 1\nfrozen 0\n"), ("cgroup.freeze", "0\n")]);
        let hierarchies =
            Hierarchies { unified: Some(v2.clone()), freezer: Some(v1), ..Hierarchies::default() };
        let membership = Membership::parse("6:freezer:/a/b\n0::/c\n");
        let cgroup = describe(&hierarchies, &membership);
        assert_eq!((cgroup.frozen, cgroup.frozen_cgroups), (Some(true), vec!["/a".to_owned()]));
        files(&v2.join("c"), &[("cgroup.events", "frozen 1\n"), ("cgroup.freeze", "1\n")]);
        assert_eq!(describe(&hierarchies, &membership).frozen_cgroups, ["/a", "/c"]);
        let thawed = describe(&hierarchies, &Membership::parse("0::/elsewhere\n"));
        assert_eq!((thawed.frozen, thawed.frozen_cgroups), (None, Vec::new()));
    }
}
