//! A small SGLang pair built in code, healthy until a test changes it.

use std::sync::Arc;

use crate::{
    diagnose::{Diagnosis, Input, diagnose},
    graph::WaitGraph,
    knowledge::Knowledge,
    model::{
        Activity, Capture, Certainty, Frame, FrameKind, Gil, GilSample, Interpreter, Owner, Process,
        PythonFrame, PythonRuntime, PythonThread, Stability, StackEnd, TaskState, Thread, Tier, Wait,
        WaitKind, Window, Worker,
    },
    resolve::ResolvedThread,
};

pub(super) const SECOND: u64 = 1_000_000_000;

pub(super) const PREFILL_HTTP: u32 = 100;
pub(super) const PREFILL: u32 = 110;
const PREFILL_DETOKENIZER: u32 = 120;
pub(super) const DECODE_HTTP: u32 = 200;
pub(super) const DECODE: u32 = 210;
pub(super) const DECODE_DETOKENIZER: u32 = 220;

pub(super) struct Builder {
    pub(super) capture: Capture,
    pub(super) threads: Vec<ResolvedThread>,
}

impl Builder {
    pub(super) fn empty() -> Self {
        let window = Window {
            started_unix_ns: 1_000_000 * SECOND,
            duration_ns: SECOND,
            sweeps: 3,
            ..Window::default()
        };
        Self { capture: Capture { tier: Tier::Ebpf, window, ..Capture::default() }, threads: Vec::new() }
    }

    /// The pair, idle.
    pub(super) fn pair() -> Self {
        let mut pair = Self::empty();
        for (http, scheduler, detokenizer, role) in [
            (PREFILL_HTTP, PREFILL, PREFILL_DETOKENIZER, "prefill"),
            (DECODE_HTTP, DECODE, DECODE_DETOKENIZER, "decode"),
        ] {
            pair.worker(http, 1, "http", role).worker(scheduler, http, "scheduler", role);
            pair.worker(detokenizer, http, "detokenizer", role);
            pair.blocked(
                http,
                http,
                "MainThread",
                WaitKind::Epoll,
                &["select", "_run_once", "run_forever", "run"],
            );
            pair.blocked(
                detokenizer,
                detokenizer,
                "MainThread",
                WaitKind::SocketRecv,
                &["recv_pyobj", "event_loop"],
            );
            let event_loop = format!("Scheduler.event_loop_normal_disagg_{role}");
            pair.running(scheduler, scheduler, "MainThread", &["recv_requests", &event_loop, "main"]);
            let watchdog = ["_watchdog_once", "_watchdog_thread", "run"];
            pair.timed(scheduler, scheduler + 1, "Thread-1 (_watchdog_thread)", WaitKind::Sleep, &watchdog);
        }
        for number in 3..7 {
            let name = format!("Thread-{number} (transfer_worker)");
            let stack = ["Condition.wait", "FastQueue.get", "NixlKVManager.transfer_worker", "Thread.run"];
            pair.blocked(PREFILL, PREFILL + number, &name, WaitKind::PythonLock, &stack);
        }
        let stack = ["Socket.recv_multipart", "bootstrap_thread", "bootstrap_thread_guarded", "run"];
        pair.blocked(
            PREFILL,
            PREFILL + 7,
            "Thread-7 (bootstrap_thread_guarded)",
            WaitKind::SocketRecv,
            &stack,
        );
        let stack = ["Socket.recv_multipart", "decode_listener_thread", "run"];
        pair.blocked(DECODE, DECODE + 3, "Thread-3 (decode_listener_thread)", WaitKind::SocketRecv, &stack);
        let stack = ["Condition.wait", "Event.wait", "heartbeat_checker", "run"];
        pair.timed(DECODE, DECODE + 4, "HeartbeatChecker", WaitKind::PythonLock, &stack);
        pair
    }

    pub(super) fn worker(&mut self, pid: u32, ppid: u32, kind: &str, role: &str) -> &mut Self {
        let worker = Worker {
            engine: "sglang".into(),
            kind: kind.into(),
            role: Some(role.into()),
            backend: Some("nixl".into()),
            flags_from: (ppid > 1).then_some(ppid).or(Some(pid)),
            knowledge: "sglang".into(),
            ..Worker::default()
        };
        self.program(pid, ppid);
        self.process(pid).worker = Some(worker);
        self
    }

    /// A Python program of no engine.
    pub(super) fn program(&mut self, pid: u32, ppid: u32) -> &mut Self {
        self.capture.processes.push(Process {
            pid,
            ppid,
            comm: "python".into(),
            state: TaskState::Sleeping,
            start_unix_ns: 900_000 * SECOND,
            python: Some(PythonRuntime {
                version: "3.12.1".into(),
                release: (3, 12),
                ..PythonRuntime::default()
            }),
            ..Process::default()
        });
        self
    }

    pub(super) fn process(&mut self, pid: u32) -> &mut Process {
        self.capture.processes.iter_mut().find(|process| process.pid == pid).unwrap()
    }

    pub(super) fn thread(&mut self, pid: u32, tid: u32) -> &mut Thread {
        self.process(pid).threads.iter_mut().find(|thread| thread.tid == tid).unwrap()
    }

    pub(super) fn wait(&mut self, tid: u32) -> &mut Wait {
        &mut self.resolved(tid).wait
    }

