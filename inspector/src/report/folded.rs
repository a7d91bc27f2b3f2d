//! Folded stacks for flamegraphs: `process;thread;outermost frame;…;innermost frame count`, one line a distinct stack.
//!
//! Read by `inferno-flamegraph`, `flamegraph.pl` and speedscope. A Python frame is `function (file.py:line)`, as py-spy
//! writes it (and as inferno's `--colors python` expects it); a native frame is `function (module)`; a kernel frame
//! ends in `_[k]`, the annotation that both flamegraph tools colour. The count is the number of threads: a dump
//! is one sample of each. The innermost entry of a thread that waits is the wait itself, in brackets.

use std::collections::BTreeMap;

use super::escape;
use crate::model::{
    Frame, FrameKind, Report, WaitKind,
    report::{ThreadReport, WorkerReport},
};

/// Characters of a name and of a file's path that an entry has room for, and of the whole entry.
const WIDEST_NAME: usize = 160;
const WIDEST_PATH: usize = 200;
const WIDEST: usize = 400;

/// The folded stacks of a report, in a stable order.
pub fn render(report: &Report) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for thread in &report.threads {
        let process = report.workers.iter().find(|worker| worker.pid == thread.pid);
        *counts.entry(stack(process, thread)).or_default() += 1;
    }
    let mut text = String::new();
    for (stack, count) in counts {
        text.push_str(&stack);
        text.push(' ');
        text.push_str(&count.to_string());
        text.push('\n');
    }
    text
}

fn stack(process: Option<&WorkerReport>, thread: &ThreadReport) -> String {
    let mut entries = vec![process_entry(process, thread.pid), entry(&thread.name)];
    entries.extend(thread.frames.iter().rev().map(|frame| frame_entry(frame)));
    if thread.wait.kind != WaitKind::Running {
        entries.push(format!("[{}]", thread.wait.kind.name()));
    }
    entries.join(";")
}

fn process_entry(process: Option<&WorkerReport>, pid: u32) -> String {
    let Some(process) = process else { return format!("pid {pid}") };
    let label = [process.role.as_deref(), process.kind.as_deref(), process.rank.as_deref()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ");
    entry(&format!("{} {pid}", if label.is_empty() { &process.comm } else { &label }))
}

fn frame_entry(frame: &Frame) -> String {
    let function = escape::name(&frame.function, WIDEST_NAME);
    match frame.kind {
        FrameKind::Python => {
            let file = escape::path(frame.file.as_deref().unwrap_or("?"), WIDEST_PATH);
            match frame.line {
                Some(line) => entry(&format!("{function} ({file}:{line})")),
                None => entry(&format!("{function} ({file})")),
            }
        }
        FrameKind::Native => {
            let module = frame.module.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
            match module {
                Some(module) => entry(&format!("{function} ({module})")),
                None => entry(&function),
            }
        }
        FrameKind::Kernel => entry(&format!("{function}_[k]")),
    }
}

/// One entry: `;` separates entries, so it must not be inside one.
fn entry(text: &str) -> String {
    escape::name(text, WIDEST).replace(';', ":")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::render;
    use crate::report::sample;

    #[test]
    fn one_line_a_distinct_stack() {
        let mut report = sample::wedged();
        let twin = report.threads[1].clone();
        report.threads.push(twin);
        assert_snapshot!(render(&report));
    }
}
