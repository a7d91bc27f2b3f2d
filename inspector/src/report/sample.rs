//! Reports for the tests of the formats: a wedge, and a target that lies with every string it controls.

use std::sync::Arc;

use crate::model::{
    Certainty, Frame, FrameKind, Gap, Host, Owner, Report, Stability, StackEnd, TaskState, Tier, Wait,
    WaitKind, Window,
    report::{
        Divergence, Edge, End, Event, Evidence, Family, Hypothesis, MissingThread, Party, PartyKind, Root,
        SCHEMA_VERSION, StackClass, Status, ThreadReport, Through, Verdict, WorkerReport,
    },
};

const SECOND: u64 = 1_000_000_000;
/// 2023-11-14 22:13:20 UTC.
const STARTED: u64 = 1_700_000_000 * SECOND;

fn frame(
    kind: FrameKind,
    function: &str,
    file: Option<&str>,
    line: Option<u32>,
    module: Option<&str>,
) -> Arc<Frame> {
    Arc::new(Frame {
        kind,
        function: function.into(),
        file: file.map(Into::into),
        line,
        module: module.map(Into::into),
        address: None,
    })
}

fn place(function: &str, line: u32) -> Frame {
    Arc::unwrap_or_clone(frame(FrameKind::Python, function, Some("/app/scheduler.py"), Some(line), None))
}

fn thread(tid: u32, name: &str, wait: Wait) -> ThreadReport {
    ThreadReport {
        pid: 100,
        tid,
        ns_tid: None,
        comm: "python3".into(),
        name: name.into(),
        role: None,
        libraries: Vec::new(),
        state: TaskState::Sleeping,
        blocked_for_ns: Some(123 * SECOND),
        unchanged: true,
        has_deadline: wait.has_deadline,
        idle: false,
        stability: Stability::Stable,
        holds_gil: false,
        wait,
        frames: Vec::new(),
        stack_end: StackEnd::Complete,
    }
}

fn worker() -> WorkerReport {
    WorkerReport {
        pid: 100,
        ns_pid: Some(7),
        ppid: 1,
        comm: "sglang::schedul".into(),
        engine: Some("sglang".into()),
        kind: Some("scheduler".into()),
        role: Some("prefill".into()),
        rank: Some("TP0".into()),
        gpus: vec![0, 1],
        start_unix_ns: Some(STARTED - 61_380 * SECOND),
        up_ns: Some(61_380 * SECOND),
        ports: vec![30_000, 8_998],
        state: "sleeping".into(),
        python: Some("3.11.7".into()),
        thread_count: 4,
        uid: 0,
        container: None,
        cgroup: None,
        frozen_cgroups: Vec::new(),
        cpu_quotas: Vec::new(),
        command: "sglang::scheduler_TP0".into(),
    }
}

