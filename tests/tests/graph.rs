//! The wait-for graph of processes that block in a planned shape: every edge, every circle, and where the waiting ends.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use inspector_tests::{
    Document, Inspector,
    planted::{Block, Place, Plan, Planted, Process},
};

/// Plans that run at once; each is a handful of processes.
const BATCH: u64 = 25;
/// Random plans in all.
const SEEDS: u64 = 200;

fn dump(planted: &[Planted]) -> Result<Document> {
    let pids: Vec<u32> = planted.iter().flat_map(|planted| planted.pids.iter().copied()).collect();
    Inspector::json("dump", &pids).document()
}

/// Compares the edges, circles and roots of the report with the plan's.
fn check(report: &Document, plan: &Plan, planted: &Planted) -> Result<()> {
    let edge_text = |place: &Place, to: (u32, Option<u32>), certainty: &str| {
        let from = planted.threads[place];
        format!("{}/{} → {}/{:?} {certainty}", from.0, from.1, to.0, to.1)
    };
    let expected: BTreeSet<String> = plan
        .edges()
        .iter()
        .map(|(place, &(process, thread))| {
            let tid = thread.map(|thread| planted.threads[&(process, thread)].1);
            edge_text(place, (planted.pids[process], tid), "proven")
        })
        .collect();
    let edges = &report.report.edges;
    let own = |pid: u32| planted.pids.contains(&pid);
    let found: BTreeSet<String> = edges
        .iter()
        .filter(|edge| own(edge.from.pid))
        .map(|edge| {
            let (from, to) = (edge.from, edge.to);
            let from = format!("{}/{}", from.pid, from.tid.unwrap_or_default());
            format!("{from} → {}/{:?} {}", to.pid, to.tid, edge.certainty.name())
        })
        .collect();
    let missing: Vec<_> = expected.difference(&found).collect();
    let invented: Vec<_> = found.difference(&expected).collect();
    ensure!(
        missing.is_empty() && invented.is_empty(),
        "missing {missing:?}\ninvented {invented:?}\n{}",
        plan.text()
    );

    let stuck: BTreeSet<(u32, u32)> = plan.stuck().iter().map(|place| planted.threads[place]).collect();
    let mut in_circles = BTreeSet::new();
    for cycle in &report.report.cycles {
        let ends = cycle.edges.iter().map(|&index| edges[index as usize].from);
        let ends: Vec<(u32, u32)> =
            ends.filter(|end| own(end.pid)).map(|end| (end.pid, end.tid.unwrap_or_default())).collect();
        ensure!(
            ends.iter().all(|end| stuck.contains(end)),
            "no circle: {ends:?}, stuck are {stuck:?}\n{}",
            plan.text()
        );
        in_circles.extend(ends);
    }
    ensure!(
        stuck.is_empty() == in_circles.is_empty(),
        "circles {in_circles:?}, stuck {stuck:?}\n{}",
        plan.text()
    );

    // Where the waiting ends: a planted sleeper, or a process whose threads are several.
    for root in report.report.roots.iter().filter(|root| own(root.end.pid) && root.cycle.is_none()) {
        let sleeps = |(place, ids): (&Place, &(u32, u32))| {
            (Some(ids.1), ids.0) == (root.end.tid, root.end.pid)
                && plan.0[place.0].threads[place.1] == Block::Root
        };
        ensure!(
            root.end.tid.is_none() || planted.threads.iter().any(sleeps),
            "{root:?} is no root of {}",
            plan.text()
        );
    }
    Ok(())
}

/// A plan from a seed: two to five processes of one to four threads, each blocking on something of another.
fn random(seed: u64) -> Plan {
    // xorshift64*: the plans must be the same on every machine.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    };
    let sizes: Vec<usize> = (0..2 + below(4)).map(|_| 1 + below(4)).collect();
    let mut plan = Plan::default();
    for (index, &size) in sizes.iter().enumerate() {
        let mut joined = BTreeSet::new();
        let threads = (0..size).map(|thread| {
            let other_thread = (thread + 1 + below(size.max(2) - 1)) % size;
            let other_process = (index + 1 + below(sizes.len() - 1)) % sizes.len();
            let alone = size == 1;
            match below(10) {
                0 => Block::Root,
                1 | 2 if !alone => {
                    let kind =
                        ["mutex normal", "mutex recursive", "mutex errorcheck", "mutex robust"][below(4)];
                    Block::Inside(kind, other_thread)
                }
                // The kernel refuses a circle of priority-inheriting mutexes.
                3 if thread + 1 < size => Block::Inside("mutex pi", thread + 1),
                4 if !alone => Block::Inside(["read", "write"][below(2)], other_thread),
                // A thread can be joined once, and the main thread's end is the process's.
                5 if !alone && other_thread != 0 && joined.insert(other_thread) => {
                    Block::Inside("join", other_thread)
                }
                6 => Block::Shared(
                    ["shared normal", "shared robust"][below(2)],
                    other_process,
                    below(sizes[other_process]),
                ),
                _ => Block::Message(["unix", "tcp", "pipe", "fill"][below(4)], other_process),
            }
        });
        let threads = threads.collect();
        plan.0.push(Process { threads, pid_namespace: false });
    }
    plan
}

