//! Each family, and the same capture without its cause: that one must be healthy.

mod builder;
mod thread_died;
mod throttled;

use proptest::prelude::*;

use self::builder::{Builder, DECODE, DECODE_DETOKENIZER, DECODE_HTTP, PREFILL, PREFILL_HTTP, SECOND};
use super::Diagnosis;
use crate::model::{
    Activity, Bystander, Certainty, Fd, FdKind, Gap, Owner, Socket, TaskState, Tier, WaitKind,
    report::{Family, Party, Status},
};

fn ends(parties: &[Party]) -> Vec<(u32, Option<u32>)> {
    parties.iter().map(|party| (party.pid.unwrap(), party.tid)).collect()
}

#[track_caller]
fn assert_verdict(diagnosis: &Diagnosis, status: Status, family: Family) {
    let verdict = &diagnosis.verdict;
    assert_eq!((verdict.status, verdict.family), (status, family), "{verdict:#?}");
    assert!(!verdict.evidence.is_empty() && !verdict.action.is_empty() && !verdict.summary.is_empty());
    assert!((0.0..=1.0).contains(&verdict.confidence));
    assert_eq!(diagnosis.hypotheses[0].family, family);
}

#[track_caller]
fn assert_healthy(builder: &Builder) {
    let diagnosis = builder.diagnose();
    assert_verdict(&diagnosis, Status::Healthy, Family::Healthy);
    assert!(diagnosis.verdict.culprits.is_empty() && diagnosis.verdict.victims.is_empty());
}

#[test]
fn an_idle_pair_is_healthy_and_its_threads_are_known() {
    let pair = Builder::pair();
    assert_healthy(&pair);
    let diagnosis = pair.diagnose();
    let note = &diagnosis.thread_notes[&(PREFILL, PREFILL + 3)];
    assert_eq!((note.idle, note.role.as_deref()), (true, Some("transfer-worker")));
    assert!(!diagnosis.thread_notes[&(PREFILL, PREFILL)].idle);
    assert!(
        diagnosis.hypotheses.iter().skip(1).all(|hypothesis| hypothesis.refuted),
        "{:#?}",
        diagnosis.hypotheses
    );
    assert!(diagnosis.missing_threads.is_empty());
    let [started] = diagnosis.timeline.as_slice() else { panic!("{:#?}", diagnosis.timeline) };
    assert!(started.text.ends_with("and 2 more"), "one event for those started together: {}", started.text);
}

#[test]
fn nothing_to_judge_is_unknown() {
    assert_verdict(&Builder::empty().diagnose(), Status::Unknown, Family::Unknown);
}

#[test]
fn what_could_not_be_read_is_unknown_and_says_so() {
    let mut pair = Builder::pair();
    pair.process(DECODE).python = None;
    assert_verdict(&pair.diagnose(), Status::Unknown, Family::Unknown);
    assert!(pair.diagnose().verdict.summary.contains("Python stacks could not be read"));
    let mut pair = Builder::pair();
    pair.capture.tier = Tier::Proc;
    assert_verdict(&pair.diagnose(), Status::Unknown, Family::Unknown);
    let mut pair = Builder::pair();
    pair.stop(DECODE, TaskState::Zombie);
    assert_verdict(&pair.diagnose(), Status::Unknown, Family::Unknown);
    // A gap elsewhere takes confidence, not the verdict.
    let mut pair = Builder::pair();
    pair.capture.gaps.push(Gap::host("sockets", "no"));
    assert_healthy(&pair);
    assert!(pair.diagnose().verdict.confidence < Builder::pair().diagnose().verdict.confidence);
}

#[test]
fn blocked_threads_of_plain_programs_are_healthy() {
    let mut program = Builder::empty();
    program.program(1, 0);
    program.blocked(1, 1, "MainThread", WaitKind::Join, &["Thread.join", "main"]);
    program.blocked(1, 2, "Thread-1", WaitKind::PythonLock, &["Queue.get", "work"]);
    program.blocked(1, 3, "Thread-2", WaitKind::PythonLock, &["Event.wait", "mine"]);
    program.blocked(1, 4, "Thread-3", WaitKind::Mutex, &["native", "mine"]);
    program.owned_by(1, 1, 2);
    program.owned_by(4, 1, 5);
    program.running(1, 5, "Thread-4", &["work"]);
    assert_healthy(&program);
}

