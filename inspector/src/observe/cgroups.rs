//! CPU quotas of the processes' cgroups, how often they were used up while inspector looked, and which cgroups are frozen.
//!
//! CFS bandwidth (`kernel/sched/fair.c`; Documentation/scheduler/sched-bwc.rst): a group that used up its quota is kept from
//! the CPUs until its period ends. Only then do its counters grow: a throttling that is under way does not show in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    cgroups::{Hierarchies, Membership, as_host, lineage, read},
    discover::cgroup,
    model::{CpuQuota, Gap, Process, TaskState, Thread},
};

/// How often counters are looked at again that have not grown yet.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The longest period that the kernel allows (`max_cfs_quota_period`), and the longest time that is waited for one to end.
const LONGEST_PERIOD: Duration = Duration::from_secs(1);
/// Most threads of one process that are looked at for a cgroup of their own.
const MAX_THREADS: usize = 4096;

/// The quotas as they were when the observation began.
#[derive(Debug)]
pub(super) struct CpuQuotas {
    hierarchies: Hierarchies,
    start: Instant,
    /// By path; `None`: without a quota.
    groups: BTreeMap<String, Option<Group>>,
    /// The path of each process's cgroup.
    paths: BTreeMap<u32, String>,
}

/// A cgroup with a quota.
#[derive(Clone, Debug)]
struct Group {
    folder: PathBuf,
    limit: Limit,
    before: Counters,
}

/// CPU time for each period, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    quota_ns: u64,
    period_ns: u64,
}

/// What `cpu.stat` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    periods: u64,
    throttled: u64,
    throttled_ns: u64,
}

impl CpuQuotas {
    /// Reads the quotas and counters of the cgroups that `pids` are in, and of their ancestors.
    pub(super) fn start(pids: &[u32]) -> Self {
        let found = as_host(|| {
            let memberships = pids.iter().filter_map(|&pid| Some((pid, Membership::of(pid)?)));
            (Hierarchies::find(), memberships.collect::<Vec<_>>())
        });
        let (hierarchies, memberships) = found.unwrap_or_default();
        let mut quotas =
            Self { hierarchies, start: Instant::now(), groups: BTreeMap::new(), paths: BTreeMap::new() };
        for (pid, membership) in memberships {
            let Some((mount, path)) = place(&quotas.hierarchies, &membership) else { continue };
            for (path, folder) in lineage(mount, path) {
                quotas.groups.entry(path).or_insert_with(|| Group::read(folder));
            }
            quotas.paths.insert(pid, path.to_owned());
        }
        quotas
    }

    /// Fills in the quotas of each process and its frozen cgroups. Where a thread may be throttled and nothing was counted
    /// yet, it waits for the period to end.
    pub(super) async fn finish(&self, processes: &mut [Process]) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let waiting: Vec<&Process> =
            processes.iter().filter(|process| wants_cpu(process).next().is_some()).collect();
        if self.hierarchies == Hierarchies::default() && !waiting.is_empty() {
            let reason = "no cgroup hierarchy is mounted where inspector could see it: whether a CPU quota holds threads \
                          back is not known";
            gaps.push(Gap::host("cgroups", reason));
        }
        let pids: Vec<u32> = waiting.iter().map(|process| process.pid).collect();
        let counters = self.counters(&pids).await;
        let watched_ns = self.start.elapsed().as_nanos() as u64;
        for process in &mut *processes {
            let groups = self.lineage_of(process.pid).filter_map(|path| {
                let group = self.groups.get(path)?.as_ref()?;
                Some(group.over(path, counters.get(path)?, watched_ns))
            });
            process.cpu_quotas = groups.collect();
            if !process.cpu_quotas.is_empty() {
                self.mark_strays(process);
            }
        }
        frozen(processes);
        gaps
    }

    /// The counters now; or as soon as a group of each of `pids` was throttled, or could have been.
    async fn counters(&self, pids: &[u32]) -> BTreeMap<&str, Counters> {
        let groups = || self.groups.iter().filter_map(|(path, group)| Some((path.as_str(), group.as_ref()?)));
        let read = || groups().map(|(path, group)| (path, Counters::read(&group.folder))).collect();
        let mut counters: BTreeMap<&str, Counters> = read();
        let of =
            |pid: u32| self.lineage_of(pid).filter_map(|path| Some((path, self.groups.get(path)?.as_ref()?)));
        let longest = pids.iter().flat_map(|&pid| of(pid)).map(|(_, group)| group.limit.period_ns).max();
        let Some(longest) = longest else { return counters };
        let until = Instant::now() + Duration::from_nanos(longest).min(LONGEST_PERIOD) + LOOK_AGAIN;
        let grew = |counters: &BTreeMap<&str, Counters>, (path, group): (&str, &Group)| {
            counters.get(path).is_some_and(|now| now.throttled > group.before.throttled)
        };
        while Instant::now() < until
            && pids
                .iter()
                .any(|&pid| of(pid).next().is_some() && !of(pid).any(|group| grew(&counters, group)))
        {
            sleep(LOOK_AGAIN).await;
            counters = read();
        }
        counters
    }

    /// Paths of a process's cgroup and of its ancestors, innermost first.
    fn lineage_of(&self, pid: u32) -> impl Iterator<Item = &str> {
        let path = self.paths.get(&pid).map_or("", String::as_str);
        let some = |path: &&str| !path.is_empty() && *path != "/";
        std::iter::successors(Some(path).filter(some), move |path| {
            Some(path.rsplit_once('/')?.0).filter(some)
        })
    }

    /// Marks the threads that want a CPU in another cgroup than the process's.
    fn mark_strays(&self, process: &mut Process) {
        let (pid, path) = (process.pid, self.paths.get(&process.pid));
        let tids: Vec<u32> = wants_cpu(process).map(|thread| thread.tid).take(MAX_THREADS).collect();
        let strays = as_host(|| {
            let is_stray = |&tid: &u32| {
                let own = Membership::of_thread(pid, tid);
                own.is_none_or(|own| {
                    place(&self.hierarchies, &own).map(|(_, path)| path) != path.map(String::as_str)
                })
            };
            tids.iter().copied().filter(is_stray).collect::<BTreeSet<u32>>()
        });
        let strays = strays.unwrap_or_else(|| tids.iter().copied().collect());
        for thread in &mut process.threads {
            thread.in_own_cgroup = strays.contains(&thread.tid);
        }
    }
}

