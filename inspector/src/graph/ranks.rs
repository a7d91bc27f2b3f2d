//! Ranks of one engine run the same code: threads of one name, grouped by their stacks, tell which rank differs, and at
//! which frame it leaves the others.

use std::collections::BTreeMap;

use crate::{
    model::{
        Capture, Frame, FrameKind, PythonThread, Stability,
        report::{Divergence, StackClass},
    },
    resolve::ResolvedThread,
};

/// Most divergences that are reported.
const MAX_DIVERGENCES: usize = 32;
/// Most ranks that are compared with each other.
const MAX_RANKS: usize = 4096;

/// What groups processes whose ranks can be compared: engine, kind and role.
type Group = (String, String, Option<String>);

/// Threads of the same name in the ranks of one engine, whose stacks are not the same. Only threads that stood still while
/// they were read: of those that run, the difference is chance.
pub(super) fn divergences(capture: &Capture, threads: &[ResolvedThread]) -> Vec<Divergence> {
    let mut groups: BTreeMap<(Group, String), Vec<Sight<'_>>> = BTreeMap::new();
    for resolved in threads.iter().take(MAX_RANKS * 64) {
        let Some(process) = capture.process(resolved.pid) else { continue };
        let (Some(worker), Some(thread)) = (&process.worker, process.thread(resolved.tid)) else { continue };
        let Some(rank) = &worker.rank else { continue };
        if thread.stability != Stability::Stable {
            continue;
        }
        let whole = thread.python.as_ref().is_none_or(PythonThread::is_whole);
        let stack = path(&resolved.frames);
        if stack.is_empty() || !whole {
            continue;
        }
        let name = if resolved.tid == resolved.pid { "main thread" } else { thread.name() };
        let group = (worker.engine.clone(), worker.kind.clone(), worker.role.clone());
        let sight = Sight { rank, pid: process.pid, stack };
        groups.entry((group, name.to_owned())).or_default().push(sight);
    }
    let divergence = |((group, thread), sights): ((Group, String), Vec<Sight<'_>>)| {
        compare(&group, thread, sights.get(..MAX_RANKS.min(sights.len()))?)
    };
    groups.into_iter().filter_map(divergence).take(MAX_DIVERGENCES).collect()
}

/// One rank's thread.
struct Sight<'a> {
    rank: &'a str,
    pid: u32,
    /// Outermost first.
    stack: Vec<&'a Frame>,
}

/// The frames that say where in the engine a thread is, outermost first: its Python frames, else its native ones.
fn path(frames: &[std::sync::Arc<Frame>]) -> Vec<&Frame> {
    let of = |kind| frames.iter().rev().map(AsRef::as_ref).filter(move |frame: &&Frame| frame.kind == kind);
    let python: Vec<&Frame> = of(FrameKind::Python).collect();
    if python.is_empty() { of(FrameKind::Native).collect() } else { python }
}

