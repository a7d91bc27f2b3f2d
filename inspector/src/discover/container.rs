//! The container and the pod of a process, by the path of its cgroup. Pure.
//!
//! The forms are those of the runtimes' two cgroup drivers: `systemd` (`…/docker-ID.scope`,
//! `…/kubepods-burstable-podUID.slice/cri-containerd-ID.scope`) and `cgroupfs` (`/docker/ID`, `/kubepods/besteffort/podUID/ID`).

use crate::model::Container;

/// Prefixes of the unit that systemd runs a container in, and of folders, by runtime. Beside them run monitors
/// (`crio-conmon-ID.scope`), which are in no container.
const PREFIXES: [(&str, &str); 6] = [
    ("docker", "docker"),
    ("cri-containerd", "containerd"),
    ("nerdctl", "containerd"),
    ("containerd", "containerd"),
    ("crio", "cri-o"),
    ("libpod", "podman"),
];

/// Folders that hold containers of one runtime by their bare id.
const PARENTS: [(&str, &str); 4] =
    [("docker", "docker"), ("libpod_parent", "podman"), ("libpod", "podman"), ("crio", "cri-o")];

/// The innermost container that a path names.
pub(super) fn of(path: &str) -> Option<Container> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut container = (0..parts.len()).rev().find_map(|index| {
        let parent = index.checked_sub(1).and_then(|index| parts.get(index)).copied();
        parts.get(index).and_then(|part| named(part, parent))
    });
    if let Some(uid) = parts.iter().rev().find_map(|part| pod_uid(part)) {
        container.get_or_insert_default().pod_uid = Some(uid);
    }
    container
}

/// The container that a folder below `parent` is of.
fn named(part: &str, parent: Option<&str>) -> Option<Container> {
    let found = |runtime: Option<&str>, id: &str| Container {
        runtime: runtime.map(str::to_owned),
        id: Some(id.to_owned()),
        ..Container::default()
    };
    // `machine.slice/systemd-nspawn@NAME.service`; `lxc.payload.NAME`, before LXC 4 `lxc/NAME`.
    if let Some(name) = part.strip_prefix("systemd-nspawn@").and_then(|rest| rest.strip_suffix(".service")) {
        return Some(found(Some("systemd-nspawn"), name)).filter(|_| !name.is_empty());
    }
    let lxc = part.strip_prefix("lxc.payload.").or_else(|| (parent == Some("lxc")).then_some(part));
    if let Some(name) = lxc.filter(|name| !name.is_empty()) {
        return Some(found(Some("lxc"), name));
    }
    // containerd without the systemd driver, told a path meant for it: `kubepods-podUID.slice:cri-containerd:ID`.
    if let Some((before, id)) = part.rsplit_once(':') {
        let prefix = before.rsplit(':').next().unwrap_or_default();
        return is_id(id).then(|| found(runtime(&PREFIXES, prefix), id));
    }
    let unit = part.strip_suffix(".scope").unwrap_or(part);
    match unit.rsplit_once('-') {
        Some((prefix, id)) if is_id(id) => Some(found(Some(runtime(&PREFIXES, prefix)?), id)),
        Some(_) => None,
        None => is_id(unit).then(|| found(parent.and_then(|parent| runtime(&PARENTS, parent)), unit)),
    }
}

fn runtime<'t>(table: &[(&str, &'t str)], name: &str) -> Option<&'t str> {
    table.iter().find(|(key, _)| *key == name).map(|(_, runtime)| *runtime)
}