#[test]
fn two_mutexes_in_opposite_order() {
    let mut pair = Builder::pair();
    for (tid, owner) in [(3, 4), (4, 3)] {
        let stack = ["lock_in_order", "transfer", "transfer_worker"];
        pair.block(PREFILL, PREFILL + tid, WaitKind::Mutex, &stack);
        pair.owned_by(PREFILL + tid, PREFILL, PREFILL + owner);
    }
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::DeadlockCycle);
    assert_eq!(
        ends(&diagnosis.verdict.culprits),
        [(PREFILL, Some(PREFILL + 3)), (PREFILL, Some(PREFILL + 4))]
    );
    assert!(diagnosis.verdict.confidence >= 0.9);
    assert!(diagnosis.verdict.summary.contains("1m30s"), "{}", diagnosis.verdict.summary);
    // The same two waits without the circle.
    pair.owned_by(PREFILL + 4, PREFILL, PREFILL + 5);
    assert_healthy(&pair);
}

#[test]
fn a_circle_of_moments_is_no_deadlock() {
    let mut pair = Builder::pair();
    pair.block(PREFILL, PREFILL + 3, WaitKind::Gil, &["f", "transfer_worker"]);
    pair.owned_by(PREFILL + 3, PREFILL, PREFILL + 4);
    pair.block(PREFILL, PREFILL + 4, WaitKind::PythonLock, &["g", "transfer_worker"]);
    pair.owned_by(PREFILL + 4, PREFILL, PREFILL + 3);
    pair.gil(PREFILL, PREFILL + 4, [7, 8, 9]);
    assert_healthy(&pair);
}

#[test]
fn a_serving_thread_in_a_lock_that_nobody_is_known_to_hold_is_suspicious() {
    let mut pair = Builder::pair();
    pair.block(DECODE, DECODE + 4, WaitKind::PythonLock, &["disconnect_endpoint", "heartbeat_checker"]);
    assert_verdict(&pair.diagnose(), Status::Unknown, Family::Unknown);
    // That its holder is known is no comfort while the holder stands still too.
    pair.blocked(DECODE, DECODE + 5, "Thread-5 (holder)", WaitKind::Poll, &["poll", "holds_it"]);
    pair.owned_by(DECODE + 4, DECODE, DECODE + 5);
    assert_verdict(&pair.diagnose(), Status::Unknown, Family::Unknown);
    pair.wait(DECODE + 5).kind = WaitKind::Running;
    assert_healthy(&pair);
    pair.wait(DECODE + 5).kind = WaitKind::Poll;
    pair.thread(DECODE, DECODE + 4).off_cpu_ns = Some(SECOND / 2);
    assert_healthy(&pair);
}

#[test]
fn a_cycle_explains_the_scheduler_that_is_in_it() {
    let mut pair = Builder::pair();
    pair.block(PREFILL, PREFILL, WaitKind::Mutex, &["lock", "event_loop_normal_disagg_prefill"]);
    pair.owned_by(PREFILL, PREFILL, PREFILL + 3);
    pair.block(PREFILL, PREFILL + 3, WaitKind::Mutex, &["lock", "transfer_worker"]);
    pair.owned_by(PREFILL + 3, PREFILL, PREFILL);
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::DeadlockCycle);
    let stuck =
        diagnosis.hypotheses.iter().find(|hypothesis| hypothesis.family == Family::SchedulerStuck).unwrap();
    assert!(stuck.summary.contains("explained by deadlock-cycle"), "{}", stuck.summary);
}

