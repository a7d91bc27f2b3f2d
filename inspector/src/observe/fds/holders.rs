//! Who else on the host holds an object: one walk over `/proc/*/fd`.

use std::{
    collections::HashSet,
    fs,
    hash::BuildHasher,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{fdinfo::FdInfo, link, list, read_bounded};
use crate::{
    model::{Bystander, Fd, FdKind, Gap, TaskState},
    patience::Patience,
};

/// Longest time for the walk; a host with a million descriptors takes seconds.
const BUDGET: Duration = Duration::from_secs(2);
/// Most processes looked at.
const MAX_PROCESSES: usize = 65536;
/// Most bystanders kept.
const MAX_BYSTANDERS: usize = 1024;
/// Most descriptors kept of one bystander.
const MAX_FDS: usize = 4096;

/// Objects to look for.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// Inodes of sockets and pipes.
    pub inodes: HashSet<u64>,
    /// `eventfd-id`s.
    pub eventfds: HashSet<u64>,
}

/// The processes, other than those in `exclude`, that hold one of the objects. Bounded in time and number; what was
/// left out is a gap. Processes of others cannot be looked into without privilege and are left out silently, since
/// the caller's own descriptors would show the same lack.
pub fn holders<S: BuildHasher>(
    shared: &Arc<Shared>,
    exclude: &HashSet<u32, S>,
) -> (Vec<Bystander>, Vec<Gap>) {
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    if shared.inodes.is_empty() && shared.eventfds.is_empty() {
        return (found, gaps);
    }
    let ended = Instant::now() + BUDGET;
    let (mut patience, mut late) = (Patience::default(), Vec::new());
    let pids = match list(Path::new("/proc")) {
        Ok(pids) => pids,
        Err(error) => {
            gaps.push(Gap::host(
                "fds",
                format!("cannot list /proc: {error}; peers of sockets and pipes are not known"),
            ));
            return (found, gaps);
        }
    };
    let pids = pids.into_iter().filter_map(|pid| u32::try_from(pid).ok());
    for pid in pids.filter(|pid| !exclude.contains(pid)).take(MAX_PROCESSES) {
        if Instant::now() > ended || found.len() >= MAX_BYSTANDERS {
            gaps.push(Gap::host(
                "fds",
                format!("the search for the other ends of sockets and pipes stopped at pid {pid}: too many processes or too slow; some peers may be missing"),
            ));
            break;
        }
        let shared = Arc::clone(shared);
        let bystander = patience.run(Duration::ZERO, move || {
            let fds = held(pid, &shared, ended);
            if fds.is_empty() { None } else { identity(pid).map(|bystander| Bystander { fds, ..bystander }) }
        });
        match bystander {
            Ok(bystander) => found.extend(bystander),
            Err(_) => late.push(pid.to_string()),
        }
    }
    if let Some((first, more)) = late.split_first() {
        let reason = format!(
            "the descriptors of process {first}{} do not come (as where it hangs in execve): as the other end of a socket or pipe it would be missing",
            if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) }
        );
        gaps.push(Gap::host("fds", reason));
    }
    (found, gaps)
}

/// The children of the processes `parents` that are not in `exclude`: those whom `wait4` may wait for.
pub fn children<S: BuildHasher>(parents: &HashSet<u32, S>, exclude: &HashSet<u32, S>) -> Vec<Bystander> {
    let ended = Instant::now() + BUDGET;
    let mut patience = Patience::default();
    let pids = list(Path::new("/proc")).unwrap_or_default();
    pids.into_iter()
        .filter_map(|pid| u32::try_from(pid).ok())
        .filter(|pid| !exclude.contains(pid))
        .take_while(|_| Instant::now() <= ended)
        .filter_map(|pid| patience.run(Duration::ZERO, move || identity(pid)).ok().flatten())
        .filter(|bystander| parents.contains(&bystander.ppid))
        .take(MAX_BYSTANDERS)
        .collect()
}

