//! From what was seen and what was concluded to the one document that every format prints.

use std::collections::HashMap;

use crate::{
    diagnose::{Diagnosis, ThreadNote},
    graph::WaitGraph,
    model::{
        Capture, Process, Report, TaskState, Thread, WaitKind, format,
        report::{SCHEMA_VERSION, ThreadReport, WorkerReport},
    },
    resolve::ResolvedThread,
};

/// Longest command line in a report, in characters.
const LONGEST_COMMAND: usize = 200;

/// The report of a capture, from what every room made of it.
pub fn report(
    capture: &Capture,
    threads: Vec<ResolvedThread>,
    graph: WaitGraph,
    mut diagnosis: Diagnosis,
) -> Report {
    let mut resolved: HashMap<(u32, u32), ResolvedThread> =
        threads.into_iter().map(|thread| ((thread.pid, thread.tid), thread)).collect();
    let mut reports = Vec::new();
    for process in &capture.processes {
        for thread in &process.threads {
            let resolved = resolved.remove(&(process.pid, thread.tid));
            let note = diagnosis.thread_notes.remove(&(process.pid, thread.tid)).unwrap_or_default();
            reports.push(thread_report(process, thread, resolved, note));
        }
    }
    Report {
        schema_version: SCHEMA_VERSION.into(),
        host: capture.host.clone(),
        tier: capture.tier,
        window: capture.window.clone(),
        verdict: Some(diagnosis.verdict),
        hypotheses: diagnosis.hypotheses,
        workers: capture.processes.iter().map(|process| worker_report(capture, process)).collect(),
        threads: reports,
        edges: graph.edges,
        cycles: graph.cycles,
        roots: graph.roots,
        divergences: graph.divergences,
        missing_threads: diagnosis.missing_threads,
        timeline: diagnosis.timeline,
        claims: diagnosis.claims,
        probes: capture.probes.clone(),
        gaps: capture.gaps.clone(),
    }
}

fn worker_report(capture: &Capture, process: &Process) -> WorkerReport {
    let worker = process.worker.as_ref();
    let python = process.python.as_ref().map(|runtime| runtime.version.clone());
    // A process that hangs in `execve` does not tell.
    let started = Some(process.start_unix_ns).filter(|&start| start != 0);
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
        start_unix_ns: started,
        up_ns: started.map(|start| capture.window.ended_unix_ns().saturating_sub(start)),
        ports: process.listening.clone(),
        state: state_word(process).into(),
        python,
        thread_count: process.thread_count,
        uid: process.uid,
        container: process.container.clone(),
        cgroup: process.cgroup.clone(),
        frozen_cgroups: process.frozen_cgroups.clone(),
        cpu_quotas: process.cpu_quotas.clone(),
        command: format::clip(&process.cmdline.join(" "), LONGEST_COMMAND).into_owned(),
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

fn thread_report(
    process: &Process,
    thread: &Thread,
    resolved: Option<ResolvedThread>,
    note: ThreadNote,
) -> ThreadReport {
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
        role: note.role,
        libraries: note.libraries,
        state: thread.state,
        // Who is runnable is not blocked, whenever it was on a CPU last.
        blocked_for_ns: thread
            .off_cpu_ns
            .filter(|_| !matches!(wait.kind, WaitKind::Running | WaitKind::Throttled)),
        unchanged: thread.activity.unchanged,
        has_deadline: wait.has_deadline,
        idle: note.idle,
        stability: thread.stability,
        holds_gil: thread.python.as_ref().is_some_and(|python| python.holds_gil),
        wait,
        frames,
        stack_end,
    }
}

#[cfg(test)]
mod tests {
    use super::report as with_diagnosis;
    use crate::{
        diagnose::{Diagnosis, ThreadNote},
        graph::WaitGraph,
        model::{
            Capture, Frame, FrameKind, Process, PythonRuntime, PythonThread, Report, StackEnd, TaskState,
            Thread, Wait, WaitKind, Window, Worker,
        },
        report::sample,
        resolve::ResolvedThread,
    };

    fn diagnosis() -> Diagnosis {
        let verdict = sample::wedged().verdict.expect("the sample has one");
        let note = ThreadNote { idle: true, role: Some("transfer-worker".into()), ..ThreadNote::default() };
        Diagnosis {
            verdict,
            hypotheses: Vec::new(),
            missing_threads: Vec::new(),
            timeline: Vec::new(),
            thread_notes: [((10, 11), note)].into(),
            claims: Vec::new(),
        }
    }

