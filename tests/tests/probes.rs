//! What the probes see while `diagnose` watches, against programs that know what they did.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
    sync::mpsc,
};

use anyhow::{Context as _, Result, bail, ensure};
use inspector_tests::{Document, Fixture, Inspector, PATIENCE, compile, eventually, paths, procfs, python};
use serde_json::Value;

/// `inspector diagnose` of `pids`, with more arguments; calls `meanwhile` once the probes are attached.
fn diagnose(pids: &[u32], arguments: &[&str], meanwhile: impl FnOnce() -> Result<()>) -> Result<Document> {
    let mut inspector = Inspector::json("diagnose", pids).arg("--verbose");
    for argument in arguments {
        inspector = inspector.arg(argument);
    }
    let limit = PATIENCE.as_secs().to_string();
    let mut command = inspector.under(&["timeout", &limit]).command()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdout = child.stdout.take().context("no stdout")?;
    let stderr = child.stderr.take().context("no stderr")?;
    let (sender, attached) = mpsc::channel();
    let log = std::thread::spawn(move || {
        let mut log = String::new();
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if line.contains("probes attached by") {
                sender.send(()).ok();
            }
            log.push_str(&line);
            log.push('\n');
        }
        log
    });
    let text = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let ready = attached.recv_timeout(PATIENCE);
    let done = ready.map_err(anyhow::Error::from).and_then(|()| meanwhile());
    let status = child.wait()?;
    let log = log.join().unwrap_or_default();
    done.with_context(|| format!("{status}\n{log}"))?;
    Document::parse(&text.join().ok().context("no reader")??).with_context(|| format!("{status}\n{log}"))
}

fn number(facts: &Value, name: &str) -> Result<u32> {
    let found = facts[name].as_u64().and_then(|number| number.try_into().ok());
    found.with_context(|| format!("the fixture gives no {name}: {facts}"))
}

/// The one entry of a list of `probes` that has these values.
fn entry<'a>(document: &'a Document, list: &str, wanted: &[(&str, Value)]) -> Result<&'a Value> {
    let all = document.json["probes"][list].as_array().with_context(|| format!("no probes.{list}"))?;
    let mut found = all.iter().filter(|entry| wanted.iter().all(|(name, value)| entry[*name] == *value));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (first, _) => {
            bail!("{} entries of {list} with {wanted:?} in {all:#?}", usize::from(first.is_some()) * 2)
        }
    }
}

fn traffic() -> Result<(Fixture, Value)> {
    Fixture::program(&compile::c("probes/traffic.c", &[])?, &[] as &[&str])
}

/// How the probes may be attached here: the same must hold of each way.
fn ways() -> Result<Vec<&'static str>> {
    let doctor = Inspector::new(&["doctor", "--json"]).run()?;
    let doctor: Value = serde_json::from_str(&doctor.stdout)?;
    let checks = doctor["checks"].as_array().context("no checks")?;
    let works = |name: &str| checks.iter().any(|check| check["name"] == name && check["works"] == true);
    ensure!(works("probes on waits and wakes"), "{checks:#?}");
    Ok(if works("fentry") { vec!["tracepoint", "fentry"] } else { vec!["tracepoint"] })
}

#[test]
fn wakers_bytes_waits_and_ends_are_those_of_the_program() -> Result<()> {
    for way in ways()? {
        let (mut target, facts) = traffic()?;
        let (mut other, _) = traffic()?;
        let pid = target.pid();
        let mut short_lived = 0;
        let document = diagnose(&[pid], &["-d", "2s", "--probes", way], || {
            for fixture in [&mut target, &mut other] {
                fixture.tell("go")?;
                let line = fixture.line()?;
                let tid = line.strip_prefix("done ").context("not done")?.parse()?;
                short_lived = if short_lived == 0 { tid } else { short_lived };
            }
            Ok(())
        })?;
        ensure!(document.json["probes"]["way"] == way);
        ensure!(document.report.gaps.is_empty(), "{:?}", document.report.gaps);
        wakers(&document, pid, &facts).with_context(|| way.to_owned())?;
        bytes(&document, pid, &facts, way).with_context(|| way.to_owned())?;
        waits(&document, pid, &facts).with_context(|| way.to_owned())?;
        let end = entry(&document, "exits", &[("pid", pid.into()), ("tid", short_lived.into())])?;
        ensure!(end["comm"] == "short-lived" && end["signal"].is_null(), "{end}");
        let told = |event: &&Value| {
            event["tid"] == short_lived && event["text"].as_str().is_some_and(|text| text.contains("ended"))
        };
        ensure!(document.json["timeline"].as_array().into_iter().flatten().any(|event| told(&event)));
        for list in ["wakers", "transfers", "waits", "exits"] {
            let all = document.json["probes"][list].as_array().context("no list")?;
            ensure!(!all.is_empty() && all.iter().all(|entry| entry["pid"] == pid), "{list}: {all:#?}");
        }
        ensure!(document.report.cycles.is_empty());
        ensure!(document.verdict()?.0 == "healthy");
    }
    Ok(())
}