#[test]
fn the_gil_against_a_mutex_is_a_cycle_and_not_starvation() {
    let mut pair = Builder::pair();
    pair.block(PREFILL, PREFILL + 3, WaitKind::Gil, &["holds_mutex_wants_gil", "transfer_worker"]);
    pair.wait(PREFILL + 3).has_deadline = true;
    pair.owned_by(PREFILL + 3, PREFILL, PREFILL + 4);
    pair.block(PREFILL, PREFILL + 4, WaitKind::Mutex, &["holds_gil_wants_mutex", "transfer_worker"]);
    pair.owned_by(PREFILL + 4, PREFILL, PREFILL + 3);
    pair.block(PREFILL, PREFILL, WaitKind::Gil, &["event_loop_normal_disagg_prefill"]);
    pair.owned_by(PREFILL, PREFILL, PREFILL + 4);
    pair.gil(PREFILL, PREFILL + 4, [7, 7, 7]);
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::DeadlockCycle);
    assert_eq!(
        ends(&diagnosis.verdict.culprits),
        [(PREFILL, Some(PREFILL + 3)), (PREFILL, Some(PREFILL + 4))]
    );
    assert_eq!(ends(&diagnosis.verdict.victims), [(PREFILL, Some(PREFILL))]);
}

fn starved(switches: [u64; 3]) -> Builder {
    let mut pair = Builder::pair();
    pair.block(
        PREFILL,
        PREFILL + 3,
        WaitKind::Signal,
        &["call_with_gil_held", "transfer", "transfer_worker"],
    );
    pair.block(PREFILL, PREFILL, WaitKind::Gil, &["event_loop_normal_disagg_prefill"]);
    pair.wait(PREFILL).has_deadline = true;
    pair.owned_by(PREFILL, PREFILL, PREFILL + 3);
    pair.gil(PREFILL, PREFILL + 3, switches);
    pair
}

#[test]
fn a_native_call_that_keeps_the_gil() {
    let diagnosis = starved([7, 7, 7]).diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::GilStarvation);
    assert_eq!(ends(&diagnosis.verdict.culprits), [(PREFILL, Some(PREFILL + 3))]);
    assert_eq!(ends(&diagnosis.verdict.victims), [(PREFILL, Some(PREFILL))]);
    assert_healthy(&starved([7, 8, 9]));
    // A short look says too little, and a stopped process keeps its GIL without being at fault.
    let mut short = starved([7, 7, 7]);
    let gil = short.process(PREFILL).python.as_mut().unwrap().interpreters[0].gil.as_mut().unwrap();
    for (number, sample) in gil.samples.iter_mut().enumerate() {
        sample.at_ns = number as u64 * SECOND / 20;
    }
    assert!(
        short
            .diagnose()
            .hypotheses
            .iter()
            .all(|hypothesis| hypothesis.family != Family::GilStarvation || hypothesis.confidence < 0.7)
    );
    let mut stopped = starved([7, 7, 7]);
    stopped.stop(PREFILL, TaskState::Stopped);
    let diagnosis = stopped.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::PeerStopped);
    assert!(
        diagnosis.verdict.action.contains(&format!("kill -CONT {PREFILL}")),
        "{}",
        diagnosis.verdict.action
    );
}

#[test]
fn a_holder_that_gets_no_cpu_is_no_culprit() {
    let mut overloaded = starved([7, 7, 7]);
    let holder = overloaded.thread(PREFILL, PREFILL + 3);
    holder.state = TaskState::Running;
    holder.activity =
        Activity { sweeps: 3, running: 3, cpu_ns: Some(0), unchanged: true, ..Activity::default() };
    assert_healthy(&overloaded);
    let hypotheses = overloaded.diagnose().hypotheses;
    let gil = hypotheses.iter().find(|hypothesis| hypothesis.family == Family::GilStarvation).unwrap();
    assert!(!gil.refuted && gil.summary.contains("wants a CPU"), "{gil:?}");
    // It runs, and keeps it.
    overloaded.thread(PREFILL, PREFILL + 3).activity.cpu_ns = Some(SECOND / 2);
    assert_verdict(&overloaded.diagnose(), Status::Wedged, Family::GilStarvation);
}

