//! What this host allows of the task snapshot and the probes, tried out rather than guessed.

use std::fs;

use super::{
    btf::Btf,
    ebpf::Walk,
    fentry, offsets,
    probes::{SyscallProbes, Watched},
    source,
};
use crate::model::ProbeWay;

/// One thing that inspector would like to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// What.
    pub name: String,
    /// It can be used.
    pub works: bool,
    /// What was found: a version, or why it cannot be used.
    pub found: String,
    /// What its lack costs.
    pub costs: String,
    /// What gives it.
    pub remedy: String,
}

/// Tries everything once; nothing stays loaded or attached.
pub fn probe() -> Vec<Capability> {
    let mut all = vec![kernel(), namespace(), types()];
    all.extend(iterators());
    all.extend([fentry_probe(), syscall_probes()]);
    all.extend(privileges());
    all
}

fn capability(name: &str, result: Result<String, String>, costs: &str, remedy: &str) -> Capability {
    let (works, found) = match result {
        Ok(found) => (true, found),
        Err(found) => (false, found),
    };
    Capability { name: name.into(), works, found, costs: costs.into(), remedy: remedy.into() }
}

/// The kernel's version: 5.15 has `bpf_task_pt_regs`, 5.18 `bpf_copy_from_user_task`.
fn kernel() -> Capability {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let found = match version(&release) {
        Some(version) if version >= (5, 15) => Ok(release),
        _ => Err(release),
    };
    capability("kernel 5.15", found, "no eBPF snapshot: tier memory, without off-CPU times", "a newer kernel")
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|part: char| !part.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn namespace() -> Capability {
    let result = source::check_namespace().map(|()| "the host's".into()).map_err(|why| why.to_string());
    capability(
        "PID namespace",
        result,
        "no eBPF snapshot, and only this container's processes",
        "run on the host or with its PID namespace (hostPID: true, --pid=host)",
    )
}

fn types() -> Capability {
    let result = Btf::of_running_kernel().map_err(|why| why.to_string()).and_then(|types| {
        let resolved = offsets::resolve(&types).ok_or("task_struct is not described")?;
        if resolved.without.is_empty() {
            Ok("every member that is needed".to_owned())
        } else {
            Err(resolved.without.join("; "))
        }
    });
    capability(
        "kernel types (BTF)",
        result,
        "no eBPF snapshot, or one without what is named",
        "a kernel built with CONFIG_DEBUG_INFO_BTF",
    )
}

/// The programs, of one load.
fn iterators() -> [Capability; 3] {
    let mut opened = Walk::open(false);
    let names = match &mut opened {
        Ok(walk) => {
            walk.kernel_names(&[]).map(|_| "loads and runs".to_owned()).map_err(|why| why.to_string())
        }
        Err(_) => Err("there is no eBPF task iterator".to_owned()),
    };
    let memory = match &opened {
        Ok(walk) => walk.memory().map(|_| "loads".to_owned()).map_err(str::to_owned),
        Err(_) => Err("there is no eBPF task iterator".to_owned()),
    };
    let tasks = opened.map_err(|why| why.to_string()).and_then(|mut walk| {
        let records = inspector_ebpf::decode(walk.read().map_err(|why| why.to_string())?).count();
        // Pids of another namespace than the host's.
        let found = (records > 0).then(|| "loads, and finds inspector itself".to_owned());
        found.ok_or_else(|| "it loads, but does not find inspector itself under its own pid".to_owned())
    });
    [
        capability(
            "eBPF task iterator",
            tasks,
            "tier memory: slower sweeps, no off-CPU times, no mmap_lock state, no thread pointers",
            "root, or CAP_BPF and CAP_PERFMON; lockdown below confidentiality",
        ),
        capability(
            "eBPF copies of user memory",
            memory,
            "futex words and stacks are read by process_vm_readv, without the kernel's word that their threads stood still",
            "the task iterator above, and kernel 5.18",
        ),
        capability(
            "eBPF names of kernel functions",
            names,
            "kernel frames have no names, and waits continued after a stop may not be told",
            "the task iterator above, and kernel 5.13 with CONFIG_KALLSYMS",
        ),
    ]
}

fn fentry_probe() -> Capability {
    let result = fentry::try_attach().map(|function| format!("attaches to {function}"));
    capability(
        "fentry",
        result.map_err(|why| why.to_string()),
        "--probes fentry is refused: bytes through pipes and eventfds are not counted, and before kernel 6.3 none through sockets",
        "root, or CAP_BPF and CAP_PERFMON; a kernel with CONFIG_FUNCTION_TRACER whose lockdown allows it",
    )
}

/// Attached for a moment, to inspector itself.
fn syscall_probes() -> Capability {
    let own = Watched { pids: vec![std::process::id()], threads: 1, threshold_ns: 0 };
    let attached = SyscallProbes::load(ProbeWay::Tracepoint, &own).and_then(|mut probes| probes.attach());
    let found = attached.map(|()| {
        "attach by tracepoints: while diagnose watches, each context switch, wake-up and socket message of any process on the host takes about 50 ns longer, system calls that do not sleep nothing".to_owned()
    });
    capability(
        "probes on waits and wakes",
        found.map_err(|why| why.to_string()),
        "diagnose does not know who wakes whom, how many bytes go where and which threads end",
        "root, or CAP_BPF and CAP_PERFMON; kernel 5.15",
    )
}

/// Bits of `CapEff`, include/uapi/linux/capability.h, and what each buys.
const PRIVILEGES: [(&str, u32, &str); 6] = [
    ("CAP_BPF", 39, "no eBPF snapshot and no probes"),
    ("CAP_PERFMON", 38, "no eBPF snapshot and no probes"),
    ("CAP_SYS_PTRACE", 19, "no memory, system calls and stacks of other users' processes"),
    ("CAP_SYS_ADMIN", 21, "no sockets of other network namespaces, and no kernel stacks without eBPF"),
    ("CAP_CHECKPOINT_RESTORE", 40, "no symbols from mapped files that were deleted or replaced (map_files)"),
    (
        "CAP_DAC_READ_SEARCH",
        2,
        "no descriptors and environments of other users' processes, so no peers of pipes and sockets; no symbols from files that only their owner may read",
    ),
];

fn privileges() -> Vec<Capability> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|value| u64::from_str_radix(value.trim(), 16).ok());
    let admin = effective.is_some_and(|bits| bits >> 21 & 1 != 0);
    PRIVILEGES
        .iter()
        .map(|&(name, bit, costs)| {
            let held = effective.is_some_and(|bits| bits >> bit & 1 != 0);
            // Before these were split off, and still, CAP_SYS_ADMIN holds them too.
            let implied = admin && matches!(name, "CAP_BPF" | "CAP_PERFMON" | "CAP_CHECKPOINT_RESTORE");
            let result = match (held, implied) {
                (true, _) => Ok("held".to_owned()),
                (false, true) => Ok("not held, but CAP_SYS_ADMIN is".to_owned()),
                (false, false) => Err("not held".to_owned()),
            };
            capability(name, result, costs, "run as root, or give the capability (setcap, securityContext)")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version("5.4.0-150-generic"), Some((5, 4)));
        assert_eq!(version("5.10+"), Some((5, 10)));
        assert_eq!(version("next"), None);
    }

    #[test]
    fn root_has_what_the_snapshot_needs() {
        let all = probe();
        for name in [
            "kernel 5.15",
            "kernel types (BTF)",
            "eBPF task iterator",
            "eBPF copies of user memory",
            "eBPF names of kernel functions",
            "CAP_SYS_PTRACE",
        ] {
            let found = all.iter().find(|capability| capability.name == name).unwrap();
            assert!(found.works, "{found:?}");
        }
        assert!(all.iter().all(|capability| !capability.found.is_empty() && !capability.costs.is_empty()));
    }
}
