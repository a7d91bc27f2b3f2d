//! Wait cycles among threads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::model::{
    Certainty, WaitKind,
    report::{Cycle, Edge, End},
};

/// Most cycles that are reported.
const MAX_CYCLES: usize = 64;

/// Whether a wait of this kind ends only when its owner acts: a lock, a thread's or a child's end. Two threads that
/// each wait for the other's *message* are an idle pair as often as a deadlock: those make a cycle only in a knot.
const fn is_exclusive(kind: WaitKind) -> bool {
    matches!(
        kind,
        WaitKind::Mutex
            | WaitKind::Rwlock
            | WaitKind::Semaphore
            | WaitKind::Condvar
            | WaitKind::Join
            | WaitKind::Gil
            | WaitKind::PythonLock
            | WaitKind::FileLock
            | WaitKind::Futex
    )
}

/// The nodes that a step along an edge leads to, with the edge's index.
type Steps = BTreeMap<End, Vec<(u32, End)>>;

/// Locks, and of the messages those among threads that nobody else can set free: `stuck`.
fn steps(edges: &[Edge], stuck: &BTreeSet<End>) -> Steps {
    let mut steps = Steps::new();
    for (index, edge) in edges.iter().enumerate() {
        // Threads that take turns wake each other, and hold nothing.
        if edge.by_waker {
            continue;
        }
        let index = index as u32;
        let out = steps.entry(edge.from).or_default();
        let from_knot = stuck.contains(&edge.from);
        if edge.to.tid.is_some() {
            let counts = is_exclusive(edge.through.kind) || (from_knot && stuck.contains(&edge.to));
            out.extend(counts.then_some((index, edge.to)));
        } else if from_knot {
            // Of a process whose threads are all stuck, any of them.
            let all = End { pid: edge.to.pid, tid: None }..=End { pid: edge.to.pid, tid: Some(u32::MAX) };
            out.extend(stuck.range(all).map(|&end| (index, end)));
        }
    }
    steps
}

/// One shortest cycle through each set of threads that wait for each other in a circle, ordered by the first thread.
///
/// Every thread in such a set reaches every other; the shortest cycle through the smallest one names the fewest.
pub(super) fn cycles(edges: &[Edge], stuck: &BTreeSet<End>) -> Vec<Cycle> {
    let next = steps(edges, stuck);
    let mut covered = BTreeSet::new();
    let mut cycles = Vec::new();
    for &start in next.keys() {
        if cycles.len() >= MAX_CYCLES {
            break;
        }
        if covered.contains(&start) {
            continue;
        }
        let Some(path) = shortest(edges, &next, start) else { continue };
        covered.extend(path.iter().filter_map(|&index| Some(edges.get(index as usize)?.from)));
        let proven = path
            .iter()
            .all(|&i| edges.get(i as usize).is_some_and(|edge| edge.certainty == Certainty::Proven));
        cycles.push(Cycle {
            edges: path,
            certainty: if proven { Certainty::Proven } else { Certainty::Likely },
        });
    }
    cycles
}

/// The shortest way from `start` back to it, as edge indices: breadth first, proven edges before likely ones.
fn shortest(edges: &[Edge], next: &Steps, start: End) -> Option<Vec<u32>> {
    let mut came_by: BTreeMap<End, (u32, End)> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        let certainty = |index: u32| edges.get(index as usize).map(|edge| edge.certainty);
        let mut out: Vec<(u32, End)> = next.get(&node).into_iter().flatten().copied().collect();
        out.sort_by_key(|&(index, _)| (std::cmp::Reverse(certainty(index)), index));
        for (index, to) in out {
            if to == start {
                let mut path = vec![index];
                let mut at = node;
                while at != start {
                    let &(by, from) = came_by.get(&at)?;
                    path.push(by);
                    at = from;
                }
                path.reverse();
                return Some(path);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = came_by.entry(to) {
                entry.insert((index, node));
                queue.push_back(to);
            }
        }
    }
    None
}