fn sending() -> Builder {
    let mut pair = Builder::pair();
    let stack =
        ["Socket.send_multipart", "send_metadata", "pop_preallocated", "event_loop_normal_disagg_decode"];
    pair.block(DECODE, DECODE, WaitKind::SocketSend, &stack);
    let stack = ["disconnect_endpoint", "_handle_node_failure", "heartbeat_checker"];
    pair.block(DECODE, DECODE + 4, WaitKind::PythonLock, &stack);
    pair
}

#[test]
fn a_scheduler_that_sends_to_a_dead_peer_and_its_heartbeat_thread() {
    let diagnosis = sending().diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::BlockedSend);
    assert_eq!(ends(&diagnosis.verdict.culprits), [(DECODE, Some(DECODE))]);
    assert_eq!(ends(&diagnosis.verdict.victims), [(DECODE, Some(DECODE + 4))]);
    assert!(diagnosis.verdict.summary.contains("send_metadata"), "{}", diagnosis.verdict.summary);
    let stuck =
        diagnosis.hypotheses.iter().find(|hypothesis| hypothesis.family == Family::SchedulerStuck).unwrap();
    assert!(stuck.summary.contains("explained by blocked-send"));
    // A peer that was started after the send began is not the one that it waits for.
    let mut younger = sending();
    younger.process(PREFILL).start_unix_ns = younger.capture.window.ended_unix_ns() - SECOND;
    let told = younger.diagnose();
    assert!(told.verdict.evidence.iter().any(|fact| fact.fact.contains("after the send began")));
    assert_eq!(told.timeline.iter().filter(|event| event.text.starts_with("started")).count(), 2);
    assert!(!diagnosis.verdict.evidence.iter().any(|fact| fact.fact.contains("after the send began")));
    // A send that began a moment ago, and one with a limit.
    let mut brief = sending();
    for tid in [DECODE, DECODE + 4] {
        brief.thread(DECODE, tid).off_cpu_ns = Some(SECOND / 10);
    }
    assert_healthy(&brief);
    let mut limited = sending();
    limited.thread(DECODE, DECODE + 4).off_cpu_ns = Some(SECOND / 10);
    limited.wait(DECODE).has_deadline = true;
    limited.wait(DECODE).remaining_ns = Some(SECOND);
    assert_healthy(&limited);
}

#[test]
fn a_stopped_reader_explains_the_sender() {
    let mut pair = sending();
    let owner = Owner { pid: PREFILL, tid: None, certainty: Certainty::Proven, evidence: "sock_diag".into() };
    pair.wait(DECODE).owners = vec![owner];
    pair.stop(PREFILL, TaskState::Stopped);
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::PeerStopped);
    assert_eq!(ends(&diagnosis.verdict.culprits), [(PREFILL, None)]);
    assert!(ends(&diagnosis.verdict.victims).contains(&(DECODE, Some(DECODE))));
}

#[test]
fn a_stopped_decode_scheduler_has_victims_that_poll() {
    for (state, frozen) in [(TaskState::Stopped, None), (TaskState::Sleeping, Some(true))] {
        let mut pair = Builder::pair();
        if frozen.is_none() {
            pair.stop(DECODE, state);
        }
        pair.process(DECODE).frozen = frozen;
        let diagnosis = pair.diagnose();
        assert_verdict(&diagnosis, Status::Wedged, Family::PeerStopped);
        assert_eq!(ends(&diagnosis.verdict.culprits), [(DECODE, None)]);
        let mut victims = ends(&diagnosis.verdict.victims);
        victims.sort_unstable();
        let expected = [PREFILL_HTTP, PREFILL, DECODE_HTTP].map(|pid| (pid, Some(pid)));
        assert_eq!(victims, expected);
    }
}

#[test]
fn a_transfer_worker_that_waits_for_the_stopped_peer_is_a_victim() {
    let mut pair = Builder::pair();
    pair.stop(DECODE, TaskState::Stopped);
    let stack = ["check_xfer_state", "_await_handles", "NixlKVManager.transfer_worker", "run"];
    pair.block(PREFILL, PREFILL + 5, WaitKind::Sleep, &stack);
    let diagnosis = pair.diagnose();
    let victim = diagnosis.verdict.victims.iter().find(|party| party.tid == Some(PREFILL + 5)).unwrap();
    assert!(victim.detail.contains("_await_handles"), "{}", victim.detail);
}