fn compare(group: &Group, thread: String, sights: &[Sight<'_>]) -> Option<Divergence> {
    // Several threads of one name in one process: which is whose twin is not known.
    let mut pids: Vec<u32> = sights.iter().map(|sight| sight.pid).collect();
    pids.sort_unstable();
    if sights.len() < 2 || pids.windows(2).any(|pair| pair.first() == pair.last()) {
        return None;
    }
    let place = |frame: &Frame| (frame.function.clone(), frame.file.clone(), frame.line);
    let mut classes: BTreeMap<Vec<_>, Vec<&Sight<'_>>> = BTreeMap::new();
    for sight in sights {
        classes.entry(sight.stack.iter().map(|frame| place(frame)).collect()).or_default().push(sight);
    }
    if classes.len() < 2 {
        return None;
    }
    let shortest = classes.keys().map(Vec::len).min().unwrap_or(0);
    let common = (0..shortest)
        .take_while(|&depth| {
            let mut frames = classes.keys().map(|stack| stack.get(depth));
            let first = frames.next().flatten();
            first.is_some() && frames.all(|frame| frame == first)
        })
        .count();
    let shown = |frame: &&Frame| Frame::clone(frame);
    let mut classes: Vec<StackClass> = classes
        .into_values()
        .filter_map(|sights| {
            let stack = &sights.first()?.stack;
            Some(StackClass {
                ranks: sights.iter().map(|sight| sight.rank.to_owned()).collect(),
                pids: sights.iter().map(|sight| sight.pid).collect(),
                next: stack.get(common).map(shown),
                innermost: stack.last().map(shown),
            })
        })
        .collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.ranks.len()));
    let (engine, kind, role) = group;
    let words = [Some(engine.as_str()), role.as_deref(), Some(kind.as_str())];
    Some(Divergence {
        group: words.into_iter().flatten().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "),
        thread,
        after: common.checked_sub(1).and_then(|at| sights.first()?.stack.get(at)).map(shown),
        classes,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Process, StackEnd, Thread, Wait, Worker};

    /// A rank whose main thread has these functions on its stack, outermost first.
    fn rank(index: u32, functions: &[&str]) -> (Process, ResolvedThread) {
        let pid = 100 + index;
        let worker = Worker {
            engine: "sglang".into(),
            kind: "scheduler".into(),
            role: Some("decode".into()),
            rank: Some(format!("TP{index}")),
            ..Worker::default()
        };
        let thread = Thread { tid: pid, stability: Stability::Stable, ..Thread::default() };
        let process = Process { pid, worker: Some(worker), threads: vec![thread], ..Process::default() };
        let frame = |name: &&str| {
            Arc::new(Frame {
                kind: FrameKind::Python,
                function: (*name).into(),
                file: Some("scheduler.py".into()),
                line: Some(1),
                module: None,
                address: None,
            })
        };
        let frames = functions.iter().rev().map(frame).collect();
        let wait = Wait::default();
        (process, ResolvedThread { pid, tid: pid, wait, frames, stack_end: StackEnd::Complete })
    }

    fn compared(ranks: Vec<(Process, ResolvedThread)>) -> Vec<Divergence> {
        let (processes, threads): (Vec<_>, Vec<_>) = ranks.into_iter().unzip();
        divergences(&Capture { processes, ..Capture::default() }, &threads)
    }

    #[test]
    fn the_rank_that_differs_and_the_frame_where_it_leaves_the_others() {
        let loop_and = |more: &[&'static str]| [&["main", "event_loop"], more].concat();
        let found = compared(vec![
            rank(0, &loop_and(&["run_batch", "all_reduce"])),
            rank(1, &loop_and(&["recv_requests"])),
            rank(2, &loop_and(&["run_batch", "all_reduce"])),
        ]);
        let [divergence] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(
            (divergence.group.as_str(), divergence.thread.as_str()),
            ("sglang decode scheduler", "main thread")
        );
        assert_eq!(divergence.after.as_ref().map(|frame| frame.function.as_str()), Some("event_loop"));
        let name =
            |frame: &Option<Frame>| frame.as_ref().map(|frame| frame.function.clone()).unwrap_or_default();
        let classes: Vec<_> = divergence
            .classes
            .iter()
            .map(|class| (class.ranks.join(" "), name(&class.next), name(&class.innermost)))
            .collect();
        let class =
            |ranks: &str, next: &str, inner: &str| (ranks.to_owned(), next.to_owned(), inner.to_owned());
        assert_eq!(
            classes,
            [class("TP0 TP2", "run_batch", "all_reduce"), class("TP1", "recv_requests", "recv_requests")]
        );
    }

    #[test]
    fn equal_stacks_other_roles_and_threads_that_run_differ_in_nothing() {
        assert_eq!(compared(vec![rank(0, &["main", "poll"]), rank(1, &["main", "poll"])]), []);
        let mut prefill = rank(1, &["main", "send"]);
        if let Some(worker) = &mut prefill.0.worker {
            worker.role = Some("prefill".into());
        }
        assert_eq!(compared(vec![rank(0, &["main", "poll"]), prefill]), []);
        let mut runs = rank(1, &["main", "send"]);
        runs.0.threads[0].stability = Stability::Running;
        assert_eq!(compared(vec![rank(0, &["main", "poll"]), runs]), []);
    }

    #[test]
    fn a_stack_that_ends_earlier_has_no_next_frame() {
        let found = compared(vec![rank(0, &["main"]), rank(1, &["main", "poll"])]);
        let next: Vec<bool> = found[0].classes.iter().map(|class| class.next.is_some()).collect();
        assert_eq!(next.iter().filter(|has| **has).count(), 1);
    }
}
