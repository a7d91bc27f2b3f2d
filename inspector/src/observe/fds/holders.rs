//! Who else on the host holds an object: one walk over `/proc/*/fd`.

use std::{
    collections::{HashMap, HashSet},
    fs,
    hash::BuildHasher,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{details, fdinfo::FdInfo, link, list, read_bounded};
use crate::{
    model::{Bystander, Fd, FdDetails, FdKind, FileLock, Gap},
    patience::Patience,
    proc_stat::{Stat, ticks_ns},
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
    /// Files by mount id and inode; true: a FIFO.
    pub files: HashMap<(u32, u64), bool>,
    /// File locks of open file descriptions.
    pub locks: Vec<FileLock>,
    /// Processes that are wanted whatever they hold.
    pub pids: HashSet<u32>,
}

impl Shared {
    fn is_empty(&self) -> bool {
        self.inodes.is_empty()
            && self.eventfds.is_empty()
            && self.files.is_empty()
            && self.locks.is_empty()
            && self.pids.is_empty()
    }
}

/// The processes, other than those in `exclude`, that hold one of the objects. Bounded in time and number; what was
/// left out is a gap. Processes of others cannot be looked into without privilege and are left out silently, since
/// the caller's own descriptors would show the same lack.
pub fn holders<S: BuildHasher>(
    shared: &Arc<Shared>,
    exclude: &HashSet<u32, S>,
) -> (Vec<Bystander>, Vec<Gap>) {
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    if shared.is_empty() {
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
            let wanted = !fds.is_empty() || shared.pids.contains(&pid);
            wanted.then(|| identity(pid).map(|bystander| inside(Bystander { fds, ..bystander }))).flatten()
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
pub fn children<S: BuildHasher>(
    parents: &HashSet<u32, S>,
    exclude: &HashSet<u32, S>,
) -> (Vec<Bystander>, Vec<Gap>) {
    let ended = Instant::now() + BUDGET;
    let (mut patience, mut found) = (Patience::default(), Vec::new());
    let pids = list(Path::new("/proc")).unwrap_or_default().into_iter();
    for pid in pids.filter_map(|pid| u32::try_from(pid).ok()).filter(|pid| !exclude.contains(pid)) {
        if Instant::now() > ended || found.len() >= MAX_BYSTANDERS {
            let reason =
                format!("the search for children stopped at pid {pid}: too many processes or too slow");
            return (found, vec![Gap::host("fds", reason)]);
        }
        let child = patience.run(Duration::ZERO, move || identity(pid)).ok().flatten();
        if let Some(child) = child.filter(|child| parents.contains(&child.ppid)) {
            let known = child.clone();
            found.push(patience.run(Duration::ZERO, move || inside(child)).unwrap_or(known));
        }
    }
    (found, Vec::new())
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
        let file = text.starts_with('/') && !(shared.files.is_empty() && shared.locks.is_empty());
        if !(inode.is_some_and(|inode| shared.inodes.contains(&inode)) || eventfd || file) {
            continue;
        }
        let info = FdInfo::parse(&read_bounded(&format!("{root}/fdinfo/{fd}"), 4096).unwrap_or_default());
        fds.extend(one(fd, text, &info, shared));
    }
    fds
}

/// The descriptor, if it is one of those that are looked for.
fn one(fd: i32, text: &str, info: &FdInfo, shared: &Shared) -> Option<Fd> {
    let mut kind = link::parse(text, info);
    let mut details = details(&kind, info);
    match &kind {
        FdKind::EventFd { id, .. } => {
            id.filter(|id| shared.eventfds.contains(id))?;
        }
        FdKind::File { path } => {
            let fifo = details.file.and_then(|file| shared.files.get(&file).copied());
            let locks = info.locks.iter().any(|lock| shared.locks.iter().any(|wanted| wanted.is(lock)));
            if fifo.is_none() && !locks {
                return None;
            }
            if fifo == Some(true) {
                kind = FdKind::Pipe { inode: info.inode, path: Some(path.clone()) };
            }
        }
        _ => details = FdDetails::default(),
    }
    let details = (details != FdDetails::default()).then(|| Box::new(details));
    Some(Fd { fd, flags: info.flags, kind, details })
}

/// Who a process is, from `/proc/PID/stat` alone.
fn identity(pid: u32) -> Option<Bystander> {
    let stat = Stat::read(pid)?;
    Some(Bystander {
        pid,
        ppid: stat.ppid,
        pgid: stat.pgid,
        comm: stat.comm,
        state: stat.state,
        start_unix_ns: boot_unix_ns().saturating_add(ticks_ns(stat.start_ticks)),
        ..Bystander::default()
    })
}

/// With its ids in other PID namespaces.
fn inside(bystander: Bystander) -> Bystander {
    let root = format!("/proc/{}", bystander.pid);
    let status = read_bounded(&format!("{root}/status"), 64 << 10).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let ns_pids = numbers.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    let pid_ns = fs::metadata(format!("{root}/ns/pid")).ok().map(|namespace| namespace.ino());
    Bystander { ns_pids, pid_ns, ..bystander }
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
        let (born, _) = children(&exclude, &HashSet::new());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(gaps, []);
        let holder =
            found.iter().find(|holder| holder.pid == child.id()).expect("the child holds the writing end");
        assert_eq!(holder.ppid, std::process::id());
        assert!(holder.fds.iter().any(|fd| fd.fd == 1 && fd.flags & 3 == libc::O_WRONLY as u32));
        assert!(born.iter().any(|bystander| bystander.pid == child.id()));
    }
}