#[test]
fn random_graphs_are_recovered_exactly() -> Result<()> {
    let mut failures = Vec::new();
    let mut circles = 0;
    for batch in 0..SEEDS / BATCH {
        let plans: Vec<Plan> = (batch * BATCH..(batch + 1) * BATCH).map(random).collect();
        let planted: Vec<Planted> = plans.iter().map(Plan::start).collect::<Result<_>>()?;
        let report = dump(&planted)?;
        circles += report.report.cycles.len();
        for (offset, (plan, planted)) in plans.iter().zip(&planted).enumerate() {
            if let Err(error) = check(&report, plan, planted) {
                failures.push(format!("seed {}: {error:#}", batch * BATCH + offset as u64));
            }
        }
    }
    ensure!(failures.is_empty(), "{} of {SEEDS} seeds:\n{}", failures.len(), failures.join("\n\n"));
    ensure!(circles > 10, "the plans hold {circles} circles only");
    Ok(())
}

fn process(threads: &[Block]) -> Process {
    Process { pid_namespace: false, threads: threads.to_vec() }
}

/// The longest chain of the report, as the places of its threads, the root last.
fn chain(report: &Document, planted: &Planted) -> Vec<Place> {
    let root = report.report.roots.iter().max_by_key(|root| root.chain.len());
    let Some(root) = root else { return Vec::new() };
    let ends = root.chain.iter().map(|&index| report.report.edges[index as usize].from).chain([root.end]);
    let place =
        |ids: (u32, u32)| planted.threads.iter().find(|(_, known)| **known == ids).map(|(place, _)| *place);
    ends.filter_map(|end| place((end.pid, end.tid?))).collect()
}

#[test]
fn a_chain_through_locks_sockets_and_pipes_of_four_processes_ends_at_its_root() -> Result<()> {
    for pid_namespace in [false, true] {
        let mut plan = Plan(vec![
            // futex → thread → unix socket → thread → pipe → thread → TCP → shared mutex → thread.
            process(&[Block::Inside("mutex normal", 1), Block::Message("unix", 1)]),
            process(&[Block::Message("pipe", 2)]),
            process(&[Block::Message("tcp", 3)]),
            process(&[Block::Inside("join", 1), Block::Root]),
        ]);
        // In and out of a PID namespace.
        plan.0[0].pid_namespace = pid_namespace;
        plan.0[2].pid_namespace = pid_namespace;
        // The last process has two threads: which one answers is not known, so the chain ends at the process.
        let planted = plan.start()?;
        let report = dump(std::slice::from_ref(&planted))?;
        check(&report, &plan, &planted)?;
        assert_eq!(chain(&report, &planted), [(0, 0), (0, 1), (1, 0), (2, 0)], "{:#?}", report.report.roots);
        let ends = &report.report.roots[0].end;
        assert_eq!((ends.pid, ends.tid), (planted.pids[3], None));
        plan.0[3] = process(&[Block::Root]);
        let planted = plan.start()?;
        let report = dump(std::slice::from_ref(&planted))?;
        check(&report, &plan, &planted)?;
        assert_eq!(chain(&report, &planted), [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0)]);
        assert_eq!(report.report.roots[0].waiters, 4);
    }
    Ok(())
}

#[test]
fn circles_through_two_and_three_processes_are_found() -> Result<()> {
    for processes in [2, 3] {
        let kinds = ["unix", "pipe", "tcp"];
        let mut plan = Plan::default();
        for (index, kind) in kinds.into_iter().enumerate().take(processes) {
            plan.0.push(process(&[Block::Message(kind, (index + 1) % processes)]));
        }
        // And one who waits for the circle from outside.
        plan.0.push(process(&[Block::Message("pipe", 0)]));
        let planted = plan.start()?;
        let report = dump(std::slice::from_ref(&planted))?;
        check(&report, &plan, &planted)?;
        let [cycle] = report.report.cycles.as_slice() else { panic!("{:?}", report.report.cycles) };
        assert_eq!(cycle.edges.len(), processes);
        assert_eq!(cycle.certainty.name(), "proven");
        let root = &report.report.roots[0];
        assert_eq!((root.cycle, root.waiters as usize), (Some(0), processes + 1));
    }
    Ok(())
}

#[test]
fn a_circle_of_messages_is_a_deadlock_and_a_server_that_waits_for_work_is_none() -> Result<()> {
    let circle = Plan(vec![
        process(&[Block::Message("unix", 1)]),
        process(&[Block::Message("pipe", 2)]),
        process(&[Block::Inside("mutex normal", 1), Block::Message("tcp", 0)]),
    ]);
    let planted = circle.start()?;
    let report = Inspector::json("diagnose", &planted.pids).document()?;
    let verdict = &report.json["verdict"];
    assert_eq!(
        (&verdict["status"], &verdict["family"]),
        (&"wedged".into(), &"deadlock-cycle".into()),
        "{verdict:#}"
    );
    let pids = verdict["culprits"].as_array().into_iter().flatten().map(|party| party["pid"].as_u64());
    let pids: BTreeSet<u32> = pids.flatten().map(|pid| pid as u32).collect();
    assert_eq!(pids, planted.pids.iter().copied().collect(), "{verdict:#}");
    drop(planted);

    // The second process waits for the first one's next message, and so does the first one, from one of its threads: another
    // of them may send.
    let pair =
        Plan(vec![process(&[Block::Root, Block::Message("unix", 1)]), process(&[Block::Message("pipe", 0)])]);
    let planted = pair.start()?;
    let report = Inspector::json("diagnose", &planted.pids).document()?;
    let verdict = &report.json["verdict"];
    assert_eq!(verdict["status"], "healthy", "{verdict:#}");
    Ok(())
}