/// The waker signals a condition, posts a semaphore and writes to an eventfd every 20 ms.
fn wakers(document: &Document, pid: u32, facts: &Value) -> Result<()> {
    let waker = number(facts, "waker")?;
    for (name, kind) in [("condvar", "condvar"), ("semaphore", "semaphore"), ("eventfd", "eventfd")] {
        let waiter = number(facts, name)?;
        let wait = &document.thread(pid, waiter)?["wait"];
        // It may have been on its way from one wait to the next when it was read.
        if wait["kind"] != kind {
            continue;
        }
        ensure!(wait["last_waker"]["tid"] == waker && wait["last_waker"]["pid"] == pid, "{name}: {wait}");
        ensure!(wait["last_waker"]["times"].as_u64().is_some_and(|times| times >= 5), "{name}: {wait}");
        let edges = document.json["edges"].as_array().context("no edges")?;
        let edge = edges.iter().find(|edge| edge["from"]["tid"] == waiter).context("no edge")?;
        ensure!(edge["to"]["tid"] == waker && edge["certainty"] == "likely", "{edge}");
        ensure!(edge["by_waker"] == true, "{edge}");
    }
    let address = facts["semaphore_at"].clone();
    let woken = entry(document, "wakers", &[("pid", pid.into()), ("address", address)])?;
    ensure!(woken["tid"] == waker, "{woken}");
    Ok(())
}

/// 30 messages of 100 bytes, each answered by 7, and 30 writes of 3 bytes into a pipe that one read empties. Tracepoints show
/// those of sockets.
fn bytes(document: &Document, pid: u32, facts: &Value, way: &str) -> Result<()> {
    let reader = number(facts, "reader")?;
    let expected = [
        ("near", "out", 3000, 30, pid),
        ("far", "in", 3000, 30, reader),
        ("far", "out", 210, 30, reader),
        ("near", "in", 210, 30, pid),
        ("pipe_out", "out", 90, 30, pid),
        ("pipe_in", "in", 90, 1, pid),
    ];
    for (fd, direction, bytes, calls, tid) in expected {
        if way == "tracepoint" && fd.starts_with("pipe") {
            continue;
        }
        let fd = number(facts, fd)?;
        let wanted = [("pid", pid.into()), ("fd", fd.into()), ("direction", direction.into())];
        let transfer = entry(document, "transfers", &wanted)?;
        ensure!(transfer["bytes"] == bytes && transfer["calls"] == calls, "{bytes} bytes: {transfer}");
        ensure!(transfer["tid"] == tid, "{transfer}");
        let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}"))?.to_string_lossy().into_owned();
        ensure!(link.contains(&format!("[{}]", transfer["inode"])), "{link}: {transfer}");
    }
    Ok(())
}

/// The semaphore's waiter waits for about 20 ms each time, and does nothing else.
fn waits(document: &Document, pid: u32, facts: &Value) -> Result<()> {
    let tid = number(facts, "semaphore")?;
    let wanted = [("pid", pid.into()), ("tid", tid.into()), ("address", facts["semaphore_at"].clone())];
    let wait = entry(document, "waits", &wanted)?;
    let get = |name: &str| wait[name].as_u64().with_context(|| format!("no {name}: {wait}"));
    let (count, total, longest) = (get("count")?, get("total_ns")?, get("longest_ns")?);
    let probes = &document.json["probes"];
    let window = probes["to_ns"].as_u64().unwrap_or(0) - probes["from_ns"].as_u64().unwrap_or(0);
    ensure!(wait["syscall"] == "futex");
    // At most one in 20 ms; on a loaded machine fewer and longer ones.
    ensure!(count >= 5 && count <= window / 20_000_000 + 1, "{wait}");
    ensure!(total >= count * 15_000_000 && total <= window && longest >= total / count, "{wait}");
    Ok(())
}

