//! Cgroups: the container that a path names, frozen ones and CPU quotas as waits with the cgroup as their object.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use inspector_tests::{
    Document, Fixture, Inspector,
    cgroup::{Group, Hierarchy},
    compile, eventually, procfs,
};
use serde_json::Value;

fn spinner() -> Result<Fixture> {
    let program = compile::c("containers/spin.c", &[])?;
    Ok(Fixture::program::<&str>(&program, &[])?.0)
}

/// The thread that spins: the one that is not the main thread.
fn spinning(document: &Document, pid: u32) -> Result<&Value> {
    let tid = procfs::tids(pid).into_iter().find(|&tid| tid != pid).context("a second thread")?;
    document.thread(pid, tid)
}

fn worker(document: &Document) -> &Value {
    &document.json["workers"][0]
}

/// The thread that spins as soon as a dump catches it where it wants a CPU and has none.
fn caught_off_the_cpu(pid: u32) -> Result<Value> {
    eventually("a dump catches the spinning thread off the CPU", || {
        let document = Inspector::json("dump", &[pid]).document().ok()?;
        let thread = spinning(&document, pid).ok()?;
        let text = thread["wait"]["text"].as_str()?;
        (text.starts_with("runnable") || thread["wait"]["kind"] == "throttled").then(|| thread.clone())
    })
}

/// The hierarchies with a freezer that this host mounts, and the files that freeze.
fn freezers() -> Result<Vec<(Hierarchy, &'static str, [&'static str; 2])>> {
    let all = [
        (Hierarchy::Controller("freezer"), "freezer.state", ["FROZEN", "THAWED"]),
        (Hierarchy::Unified, "cgroup.freeze", ["1", "0"]),
    ];
    let mounted: Vec<_> = all.into_iter().filter(|(hierarchy, ..)| hierarchy.mount().is_some()).collect();
    ensure!(!mounted.is_empty(), "this host has neither a freezer hierarchy nor cgroup2 mounted");
    Ok(mounted)
}

#[test]
fn the_frozen_ancestor_is_the_object_of_the_wait() -> Result<()> {
    for (hierarchy, file, [on, off]) in freezers()? {
        let fixture = spinner()?;
        let pid = fixture.pid();
        let mut group = Group::new(hierarchy, "/pod/inner")?;
        group.add(pid)?;
        let folder = group.folder().parent().map(PathBuf::from).context("a parent")?;
        let frozen = group.path.strip_suffix("/inner").context("a parent")?.to_owned();
        group.set(&folder, file, on, off)?;
        let inner = group.folder();
        eventually("the inner cgroup is frozen with its parent", || {
            let state = |name: &str| fs::read_to_string(inner.join(name)).unwrap_or_default();
            (state("freezer.state").trim() == "FROZEN" || state("cgroup.events").contains("frozen 1"))
                .then_some(())
        })?;
        let document = Inspector::json("dump", &[pid]).document()?;
        for tid in procfs::tids(pid) {
            let wait = &document.thread(pid, tid)?["wait"];
            assert_eq!(wait["kind"], "frozen", "{hierarchy:?}: {wait:#}");
            assert_eq!(wait["cgroup"], frozen.as_str(), "{hierarchy:?}: {wait:#}");
            let text = wait["text"].as_str().unwrap_or_default();
            assert!(text.starts_with(&format!("frozen cgroup {frozen}")), "{text}");
        }
        assert_eq!(worker(&document)["frozen_cgroups"][0], frozen.as_str());
    }
    Ok(())
}

