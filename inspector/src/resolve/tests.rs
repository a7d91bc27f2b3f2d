//! Whole captures, small and hostile.

use proptest::prelude::*;

use super::resolve;
use crate::model::{
    Bystander, Capture, Certainty, Fd, FdKind, Frame, FrameKind, Gil, GilSample, Host, Interpreter, Process,
    PythonFrame, PythonRuntime, PythonThread, SavedMemory, Socket, Stability, StackEnd, Syscall, TaskState,
    Thread, Wait, WaitKind, fd::EpollTarget,
};

const PID: u32 = 50;
const POLL: u32 = 7;
const FUTEX: u32 = 202;

fn blocked(number: u32, arguments: [u64; 6]) -> Thread {
    Thread {
        tid: PID,
        ns_tid: PID,
        state: TaskState::Sleeping,
        stability: Stability::Stable,
        syscall: Some(Syscall { number, arguments, restarted: false }),
        ..Thread::default()
    }
}

fn capture(process: Process) -> Capture {
    let process = Process { pid: PID, ns_pids: vec![PID], ..process };
    Capture {
        host: Host { arch: "x86_64".into(), ..Host::default() },
        processes: vec![process],
        ..Capture::default()
    }
}

fn first(capture: &Capture) -> Wait {
    resolve(capture).remove(0).wait
}

/// A process with a GIL whose holder is another thread, and a waiter in the given state.
fn gil_waiter(state: TaskState, holder: u32) -> Capture {
    let gil = Gil {
        address: 0x1000,
        cond: Some((0x1020, 0x1050)),
        samples: vec![GilSample { locked: true, holder: Some(holder), ..GilSample::default() }],
    };
    let interpreter = Interpreter { gil: Some(gil), ..Interpreter::default() };
    let waiter =
        Thread { state, stability: Stability::Torn, ..blocked(FUTEX, [0x1048, 0x89, 0, 0x9000, 0, 0]) };
    let other = Thread { tid: 51, ns_tid: 51, stability: Stability::Stable, ..Thread::default() };
    capture(Process {
        threads: vec![waiter, other],
        python: Some(PythonRuntime { interpreters: vec![interpreter], ..PythonRuntime::default() }),
        ..Process::default()
    })
}

#[test]
fn a_gil_waiter_that_is_caught_awake_still_waits() {
    for state in [TaskState::Sleeping, TaskState::Running] {
        let wait = first(&gil_waiter(state, 51));
        assert_eq!((wait.kind, wait.has_deadline), (WaitKind::Gil, false), "{wait:?}");
        assert_eq!((wait.owners[0].tid, wait.owners[0].certainty), (Some(51), Certainty::Proven));
    }
    // It has just got the GIL.
    assert_eq!(first(&gil_waiter(TaskState::Running, PID)).kind, WaitKind::Running);
}

fn poller(fds: Vec<Fd>, polled: &[(i32, u16)]) -> Process {
    let bytes = polled
        .iter()
        .flat_map(|&(fd, events)| u64::from(fd as u32).wrapping_add(u64::from(events) << 32).to_le_bytes())
        .collect();
    let mut thread = blocked(POLL, [0x2000, polled.len() as u64, u64::from(u32::MAX), 0, 0, 0]);
    thread.memory = vec![SavedMemory { address: 0x2000, bytes }];
    Process { fds, threads: vec![thread], ..Process::default() }
}

#[test]
fn a_poll_of_one_pipe_leads_to_its_writer() {
    let pipe = |fd, flags| Fd { fd, flags, kind: FdKind::Pipe { inode: 9, path: None }, ..Fd::default() };
    let mut capture = capture(poller(vec![pipe(3, 0)], &[(-1, 1), (3, 1)]));
    capture.bystanders = vec![
        Bystander { pid: 60, fds: vec![pipe(0, 0)], ..Bystander::default() },
        Bystander { pid: 61, fds: vec![pipe(1, 1)], ..Bystander::default() },
    ];
    let wait = first(&capture);
    assert_eq!((wait.kind, wait.fd, wait.has_deadline), (WaitKind::Poll, Some(3), false));
    assert_eq!(wait.owners.iter().map(|owner| owner.pid).collect::<Vec<_>>(), [61]);
}

#[test]
fn pyzmq_is_told_by_its_python_frames_where_there_are_no_native_ones() {
    let frame = |function: &str| Frame {
        kind: FrameKind::Python,
        function: function.to_owned(),
        file: Some("/venv/lib/python3.11/site-packages/zmq/sugar/socket.py".to_owned()),
        line: Some(1),
        module: None,
        address: None,
    };
    let eventfd = Fd { fd: 4, kind: FdKind::EventFd { id: Some(1), count: 0 }, ..Fd::default() };
    let cases = [
        ("Socket.send_multipart", WaitKind::SocketSend),
        ("Socket.recv_pyobj", WaitKind::SocketRecv),
        ("Socket.poll", WaitKind::Poll),
    ];
    for (function, kind) in cases {
        let mut process = poller(vec![eventfd.clone()], &[(4, 1)]);
        process.frames = vec![frame(function).into()];
        process.threads[0].python = Some(PythonThread {
            frames: vec![PythonFrame { frame: 0, entry: true }],
            ..PythonThread::default()
        });
        let wait = first(&capture(process));
        assert_eq!(wait.kind, kind, "{function}");
        assert!(wait.text.starts_with("zmq "), "{}", wait.text);
    }
}

