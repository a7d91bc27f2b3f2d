//! Scheduler states that decide by themselves: running, stopped, frozen, ended, in the kernel's own hands.

use super::{
    child, kernel,
    scene::{Blocked, Scene},
};
use crate::model::{
    Certainty, CpuQuota, Owner, Process, TaskState, Thread, Wait, WaitKind,
    format::{humane, quota as quota_text},
};

/// The wait that the thread's state tells, or what `call` makes of its system call.
pub(super) fn resolve(
    scene: &Scene<'_>,
    process: &Process,
    thread: &Thread,
    call: impl Fn(&Blocked<'_>) -> Wait,
) -> Wait {
    let blocked = Blocked::new(scene, process, thread);
    match thread.state {
        TaskState::Zombie | TaskState::Dead => simple(WaitKind::Zombie, "ended, not yet reaped".to_owned()),
        TaskState::Traced => stopped(process, "stopped by its tracer", blocked.as_ref(), call),
        TaskState::Stopped => stopped(process, "stopped by a signal", blocked.as_ref(), call),
        _ if process.frozen == Some(true) && !thread.on_cpu => {
            frozen(process, &within(blocked.as_ref(), call))
        }
        TaskState::Disk => disk(process, thread, blocked.as_ref()),
        // An interruptible sleep, and no wait for what the call is about: the fault may be in its copy from or to user memory.
        _ if !thread.on_cpu && needs_page(process, thread) => disk(process, thread, blocked.as_ref()),
        _ if thread.on_cpu || thread.state == TaskState::Running => {
            running(process, thread, blocked.as_ref(), call)
        }
        _ => match blocked.as_ref() {
            Some(blocked) => call(blocked),
            None => unknown(process, thread),
        },
    }
}

fn simple(kind: WaitKind, text: String) -> Wait {
    Wait { kind, text, ..Wait::default() }
}

/// Frozen: by a cgroup of its own or an ancestor of that, where it could be seen which.
fn frozen(process: &Process, inside: &str) -> Wait {
    let cgroup = process.frozen_cgroups.first().cloned();
    let names = process.frozen_cgroups.iter().map(|name| format!(" {name}")).collect::<Vec<_>>().join(" and");
    Wait { cgroup, ..simple(WaitKind::Frozen, format!("frozen cgroup{names}{inside}")) }
}

/// The quota that keeps a runnable thread from the CPUs: one that was used up in most periods, of several the one that was
/// so most often.
fn quota<'p>(process: &'p Process, thread: &Thread) -> Option<&'p CpuQuota> {
    let short = process.cpu_quotas.iter().filter(|quota| quota.is_short());
    let worst = short.rev().max_by_key(|quota| quota.throttled_periods);
    worst.filter(|_| !thread.on_cpu && !thread.in_own_cgroup)
}

