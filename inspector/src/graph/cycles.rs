//! Wait cycles among threads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::model::{
    Certainty, WaitKind,
    report::{Cycle, Edge, End},
};

/// Most cycles that are reported.
const MAX_CYCLES: usize = 64;

/// Whether a wait of this kind ends only when its owner acts: a lock, a thread's or a child's end. Two threads that
/// each wait for the other's *message* are an idle pair as often as a deadlock, so messages make no cycle here.
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

/// One shortest cycle through each set of threads that wait for each other in a circle, ordered by the first thread.
///
/// Every thread in such a set reaches every other; the shortest cycle through the smallest one names the fewest.
pub(super) fn cycles(edges: &[Edge]) -> Vec<Cycle> {
    let mut next: BTreeMap<End, Vec<u32>> = BTreeMap::new();
    for (index, edge) in edges.iter().enumerate() {
        if edge.to.tid.is_some() && is_exclusive(edge.through.kind) {
            next.entry(edge.from).or_default().push(index as u32);
        }
    }
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
fn shortest(edges: &[Edge], next: &BTreeMap<End, Vec<u32>>, start: End) -> Option<Vec<u32>> {
    let mut came_by: BTreeMap<End, u32> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        let mut out: Vec<(u32, &Edge)> = next
            .get(&node)
            .into_iter()
            .flatten()
            .filter_map(|&index| Some((index, edges.get(index as usize)?)))
            .collect();
        out.sort_by_key(|(index, edge)| (std::cmp::Reverse(edge.certainty), *index));
        for (index, edge) in out {
            if edge.to == start {
                let mut path = vec![index];
                let mut at = edge.from;
                while at != start {
                    let &by = came_by.get(&at)?;
                    path.push(by);
                    at = edges.get(by as usize)?.from;
                }
                path.reverse();
                return Some(path);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = came_by.entry(edge.to) {
                entry.insert(index);
                queue.push_back(edge.to);
            }
        }
    }
    None
}
