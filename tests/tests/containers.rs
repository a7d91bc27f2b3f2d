//! Targets in containers: their ids, files, sockets and names come out as the host has them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use inspector_tests::{
    Fixture, Inspector, compile,
    container::{Container, Image, Options, only_child},
    paths, procfs, python,
    waiters::program,
};
use serde_json::Value;

const LIBRARY: &str = "/opt/app/libwork.so";
const PROGRAM: &str = "/opt/app/work";

/// The program and the library, each with one function of a given name; those of any two names have the same addresses.
fn files(function: &str) -> Result<[PathBuf; 2]> {
    let define = |of: &str| format!("-DFUNCTION={function}_{of}");
    let program = compile::c("containers/program.c", &[&define("program"), "-ldl"])?;
    let library = compile::c("containers/library.c", &[&define("library"), "-shared", "-fPIC"])?;
    Ok([program, library])
}

fn native_functions(thread: &Value) -> Vec<&str> {
    let frames = thread["frames"].as_array().into_iter().flatten();
    let native = frames.filter(|frame| frame["kind"] == "native");
    native.filter_map(|frame| frame["function"].as_str()).collect()
}

/// The names of the functions that a process's main thread is in are those of the files that it runs.
#[track_caller]
fn names_are_of(function: &str, pid: u32) -> Result<()> {
    procfs::wait_blocked(pid, pid)?;
    let document = Inspector::json("dump", &[pid]).document()?;
    let names = native_functions(document.thread(pid, pid)?);
    for part in ["library", "program"] {
        let wanted = format!("{function}_{part}");
        ensure!(names.contains(&wanted.as_str()), "{wanted} is not among {names:?}");
    }
    ensure!(names.contains(&"main"), "the walk ends early: {names:?}");
    Ok(())
}

/// An image with the program and the library; the host has others at these paths only where a test says so.
fn image(function: &str) -> Result<Image> {
    let [program, library] = files(function)?;
    let image = Image::over_host()?;
    image.add(&program, Path::new(PROGRAM))?;
    image.add(&library, Path::new(LIBRARY))?;
    Ok(image)
}

#[test]
fn functions_are_named_by_the_containers_own_files() -> Result<()> {
    for only_chroot in [false, true] {
        let options = Options { only_chroot, ..Options::default() };
        let (container, _) = Container::start(&image("inside")?, options, Path::new(PROGRAM), &[LIBRARY])?;
        names_are_of("inside", container.pid).with_context(|| format!("{options:?}"))?;
    }
    Ok(())
}

#[test]
fn functions_are_named_by_the_files_that_run_after_an_upgrade() -> Result<()> {
    let (container, _) =
        Container::start(&image("old")?, Options::default(), Path::new(PROGRAM), &[LIBRARY])?;
    let [program, library] = files("new")?;
    container.replace(Path::new(PROGRAM), &program)?;
    container.replace(Path::new(LIBRARY), &library)?;
    names_are_of("old", container.pid)?;

    // The same on the host.
    let folder = tempfile::tempdir()?;
    let places = [folder.path().join("work"), folder.path().join("libwork.so")];
    let put = |function: &str| -> Result<()> {
        for (from, to) in files(function)?.iter().zip(&places) {
            std::fs::remove_file(to).ok();
            std::fs::copy(from, to)?;
        }
        Ok(())
    };
    put("old")?;
    let (fixture, _) = Fixture::program(&places[0], &[&places[1]])?;
    put("new")?;
    names_are_of("old", fixture.pid())?;
    for place in &places {
        std::fs::remove_file(place)?;
    }
    names_are_of("old", fixture.pid())
}

#[test]
fn a_link_to_the_hosts_file_in_place_of_the_containers_is_not_followed() -> Result<()> {
    let (container, _) =
        Container::start(&image("inside")?, Options::default(), Path::new(PROGRAM), &[LIBRARY])?;
    let [_, library] = files("outside")?;
    let place = PathBuf::from(format!("/proc/{}/root{LIBRARY}", container.pid));
    std::fs::remove_file(&place)?;
    std::os::unix::fs::symlink(library, &place)?;
    names_are_of("inside", container.pid)
}

#[test]
fn locks_ids_and_names_inside_all_namespaces() -> Result<()> {
    let locks = program("locks.c")?;
    for user in [false, true] {
        let image = Image::empty()?;
        image.add_program(&locks)?;
        let options = Options { user, hostname: Some("web-0"), ..Options::default() };
        let (container, facts) = Container::start::<&str>(&image, options, &locks, &[])?;
        let names = ["mutex-normal", "mutex-robust", "rwlock-writer", "join", "stdio"];
        for name in names {
            procfs::wait_blocked(container.pid, container.tid(&facts[name]["tid"])?)?;
        }
        let document = Inspector::json("dump", &[container.pid]).document()?;
        for name in names {
            let thread = document.thread(container.pid, container.tid(&facts[name]["tid"])?)?;
            assert_eq!(thread["ns_tid"], facts[name]["tid"], "{name}: {thread:#}");
            let owner = &thread["wait"]["owners"][0];
            assert_eq!(owner["pid"], container.pid, "{name}: {thread:#}");
            assert_eq!(owner["tid"], container.tid(&facts[name]["owner"])?, "{name}: {thread:#}");
            assert_eq!(owner["certainty"], "proven", "{name}: {thread:#}");
            let functions = native_functions(thread);
            assert!(
                functions.iter().any(|function| function.starts_with("lock_") || *function == "join"),
                "{functions:?}"
            );
        }
        let worker = &document.json["workers"][0];
        assert_eq!((&worker["pid"], &worker["ns_pid"]), (&container.pid.into(), &1.into()));
        assert_eq!(worker["uid"], if user { 100_000 } else { 0 }, "{worker:#}");
        assert_eq!(worker["container"]["hostname"], "web-0", "{worker:#}");
        let text = Inspector::new(&["dump", "--pid", &container.pid.to_string()]).run()?.stdout;
        assert!(text.contains(" (1 in its container) · container web-0 · "), "{text}");
    }
    Ok(())
}