#[test]
fn a_stopped_detokenizer_hurts_its_own_half_only() {
    let mut pair = Builder::pair();
    pair.stop(DECODE_DETOKENIZER, TaskState::Stopped);
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::PeerStopped);
    assert_eq!(ends(&diagnosis.verdict.victims), [(DECODE_HTTP, Some(DECODE_HTTP))]);
}

#[test]
fn a_moment_in_a_tracers_hands_is_no_wedge() {
    let mut pair = Builder::pair();
    pair.stop(DECODE, TaskState::Traced);
    for number in [0, 1, 3, 4] {
        pair.thread(DECODE, DECODE + number).off_cpu_ns = Some(SECOND / 50);
        pair.thread(DECODE, DECODE + number).activity.unchanged = false;
    }
    let moment = pair.diagnose();
    assert!(!matches!(moment.verdict.status, Status::Wedged | Status::Degraded), "{:#?}", moment.verdict);
    pair.stop(DECODE, TaskState::Traced);
    pair.process(DECODE).tracer_pid = 4321;
    let held = pair.diagnose();
    assert_verdict(&held, Status::Wedged, Family::PeerStopped);
    assert!(held.verdict.summary.contains("4321"));
}

#[test]
fn a_stopped_job_of_nobodys_is_no_wedge_and_a_named_one_is() {
    let mut programs = Builder::empty();
    for pid in [1, 2] {
        programs.program(pid, 0);
        programs.running(pid, pid, "MainThread", &["main"]);
    }
    programs.stop(1, TaskState::Stopped);
    let among_others = programs.diagnose();
    assert!(among_others.verdict.status != Status::Wedged, "{:#?}", among_others.verdict);
    let mut alone = Builder::empty();
    alone.program(1, 0);
    alone.running(1, 1, "MainThread", &["main"]);
    alone.stop(1, TaskState::Stopped);
    assert_verdict(&alone.diagnose(), Status::Wedged, Family::PeerStopped);
}

#[test]
fn a_stopped_bystander_counts_only_while_somebody_stands_waiting_for_it() {
    let mut pair = Builder::pair();
    let socket = |inode, peer| Socket { inode, peer_inode: Some(peer), ..Socket::default() };
    let fd = |inode| Fd { fd: 3, flags: 0, kind: FdKind::Socket { inode }, ..Fd::default() };
    pair.capture.sockets = vec![socket(10, 11), socket(11, 10)];
    pair.process(DECODE).fds = vec![fd(10)];
    let state = TaskState::Stopped;
    pair.capture.bystanders =
        vec![Bystander { pid: 900, comm: "router".into(), state, fds: vec![fd(11)], ..Bystander::default() }];
    pair.wait(DECODE + 3).inode = Some(10);
    assert_healthy(&pair);
    pair.block(DECODE, DECODE, WaitKind::SocketRecv, &["recv", "event_loop_normal_disagg_decode"]);
    pair.wait(DECODE).inode = Some(10);
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::PeerStopped);
    assert_eq!(ends(&diagnosis.verdict.culprits), [(900, None)]);
}

