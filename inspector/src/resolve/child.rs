//! Waits for child processes.

use super::{scene::Blocked, time::Timeout};
use crate::model::{FdKind, Owner, Wait, WaitKind};

/// `wait4`, `waitid`.
pub(super) fn wait(blocked: &Blocked<'_>) -> Wait {
    let own = blocked.process.pid;
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
            let capture = blocked.scene.capture;
            let captured = capture.processes.iter().map(|process| (process.pid, process.ppid));
            let others = capture.bystanders.iter().map(|bystander| (bystander.pid, bystander.ppid));
            let children: Vec<Owner> = captured
                .chain(others)
                .filter(|&(pid, ppid)| ppid == own && pid != own)
                .take(16)
                .map(|(pid, _)| owner(blocked, pid, "is its child"))
                .collect();
            ("end of any child".to_owned(), children)
        }
        Target::Group(group) => (format!("end of any child of process group {group}"), Vec::new()),
    };
    Timeout::NONE.of(Wait { kind: WaitKind::Child, text, owners, ..Wait::default() })
}

/// A parent that is suspended until its vfork child calls `exec` or ends (`kernel/fork.c`, `wait_for_vfork_done`).
pub(super) fn vfork(blocked: &Blocked<'_>) -> Wait {
    let own = blocked.process.pid;
    let capture = blocked.scene.capture;
    let captured = capture.processes.iter().map(|process| (process.pid, process.ppid));
    let others = capture.bystanders.iter().map(|bystander| (bystander.pid, bystander.ppid));
    let owners = captured
        .chain(others)
        .filter(|&(pid, ppid)| ppid == own && pid != own)
        .take(16)
        .map(|(pid, _)| Owner {
            certainty: crate::model::Certainty::Likely,
            ..owner(blocked, pid, "is a child of the process that waits in vfork")
        })
        .collect();
    Wait {
        kind: WaitKind::Child,
        text: "vfork child that has neither called exec nor ended".to_owned(),
        owners,
        ..Wait::default()
    }
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