/// The uid of the pod that a folder is of: `podUID`, or `kubepods-burstable-podUID.slice`, where dashes are underscores.
fn pod_uid(part: &str) -> Option<String> {
    let slice = part.split(':').next().unwrap_or(part);
    let uid = match slice.strip_suffix(".slice") {
        Some(slice) => slice.strip_prefix("kubepods")?.rsplit_once("-pod")?.1.replace('_', "-"),
        None => slice.strip_prefix("pod")?.to_owned(),
    };
    // A static pod's is a digest without dashes.
    let digits = uid.bytes().filter(|&byte| byte != b'-');
    let is_uid = matches!(uid.len(), 32 | 36)
        && digits.clone().count() == 32
        && digits.clone().all(|byte| byte.is_ascii_hexdigit());
    is_uid.then_some(uid)
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const UID: &str = "8f1c2d3e-0000-4000-8000-00a0b0c0d0e0";

    fn told(path: &str) -> Option<(Option<String>, Option<String>, Option<String>)> {
        of(path).map(|container| (container.runtime, container.id, container.pod_uid))
    }

    #[test]
    fn the_forms_of_each_runtime() {
        let slice = UID.replace('-', "_");
        for (path, runtime, pod) in [
            (format!("/docker/{ID}"), Some("docker"), false),
            (format!("/system.slice/docker-{ID}.scope"), Some("docker"), false),
            (format!("/system.slice/docker-{ID}.scope/init.scope"), Some("docker"), false),
            (format!("/default/{ID}"), None, false),
            (format!("/system.slice/nerdctl-{ID}.scope"), Some("containerd"), false),
            (format!("/machine.slice/libpod-{ID}.scope/container"), Some("podman"), false),
            (format!("/libpod_parent/libpod-{ID}"), Some("podman"), false),
            (
                format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
                Some("podman"),
                false,
            ),
            (format!("/kubepods/besteffort/pod{UID}/{ID}"), None, true),
            (format!("/kubepods/pod{UID}/crio-{ID}"), Some("cri-o"), true),
            (
                format!("/kubepods.slice/kubepods-pod{slice}.slice/cri-containerd-{ID}.scope"),
                Some("containerd"),
                true,
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/crio-{ID}.scope"
                ),
                Some("cri-o"),
                true,
            ),
            (
                format!(
                    "/system.slice/containerd.service/kubepods-burstable-pod{slice}.slice:cri-containerd:{ID}"
                ),
                Some("containerd"),
                true,
            ),
            (format!("/../../kubepods/pod{UID}/{ID}"), None, true),
            (format!("/ecs/0a1b/{ID}"), None, false),
        ] {
            let expected = (runtime.map(str::to_owned), Some(ID.to_owned()), pod.then(|| UID.to_owned()));
            assert_eq!(told(&path), Some(expected), "{path}");
        }
    }

    #[test]
    fn named_machines_and_nested_containers() {
        let (runtime, id, _) = told("/machine.slice/systemd-nspawn@deb.service/payload").expect("a machine");
        assert_eq!((runtime.as_deref(), id.as_deref()), (Some("systemd-nspawn"), Some("deb")));
        let (runtime, id, _) = told("/lxc.payload.web-1/system.slice/a.service").expect("a machine");
        assert_eq!((runtime.as_deref(), id.as_deref()), (Some("lxc"), Some("web-1")));
        let inner = ID.replace('0', "f");
        let nested = told(&format!("/kubepods/pod{UID}/{ID}/docker/{inner}")).expect("docker in a pod");
        assert_eq!(nested, (Some("docker".into()), Some(inner), Some(UID.into())));
    }

    #[test]
    fn services_and_monitors_are_in_no_container() {
        for path in [
            "/",
            "/init.scope",
            "/system.slice/docker.service",
            "/user.slice/user-0.slice/session-3.scope",
            &format!("/system.slice/crio-conmon-{ID}.scope"),
            &format!("/machine.slice/libpod-conmon-{ID}.scope"),
            "/kubepods/burstable",
            "/lxc.monitor.web",
            "/docker/short",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
        let pod = of(&format!("/kubepods/pod{UID}")).expect("a pod");
        assert_eq!((pod.id, pod.pod_uid.as_deref()), (None, Some(UID)));
    }

    proptest! {
        #[test]
        fn any_path_is_survived(path in ".{0,200}") {
            let _ = of(&path);
        }

        #[test]
        fn ids_come_back_whatever_stands_around_them(
            id in "[0-9a-f]{64}", uid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            above in "(/(\\.\\.|[a-z]{1,6}\\.slice)){0,4}", below in "(/[a-z]{1,6}\\.service){0,3}",
            driver in 0..3usize, (prefix, runtime) in proptest::sample::select(&PREFIXES[..]),
        ) {
            let slice = uid.replace('-', "_");
            let middle = match driver {
                0 => format!("/kubepods/pod{uid}/{prefix}-{id}"),
                1 => format!("/kubepods.slice/kubepods-pod{slice}.slice/{prefix}-{id}.scope"),
                _ => format!("/kubepods-besteffort-pod{slice}.slice:{prefix}:{id}"),
            };
            let container = of(&format!("{above}{middle}{below}")).expect("a container");
            prop_assert_eq!(container.runtime.as_deref(), Some(runtime));
            prop_assert_eq!(container.id, Some(id));
            prop_assert_eq!(container.pod_uid, Some(uid));
        }

        #[test]
        fn nothing_shorter_than_an_id_is_one(path in "(/[a-f0-9]{1,63}){0,6}") {
            prop_assert_eq!(of(&path), None);
        }
    }
}