    fn report(capture: &Capture, threads: Vec<ResolvedThread>, graph: WaitGraph) -> Report {
        with_diagnosis(capture, threads, graph, diagnosis())
    }

    const SECOND: u64 = 1_000_000_000;

    fn capture() -> Capture {
        let thread = Thread {
            tid: 11,
            ns_tid: 3,
            comm: "python3".into(),
            state: TaskState::Sleeping,
            off_cpu_ns: Some(SECOND),
            python: Some(PythonThread {
                name: Some("worker".into()),
                holds_gil: true,
                ..PythonThread::default()
            }),
            ..Thread::default()
        };
        let bare = Thread { tid: 12, ns_tid: 12, comm: "native".into(), ..Thread::default() };
        let process = Process {
            pid: 10,
            ns_pids: vec![10, 1],
            state: TaskState::Sleeping,
            start_unix_ns: 100 * SECOND,
            cmdline: vec!["python3".into(), "x".repeat(400)],
            threads: vec![thread, bare],
            thread_count: 2,
            ..Process::default()
        };
        Capture {
            window: Window {
                started_unix_ns: 160 * SECOND,
                duration_ns: SECOND,
                sweeps: 2,
                ..Window::default()
            },
            processes: vec![process],
            ..Capture::default()
        }
    }

    #[test]
    fn a_thread_is_joined_with_what_was_resolved_of_it() {
        let wait = Wait { kind: WaitKind::Mutex, has_deadline: true, ..Wait::default() };
        let frame = Frame {
            kind: FrameKind::Kernel,
            function: "futex_wait".into(),
            file: None,
            line: None,
            module: None,
            address: None,
        };
        let resolved = ResolvedThread {
            pid: 10,
            tid: 11,
            wait,
            frames: vec![frame.into()],
            stack_end: StackEnd::Complete,
        };
        let report = report(&capture(), vec![resolved], WaitGraph::default());
        let [worker, bare] = report.threads.as_slice() else { panic!("two threads: {:?}", report.threads) };
        assert_eq!((worker.name.as_str(), worker.ns_tid, worker.holds_gil), ("worker", Some(3), true));
        assert_eq!((worker.wait.kind, worker.has_deadline, worker.frames.len()), (WaitKind::Mutex, true, 1));
        assert_eq!((worker.role.as_deref(), worker.idle), (Some("transfer-worker"), true));
        assert_eq!((bare.role.as_deref(), bare.idle), (None, false));
        assert_eq!((bare.name.as_str(), bare.ns_tid, bare.wait.kind), ("native", None, WaitKind::Other));
    }

    #[test]
    fn a_process_is_described_in_words() {
        let mut capture = capture();
        let mut describe = |change: &dyn Fn(&mut Process)| {
            change(capture.processes.first_mut().expect("one process"));
            report(&capture, Vec::new(), WaitGraph::default()).workers.remove(0)
        };
        let plain = describe(&|_| ());
        assert_eq!(
            (plain.ns_pid, plain.up_ns, plain.state.as_str()),
            (Some(1), Some(61 * SECOND), "sleeping")
        );
        assert_eq!((plain.engine, plain.command.chars().count()), (None, 200));
        let python = describe(&|process| {
            process.python = Some(PythonRuntime { version: "3.11.7".into(), ..PythonRuntime::default() });
            process.threads[1].on_cpu = true;
        });
        assert_eq!((python.engine.as_deref(), python.state.as_str()), (Some("python"), "running"));
        let worker = describe(&|process| {
            process.worker =
                Some(Worker { engine: "sglang".into(), kind: "scheduler".into(), ..Worker::default() });
            process.state = TaskState::Stopped;
        });
        assert_eq!((worker.engine.as_deref(), worker.state.as_str()), (Some("sglang"), "stopped"));
        let frozen = describe(&|process| process.frozen = Some(true));
        assert_eq!(frozen.state, "frozen");
    }

    #[test]
    fn a_clock_that_went_back_is_no_negative_age() {
        let mut capture = capture();
        capture.processes[0].start_unix_ns = u64::MAX;
        assert_eq!(report(&capture, Vec::new(), WaitGraph::default()).workers[0].up_ns, Some(0));
    }
}