#[test]
fn what_a_wedge_would_explain_too_is_told_beside_a_healthy_verdict() {
    let doubts = |pair: &Builder| {
        assert_healthy(pair);
        let verdict = pair.diagnose().verdict;
        let facts: Vec<String> =
            verdict.evidence.iter().filter(|fact| !fact.supports).map(|fact| fact.fact.clone()).collect();
        (facts.join("\n"), verdict.confidence)
    };
    let mut pair = Builder::pair();
    let (_, sure) = doubts(&pair);
    pair.capture.sockets = vec![
        Socket { inode: 10, state: "SYN_SENT".into(), remote: "10.0.0.9:80".into(), ..Socket::default() },
        Socket { inode: 11, state: "SYN_SENT".into(), remote: "10.0.0.8:80".into(), ..Socket::default() },
    ];
    pair.process(DECODE).fds =
        vec![Fd { fd: 3, flags: 0, kind: FdKind::Socket { inode: 10 }, ..Fd::default() }];
    let (facts, less) = doubts(&pair);
    assert!(facts.contains("10.0.0.9:80") && !facts.contains("10.0.0.8:80"), "{facts}");
    assert!(less < sure);
    let mut pair = Builder::pair();
    pair.remove(PREFILL, PREFILL + 3);
    pair.running(PREFILL, PREFILL + 3, "Thread-3 (transfer_worker)", &["_await_handles", "transfer_worker"]);
    let (facts, less) = doubts(&pair);
    assert!(facts.contains("_await_handles"), "{facts}");
    assert!(less < sure);
}

#[test]
fn a_scheduler_that_sleeps_or_wants_a_lock_or_reads_a_pipe() {
    for kind in
        [WaitKind::Sleep, WaitKind::PythonLock, WaitKind::PipeRead, WaitKind::FileLock, WaitKind::Disk]
    {
        let mut pair = Builder::pair();
        pair.block(PREFILL, PREFILL, kind, &["obey", "event_loop_normal_disagg_prefill"]);
        if kind == WaitKind::Sleep {
            pair.wait(PREFILL).has_deadline = true;
            pair.wait(PREFILL).remaining_ns = Some(1_000_000 * SECOND);
        }
        pair.thread(PREFILL, PREFILL).off_cpu_ns = Some(3 * SECOND);
        let diagnosis = pair.diagnose();
        assert_verdict(&diagnosis, Status::Wedged, Family::SchedulerStuck);
        assert_eq!(ends(&diagnosis.verdict.culprits), [(PREFILL, Some(PREFILL))]);
        assert!(ends(&diagnosis.verdict.victims).contains(&(PREFILL_HTTP, Some(PREFILL_HTTP))));
        pair.thread(PREFILL, PREFILL).off_cpu_ns = Some(SECOND / 20);
        assert_healthy(&pair);
    }
    let mut pair = Builder::pair();
    pair.block(PREFILL, PREFILL, WaitKind::Sleep, &["on_idle", "event_loop_normal_disagg_prefill"]);
    pair.wait(PREFILL).has_deadline = true;
    pair.wait(PREFILL).remaining_ns = Some(SECOND / 2);
    assert_healthy(&pair);
}

#[test]
fn a_title_alone_makes_no_wedge() {
    let mut pair = Builder::pair();
    pair.block(PREFILL, PREFILL, WaitKind::SocketRecv, &["recv", "<module>"]);
    for seconds in [3, 3000] {
        pair.thread(PREFILL, PREFILL).off_cpu_ns = Some(seconds * SECOND);
        let diagnosis = pair.diagnose();
        assert_verdict(&diagnosis, Status::Unknown, Family::Unknown);
        assert!(diagnosis.verdict.summary.contains("prefill scheduler"), "{}", diagnosis.verdict.summary);
    }
}

#[test]
fn a_process_that_ended_is_not_healthy() {
    for state in [TaskState::Zombie, TaskState::Dead] {
        let mut pair = Builder::pair();
        pair.process(PREFILL).state = state;
        for thread in &mut pair.process(PREFILL).threads {
            thread.state = state;
        }
        assert_verdict(&pair.diagnose(), Status::Unknown, Family::Unknown);
    }
}

#[test]
fn a_scheduler_in_an_undecoded_futex_is_given_time() {
    let mut pair = Builder::pair();
    pair.block(
        PREFILL,
        PREFILL,
        WaitKind::Futex,
        &["forward", "run_batch", "event_loop_normal_disagg_prefill"],
    );
    pair.thread(PREFILL, PREFILL).off_cpu_ns = Some(3 * SECOND);
    assert_healthy(&pair);
    pair.thread(PREFILL, PREFILL).off_cpu_ns = Some(20 * SECOND);
    assert_verdict(&pair.diagnose(), Status::Unknown, Family::Unknown);
    pair.thread(PREFILL, PREFILL).off_cpu_ns = Some(200 * SECOND);
    assert_verdict(&pair.diagnose(), Status::Wedged, Family::SchedulerStuck);
}