#[test]
fn a_used_up_cpu_quota_is_a_wait_for_the_cgroup_that_has_it() -> Result<()> {
    let fixture = spinner()?;
    let pid = fixture.pid();
    let (hierarchy, _) = Hierarchy::of_cpu()?;
    // The quota is the parent's: the process is in a cgroup without one.
    let mut group = Group::new(hierarchy, "/inner")?;
    let (path, top) = group.top();
    group.limit_cpu(&top, 5)?;
    group.add(pid)?;
    let thread = caught_off_the_cpu(pid)?;
    let wait = &thread["wait"];
    assert_eq!(wait["kind"], "throttled", "{wait:#}");
    assert_eq!(wait["cgroup"], path.as_str(), "{wait:#}");
    let text = wait["text"].as_str().unwrap_or_default();
    assert!(text.starts_with(&format!("CPU quota of cgroup {path}: 5ms per 100ms, used up in ")), "{text}");
    assert!(thread["blocked_for_ns"].is_null(), "a runnable thread is not blocked: {thread:#}");

    let document = Inspector::json("diagnose", &[pid]).document()?;
    assert_eq!(document.thread(pid, pid)?["wait"]["kind"], "signal", "who wants no CPU is not throttled");
    let quota = &worker(&document)["cpu_quotas"][0];
    let number = |name: &str| quota[name].as_u64().unwrap_or_default();
    assert_eq!((number("quota_ns"), number("period_ns")), (5_000_000, 100_000_000));
    assert!(number("periods") >= 5 && number("throttled_periods") * 2 > number("periods"), "{quota:#}");
    let verdict = &document.json["verdict"];
    assert!(matches!(verdict["status"].as_str(), Some("healthy" | "unknown")), "{verdict:#}");
    let evidence = verdict["evidence"].to_string();
    assert!(evidence.contains("gets too little CPU time") && evidence.contains(&path), "{evidence}");
    Ok(())
}

#[test]
fn a_quota_that_suffices_is_no_wait() -> Result<()> {
    let fixture = spinner()?;
    let pid = fixture.pid();
    let (hierarchy, _) = Hierarchy::of_cpu()?;
    let mut group = Group::new(hierarchy, "")?;
    // Ten CPUs: one thread cannot use that up.
    group.limit_cpu(&group.folder(), 1000)?;
    group.add(pid)?;
    std::thread::sleep(Duration::from_millis(200));
    let document = Inspector::json("diagnose", &[pid]).document()?;
    assert_eq!(spinning(&document, pid)?["wait"]["kind"], "running");
    let quota = &worker(&document)["cpu_quotas"][0];
    assert_eq!((&quota["cgroup"], &quota["throttled_periods"]), (&group.path.as_str().into(), &0.into()));
    let evidence = document.json["verdict"]["evidence"].to_string();
    assert!(!evidence.contains("CPU time"), "{evidence}");
    Ok(())
}

#[test]
fn containers_and_pods_are_named() -> Result<()> {
    let id = "0123456789abcdef".repeat(4);
    let uid = "8f1c2d3e-0000-4000-8000-00a0b0c0d0e0";
    let pod =
        format!("/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{id}.scope", uid.replace('-', "_"));
    for (path, runtime, uid) in [(format!("/docker/{id}"), "docker", None), (pod, "containerd", Some(uid))] {
        let fixture = spinner()?;
        let group = Group::new(Hierarchy::of_cpu()?.0, &path)?;
        group.add(fixture.pid())?;
        let document = Inspector::json("ps", &[fixture.pid()]).document()?;
        let worker = worker(&document);
        assert_eq!(worker["cgroup"], group.path.as_str());
        let container = &worker["container"];
        assert_eq!(container["runtime"], runtime, "{container:#}");
        assert_eq!(container["id"], id.as_str(), "{container:#}");
        assert_eq!(container["pod_uid"].as_str(), uid, "{container:#}");
        let text = Inspector::new(&["dump", "--pid", &fixture.pid().to_string()]).run()?.stdout;
        let of_pod = uid.map(|uid| format!(" of pod {uid}")).unwrap_or_default();
        assert!(text.contains(&format!(" · container {runtime} 0123456789ab{of_pod} · ")), "{text}");
        let table = Inspector::new(&["ps", &fixture.pid().to_string()]).run()?.stdout;
        assert!(
            table.contains("CONTAINER") && table.contains(uid.map_or("0123456789ab", |uid| &uid[..28 - 1])),
            "{table}"
        );
    }
    Ok(())
}