/// A parent in a container that waits for its child 7, and another process that calls itself 7.
fn waits_for_child_7(parent_ns: Option<u64>, other_ns: Option<u64>) -> Vec<u32> {
    let process = Process { threads: vec![blocked(61, [7, 0, 0, 0, 0, 0])], ..Process::default() };
    let mut capture = capture(process);
    capture.processes[0].ns_pids = vec![PID, 1];
    capture.processes[0].pid_ns = parent_ns;
    capture.processes.push(Process {
        pid: 900,
        ns_pids: vec![900, 7],
        pid_ns: other_ns,
        ..Process::default()
    });
    first(&capture).owners.iter().map(|owner| owner.pid).collect()
}

#[test]
fn a_child_in_a_container_is_looked_for_in_that_container_only() {
    assert_eq!(waits_for_child_7(Some(40), Some(40)), [900]);
    // The child itself was not captured; somebody else's 7 is not it.
    assert!(waits_for_child_7(Some(40), Some(41)).is_empty());
    // A capture that does not tell.
    assert!(waits_for_child_7(None, None).is_empty());
}

#[test]
fn a_pidfd_names_the_hosts_process_whatever_container_holds_it() {
    let mut process =
        poller(vec![Fd { fd: 5, kind: FdKind::PidFd { pid: 950 }, ..Fd::default() }], &[(5, 1)]);
    process.threads.push(blocked(247, [3, 5, 0, 4, 0, 0]));
    let mut capture = capture(process);
    capture.processes[0].ns_pids = vec![PID, 1];
    let waits: Vec<Wait> = resolve(&capture).into_iter().map(|thread| thread.wait).collect();
    assert_eq!(waits.len(), 2);
    for wait in waits {
        assert_eq!(wait.owners.iter().map(|owner| owner.pid).collect::<Vec<_>>(), [950], "{wait:?}");
    }
}

#[test]
fn without_a_system_call_nothing_is_guessed() {
    let thread = Thread { syscall: None, ..blocked(0, [0; 6]) };
    let wait = first(&capture(Process { threads: vec![thread], ..Process::default() }));
    assert_eq!((wait.kind, wait.owners.len(), wait.has_deadline), (WaitKind::Other, 0, false));
}

fn any_kind() -> impl Strategy<Value = FdKind> {
    prop_oneof![
        (0u64..4).prop_map(|inode| FdKind::Socket { inode }),
        (0u64..4).prop_map(|inode| FdKind::Pipe { inode, path: None }),
        (proptest::option::of(0u64..4), any::<u64>()).prop_map(|(id, count)| FdKind::EventFd { id, count }),
        proptest::collection::vec((any::<i32>(), any::<u32>()), 0..8).prop_map(|targets| FdKind::Epoll {
            targets: targets.into_iter().map(|(fd, events)| EpollTarget { fd, events, inode: 0 }).collect(),
        }),
        any::<u64>().prop_map(|remaining_ns| FdKind::TimerFd { remaining_ns }),
        any::<i32>().prop_map(|pid| FdKind::PidFd { pid }),
        Just(FdKind::SignalFd),
        Just(FdKind::IoUring),
        Just(FdKind::Device { path: "/dev/nvidia0".into() }),
        Just(FdKind::File { path: "/x".into() }),
    ]
}

fn any_argument() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..8, Just(0x2000), any::<u64>()]
}

proptest! {
    #[test]
    fn no_capture_is_too_strange(
        number in 0u32..460,
        arguments in proptest::array::uniform6(any_argument()),
        restarted: bool,
        letter in proptest::char::range('A', 'z'),
        kinds in proptest::collection::vec((0i32..8, any_kind()), 0..8),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        peer in proptest::option::of(0u64..4),
        off_cpu_ns in proptest::option::of(any::<u64>()),
        ended_monotonic_ns in proptest::option::of(any::<u64>()),
        arch in prop_oneof![Just("x86_64"), Just("aarch64"), Just("")],
    ) {
        let mut thread = blocked(number, arguments);
        thread.state = TaskState::from_letter(letter);
        thread.off_cpu_ns = off_cpu_ns;
        thread.memory = vec![SavedMemory { address: 0x2000, bytes }];
        if let Some(syscall) = &mut thread.syscall {
            syscall.restarted = restarted;
        }
        let fds = kinds.into_iter().map(|(fd, kind)| Fd { fd, flags: fd as u32, kind, ..Fd::default() }).collect();
        let mut capture = capture(Process { threads: vec![thread], fds, ..Process::default() });
        capture.host.arch = arch.to_owned();
        capture.window.ended_monotonic_ns = ended_monotonic_ns;
        capture.sockets =
            (0..4).map(|inode| Socket { inode, peer_inode: peer, ..Socket::default() }).collect();
        let wait = first(&capture);
        prop_assert!(wait.has_deadline || wait.remaining_ns.is_none(), "{:?}", wait);
        prop_assert!(!wait.text.is_empty());
        prop_assert!(wait.owners.len() <= 16 && wait.targets.len() <= 256 + 64);
    }
}

#[test]
fn a_stack_without_all_its_python_frames_does_not_look_whole() {
    let python = PythonThread { partial: Some("its frames form a circle".into()), ..PythonThread::default() };
    let thread = Thread { python: Some(python), ..blocked(POLL, [0; 6]) };
    let capture = capture(Process { threads: vec![thread], ..Process::default() });
    let end = resolve(&capture).remove(0).stack_end;
    assert_eq!(end, StackEnd::Stopped("Python frames are missing: its frames form a circle".into()));
}
