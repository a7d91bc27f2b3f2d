use proptest::prelude::*;

use super::*;
use crate::model::{
    Certainty, Fd, FdKind, Gil, GilSample, Interpreter, Owner, Process, PythonRuntime, PythonThread, Socket,
    Stability, StackEnd, Thread, Wait, WaitKind,
    probes::{Probes, Transfer, TransferDirection},
    wait::LastWaker,
};

const PID: u32 = 100;

fn end(tid: u32) -> End {
    End { pid: PID, tid: Some(tid) }
}

fn waits(tid: u32, kind: WaitKind, owners: &[u32]) -> ResolvedThread {
    let owner = |&tid: &u32| Owner {
        pid: PID,
        tid: Some(tid),
        certainty: Certainty::Proven,
        evidence: "owner word".into(),
    };
    let wait = Wait { kind, owners: owners.iter().map(owner).collect(), ..Wait::default() };
    ResolvedThread { pid: PID, tid, wait, frames: Vec::new(), stack_end: StackEnd::Complete }
}

fn capture(threads: &[ResolvedThread], stability: Stability) -> Capture {
    let thread = |resolved: &ResolvedThread| Thread { tid: resolved.tid, stability, ..Thread::default() };
    let process = Process { pid: PID, threads: threads.iter().map(thread).collect(), ..Process::default() };
    Capture { processes: vec![process], ..Capture::default() }
}

fn graph(threads: &[ResolvedThread], stability: Stability) -> WaitGraph {
    WaitGraph::build(&capture(threads, stability), threads)
}

#[test]
fn two_mutexes_in_opposite_order_are_a_proven_cycle() {
    let threads = [
        waits(1, WaitKind::Mutex, &[2]),
        waits(2, WaitKind::Mutex, &[1]),
        waits(3, WaitKind::Mutex, &[1]),
        waits(4, WaitKind::Join, &[3]),
    ];
    let graph = graph(&threads, Stability::Stable);
    assert_eq!(graph.cycles.len(), 1);
    assert_eq!(graph.cycles[0].certainty, Certainty::Proven);
    assert_eq!(graph.edges_of(&graph.cycles[0]).map(|edge| edge.from).collect::<Vec<_>>(), [end(1), end(2)]);
    assert_eq!(graph.victims(&[end(1), end(2)]), [end(3), end(4)]);
}

#[test]
fn threads_that_wake_each_other_in_turns_are_no_cycle() {
    let woken_by = |tid: u32, waker: u32| {
        let mut thread = waits(tid, WaitKind::Condvar, &[]);
        let last_waker = LastWaker { pid: PID, tid: waker, before_end_ns: 1_000_000, times: 9, ended: false };
        thread.wait.last_waker = Some(last_waker);
        thread
    };
    let threads = [woken_by(1, 2), woken_by(2, 1), waits(3, WaitKind::Mutex, &[1])];
    let graph = graph(&threads, Stability::Stable);
    let likely = graph.edges.iter().filter(|edge| edge.by_waker && edge.certainty == Certainty::Likely);
    assert_eq!(likely.count(), 2);
    assert!(graph.cycles.is_empty());
    assert_eq!(graph.victims(&[end(1)]), [end(2), end(3)]);
    assert!(graph.roots.iter().any(|root| root.end == end(1)), "{:?}", graph.roots);
}

#[test]
fn a_moving_end_makes_an_edge_likely() {
    let threads = [waits(1, WaitKind::Mutex, &[2]), waits(2, WaitKind::Mutex, &[1])];
    let graph = graph(&threads, Stability::Torn);
    assert_eq!(graph.cycles[0].certainty, Certainty::Likely);
}

#[test]
fn a_thread_that_waits_for_its_own_lock_is_a_cycle_of_one() {
    let graph = graph(&[waits(7, WaitKind::Mutex, &[7])], Stability::Stable);
    assert_eq!(graph.cycles.len(), 1);
    assert_eq!(graph.cycles[0].edges, [0]);
}

