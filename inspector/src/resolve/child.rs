//! Waits for child processes.

use super::{scene::Blocked, time::Timeout};
use crate::model::{Certainty, FdKind, Owner, Wait, WaitKind};

/// Most children named.
const MAX_CHILDREN: usize = 16;

/// `wait4`, `waitid`.
pub(super) fn wait(blocked: &Blocked<'_>) -> Wait {
    let (text, owners) = match target(blocked) {
        Target::One(ns_pid) => {
            let pid = blocked.scene.host_pid(blocked.process, ns_pid);
            let text = match pid {
                Some(pid) if pid != ns_pid => format!("end of child {pid} ({ns_pid} in its container)"),
                Some(_) => format!("end of child {ns_pid}"),
                None => format!("end of child {ns_pid}, as its container numbers it"),
            };
            (text, pid.map(|pid| owner(blocked, pid, "named in the call")).into_iter().collect())
        }
        Target::Host(pid) => {
            (format!("end of child {pid}"), vec![owner(blocked, pid, "the pidfd named in the call")])
        }
        Target::Any => {
            let children = children(blocked).map(|(pid, _)| owner(blocked, pid, "is its child"));
            // A tracer is told of what it traces as of a child (ptrace(2)).
            let traced = tracees(blocked).map(|pid| owner(blocked, pid, "is traced by it"));
            ("end of any child".to_owned(), children.chain(traced).take(MAX_CHILDREN).collect())
        }
        Target::Group(group) => {
            let wanted = if group == 0 {
                Some(blocked.process.pgid)
            } else {
                blocked.scene.host_pid(blocked.process, group)
            };
            let of_group = children(blocked).filter(|&(_, pgid)| pgid != 0 && Some(pgid) == wanted);
            let owners = of_group
                .map(|(pid, _)| owner(blocked, pid, "is its child, and of that process group"))
                .take(MAX_CHILDREN);
            let group = if group == 0 {
                "its own process group".to_owned()
            } else {
                format!("process group {group}")
            };
            (format!("end of any child of {group}"), owners.collect())
        }
    };
    Timeout::NONE.of(Wait { kind: WaitKind::Child, text, owners, ..Wait::default() })
}

/// A parent that is suspended until its vfork child calls `exec` or ends (`kernel/fork.c`, `wait_for_vfork_done`).
pub(super) fn vfork(blocked: &Blocked<'_>) -> Wait {
    let owners = children(blocked)
        .map(|(pid, _)| Owner {
            certainty: Certainty::Likely,
            ..owner(blocked, pid, "is a child of the process that waits in vfork")
        })
        .take(MAX_CHILDREN)
        .collect();
    Wait {
        kind: WaitKind::Child,
        text: "vfork child that has neither called exec nor ended".to_owned(),
        owners,
        ..Wait::default()
    }
}

/// The children of the waiter's process, each with its process group.
fn children<'a>(blocked: &Blocked<'a>) -> impl Iterator<Item = (u32, u32)> + 'a {
    let own = blocked.process.pid;
    let capture = blocked.scene.capture;
    let captured = capture.processes.iter().map(|process| (process.pid, process.ppid, process.pgid));
    let others = capture.bystanders.iter().map(|beside| (beside.pid, beside.ppid, beside.pgid));
    let is_child = move |&(pid, ppid, _): &(u32, u32, u32)| ppid == own && pid != own;
    captured.chain(others).filter(is_child).map(|(pid, _, pgid)| (pid, pgid))
}

/// The captured processes that one of the waiter's threads traces and that are not its children.
fn tracees<'a>(blocked: &Blocked<'a>) -> impl Iterator<Item = u32> + 'a {
    let process = blocked.process;
    let traced = move |other: &&crate::model::Process| {
        other.tracer_pid != 0 && other.ppid != process.pid && process.thread(other.tracer_pid).is_some()
    };
    blocked.scene.capture.processes.iter().filter(traced).map(|other| other.pid)
}

fn owner(blocked: &Blocked<'_>, pid: u32, evidence: &str) -> Owner {
    Owner { pid, tid: None, certainty: blocked.certainty(), evidence: evidence.to_owned() }
}

enum Target {
    /// As the caller's PID namespace numbers it.
    One(u32),
    /// As the host numbers it.
    Host(u32),
    Any,
    Group(u32),
}

fn target(blocked: &Blocked<'_>) -> Target {
    if blocked.name == "waitid" {
        // P_ALL, P_PID, P_PGID, P_PIDFD (`include/uapi/linux/wait.h`).
        let id = blocked.argument(1) as u32;
        return match blocked.argument(0) as u32 {
            1 => Target::One(id),
            2 => Target::Group(id),
            3 => match blocked.open(blocked.fd(1)).map(|open| &open.kind) {
                Some(&FdKind::PidFd { pid }) if pid > 0 => Target::Host(pid.unsigned_abs()),
                _ => Target::Any,
            },
            _ => Target::Any,
        };
    }
    match blocked.fd(0) {
        pid if pid > 0 => Target::One(pid.unsigned_abs()),
        // 0: the caller's own process group.
        0 => Target::Group(0),
        -1 => Target::Any,
        group => Target::Group(group.unsigned_abs()),
    }
}