/// A waiter for the GIL wakes every 5 ms to ask again (`take_gil` of `Python/ceval_gil.c`): caught awake it still waits,
/// as long as somebody else holds the GIL.
fn running(
    process: &Process,
    thread: &Thread,
    blocked: Option<&Blocked<'_>>,
    call: impl Fn(&Blocked<'_>) -> Wait,
) -> Wait {
    let running = |inside: &str| {
        if let Some(quota) = quota(process, thread) {
            let text = format!("CPU quota of cgroup {}{inside}", quota_text(quota));
            return Wait { cgroup: Some(quota.cgroup.clone()), ..simple(WaitKind::Throttled, text) };
        }
        // Runnable and on no CPU: its last slice may have ended in a sleep that is over, so this is no time in a queue.
        let last = thread.off_cpu_ns.filter(|_| !thread.on_cpu);
        let text = match last {
            Some(ns) => format!("runnable{inside}, last on a CPU {} ago", humane(ns)),
            None => format!("running{inside}"),
        };
        simple(WaitKind::Running, text)
    };
    let Some(blocked) = blocked else { return running("") };
    let wait = call(blocked);
    let held_by_another = wait.owners.iter().any(|owner| owner.tid != Some(blocked.thread.tid));
    if wait.kind == WaitKind::Gil && held_by_another {
        return wait;
    }
    running(&format!(", in {}", blocked.name))
}

/// Stopped: who stopped it by a signal is not recorded by the kernel; a tracer is.
fn stopped(
    process: &Process,
    why: &str,
    blocked: Option<&Blocked<'_>>,
    call: impl Fn(&Blocked<'_>) -> Wait,
) -> Wait {
    let owners = if process.tracer_pid == 0 {
        Vec::new()
    } else {
        vec![Owner {
            pid: process.tracer_pid,
            tid: None,
            certainty: Certainty::Proven,
            evidence: "TracerPid".to_owned(),
        }]
    };
    let tracer = owners.first().map(|owner| format!(" (pid {})", owner.pid)).unwrap_or_default();
    Wait {
        kind: WaitKind::Stopped,
        text: format!("{why}{tracer}{}", within(blocked, call)),
        owners,
        ..Wait::default()
    }
}

/// What the thread will go on waiting for.
fn within(blocked: Option<&Blocked<'_>>, call: impl Fn(&Blocked<'_>) -> Wait) -> String {
    blocked.map(|blocked| format!(", in {}: {}", blocked.name, call(blocked).text)).unwrap_or_default()
}

/// Whether the thread sleeps in a page fault that a process has to serve (`handle_userfault` of `fs/userfaultfd.c`).
fn needs_page(process: &Process, thread: &Thread) -> bool {
    let functions = process.frames_of(&thread.kernel).map(|frame| frame.function.as_str());
    kernel::reason(functions) == Some("handle_userfault")
}

/// Uninterruptible sleep, or one in a page fault. The call says little (a page fault can be anywhere), the kernel's stack says why.
fn disk(process: &Process, thread: &Thread, blocked: Option<&Blocked<'_>>) -> Wait {
    let functions = || process.frames_of(&thread.kernel).map(|frame| frame.function.as_str());
    let function = kernel::reason(functions()).map(str::to_owned);
    if let Some(blocked) = blocked
        && matches!(blocked.name, "vfork" | "clone" | "clone3")
    {
        return Wait { kernel_function: function, ..child::vfork(blocked) };
    }
    let device = functions()
        .any(|name| ["nvidia", "_nv0", "os_acquire", "uvm_"].iter().any(|mark| name.starts_with(mark)));
    let kind = if device { WaitKind::Device } else { WaitKind::Disk };
    let why = match function.as_deref() {
        Some(name) if name.starts_with("rwsem_down") || name.starts_with("down_") => {
            "a kernel lock (mmap_lock or a file's)".to_owned()
        }
        Some("handle_userfault") => "a page that userfaultfd must supply".to_owned(),
        Some(name) => format!("the kernel, in {name}"),
        None => "the kernel (uninterruptible)".to_owned(),
    };
    let inside = blocked.map(|blocked| format!(", called by {}", blocked.name)).unwrap_or_default();
    Wait { kernel_function: function, ..simple(kind, format!("{why}{inside}")) }
}

/// Asleep, but the call is not known (tier `proc`, or a number that no table has).
fn unknown(process: &Process, thread: &Thread) -> Wait {
    let function = kernel::reason(process.frames_of(&thread.kernel).map(|frame| frame.function.as_str()));
    let text = match function {
        Some(function) => format!("asleep in {function}"),
        None => "asleep; its system call is not known".to_owned(),
    };
    Wait { kernel_function: function.map(str::to_owned), ..simple(WaitKind::Other, text) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Capture, Frame, FrameKind, Host, Syscall};

    fn process(thread: Thread) -> Process {
        let quota = |cgroup: &str, throttled_periods| CpuQuota {
            cgroup: cgroup.into(),
            quota_ns: 10_000_000,
            period_ns: 100_000_000,
            periods: 10,
            throttled_periods,
            ..CpuQuota::default()
        };
        let cpu_quotas = vec![quota("/pod/inner", 6), quota("/pod", 9)];
        Process { pid: 7, cpu_quotas, threads: vec![thread], ..Process::default() }
    }

    fn first(process: Process) -> Wait {
        let host = Host { arch: "x86_64".into(), ..Host::default() };
        let capture = Capture { host, processes: vec![process], ..Capture::default() };
        crate::resolve::resolve(&capture).remove(0).wait
    }

    #[test]
    fn throttled_is_who_wants_a_cpu_below_a_quota_that_is_used_up() {
        let runnable = || Thread { tid: 7, state: TaskState::Running, ..Thread::default() };
        let wait = first(process(runnable()));
        assert_eq!((wait.kind, wait.cgroup.as_deref()), (WaitKind::Throttled, Some("/pod")));
        assert_eq!(wait.text, "CPU quota of cgroup /pod: 10ms per 100ms, used up in 9 of 10 periods");
        for other in [Thread { on_cpu: true, ..runnable() }, Thread { in_own_cgroup: true, ..runnable() }] {
            assert_eq!(first(process(other)).kind, WaitKind::Running);
        }
        let asleep = Thread { state: TaskState::Sleeping, ..runnable() };
        assert_eq!(first(process(asleep)).kind, WaitKind::Other);
        let mut mild = process(runnable());
        for quota in &mut mild.cpu_quotas {
            quota.throttled_periods = 4;
        }
        assert_eq!(first(mild).kind, WaitKind::Running);
    }

    #[test]
    fn frozen_names_every_cgroup_that_somebody_froze() {
        let thread = Thread { tid: 7, state: TaskState::Sleeping, ..Thread::default() };
        let frozen_cgroups = vec!["/a/b".to_owned(), "/a".to_owned()];
        let wait = first(Process { frozen: Some(true), frozen_cgroups, ..process(thread) });
        assert_eq!((wait.kind, wait.cgroup.as_deref()), (WaitKind::Frozen, Some("/a/b")));
        assert_eq!(wait.text, "frozen cgroup /a/b and /a");
    }

    #[test]
    fn who_needs_a_page_waits_for_nothing_else() {
        let frame = |function: &str| {
            let (kind, function) = (FrameKind::Kernel, function.to_owned());
            Arc::new(Frame { kind, function, file: None, line: None, module: None, address: None })
        };
        let wait_in = |function: &str| {
            let call = Syscall { number: 0, arguments: [4, 0, 1, 0, 0, 0], restarted: false };
            let state = TaskState::Sleeping;
            let thread =
                Thread { tid: 7, state, syscall: Some(call), kernel: vec![0, 1], ..Thread::default() };
            let frames = vec![frame("schedule"), frame(function)];
            first(Process { frames, ..process(thread) })
        };
        let wait = wait_in("handle_userfault");
        assert_eq!((wait.kind, wait.owners.len()), (WaitKind::Disk, 0));
        assert_eq!(wait.text, "a page that userfaultfd must supply, called by read");
        assert_ne!(wait_in("anon_pipe_read").kind, WaitKind::Disk);
    }
}