#[test]
fn the_holder_of_a_chain_is_its_root() {
    let threads =
        [waits(1, WaitKind::Mutex, &[2]), waits(2, WaitKind::Mutex, &[3]), waits(3, WaitKind::Running, &[])];
    let graph = graph(&threads, Stability::Stable);
    assert!(graph.cycles.is_empty());
    assert_eq!(graph.victims(&[end(3)]), [end(2), end(1)]);
    let [root] = graph.roots.as_slice() else { panic!("{:?}", graph.roots) };
    assert_eq!((root.end, root.waiters, root.cycle), (end(3), 2, None));
    let chain: Vec<_> = root.chain.iter().map(|&index| graph.edges[index as usize].from).collect();
    assert_eq!(chain, [end(1), end(2)]);
}

#[test]
fn readers_of_each_others_messages_are_no_cycle_while_a_third_thread_may_write() {
    // Processes of two threads each: the second ones run.
    let capture = processes(&[(1, 2), (2, 2)]);
    let threads = [reads(1, 1, &[2]), reads(2, 2, &[1]), runs(1, 1001), runs(2, 1002)];
    let graph = WaitGraph::build(&capture, &threads);
    assert!(graph.cycles.is_empty());
    assert_eq!(graph.edges[0].to, End { pid: 2, tid: None });
}

#[test]
fn processes_that_read_from_each_other_and_nobody_else_are_a_cycle() {
    let capture = processes(&[(1, 1), (2, 1), (3, 1), (4, 1)]);
    // The fourth waits for one of them: a victim.
    let threads = [reads(1, 1, &[2]), reads(2, 2, &[3]), reads(3, 3, &[1]), reads(4, 4, &[2])];
    let graph = WaitGraph::build(&capture, &threads);
    assert_eq!(graph.cycles.len(), 1);
    assert_eq!(graph.cycles[0].certainty, Certainty::Proven);
    let circle: Vec<u32> = graph.edges_of(&graph.cycles[0]).map(|edge| edge.from.pid).collect();
    assert_eq!(circle, [1, 2, 3]);
    assert_eq!((graph.roots[0].cycle, graph.roots[0].waiters), (Some(0), 4));
    assert_eq!(graph.roots[0].chain.len(), 1);
}

#[test]
fn a_deadline_another_writer_and_a_thread_that_was_not_seen_open_a_knot() {
    let capture = processes(&[(1, 1), (2, 1), (3, 1)]);
    let closed = [reads(1, 1, &[2]), reads(2, 2, &[1])];
    assert_eq!(WaitGraph::build(&capture, &closed).cycles.len(), 1);
    let mut timed = closed.clone();
    timed[0].wait.has_deadline = true;
    assert!(WaitGraph::build(&capture, &timed).cycles.is_empty());
    let two_writers = [reads(1, 1, &[2, 3]), reads(2, 2, &[1]), runs(3, 3)];
    assert!(WaitGraph::build(&capture, &two_writers).cycles.is_empty());
    let mut unseen = processes(&[(1, 1), (2, 1)]);
    unseen.processes[0].thread_count = 2;
    assert!(WaitGraph::build(&unseen, &closed).cycles.is_empty());
    // Its own signal handler may write into a pipe of its own.
    assert!(WaitGraph::build(&capture, &[reads(1, 1, &[1])]).cycles.is_empty());
}

#[test]
fn a_lock_and_a_message_close_a_circle_through_two_processes() {
    // 1 waits for a mutex of 1001, which reads from process 2, whose only thread reads from process 1: from either thread.
    let capture = processes(&[(1, 2), (2, 1)]);
    let mut lock = waits(1, WaitKind::Mutex, &[1001]);
    (lock.pid, lock.wait.owners[0].pid) = (1, 1);
    let threads = [lock, reads(1, 1001, &[2]), reads(2, 2, &[1])];
    let graph = WaitGraph::build(&capture, &threads);
    assert_eq!(graph.cycles.len(), 1, "{graph:?}");
    let ends: Vec<_> = graph.edges_of(&graph.cycles[0]).map(|edge| (edge.from.pid, edge.from.tid)).collect();
    assert!(ends.contains(&(2, Some(2))) && ends.contains(&(1, Some(1001))), "{ends:?}");
}

#[test]
fn the_thread_at_the_other_end_of_a_connection_is_a_likely_edge_beside_the_proven_one() {
    let mut capture = processes(&[(1, 1), (2, 2)]);
    capture.sockets = vec![
        Socket { inode: 10, peer_inode: Some(11), ..Socket::default() },
        Socket { inode: 11, peer_inode: Some(10), ..Socket::default() },
    ];
    let mut client = reads(1, 1, &[2]);
    client.wait.inode = Some(10);
    let mut server = reads(2, 1002, &[1]);
    server.wait.inode = Some(11);
    let graph = WaitGraph::build(&capture, &[client, server, runs(2, 2)]);
    let from_client: Vec<_> =
        graph.from(End { pid: 1, tid: Some(1) }).map(|e| (e.to.tid, e.certainty)).collect();
    assert_eq!(from_client, [(None, Certainty::Proven), (Some(1002), Certainty::Likely)]);
}

