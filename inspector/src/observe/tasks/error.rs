//! Why a task snapshot could not be taken.

use std::io;

/// A failure of the task snapshot: each says what failed, why and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TasksError {
    /// The kernel's type information could not be read.
    #[error(
        "cannot read the kernel's types at /sys/kernel/btf/vmlinux: {0}; a kernel built with CONFIG_DEBUG_INFO_BTF has them, where /sys is mounted"
    )]
    Btf(#[source] io::Error),
    /// The kernel's types lack what the walk cannot do without.
    #[error("the kernel's types do not describe task_struct, its pid and its tgid")]
    Members,
    /// The kernel is too old for task iterators, or built without them.
    #[error("this kernel has no task iterator for eBPF (5.8 and later have)")]
    NoIterator,
    /// The embedded object is not what this build expects.
    #[error("the embedded eBPF object is damaged: it {0}; rebuild it with `cargo xtask build-ebpf`")]
    Object(String),
    /// The kernel refused a map or a program.
    #[error(
        "the kernel refused the task iterator: {0}; it needs root, or CAP_BPF and CAP_PERFMON, and kernel 5.15"
    )]
    Load(String),
    /// The kernel refused the link.
    #[error("cannot attach the task iterator: {0}")]
    Attach(#[source] io::Error),
    /// The set of wanted processes could not be changed.
    #[error("cannot change the set of watched processes: {0}")]
    Filter(String),
    /// A walk failed.
    #[error("cannot walk the tasks: {0}")]
    Read(#[source] io::Error),
    /// A walk returned something else than records.
    #[error("the task iterator returned damaged data: {0}")]
    Decode(inspector_ebpf::DecodeError),
    /// Twice a walk left out what was never told.
    #[error("the task iterator leaves out what it never told")]
    Incomplete,
    /// The kernel did not name addresses of its own.
    #[error("cannot ask the kernel for the names of its functions: {0}")]
    Names(String),
    /// The probes could not be set up or read.
    #[error("cannot use the probes: {0}")]
    Probes(String),
    /// inspector's own PID namespace cannot be told.
    #[error("cannot read /proc/self/ns/pid: {0}; inspector needs /proc")]
    Namespace(#[source] io::Error),
    /// inspector's PID namespace is not the host's.
    #[error(
        "inspector runs in a PID namespace of its own, whose ids the kernel's walk does not know; give it the host's (hostPID: true, --pid=host)"
    )]
    PidNamespace,
}

/// The whole chain of reasons in one line: aya's own sentence rarely holds the error number.
pub(super) fn load_error(why: &dyn std::error::Error) -> TasksError {
    let mut text = why.to_string();
    let mut source = why.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    tracing::debug!("the kernel's log: {text}");
    // The verifier's log can follow, and is long; what it refuses is its last line before its statistics.
    let line = text.lines().next().unwrap_or_default();
    let statistics = ["processed", "stack depth", "verification time"];
    let last = text
        .lines()
        .rev()
        .map(str::trim)
        .find(|last| !last.is_empty() && !statistics.iter().any(|start| last.starts_with(start)));
    TasksError::Load(
        last.filter(|&last| last != line).map_or_else(|| line.to_owned(), |last| format!("{line} ({last})")),
    )
}
