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
    let common = (0..)
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