#[test]
fn the_thread_that_wrote_into_a_pipe_last_is_the_likely_one_of_its_process() {
    let mut capture = processes(&[(1, 1), (2, 3)]);
    let transfer = |tid, inode, direction| Transfer {
        pid: 2,
        tid,
        inode: Some(inode),
        direction,
        ..Transfer::default()
    };
    let transfers = vec![
        transfer(1002, 10, TransferDirection::Out),
        transfer(2002, 10, TransferDirection::In),
        transfer(2002, 11, TransferDirection::Out),
    ];
    capture.probes = Some(Probes { transfers, ..Probes::default() });
    let mut reader = reads(1, 1, &[2]);
    (reader.wait.kind, reader.wait.inode) = (WaitKind::PipeRead, Some(10));
    let threads = [reader, runs(2, 2), runs(2, 1002), runs(2, 2002)];
    let to: Vec<_> =
        WaitGraph::build(&capture, &threads).edges.iter().map(|e| (e.to.tid, e.certainty)).collect();
    assert_eq!(to, [(None, Certainty::Proven), (Some(1002), Certainty::Likely)]);
}

#[test]
fn the_only_thread_that_has_a_connection_in_its_variables_is_the_likely_one() {
    let to = |users: &[usize], flags: u32, accepting: bool| -> Vec<Option<u32>> {
        let mut capture = processes(&[(1, 1), (2, 3)]);
        let server = &mut capture.processes[1];
        let kind = FdKind::Pipe { inode: 10, path: None };
        server.fds = vec![Fd { fd: 5, flags, kind, details: None }];
        for &user in users {
            let python = PythonThread { descriptors: vec![5], ..PythonThread::default() };
            server.threads[user].python = Some(python);
        }
        let mut reader = reads(1, 1, &[2]);
        (reader.wait.kind, reader.wait.inode) = (WaitKind::PipeRead, Some(10));
        let mut first = runs(2, 2);
        first.wait.kind = if accepting { WaitKind::Accept } else { WaitKind::Sleep };
        let threads = [reader, first, runs(2, 1002), runs(2, 2002)];
        WaitGraph::build(&capture, &threads).edges.iter().map(|edge| edge.to.tid).collect()
    };
    assert_eq!(to(&[1], 1, false), [None, Some(1002)]);
    assert_eq!(to(&[0, 1], 1, true), [None, Some(1002)], "who accepts more has handed this one on");
    assert_eq!(to(&[0, 1], 1, false), [None], "two may answer");
    assert_eq!(to(&[1], 0, false), [None], "the reading end");
}

#[test]
fn who_wrote_last_opens_no_circle_of_processes_of_one_thread() {
    let mut capture = processes(&[(1, 1), (2, 1)]);
    let wrote = |pid, inode| Transfer {
        pid,
        tid: pid,
        inode: Some(inode),
        direction: TransferDirection::Out,
        ..Transfer::default()
    };
    capture.probes = Some(Probes { transfers: vec![wrote(2, 10), wrote(1, 20)], ..Probes::default() });
    let mut threads = [reads(1, 1, &[2]), reads(2, 2, &[1])];
    for (thread, inode) in threads.iter_mut().zip([10, 20]) {
        (thread.wait.kind, thread.wait.inode) = (WaitKind::PipeRead, Some(inode));
    }
    assert_eq!(WaitGraph::build(&capture, &threads).cycles.len(), 1);
}

/// Processes of so many threads: the first has the process's id, the next are 1000 apart.
fn processes(sizes: &[(u32, u32)]) -> Capture {
    let process = |&(pid, count): &(u32, u32)| {
        let thread =
            |index| Thread { tid: pid + index * 1000, stability: Stability::Stable, ..Thread::default() };
        let threads = (0..count).map(thread).collect();
        Process { pid, thread_count: count, threads, ..Process::default() }
    };
    Capture { processes: sizes.iter().map(process).collect(), ..Capture::default() }
}

