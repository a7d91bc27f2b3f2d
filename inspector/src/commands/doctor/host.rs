//! What the host's settings allow, besides what the task snapshot needs: read from files, nothing is tried.

use std::{fs, io, path::Path};

use crate::report::doctor::Check;

/// The checks, in the order in which they are printed.
pub(super) fn checks() -> Vec<Check> {
    vec![hidden_processes(), yama(), lockdown()]
}

fn works(name: &str, found: impl Into<String>) -> Check {
    Check { name: name.into(), works: true, found: found.into(), costs: String::new(), remedy: String::new() }
}

fn fails(name: &str, found: impl Into<String>, costs: &str, remedy: &str) -> Check {
    Check { name: name.into(), works: false, found: found.into(), costs: costs.into(), remedy: remedy.into() }
}

/// The `hidepid` option of `/proc` (Documentation/filesystems/proc.rst).
fn hidden_processes() -> Check {
    const NAME: &str = "/proc";
    let mounts = match fs::read_to_string("/proc/self/mountinfo") {
        Ok(mounts) => mounts,
        Err(error) => {
            return fails(NAME, format!("cannot read it: {error}"), "nothing can be seen", "mount /proc");
        }
    };
    match hidepid(&mounts) {
        None => works(NAME, "shows the processes of all users"),
        Some(_) if rustix::process::geteuid().is_root() => works(NAME, "hides processes, but not from root"),
        Some(option) => fails(
            NAME,
            format!("is mounted with {option}"),
            "processes of other users are invisible",
            "run as root, or with the group that the option gid= of /proc names",
        ),
    }
}

/// The option of the last mount on `/proc`, unless it hides nothing.
fn hidepid(mountinfo: &str) -> Option<&str> {
    let line = mountinfo.lines().rfind(|line| line.split(' ').nth(4) == Some("/proc"))?;
    let options = line.rsplit(' ').next()?.split(',');
    options
        .rev()
        .find(|option| option.starts_with("hidepid="))
        .filter(|&option| !matches!(option, "hidepid=0" | "hidepid=off"))
}

/// Yama's `ptrace_scope` (Documentation/admin-guide/LSM/Yama.rst); `process_vm_readv` and `/proc/PID/syscall` obey it too.
fn yama() -> Check {
    const NAME: &str = "Yama";
    const COSTS: &str = "no Python and native stacks of processes that are not our own children";
    let scope = match read(Path::new("/proc/sys/kernel/yama/ptrace_scope")) {
        Ok(scope) => scope,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return works(NAME, "not in this kernel"),
        Err(error) => return fails(NAME, format!("cannot tell: {error}"), "", ""),
    };
    let found = format!("ptrace_scope is {scope}");
    match scope.as_str() {
        "0" => works(NAME, format!("{found}: no restriction")),
        "1" | "2" if rustix::process::geteuid().is_root() => works(NAME, format!("{found}: root may read")),
        "1" | "2" => fails(NAME, found, COSTS, "run as root, or give inspector CAP_SYS_PTRACE"),
        _ => fails(NAME, found, COSTS, "this setting cannot be changed before the next boot"),
    }
}

/// The lockdown mode (`man 7 kernel_lockdown`): `confidentiality` forbids eBPF to read kernel memory.
fn lockdown() -> Check {
    const NAME: &str = "lockdown";
    let modes = match read(Path::new("/sys/kernel/security/lockdown")) {
        Ok(modes) => modes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return works(NAME, "not in this kernel, or securityfs is not mounted");
        }
        Err(error) => return fails(NAME, format!("cannot tell: {error}"), "", ""),
    };
    match modes.split(['[', ']']).nth(1) {
        Some("confidentiality") => fails(
            NAME,
            "confidentiality: eBPF may not read kernel memory",
            "tier memory at most: slower sweeps, no off-CPU times, no mmap_lock state, no thread pointers",
            "boot with lockdown=integrity or without lockdown",
        ),
        mode => works(NAME, mode.unwrap_or("none")),
    }
}

fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::hidepid;

    #[test]
    fn the_last_mount_on_proc_counts() {
        let open =
            "22 1 0:21 / /proc rw,nosuid - proc proc rw\n30 1 0:9 / /proc/sys rw - proc proc rw,hidepid=2\n";
        assert_eq!(hidepid(open), None);
        let hidden = format!("{open}40 1 0:33 / /proc rw - proc proc rw,gid=5,hidepid=invisible\n");
        assert_eq!(hidepid(&hidden), Some("hidepid=invisible"));
        assert_eq!(hidepid("22 1 0:21 / /proc rw - proc proc rw,hidepid=off"), None);
        assert_eq!(hidepid(""), None);
        assert_eq!(hidepid("garbage\n\n /proc"), None);
    }
}
