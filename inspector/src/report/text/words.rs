//! The phrases that several pages share.

use std::borrow::Cow;

use crate::{
    model::{
        Frame, FrameKind, Report, Stability, WaitKind,
        format::humane,
        report::{ThreadReport, WorkerReport},
    },
    report::{color::Style, escape, page::Page},
};

/// Characters of a function, a place, a process and a sentence about a wait that a line has room for: a C++ template's name has
/// thousands. The JSON document has them whole.
const WIDEST_FUNCTION: usize = 160;
const WIDEST_PLACE: usize = 200;
const WIDEST_LABEL: usize = 80;
const WIDEST_WAIT: usize = 300;

/// `prefill scheduler TP0`, else the process's `comm`.
pub(in crate::report) fn label(process: &WorkerReport) -> String {
    let parts: Vec<&str> = [process.role.as_deref(), process.kind.as_deref(), process.rank.as_deref()]
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    escape::name(&if parts.is_empty() { process.comm.clone() } else { parts.join(" ") }, WIDEST_LABEL)
}

/// `containerd 0123456789ab of pod web-0`, `docker 0123456789ab`; a host name where the cgroup told nothing.
pub(super) fn container(process: &WorkerReport) -> Option<String> {
    let container = process.container.as_ref()?;
    let id: Vec<&str> = [container.runtime.as_deref(), container.short_id()].into_iter().flatten().collect();
    let name = container.hostname.as_deref();
    let pod = container.pod_uid.as_ref().map(|uid| format!("of pod {}", name.unwrap_or(uid)));
    let alone = id.is_empty().then_some(name).flatten().filter(|_| pod.is_none()).map(str::to_owned);
    let parts: Vec<String> = [Some(id.join(" ")), pod, alone].into_iter().flatten().collect();
    let text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    Some(escape::name(&text, WIDEST_LABEL))
}

/// `blocked 2m03s, no deadline`; `running`.
pub(super) fn age(thread: &ThreadReport) -> String {
    let kind = thread.wait.kind;
    if kind == WaitKind::Running {
        return "running".into();
    }
    if kind == WaitKind::Throttled {
        return "throttled".into();
    }
    let mut phrase =
        thread.blocked_for_ns.map_or_else(|| "blocked".into(), |ns| format!("blocked {}", humane(ns)));
    if let Some(deadline) = deadline(thread) {
        phrase.push_str(", ");
        phrase.push_str(&deadline);
    }
    phrase
}

/// `no deadline`, `2.5s left`…; `None` where a deadline means nothing (a zombie, a stopped thread).
pub(super) fn deadline(thread: &ThreadReport) -> Option<String> {
    let wait = &thread.wait;
    match wait.kind {
        WaitKind::Running | WaitKind::Zombie | WaitKind::Stopped | WaitKind::Frozen | WaitKind::Throttled => {
            None
        }
        _ if !thread.has_deadline => Some("no deadline".into()),
        _ => Some(match (wait.remaining_ns, wait.timeout_ns) {
            (Some(ns), _) => format!("{} left", humane(ns)),
            (None, Some(ns)) => format!("timeout {}", humane(ns)),
            (None, None) => "has a deadline".into(),
        }),
    }
}

/// What the thread waits on, else the kind's name.
pub(in crate::report) fn wait(thread: &ThreadReport) -> String {
    let wait = &thread.wait;
    escape::name(if wait.text.is_empty() { wait.kind.name() } else { &wait.text }, WIDEST_WAIT)
}

/// Remarks behind a thread's wait.
pub(super) fn remarks(thread: &ThreadReport) -> Vec<&'static str> {
    let mut remarks = Vec::new();
    if thread.holds_gil {
        remarks.push("holds the GIL");
    }
    if thread.idle {
        remarks.push("idle");
    }
    if thread.stability == Stability::Torn {
        remarks.push("torn: moved while it was read");
    }
    remarks
}

/// Who woke waiters of its object before, where that is all there is: `tid 4711 woke a waiter of it 12ms before the end`.
pub(super) fn waker(thread: &ThreadReport) -> Option<String> {
    let waker = thread.wait.last_waker.as_ref()?;
    let ended = if waker.ended { ", and has ended since" } else { "" };
    let before = humane(waker.before_end_ns);
    Some(format!("tid {} woke a waiter of it {before} before the end{ended}", waker.tid))
}

/// `python  Queue.get  queue.py:171`, and the line's end.
pub(super) fn frame(page: &mut Page, frame: &Frame) {
    start_frame(page, frame);
    line_with_place(page, &place(frame));
}

/// As [`frame`], with the last folders of a long path only: a ticket needs no more.
pub(super) fn short_frame(page: &mut Page, frame: &Frame) {
    const FOLDERS: usize = 3;
    let place = place(frame);
    let short = match place.rmatch_indices('/').nth(FOLDERS - 1) {
        Some((at, _)) if at > 0 => format!("…{}", place.get(at..).unwrap_or_default()),
        _ => place.into_owned(),
    };
    start_frame(page, frame);
    line_with_place(page, &short);
}

fn start_frame(page: &mut Page, frame: &Frame) {
    let kind = match frame.kind {
        FrameKind::Python => "python",
        FrameKind::Native => "native",
        FrameKind::Kernel => "kernel",
    };
    page.put(Style::Dim, kind).plain("  ").plain(&escape::name(&frame.function, WIDEST_FUNCTION));
}

fn line_with_place(page: &mut Page, place: &str) {
    if !place.is_empty() {
        page.plain("  ").put(Style::Dim, &escape::path(place, WIDEST_PLACE));
    }
    page.end();
}

/// `threading.py:327`, `libc.so.6`; empty for a kernel frame.
fn place(frame: &Frame) -> Cow<'_, str> {
    match (&frame.file, frame.line, &frame.module) {
        (Some(file), Some(line), _) => format!("{file}:{line}").into(),
        (Some(file), None, _) => file.into(),
        (None, _, Some(module)) => module.rsplit('/').next().unwrap_or(module).into(),
        (None, _, None) => "".into(),
    }
}

/// How the report came about.
pub(super) fn footer(report: &Report) -> String {
    let watched = match report.window.duration_ns {
        0 => "one look".to_owned(),
        ns => format!("watched {}", humane(ns)),
    };
    format!(
        "tier {} · {watched} · {} · {} · {} · kernel {} · inspector {}",
        report.tier.name(),
        counted(report.workers.len(), "process", "processes"),
        counted(report.threads.len(), "thread", "threads"),
        report.host.hostname,
        report.host.kernel,
        report.host.inspector,
    )
}

/// `1 thread`, `2 threads`.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