/// A read of what only these processes can write.
fn reads(pid: u32, tid: u32, writers: &[u32]) -> ResolvedThread {
    let mut thread = waits(tid, WaitKind::SocketRecv, writers);
    thread.pid = pid;
    for owner in &mut thread.wait.owners {
        (owner.pid, owner.tid) = (owner.tid.unwrap_or_default(), None);
    }
    thread
}

fn runs(pid: u32, tid: u32) -> ResolvedThread {
    ResolvedThread { pid, ..waits(tid, WaitKind::Running, &[]) }
}

#[test]
fn gil_edges_are_proven_by_a_holder_that_never_changes() {
    let threads = [waits(1, WaitKind::Gil, &[2]), waits(2, WaitKind::Mutex, &[1])];
    let certainty = |switches: [u64; 2]| {
        let mut capture = capture(&threads, Stability::Stable);
        capture.processes[0].threads[0].stability = Stability::Torn;
        let sample = |switch_number| GilSample { at_ns: 0, locked: true, holder: Some(2), switch_number };
        let gil = Gil { samples: switches.map(sample).to_vec(), ..Gil::default() };
        let interpreters = vec![Interpreter { gil: Some(gil), ..Interpreter::default() }];
        capture.processes[0].python = Some(PythonRuntime { interpreters, ..PythonRuntime::default() });
        WaitGraph::build(&capture, &threads).edges[0].certainty
    };
    assert_eq!(certainty([5, 5]), Certainty::Proven);
    assert_eq!(certainty([5, 6]), Certainty::Likely);
}

#[test]
fn a_send_leads_to_the_process_at_the_other_end() {
    let mut thread = waits(1, WaitKind::SocketSend, &[]);
    thread.wait.inode = Some(10);
    let mut capture = capture(std::slice::from_ref(&thread), Stability::Stable);
    let fd = |inode| Fd { fd: 3, flags: 0, kind: FdKind::Socket { inode }, ..Fd::default() };
    capture.processes[0].fds = vec![fd(10)];
    capture.processes.push(Process { pid: 200, fds: vec![fd(11)], ..Process::default() });
    capture.sockets = vec![
        Socket { inode: 10, peer_inode: Some(11), ..Socket::default() },
        Socket { inode: 11, peer_inode: Some(10), ..Socket::default() },
    ];
    let graph = WaitGraph::build(&capture, &[thread]);
    assert_eq!(graph.edges.len(), 1);
    assert_eq!(
        (graph.edges[0].to, graph.edges[0].certainty),
        (End { pid: 200, tid: None }, Certainty::Proven),
        "it has no thread that was seen"
    );
    assert_eq!(graph.victims(&[End { pid: 200, tid: None }]), [end(1)]);
    assert_eq!(graph.victims(&[End { pid: 200, tid: Some(201) }]), [end(1)]);
}

proptest! {
    #[test]
    fn cycles_chain(targets in prop::collection::vec((0u32..12, prop::collection::vec(0u32..12, 0..3)), 0..12)) {
        let threads: Vec<_> = targets.iter().map(|(tid, owners)| waits(*tid, WaitKind::Mutex, owners)).collect();
        let graph = graph(&threads, Stability::Stable);
        for cycle in &graph.cycles {
            let edges: Vec<_> = graph.edges_of(cycle).collect();
            prop_assert_eq!(edges.len(), cycle.edges.len());
            prop_assert!(!edges.is_empty());
            for (position, edge) in edges.iter().enumerate() {
                prop_assert_eq!(edge.to, edges[(position + 1) % edges.len()].from);
            }
            let froms: BTreeSet<_> = edges.iter().map(|edge| edge.from).collect();
            prop_assert_eq!(froms.len(), edges.len(), "no thread twice");
            prop_assert!(cycle.certainty == Certainty::Likely || edges.iter().all(|edge| edge.certainty == Certainty::Proven));
        }
        // Acyclic exactly when repeatedly taking away those that wait for nobody leaves nobody.
        let mut edges = graph.edges.clone();
        loop {
            let waiting: BTreeSet<_> = edges.iter().map(|edge| edge.from).collect();
            let before = edges.len();
            edges.retain(|edge| waiting.contains(&edge.to));
            if edges.len() == before { break; }
        }
        prop_assert_eq!(edges.is_empty(), graph.cycles.is_empty());
    }
}