/// A scheduler that sends to a peer that is gone, under a lock that another thread wants.
pub(super) fn wedged() -> Report {
    let mut sender = thread(
        101,
        "MainThread",
        Wait {
            kind: WaitKind::SocketSend,
            text: "zmq send to tcp://127.0.0.1:41872: nobody listens there".into(),
            ..Wait::default()
        },
    );
    sender.frames = vec![
        frame(FrameKind::Kernel, "do_sys_poll", None, None, None),
        frame(FrameKind::Native, "zmq::socket_base_t::send", None, None, Some("/usr/lib/libzmq.so.5")),
        frame(FrameKind::Python, "Socket.send", Some("zmq/sugar/socket.py"), Some(618), None),
        frame(FrameKind::Python, "event_loop", Some("scheduler.py"), Some(42), None),
    ];
    let mut heart = thread(
        102,
        "HeartbeatChecker",
        Wait {
            kind: WaitKind::PythonLock,
            text: "threading.Lock 0x7f3a00c0".into(),
            owners: vec![Owner {
                pid: 100,
                tid: Some(101),
                certainty: Certainty::Likely,
                evidence: "a with-block of its frame".into(),
            }],
            ..Wait::default()
        },
    );
    heart.frames = vec![
        frame(FrameKind::Kernel, "futex_wait", None, None, None),
        frame(FrameKind::Native, "sem_wait", None, None, Some("/usr/lib/libc.so.6")),
        frame(FrameKind::Python, "beat", Some("scheduler.py"), Some(99), None),
    ];
    heart.stack_end = StackEnd::Stopped("no unwind information for 0x1000 in libjit.so".into());
    let mut idle = thread(
        103,
        "Thread-3 (transfer_worker)",
        Wait {
            kind: WaitKind::Condvar,
            text: "Queue.get".into(),
            has_deadline: true,
            remaining_ns: Some(2_500_000_000),
            ..Wait::default()
        },
    );
    idle.idle = true;
    idle.ns_tid = Some(9);
    let mut spinner = thread(104, "nixl-progress", Wait { kind: WaitKind::Running, ..Wait::default() });
    spinner.blocked_for_ns = None;
    spinner.state = TaskState::Running;
    spinner.holds_gil = true;
    spinner.stability = Stability::Running;
    spinner.stack_end = StackEnd::NotWalked;

    let party = |tid, thread: &str, detail: &str| Party {
        kind: PartyKind::Thread,
        pid: Some(100),
        tid: Some(tid),
        thread: Some(thread.into()),
        role: Some("prefill scheduler TP0".into()),
        detail: detail.into(),
    };
    let fact =
        |source: &str, fact: &str, supports| Evidence { source: source.into(), fact: fact.into(), supports };
    Report {
        schema_version: SCHEMA_VERSION.into(),
        host: Host {
            hostname: "gpu-7".into(),
            kernel: "6.18.0".into(),
            arch: "x86_64".into(),
            cpus: 2,
            inspector: "0.1.0".into(),
        },
        tier: Tier::Ebpf,
        window: Window { started_unix_ns: STARTED, duration_ns: SECOND, sweeps: 5, ..Window::default() },
        verdict: Some(Verdict {
            status: Status::Wedged,
            family: Family::BlockedSend,
            confidence: 0.93,
            summary: "prefill scheduler TP0 sends to a peer that is gone and waits for ever".into(),
            culprits: vec![party(
                101,
                "MainThread",
                "zmq send to tcp://127.0.0.1:41872: nobody listens there",
            )],
            victims: vec![party(102, "HeartbeatChecker", "threading.Lock 0x7f3a00c0 → MainThread")],
            action: "restart prefill and decode together".into(),
            evidence: vec![
                fact("sockets", "nobody listens on 127.0.0.1:41872", true),
                fact("threads", "one transfer worker still moves", false),
            ],
        }),
        hypotheses: vec![
            Hypothesis {
                family: Family::GilStarvation,
                confidence: 0.0,
                refuted: true,
                summary: "the GIL changed hands 212 times in 1.0s".into(),
                evidence: Vec::new(),
                would_settle: None,
            },
            Hypothesis {
                family: Family::SchedulerStuck,
                confidence: 0.4,
                refuted: false,
                summary: "the scheduler thread has not moved".into(),
                evidence: Vec::new(),
                would_settle: Some("a longer observation".into()),
            },
        ],
        workers: vec![worker()],
        threads: vec![sender, heart, idle, spinner],
        edges: vec![Edge {
            from: End { pid: 100, tid: Some(102) },
            to: End { pid: 100, tid: Some(101) },
            through: Through {
                kind: WaitKind::PythonLock,
                text: "threading.Lock 0x7f3a00c0".into(),
                address: Some(0x7f3a_00c0),
                inode: None,
            },
            certainty: Certainty::Likely,
            evidence: "a with-block of its frame".into(),
            by_waker: false,
        }],
        cycles: Vec::new(),
        roots: vec![Root {
            end: End { pid: 100, tid: Some(101) },
            cycle: None,
            waiters: 1,
            waited_ns: 123 * SECOND,
            chain: vec![0],
        }],
        divergences: vec![Divergence {
            group: "sglang prefill scheduler".into(),
            thread: "main thread".into(),
            after: Some(place("event_loop", 42)),
            classes: vec![
                StackClass {
                    ranks: vec!["TP0".into(), "TP1".into()],
                    pids: vec![100, 101],
                    next: Some(place("recv_requests", 77)),
                    innermost: Some(place("broadcast", 9)),
                },
                StackClass { ranks: vec!["TP2".into()], pids: vec![102], next: None, innermost: None },
            ],
        }],
        missing_threads: vec![MissingThread {
            pid: 100,
            thread: "Thread-4 (transfer_worker)".into(),
            because: vec!["three siblings have it".into()],
            effect: Some("one request in four hangs".into()),
        }],
        timeline: vec![Event {
            at_unix_ns: STARTED - 120 * SECOND,
            pid: Some(100),
            tid: Some(101),
            text: "MainThread stopped moving".into(),
        }],
        claims: Vec::new(),
        probes: None,
        gaps: vec![
            Gap::thread("native", 100, 103, "no permission to open libjit.so"),
            Gap::thread("native", 100, 104, "no permission to open libjit.so"),
            Gap::host("tasks", "no kernel stacks: needs CAP_SYS_ADMIN"),
        ],
    }
}

/// [`wedged`] with `poison` in every string that a target controls.
pub(super) fn hostile(poison: &str) -> Report {
    let mut report = wedged();
    for worker in &mut report.workers {
        worker.comm = poison.into();
        worker.kind = Some(poison.into());
        worker.role = Some(poison.into());
        worker.rank = Some(poison.into());
        worker.python = Some(poison.into());
        worker.command = poison.into();
    }
    for thread in &mut report.threads {
        thread.comm = poison.into();
        thread.name = poison.into();
        thread.wait.text = poison.into();
        for owner in &mut thread.wait.owners {
            owner.evidence = poison.into();
        }
        for frame in thread.frames.iter_mut().map(Arc::make_mut) {
            frame.function = poison.into();
            frame.file = frame.file.as_ref().map(|_| poison.into());
            frame.module = frame.module.as_ref().map(|_| poison.into());
        }
        if let StackEnd::Stopped(why) = &mut thread.stack_end {
            *why = poison.into();
        }
    }
    for edge in &mut report.edges {
        edge.through.text = poison.into();
        edge.evidence = poison.into();
    }
    for divergence in &mut report.divergences {
        divergence.thread = poison.into();
        divergence.group = poison.into();
        let of_classes =
            divergence.classes.iter_mut().flat_map(|class| [&mut class.next, &mut class.innermost]);
        for frame in of_classes.chain([&mut divergence.after]).flatten() {
            frame.function = poison.into();
            frame.file = Some(poison.into());
        }
        for rank in divergence.classes.iter_mut().flat_map(|class| &mut class.ranks) {
            *rank = poison.into();
        }
    }
    if let Some(verdict) = &mut report.verdict {
        verdict.summary = poison.into();
        for party in verdict.culprits.iter_mut().chain(&mut verdict.victims) {
            party.thread = Some(poison.into());
            party.role = Some(poison.into());
            party.detail = poison.into();
        }
        for evidence in &mut verdict.evidence {
            evidence.fact = poison.into();
        }
    }
    for event in &mut report.timeline {
        event.text = poison.into();
    }
    for missing in &mut report.missing_threads {
        missing.thread = poison.into();
        missing.because = vec![poison.into()];
    }
    for gap in &mut report.gaps {
        gap.reason = poison.into();
    }
    report
}
