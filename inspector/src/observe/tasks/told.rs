//! What the walk told of each thread last: one that has not run since is told in few words.

use std::collections::HashMap;

use super::Task;

/// One thread as it was told in full.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) task: Task,
    /// Its `restart_block.fn`.
    pub(super) restart_fn: u64,
}

/// Every thread of the last walk, in the walk's order.
#[derive(Debug, Default)]
pub(super) struct Told(Vec<Option<Known>>);

impl Told {
    /// Turns to the next walk, which is given what this one knows.
    pub(super) fn next(&mut self) -> Next {
        let last = std::mem::take(&mut self.0);
        Next { now: Vec::with_capacity(last.len()), last, at: 0 }
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.0.iter().flatten().map(|known| &known.task)
    }

    /// Every thread's `restart_block.fn`, by tid.
    pub(super) fn restart_fns(&self) -> HashMap<u32, u64> {
        self.0.iter().flatten().map(|known| (known.task.tid, known.restart_fn)).collect()
    }
}

/// A walk that is being taken in.
#[derive(Debug)]
pub(super) struct Next {
    last: Vec<Option<Known>>,
    now: Vec<Option<Known>>,
    at: usize,
}

impl Next {
    /// What the last walk told of a thread. Walks come by threads in the same order, so it is looked for where the last one
    /// was found; threads that are gone, or are told in full, cost a step each. (A new one is told in full, and not asked
    /// for.)
    pub(super) fn last(&mut self, pid: u32, tid: u32) -> Option<Known> {
        let is_it = |known: &Option<Known>| {
            known.as_ref().is_some_and(|known| known.task.pid == pid && known.task.tid == tid)
        };
        let (before, after) = self.last.split_at(self.at.min(self.last.len()));
        let ahead = after.iter().position(is_it).map(|steps| before.len() + steps);
        let found = ahead.or_else(|| before.iter().position(is_it))?;
        self.at = found + 1;
        self.last.get_mut(found)?.take()
    }

    pub(super) fn tell(&mut self, known: Known) {
        self.now.push(Some(known));
    }

    pub(super) fn done(self) -> Told {
        Told(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(tid: u32) -> Known {
        Known { task: Task { pid: 1, tid, ..Task::default() }, restart_fn: u64::from(tid) }
    }

    #[test]
    fn threads_are_found_in_any_order_and_once() {
        let mut told = Told::default();
        let mut next = told.next();
        for tid in [5, 3, 9] {
            next.tell(known(tid));
        }
        let mut told = next.done();
        assert_eq!(told.tasks().map(|task| task.tid).collect::<Vec<_>>(), [5, 3, 9]);
        assert_eq!(told.restart_fns().get(&9), Some(&9));
        let mut next = told.next();
        for tid in [3, 9, 5] {
            assert_eq!(next.last(1, tid).map(|known| known.task.tid), Some(tid));
        }
        assert!(next.last(1, 5).is_none() && next.last(2, 3).is_none() && next.last(1, 7).is_none());
        assert!(next.done().tasks().next().is_none());
    }
}