    pub(super) fn resolved(&mut self, tid: u32) -> &mut ResolvedThread {
        self.threads.iter_mut().find(|thread| thread.tid == tid).unwrap()
    }

    fn add(&mut self, pid: u32, tid: u32, name: &str, wait: Wait, functions: &[&str]) {
        let running = wait.kind == WaitKind::Running;
        let activity = Activity {
            sweeps: 3,
            running: if running { 3 } else { 0 },
            unchanged: !running,
            ..Activity::default()
        };
        let python = PythonThread {
            name: Some(name.into()),
            frames: functions.iter().map(|_| PythonFrame { frame: 0, entry: false }).collect(),
            ..PythonThread::default()
        };
        self.process(pid).threads.push(Thread {
            tid,
            ns_tid: tid,
            comm: "python".into(),
            state: if running { TaskState::Running } else { TaskState::Sleeping },
            off_cpu_ns: (!running).then_some(90 * SECOND),
            stability: if running { Stability::Running } else { Stability::Stable },
            activity,
            python: Some(python),
            ..Thread::default()
        });
        self.process(pid).thread_count += 1;
        let frames = functions.iter().map(|function| frame(function)).collect();
        self.threads.push(ResolvedThread { pid, tid, wait, frames, stack_end: StackEnd::Complete });
    }

    pub(super) fn running(&mut self, pid: u32, tid: u32, name: &str, functions: &[&str]) {
        self.add(pid, tid, name, Wait { kind: WaitKind::Running, ..Wait::default() }, functions);
    }

    pub(super) fn blocked(&mut self, pid: u32, tid: u32, name: &str, kind: WaitKind, functions: &[&str]) {
        self.add(pid, tid, name, Wait { kind, ..Wait::default() }, functions);
    }

    pub(super) fn timed(&mut self, pid: u32, tid: u32, name: &str, kind: WaitKind, functions: &[&str]) {
        let wait = Wait { kind, has_deadline: true, remaining_ns: Some(SECOND), ..Wait::default() };
        self.add(pid, tid, name, wait, functions);
    }

    /// Makes a thread stand in a wait.
    pub(super) fn block(&mut self, pid: u32, tid: u32, kind: WaitKind, functions: &[&str]) {
        let frames = functions.iter().map(|function| frame(function)).collect();
        let resolved = self.resolved(tid);
        resolved.wait = Wait { kind, text: format!("{} somewhere", kind.name()), ..Wait::default() };
        resolved.frames = frames;
        let thread = self.thread(pid, tid);
        thread.state = TaskState::Sleeping;
        thread.off_cpu_ns = Some(90 * SECOND);
        thread.stability = Stability::Stable;
        thread.activity = Activity { sweeps: 3, unchanged: true, ..Activity::default() };
    }

    /// The thread's wait ends when `owner` acts.
    pub(super) fn owned_by(&mut self, tid: u32, pid: u32, owner: u32) {
        let owner =
            Owner { pid, tid: Some(owner), certainty: Certainty::Proven, evidence: "owner word".into() };
        self.wait(tid).owners = vec![owner];
    }

    pub(super) fn remove(&mut self, pid: u32, tid: u32) {
        self.process(pid).threads.retain(|thread| thread.tid != tid);
        self.threads.retain(|thread| thread.tid != tid);
    }

    /// SIGSTOP.
    pub(super) fn stop(&mut self, pid: u32, state: TaskState) {
        self.process(pid).state = state;
        let tids: Vec<u32> = self.process(pid).threads.iter().map(|thread| thread.tid).collect();
        for tid in tids {
            let thread = self.thread(pid, tid);
            thread.state = state;
            thread.stability = Stability::Stable;
            thread.off_cpu_ns = Some(20 * SECOND);
            thread.activity = Activity { sweeps: 3, unchanged: true, ..Activity::default() };
            self.wait(tid).kind = WaitKind::Stopped;
        }
    }

    /// Readings of a GIL over a second.
    pub(super) fn gil(&mut self, pid: u32, holder: u32, switches: [u64; 3]) {
        let mut at_ns = 0;
        let samples = switches.map(|switch_number| {
            let sample = GilSample { at_ns, locked: true, holder: Some(holder), switch_number };
            at_ns += SECOND / 2;
            sample
        });
        let gil = Gil { samples: samples.to_vec(), ..Gil::default() };
        let interpreters = vec![Interpreter { gil: Some(gil), ..Interpreter::default() }];
        self.process(pid).python.as_mut().unwrap().interpreters = interpreters;
    }

    pub(super) fn diagnose(&self) -> Diagnosis {
        let (capture, threads) = (&self.capture, self.threads.as_slice());
        let graph = WaitGraph::build(capture, threads);
        let knowledge = Knowledge::builtin();
        diagnose(&Input { capture, threads, graph: &graph, knowledge: &knowledge, claims: &[] })
    }
}

fn frame(function: &str) -> Arc<Frame> {
    let (line, module, address) = (Some(7), None, None);
    let file = match function.split('.').next() {
        Some("Socket") => "/lib/zmq/sugar/socket.py",
        Some("Condition" | "Event" | "Thread") => "/lib/python3.12/threading.py",
        _ => "/app/engine.py",
    };
    let file = Some(file.into());
    Arc::new(Frame { kind: FrameKind::Python, function: function.into(), file, line, module, address })
}