#[test]
fn a_lock_of_python_has_the_thread_that_lets_it_go_as_its_waker() -> Result<()> {
    let pythons = python::all()?;
    // Before 3.13 a lock is a semaphore, from then on a thread is parked.
    let old = pythons.iter().find(|(version, _)| *version == "3.11");
    let new = pythons.iter().find(|(version, _)| *version == "3.13");
    for (version, interpreter) in [old, new].into_iter().flatten() {
        let mut command = Command::new(interpreter);
        command.arg(paths::fixtures().join("probes/lock.py"));
        let (target, facts) = Fixture::ready(command)?;
        let ids = facts.as_object().context("no threads")?;
        let id = |mark: &str| {
            let found = ids.iter().find(|(name, _)| name.contains(mark) || name.ends_with(mark));
            found.and_then(|(_, id)| id.as_u64()).and_then(|id| u32::try_from(id).ok())
        };
        // Before 3.10 a thread's name does not hold its function's.
        let taker = id("take").or_else(|| id("-1")).context("no taker")?;
        let letter = id("let_go").or_else(|| id("-2")).context("no letter")?;
        // The thread may be between two waits as it is read: a second look is fair.
        let wait = eventually("the lock's waiter is seen to wait", || {
            let document = diagnose(&[target.pid()], &["-d", "1s"], || Ok(())).ok()?;
            let wait = document.thread(target.pid(), taker).ok()?["wait"].clone();
            (wait["kind"] == "python-lock").then_some(wait)
        })?;
        ensure!(wait["last_waker"]["tid"] == letter, "{version}: {wait:#}");
    }
    Ok(())
}

#[test]
fn who_stood_still_over_the_whole_window_has_no_waker() -> Result<()> {
    let target = Fixture::program(&compile::c("tasks/waits.c", &[])?, &["many", "10"])?.0;
    for tid in procfs::tids(target.pid()) {
        procfs::wait_blocked(target.pid(), tid)?;
    }
    let document = diagnose(&[target.pid()], &["-d", "500ms"], || Ok(()))?;
    ensure!(document.threads(target.pid()).all(|thread| thread["wait"]["last_waker"].is_null()));
    ensure!(document.report.edges.iter().all(|edge| !edge.by_waker), "{:?}", document.report.edges);
    ensure!(document.json["probes"]["wakers"].as_array().is_some_and(Vec::is_empty));
    ensure!(document.json["probes"]["exits"].as_array().is_some_and(Vec::is_empty));
    Ok(())
}

#[test]
fn what_there_is_no_room_for_is_counted_and_said() -> Result<()> {
    const WORDS: u64 = 20_000;
    let (mut target, _) = Fixture::program(&compile::c("probes/addresses.c", &[])?, &[] as &[&str])?;
    let document = diagnose(&[target.pid()], &["-d", "4s"], || {
        target.tell("go")?;
        let line = target.line()?;
        ensure!(line == format!("done {WORDS}"), "{line}");
        Ok(())
    })?;
    let probes = document.report.probes.as_ref().context("no probes")?;
    let kept = probes.wakers.len() as u64;
    ensure!(kept < WORDS, "{kept} words were kept");
    ensure!(probes.dropped.wakers >= WORDS - kept, "{kept} kept, {:?}", probes.dropped);
    let gaps = &document.report.gaps;
    ensure!(gaps.iter().any(|gap| gap.source == "probes" && gap.reason.contains("no")), "{gaps:?}");
    Ok(())
}

#[test]
fn they_can_be_switched_off_and_a_way_that_is_refused_is_a_gap() -> Result<()> {
    let (target, _) = traffic()?;
    let off = Inspector::json("diagnose", &[target.pid()]).arg("--probes=off").arg("-d=200ms").document()?;
    ensure!(off.json["probes"].is_null() && off.report.gaps.is_empty(), "{:?}", off.report.gaps);
    let dump = Inspector::json("dump", &[target.pid()]).document()?;
    ensure!(dump.json["probes"].is_null(), "a dump has no window");
    if ways()?.contains(&"fentry") {
        return Ok(());
    }
    let refused = Inspector::json("diagnose", &[target.pid()]).arg("--probes=fentry").arg("-d=200ms");
    let refused = refused.document()?;
    ensure!(refused.json["probes"].is_null());
    let gaps = &refused.report.gaps;
    ensure!(gaps.len() == 1 && gaps.iter().all(|gap| gap.source == "probes"), "{gaps:?}");
    Ok(())
}