/// The kernel-only sweep knows frozen threads by their state from 6.1 on (version 1), which before only the files tell.
fn frozen(processes: &mut [Process]) {
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    let mut now = cgroup::of(pids);
    for process in processes {
        let Some(now) = now.remove(&process.pid) else { continue };
        if now.frozen == Some(true) {
            process.frozen = Some(true);
        }
        if process.frozen != Some(true) || !now.frozen_cgroups.is_empty() {
            process.frozen_cgroups = now.frozen_cgroups;
        }
    }
}

/// Threads that are runnable and not on a CPU.
fn wants_cpu(process: &Process) -> impl Iterator<Item = &Thread> {
    process.threads.iter().filter(|thread| thread.state == TaskState::Running && !thread.on_cpu)
}

/// The hierarchy that has the CPU controller, and the path in it.
fn place<'a>(hierarchies: &'a Hierarchies, membership: &'a Membership) -> Option<(&'a Path, &'a str)> {
    let (mount, path) = match membership.controller("cpu") {
        Some(path) => (&hierarchies.cpu, path),
        None => (&hierarchies.unified, membership.unified()?),
    };
    Some((mount.as_deref()?, path))
}

impl Group {
    fn read(folder: PathBuf) -> Option<Self> {
        let limit = Limit::read(&folder)?;
        let before = Counters::read(&folder);
        Some(Self { folder, limit, before })
    }

    fn over(&self, path: &str, now: &Counters, watched_ns: u64) -> CpuQuota {
        CpuQuota {
            cgroup: path.to_owned(),
            quota_ns: self.limit.quota_ns,
            period_ns: self.limit.period_ns,
            watched_ns,
            periods: now.periods.saturating_sub(self.before.periods),
            throttled_periods: now.throttled.saturating_sub(self.before.throttled),
            throttled_ns: now.throttled_ns.saturating_sub(self.before.throttled_ns),
        }
    }
}

impl Limit {
    /// `cpu.max` of version 2, `cpu.cfs_*_us` of version 1.
    fn read(folder: &Path) -> Option<Self> {
        let text = |name: &str| read(&folder.join(name));
        match text("cpu.max") {
            Some(max) => Self::parse(&max),
            None => Self::parse(&format!("{} {}", text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?)),
        }
    }

    /// Both in microseconds; `max` or -1: no quota.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers =
            text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok()?.checked_mul(1000));
        let limit = Self { quota_ns: numbers.next()??, period_ns: numbers.next()?? };
        (limit.period_ns > 0).then_some(limit)
    }
}

impl Counters {
    fn read(folder: &Path) -> Self {
        Self::parse(&read(&folder.join("cpu.stat")).unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let value = |name: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.trim().parse::<u64>().ok())
        };
        let throttled_us = value("throttled_usec").map(|us| us.saturating_mul(1000));
        Self {
            periods: value("nr_periods").unwrap_or_default(),
            throttled: value("nr_throttled").unwrap_or_default(),
            throttled_ns: throttled_us.or_else(|| value("throttled_time")).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_versions_count_the_same_things() {
        let counters = Counters { periods: 21, throttled: 20, throttled_ns: 1_670_072_000 };
        let first = "nr_periods 21\nnr_throttled 20\nthrottled_time 1670072000\nnr_bursts 0\nburst_time 0\n";
        let second = "usage_usec 5\nuser_usec 5\nnr_periods 21\nnr_throttled 20\nthrottled_usec 1670072\n";
        assert_eq!((Counters::parse(first), Counters::parse(second)), (counters, counters));
        assert_eq!(Counters::parse("usage_usec 5\n"), Counters::default());
    }

    #[test]
    fn a_quota_that_is_none_is_told() {
        let limit = Some(Limit { quota_ns: 5_000_000, period_ns: 100_000_000 });
        assert_eq!((Limit::parse("5000 100000\n"), Limit::parse("5000\n 100000\n")), (limit, limit));
        assert_eq!((Limit::parse("max 100000\n"), Limit::parse("-1\n 100000\n")), (None, None));
    }

    #[test]
    fn the_cpu_controller_decides_which_hierarchy_counts() {
        let hierarchies =
            Hierarchies { unified: Some("/v2".into()), cpu: Some("/v1".into()), ..Hierarchies::default() };
        let both = Membership::parse("3:cpu,cpuacct:/a\n0::/b\n");
        assert_eq!(place(&hierarchies, &both), Some((Path::new("/v1"), "/a")));
        assert_eq!(place(&hierarchies, &Membership::parse("0::/b\n")), Some((Path::new("/v2"), "/b")));
        assert_eq!(place(&Hierarchies::default(), &both), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "([a-z_]{0,16} ?-?[0-9]{0,22}\n?){0,8}") {
            let _ = (Counters::parse(&text), Limit::parse(&text));
        }
    }
}