#[test]
fn a_rank_that_waits_for_rank_zero_is_idle() {
    let mut pair = Builder::pair();
    let stack = ["broadcast", "broadcast_pyobj", "recv_requests", "event_loop_normal_disagg_prefill"];
    pair.block(PREFILL, PREFILL, WaitKind::Futex, &stack);
    pair.thread(PREFILL, PREFILL).off_cpu_ns = Some(3_600 * SECOND);
    assert_healthy(&pair);
}

fn kinds() -> impl Strategy<Value = WaitKind> {
    prop::sample::select(vec![
        WaitKind::Running,
        WaitKind::Mutex,
        WaitKind::Gil,
        WaitKind::PythonLock,
        WaitKind::SocketSend,
        WaitKind::SocketRecv,
        WaitKind::Sleep,
        WaitKind::Stopped,
        WaitKind::Frozen,
        WaitKind::Join,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the threads do: no panic, one verdict, and its culprits and victims are of the capture and no party is both.
    #[test]
    fn any_capture_gets_a_consistent_verdict(
        waits in prop::collection::vec((kinds(), 0u32..8, any::<bool>(), 0u64..120), 8),
        holder in 0u32..8,
    ) {
        let mut pair = Builder::pair();
        for (number, (kind, owner, deadline, seconds)) in waits.into_iter().enumerate() {
            let tid = PREFILL + [0, 1, 3, 4, 5, 6, 7, 3][number];
            pair.block(PREFILL, tid, kind, &["f", "g"]);
            pair.owned_by(tid, PREFILL, PREFILL + owner);
            pair.wait(tid).has_deadline = deadline;
            pair.thread(PREFILL, tid).off_cpu_ns = Some(seconds * SECOND);
        }
        pair.gil(PREFILL, PREFILL + holder, [1, 1, 1]);
        let diagnosis = pair.diagnose();
        let verdict = &diagnosis.verdict;
        prop_assert!((0.0..=1.0).contains(&verdict.confidence));
        let wedged = matches!(verdict.status, Status::Wedged | Status::Degraded);
        prop_assert_eq!(wedged, !verdict.culprits.is_empty());
        for party in verdict.culprits.iter().chain(&verdict.victims) {
            prop_assert!(pair.capture.process(party.pid.unwrap()).is_some());
        }
        for victim in &verdict.victims {
            prop_assert!(!verdict.culprits.iter().any(|culprit| culprit.tid.is_some() && (culprit.pid, culprit.tid) == (victim.pid, victim.tid)));
        }
    }
}

#[test]
fn a_program_whose_every_thread_waits_for_another_is_suspicious() {
    let mut program = Builder::empty();
    program.program(10, 1);
    program.blocked(10, 10, "MainThread", WaitKind::Join, &["join", "main"]);
    program.blocked(10, 11, "Thread-1", WaitKind::PythonLock, &["one"]);
    program.blocked(10, 12, "Thread-2", WaitKind::PythonLock, &["two"]);
    let verdict = program.diagnose().verdict;
    assert_eq!((verdict.status, verdict.family), (Status::Unknown, Family::Unknown), "{verdict:#?}");
    assert!(verdict.summary.contains("all 3 threads"), "{}", verdict.summary);
    // One that can still move may release the lock; so may whoever wakes a thread that waits for work.
    let mut moves = Builder::empty();
    moves.program(10, 1);
    moves.blocked(10, 10, "MainThread", WaitKind::SocketRecv, &["recv", "main"]);
    moves.blocked(10, 11, "Thread-1", WaitKind::PythonLock, &["one"]);
    assert_healthy(&moves);
    let mut parked = Builder::empty();
    parked.program(10, 1);
    parked.blocked(10, 10, "MainThread", WaitKind::PythonLock, &["wait", "main"]);
    assert_healthy(&parked);
}