#[test]
fn descriptors_and_connections_inside_all_namespaces() -> Result<()> {
    let descriptors = program("descriptors.c")?;
    let image = Image::over_host()?;
    image.add(&descriptors, &descriptors)?;
    let folder = tempfile::tempdir()?;
    let (container, facts) = Container::start(&image, Options::default(), &descriptors, &[folder.path()])?;
    for name in ["socket-recv", "unix-recv", "pipe-read", "child"] {
        procfs::wait_blocked(container.pid, container.tid(&facts[name]["tid"])?)?;
    }
    let document = Inspector::json("dump", &[container.pid]).document()?;
    for (name, kind) in [
        ("socket-recv", "socket-recv"),
        ("socket-send", "socket-send"),
        ("unix-recv", "socket-recv"),
        ("connect", "connect"),
        ("pipe-read", "pipe-read"),
        ("child", "child"),
    ] {
        let wait = &document.thread(container.pid, container.tid(&facts[name]["tid"])?)?["wait"];
        assert_eq!(wait["kind"], kind, "{name}: {wait:#}");
        if facts[name]["fd"] != -1 {
            assert_eq!(wait["fd"], facts[name]["fd"], "{name}: {wait:#}");
        }
        let owner = wait["owners"][0]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let owner = owner.with_context(|| format!("{name} has no owner: {wait:#}"))?;
        let inner = procfs::status_numbers(owner, owner, "NSpid").and_then(|ids| ids.last().copied());
        assert_eq!(inner, facts[name]["owner"].as_u64(), "{name}: {wait:#}");
    }
    Ok(())
}

#[test]
fn a_python_in_a_container_is_read() -> Result<()> {
    let script = paths::fixtures().join("waits/locks.py");
    let file = script.to_string_lossy().into_owned();
    let (_, interpreter) = python::all()?.pop().context("a Python")?;
    let image = Image::over_host()?;
    let (container, facts) = Container::start(&image, Options::default(), &interpreter, &[&script])?;
    let facts = facts.as_object().context("the fixture names its threads")?;
    let tid = |name: &str| container.tid(&facts[name]["tid"]);
    for name in facts.keys() {
        procfs::wait_blocked(container.pid, tid(name)?)?;
    }
    let document = Inspector::json("dump", &[container.pid]).document()?;
    for name in facts.keys().filter(|name| *name != "sleep") {
        let thread = document.thread(container.pid, tid(name)?)?;
        let call = name.split('/').next().unwrap_or(name);
        assert_eq!(thread["wait"]["flavour"], call, "{name}: {thread:#}");
        let frames = thread["frames"].as_array().into_iter().flatten();
        let in_script = |frame: &Value| frame["kind"] == "python" && frame["file"] == file;
        assert!(frames.clone().any(in_script), "{name}: {thread:#}");
    }
    Ok(())
}

#[test]
fn a_socket_that_was_inherited_leads_out_of_the_container() -> Result<()> {
    let image = Image::over_host()?;
    let (command, _base) = Container::command(&image, Options::default(), "/bin/sh".as_ref())?;
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut outside = Command::new(python::system());
    outside.arg(paths::fixtures().join("containers/socketpair.py")).args(words);
    let (fixture, facts) = Fixture::ready(outside)?;
    let outer = facts["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).context("a pid")?;
    let inner = only_child(outer)?;
    procfs::wait_blocked(inner, inner)?;
    let document = Inspector::json("dump", &[inner]).document()?;
    let wait = &document.thread(inner, inner)?["wait"];
    assert_eq!(
        (&wait["kind"], &wait["owners"][0]["pid"]),
        (&"socket-recv".into(), &fixture.pid().into()),
        "{wait:#}"
    );
    assert_eq!(wait["owners"][0]["certainty"], "proven", "{wait:#}");
    // And back in; whoever entered the container holds that end too.
    let document = Inspector::json("dump", &[fixture.pid()]).document()?;
    let wait = &document.thread(fixture.pid(), fixture.pid())?["wait"];
    let owners = wait["owners"].as_array().map_or(&[][..], Vec::as_slice);
    assert!(owners.iter().any(|owner| owner["pid"] == inner), "{wait:#}");
    Ok(())
}

#[test]
fn files_of_two_layers_with_the_same_inode_number_are_told_apart() -> Result<()> {
    let [program, library] = files("layer")?;
    // The first file of a new file system in memory has the same number in each.
    let (above, below) = (Image::empty()?, Image::empty()?);
    let script = r#"
        set -e; above=$1; below=$2; shift 2
        mount --make-rprivate /; mount -t tmpfs one "$above"; mount -t tmpfs two "$below"
        cp "$1" "$above/work"; cp "$2" "$below/libwork.so"; shift 2
        [ "$(stat -c %i "$above/work")" = "$(stat -c %i "$below/libwork.so")" ]
        mkdir "$above/x"; mount -t overlay overlay -o "lowerdir=$above:$below" /mnt
        exec /mnt/work /mnt/libwork.so
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.args([above.place("/".as_ref()), below.place("/".as_ref()), program, library]);
    let (fixture, _) = Fixture::ready(command)?;
    names_are_of("layer", fixture.pid())
}
