//! Threads that are gone, and threads that only seem to be.

use super::{
    assert_healthy, assert_verdict,
    builder::{Builder, DECODE, DECODE_HTTP, PREFILL},
};
use crate::model::{
    PythonThread, WaitKind,
    report::{Evidence, Family, PartyKind, Status},
};

#[test]
fn a_listener_that_died_wedges_and_one_worker_of_four_degrades() {
    let mut pair = Builder::pair();
    pair.remove(DECODE, DECODE + 3);
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::ThreadDied);
    let culprit = &diagnosis.verdict.culprits[0];
    assert_eq!((culprit.kind, culprit.pid, culprit.tid), (PartyKind::MissingPeer, Some(DECODE), None));
    assert_eq!(culprit.thread.as_deref(), Some("decode_listener_thread"));
    assert_eq!(diagnosis.missing_threads.len(), 1);
    assert!(diagnosis.verdict.action.contains("decode"));

    let mut pair = Builder::pair();
    pair.remove(PREFILL, PREFILL + 4);
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Degraded, Family::ThreadDied);
    assert!(diagnosis.verdict.summary.contains("1 of 4"), "{}", diagnosis.verdict.summary);
    // Fewer workers were asked for.
    pair.process(PREFILL).environment.insert("SGLANG_DISAGGREGATION_QUEUE_SIZE".into(), "3".into());
    assert_healthy(&pair);
}

#[test]
fn a_gap_in_the_numbers_alone_is_no_death() {
    let mut pair = Builder::pair();
    pair.thread(PREFILL, PREFILL + 7).python.as_mut().unwrap().name =
        Some("Thread-19 (bootstrap_thread_guarded)".into());
    assert_healthy(&pair);
}

#[test]
fn threads_are_not_missed_before_start_up_is_over_or_where_one_could_not_be_read() {
    let mut starting = Builder::pair();
    starting.remove(DECODE, DECODE + 3);
    starting.resolved(DECODE).frames.truncate(0);
    assert_healthy(&starting);
    let not_judged = |fact: &Evidence| fact.fact.starts_with("whether decode scheduler") && !fact.supports;
    assert!(starting.diagnose().verdict.evidence.iter().any(not_judged));
    let mut unread = Builder::pair();
    *unread.thread(DECODE, DECODE + 3).python.as_mut().unwrap() = PythonThread::default();
    unread.resolved(DECODE + 3).frames.clear();
    assert_healthy(&unread);
    let mut unmatched = Builder::pair();
    unmatched.remove(DECODE, DECODE + 3);
    let thread =
        PythonThread { name: Some("Thread-3 (decode_listener_thread)".into()), ..PythonThread::default() };
    unmatched.process(DECODE).python.as_mut().unwrap().unmatched.push(thread);
    assert_healthy(&unmatched);
}

#[test]
fn a_thread_missing_from_a_process_whose_start_up_could_not_be_seen_is_suspicious() {
    let mut torn = Builder::pair();
    torn.resolved(DECODE).frames.truncate(0);
    torn.thread(DECODE, DECODE).python.as_mut().unwrap().partial = Some("a frame moved".into());
    assert_healthy(&torn);
    torn.remove(DECODE, DECODE + 3);
    let verdict = torn.diagnose().verdict;
    assert_eq!((verdict.status, verdict.family), (Status::Unknown, Family::Unknown));
    assert!(verdict.summary.contains("decode_listener_thread"), "{}", verdict.summary);
}

#[test]
fn old_pythons_threads_are_known_by_their_functions() {
    let mut pair = Builder::pair();
    for process in &mut pair.capture.processes {
        for thread in process.threads.iter_mut().filter(|thread| thread.tid != process.pid) {
            let name = thread.python.as_mut().unwrap().name.as_mut().unwrap();
            *name = name.split(' ').next().unwrap().to_owned();
        }
    }
    assert_healthy(&pair);
    pair.remove(PREFILL, PREFILL + 7);
    assert_verdict(&pair.diagnose(), Status::Wedged, Family::ThreadDied);
}

#[test]
fn siblings_show_what_the_catalog_does_not_ask_for() {
    let mut pair = Builder::pair();
    let mut add = |pid: u32, number: u32, with: bool| {
        pair.worker(pid, DECODE_HTTP, "scheduler", "decode");
        pair.running(pid, pid, "MainThread", &["recv_requests", "event_loop_normal_disagg_decode"]);
        pair.blocked(
            pid,
            pid + 1,
            "Thread-3 (decode_listener_thread)",
            WaitKind::SocketRecv,
            &["recv_multipart", "decode_listener_thread"],
        );
        pair.timed(pid, pid + 2, "HeartbeatChecker", WaitKind::PythonLock, &["wait", "heartbeat_checker"]);
        if with {
            pair.timed(pid, pid + 3, "Thread-9 (backup_thread_func)", WaitKind::PythonLock, &["wait", "get"]);
        }
        pair.process(pid).worker.as_mut().unwrap().rank = Some(format!("TP{number}"));
    };
    add(300, 1, true);
    add(310, 2, true);
    pair.timed(DECODE, DECODE + 9, "Thread-9 (backup_thread_func)", WaitKind::PythonLock, &["wait", "get"]);
    assert_healthy(&pair);
    pair.remove(310, 313);
    let diagnosis = pair.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::ThreadDied);
    assert_eq!(diagnosis.missing_threads[0].thread, "backup_thread_func");
    assert_eq!(diagnosis.missing_threads[0].pid, 310);
}

#[test]
fn a_mutex_that_a_gone_thread_left_locked_wedges_whoever_wants_it() {
    let mut program = Builder::empty();
    program.program(10, 1);
    program.blocked(10, 10, "main", WaitKind::PipeRead, &["main"]);
    program.blocked(10, 11, "waiter", WaitKind::Mutex, &["work"]);
    program.wait(11).address = Some(0x1000);
    assert_healthy(&program);
    program.wait(11).owner_gone = Some(12);
    let diagnosis = program.diagnose();
    assert_verdict(&diagnosis, Status::Wedged, Family::ThreadDied);
    assert!(diagnosis.verdict.summary.contains("tid 12 of"), "{}", diagnosis.verdict.summary);
    assert_eq!(diagnosis.verdict.victims[0].tid, Some(11));
    // It came a moment ago: the owner may be younger than the list of threads.
    program.thread(10, 11).off_cpu_ns = Some(1_000_000);
    assert_healthy(&program);
}
