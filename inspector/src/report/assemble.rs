//! From what was seen and what was concluded to the one document that every format prints.

use std::collections::HashMap;

use super::escape;
use crate::{
    graph::WaitGraph,
    model::{
        Capture, Process, Report, TaskState, Thread,
        report::{SCHEMA_VERSION, ThreadReport, WorkerReport},
    },
    resolve::ResolvedThread,
};

/// Longest command line in a report, in characters.
const LONGEST_COMMAND: usize = 200;

/// The report of a capture. `threads` is what [`crate::resolve::resolve`] made of it.
pub fn report(capture: &Capture, threads: Vec<ResolvedThread>, graph: WaitGraph) -> Report {
    let mut resolved: HashMap<(u32, u32), ResolvedThread> =
        threads.into_iter().map(|thread| ((thread.pid, thread.tid), thread)).collect();
    let mut reports = Vec::new();
    for process in &capture.processes {
        for thread in &process.threads {
            let resolved = resolved.remove(&(process.pid, thread.tid));
            reports.push(thread_report(process, thread, resolved));
        }
    }
    Report {
        schema_version: SCHEMA_VERSION.into(),
        host: capture.host.clone(),
        tier: capture.tier,
        window: capture.window.clone(),
        verdict: None,
        hypotheses: Vec::new(),
        workers: capture.processes.iter().map(|process| worker_report(capture, process)).collect(),
        threads: reports,
        edges: graph.edges,
        cycles: graph.cycles,
        missing_threads: Vec::new(),
        timeline: Vec::new(),
        claims: Vec::new(),
        gaps: capture.gaps.clone(),
    }
}

fn worker_report(capture: &Capture, process: &Process) -> WorkerReport {
    let worker = process.worker.as_ref();
    let python = process.python.as_ref().map(|runtime| runtime.version.clone());
    WorkerReport {
        pid: process.pid,
        ns_pid: process.ns_pids.last().copied().filter(|&pid| pid != process.pid),
        ppid: process.ppid,
        comm: process.comm.clone(),
        engine: worker
            .map(|worker| worker.engine.clone())
            .or_else(|| python.as_ref().map(|_| "python".into())),
        kind: worker.map(|worker| worker.kind.clone()).filter(|kind| !kind.is_empty()),
        role: worker.and_then(|worker| worker.role.clone()),
        rank: worker.and_then(|worker| worker.rank.clone()),
        gpus: worker.map(|worker| worker.gpus.clone()).unwrap_or_default(),
        start_unix_ns: process.start_unix_ns,
        up_ns: match process.start_unix_ns {
            0 => 0,
            start => capture.window.ended_unix_ns().saturating_sub(start),
        },
        ports: process.listening.clone(),
        state: state_word(process).into(),
        python,
        thread_count: process.thread_count,
        command: escape::clip(&process.cmdline.join(" "), LONGEST_COMMAND).into_owned(),
    }
}

/// The process's state in a word: what holds all its threads if something does, else whether any of them runs.
fn state_word(process: &Process) -> &'static str {
    if process.frozen == Some(true) {
        return "frozen";
    }
    match process.state {
        TaskState::Stopped => "stopped",
        TaskState::Traced => "traced",
        TaskState::Zombie => "zombie",
        TaskState::Dead => "dead",
        _ if process.threads.iter().any(|thread| thread.on_cpu || thread.state == TaskState::Running) => {
            "running"
        }
        TaskState::Running => "running",
        TaskState::Disk => "disk",
        TaskState::Sleeping => "sleeping",
        TaskState::Idle | TaskState::Parked => "idle",
        TaskState::Unknown => "unknown",
    }
}

fn thread_report(process: &Process, thread: &Thread, resolved: Option<ResolvedThread>) -> ThreadReport {
    let (wait, frames, stack_end) = match resolved {
        Some(resolved) => (resolved.wait, resolved.frames, resolved.stack_end),
        None => Default::default(),
    };
    ThreadReport {
        pid: process.pid,
        tid: thread.tid,
        ns_tid: Some(thread.ns_tid).filter(|&tid| tid != 0 && tid != thread.tid),
        comm: thread.comm.clone(),
        name: thread.name().to_owned(),
        role: None,
        state: thread.state,
        blocked_for_ns: thread.off_cpu_ns,
        unchanged: thread.activity.unchanged,
        has_deadline: wait.has_deadline,
        idle: false,
        stability: thread.stability,
        holds_gil: thread.python.as_ref().is_some_and(|python| python.holds_gil),
        wait,
        frames,
        stack_end,
    }
}