fn held(pid: u32, shared: &Shared, ended: Instant) -> Vec<Fd> {
    let root = format!("/proc/{pid}");
    let mut fds = Vec::new();
    for fd in list(Path::new(&format!("{root}/fd"))).unwrap_or_default() {
        if fds.len() >= MAX_FDS || Instant::now() > ended {
            break;
        }
        let Ok(target) = fs::read_link(format!("{root}/fd/{fd}")) else { continue };
        let Some(text) = target.to_str() else { continue };
        let inode = link::numbered(text, "socket:[").or_else(|| link::numbered(text, "pipe:["));
        let eventfd = text == "anon_inode:[eventfd]" && !shared.eventfds.is_empty();
        if !(inode.is_some_and(|inode| shared.inodes.contains(&inode)) || eventfd) {
            continue;
        }
        let info = FdInfo::parse(&read_bounded(&format!("{root}/fdinfo/{fd}"), 4096).unwrap_or_default());
        let kind = link::parse(text, &info);
        if let FdKind::EventFd { id, .. } = &kind
            && !id.is_some_and(|id| shared.eventfds.contains(&id))
        {
            continue;
        }
        fds.push(Fd { fd, flags: info.flags, kind });
    }
    fds
}

/// Who a process is, from `/proc/PID/stat` alone.
fn identity(pid: u32) -> Option<Bystander> {
    let stat = parse_stat(&read_bounded(&format!("/proc/{pid}/stat"), 4096).ok()?)?;
    let boot_ns = boot_unix_ns();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let since_boot = u128::from(stat.start_ticks) * 1_000_000_000 / u128::from(ticks);
    Some(Bystander {
        pid,
        ppid: stat.ppid,
        comm: stat.comm,
        state: stat.state,
        start_unix_ns: boot_ns.saturating_add(u64::try_from(since_boot).unwrap_or(u64::MAX)),
        fds: Vec::new(),
    })
}

/// Wall clock of the boot, nanoseconds since the epoch: `CLOCK_REALTIME` less `CLOCK_BOOTTIME`.
fn boot_unix_ns() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let ns = |clock| {
        let now = clock_gettime(clock);
        i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
    };
    u64::try_from(ns(ClockId::Realtime) - ns(ClockId::Boottime)).unwrap_or(0)
}

struct Stat {
    comm: String,
    state: TaskState,
    ppid: u32,
    start_ticks: u64,
}

/// `PID (COMM) STATE PPID …`; the comm may hold anything, parentheses too.
fn parse_stat(text: &str) -> Option<Stat> {
    let (before, after) = text.rsplit_once(')')?;
    let comm = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split_whitespace().collect();
    Some(Stat {
        comm,
        state: TaskState::from_letter(fields.first()?.chars().next()?),
        ppid: fields.get(1)?.parse().ok()?,
        // Field 22 of proc(5); the state is field 3.
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::{io::pipe, os::fd::AsRawFd, process::Command};

    use super::*;

    #[test]
    fn the_holder_of_a_pipe_is_found() {
        let (reader, writer) = pipe().unwrap();
        let inode = link::numbered(
            fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap().to_str().unwrap(),
            "pipe:[",
        )
        .unwrap();
        let mut child = Command::new("sleep").arg("1000").stdout(writer).spawn().unwrap();
        let shared = Arc::new(Shared { inodes: HashSet::from([inode]), ..Shared::default() });
        let exclude = HashSet::from([std::process::id()]);
        let (found, gaps) = holders(&shared, &exclude);
        let born = children(&exclude, &HashSet::new());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(gaps, []);
        let holder =
            found.iter().find(|holder| holder.pid == child.id()).expect("the child holds the writing end");
        assert_eq!(holder.ppid, std::process::id());
        assert!(holder.fds.iter().any(|fd| fd.fd == 1 && fd.flags & 3 == libc::O_WRONLY as u32));
        assert!(born.iter().any(|bystander| bystander.pid == child.id()));
    }

    #[test]
    fn a_comm_with_parentheses() {
        let stat = parse_stat("12 (a) b) S 7 12 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0").unwrap();
        assert_eq!((stat.comm.as_str(), stat.ppid, stat.start_ticks), ("a) b", 7, 4711));
    }
}
