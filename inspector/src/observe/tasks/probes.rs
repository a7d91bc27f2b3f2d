//! The probes: loads the programs, attaches them for the length of an observation, reads their maps.
//!
//! Attached by tracepoints, they make every context switch and every message of every thread on the host a little slower,
//! and no system call; by `fentry`, the probed system calls.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
    thread,
};

use aya::{
    Btf as AyaBtf, Ebpf, Endianness,
    maps::{self, Array, MapData},
    programs::{Program, ProgramError, ProgramFd},
};
use inspector_ebpf::probe::{self, ProbeRecord, decode_value, drops};

use super::{
    TasksError, bpf,
    btf::{Attachable, Btf, excerpt},
    calls,
    clock::monotonic_ns,
    ebpf::{OBJECT, SILENCE},
    error::load_error,
    loader, offsets,
    source::check_namespace,
};
use crate::model::{ProbeWay, format::humane};

/// The tracepoints, by the programs' names; `exits` is attached either way.
const POINTS: [(&str, &str); 5] = [
    ("exits", "sched_process_exit"),
    ("switched", "sched_switch"),
    ("waking", "sched_waking"),
    ("sent", "sock_send_length"),
    ("received", "sock_recv_length"),
];
/// Those that kernels before 6.3 lack.
const OF_SOCKETS: [&str; 2] = ["sent", "received"];
/// Room for threads, beyond twice those that there are.
const SPARE_THREADS: u32 = 1 << 10;
const MOST_THREADS: u32 = 1 << 17;

/// What to watch.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The processes (the host's pids).
    pub pids: Vec<u32>,
    /// How many threads they have in all.
    pub threads: u32,
    /// Shorter waits are not kept, nanoseconds.
    pub threshold_ns: u64,
}

/// The loaded probes.
#[derive(Debug)]
pub struct SyscallProbes {
    way: ProbeWay,
    /// In the order in which they are attached.
    programs: Vec<OwnedFd>,
    /// The bytes of sockets are seen.
    sees_bytes: bool,
    links: Vec<OwnedFd>,
    from_ns: u64,
    /// Holds the maps.
    ebpf: Ebpf,
}

/// What the maps hold.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// From when to when they were attached, `CLOCK_MONOTONIC`, nanoseconds.
    pub from_ns: u64,
    /// The same.
    pub to_ns: u64,
    /// Who woke waiters of what.
    pub wakers: Vec<(probe::WakerKey, probe::Waker)>,
    /// Bytes by where they went.
    pub transfers: Vec<(probe::TransferKey, probe::Transfer)>,
    /// Waits that are over.
    pub waits: Vec<(probe::WaitKey, probe::Waited)>,
    /// Calls that are under way, by tid.
    pub flights: Vec<(u32, probe::Flight)>,
    /// Threads that ended, by tid.
    pub exits: Vec<(u32, probe::Exit)>,
    /// How often each map had no room, by [`drops`].
    pub dropped: [u64; drops::COUNT as usize],
    /// How often a program was not run.
    pub missed: u64,
}

impl SyscallProbes {
    /// Loads them; they are attached to nothing.
    ///
    /// # Minimum kernel version
    /// 5.11; by `fentry` on arm64 6.4.
    pub fn load(way: ProbeWay, watched: &Watched) -> Result<Self, TasksError> {
        check_namespace()?;
        let types = Btf::of_running_kernel().map_err(TasksError::Btf)?;
        let resolved = offsets::resolve(&types).ok_or(TasksError::Members)?;
        let functions = if way == ProbeWay::Fentry { calls::functions() } else { Vec::new() };
        let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
        let targets = types.attachable(&functions, &POINTS.map(|(_, point)| point));
        drop(types);
        let kernel = AyaBtf::parse(&excerpt(&targets), Endianness::Little);
        let kernel = kernel.map_err(|why| TasksError::Probes(why.to_string()))?;
        let classes = calls::classes();
        let room = watched.threads.saturating_mul(2).saturating_add(SPARE_THREADS).min(MOST_THREADS);
        let mut loader = loader::without_kernel_types();
        loader
            .override_global("OFFSETS", resolved.offsets.words(), true)
            .override_global("CALLS", classes.as_slice(), true)
            .override_global("THRESHOLD", &watched.threshold_ns, true)
            .override_global(aya_log::LEVEL, &SILENCE, true)
            .map_max_entries("AYA_LOGS", rustix::param::page_size() as u32)
            .map_max_entries("FLIGHTS", room);
        loader::without(&mut loader, &loader::OF_WALKS);
        let mut ebpf = loader.load(OBJECT).map_err(|why| load_error(&why))?;
        let (programs, sees_bytes) = programs(&mut ebpf, way, &kernel, &targets)?;
        let mut probes = Self { way, programs, sees_bytes, links: Vec::new(), from_ns: 0, ebpf };
        probes.watch(&watched.pids)?;
        Ok(probes)
    }

    /// How they are attached.
    pub fn way(&self) -> ProbeWay {
        self.way
    }

    /// They see the bytes that go through sockets. Tracepoints of kernels before 6.3 do not.
    pub fn sees_bytes(&self) -> bool {
        self.sees_bytes
    }

    /// Attaches them, those on ways out first: a call that was seen to begin is seen to end. Nothing where they are.
    pub fn attach(&mut self) -> Result<(), TasksError> {
        if !self.links.is_empty() {
            return Ok(());
        }
        let began_ns = monotonic_ns();
        for program in &self.programs {
            self.links.push(bpf::attach(program.as_fd()).map_err(attach_error)?);
        }
        self.from_ns = monotonic_ns();
        let (count, took) = (self.links.len(), humane(self.from_ns - began_ns));
        tracing::debug!("{count} probes attached by {} in {took}", self.way.name());
        Ok(())
    }

    /// Detaches them; what they counted stays.
    pub fn detach(&mut self) {
        let began_ns = monotonic_ns();
        self.links.clear();
        tracing::debug!("probes detached in {}", humane(monotonic_ns() - began_ns));
    }

    /// What they counted until now.
    pub fn read(&self) -> Result<Counted, TasksError> {
        let to_ns = monotonic_ns();
        let missed = self.programs.iter().map(|program| bpf::misses(program.as_fd()).unwrap_or(0)).sum();
        let array: Array<&MapData, u64> = self.array("DROPS")?;
        let mut dropped = [0; drops::COUNT as usize];
        for (index, count) in (0..).zip(&mut dropped) {
            *count = array.get(&index, 0).map_err(|why| TasksError::Probes(why.to_string()))?;
        }
        Ok(Counted {
            from_ns: self.from_ns,
            to_ns,
            wakers: self
                .entries::<{ size_of::<probe::WakerKey>() }, { size_of::<probe::Waker>() }, _, _>("WAKERS")?,
            transfers: self
                .entries::<{ size_of::<probe::TransferKey>() }, { size_of::<probe::Transfer>() }, _, _>(
                    "TRANSFERS",
                )?,
            waits: self
                .entries::<{ size_of::<probe::WaitKey>() }, { size_of::<probe::Waited>() }, _, _>("WAITS")?,
            flights: self.entries::<4, { size_of::<probe::Flight>() }, _, _>("FLIGHTS")?,
            exits: self.entries::<4, { size_of::<probe::Exit>() }, _, _>("EXITS")?,
            dropped,
            missed,
        })
    }

    /// Enters the processes.
    fn watch(&mut self, pids: &[u32]) -> Result<(), TasksError> {
        let filter = |why: maps::MapError| TasksError::Filter(why.to_string());
        let map =
            self.ebpf.map_mut("WATCHED").ok_or_else(|| TasksError::Object("has no map WATCHED".into()))?;
        let mut map: Array<&mut MapData, u64> = Array::try_from(map).map_err(filter)?;
        for &pid in pids {
            let word = map.get(&(pid / 64), 0).map_err(filter)?;
            map.set(pid / 64, word | 1 << (pid % 64), 0).map_err(filter)?;
        }
        Ok(())
    }

    fn array(&self, name: &str) -> Result<Array<&MapData, u64>, TasksError> {
        let map = self.ebpf.map(name).ok_or_else(|| TasksError::Object(format!("has no map {name}")))?;
        Array::try_from(map).map_err(|why| TasksError::Object(why.to_string()))
    }

    /// All entries of a map; aya takes arrays of bytes, not types of other crates.
    fn entries<const KEY: usize, const VALUE: usize, K, V>(
        &self,
        name: &str,
    ) -> Result<Vec<(K, V)>, TasksError>
    where
        K: bytemuck::AnyBitPattern,
        V: ProbeRecord,
    {
        let map = self.ebpf.map(name).ok_or_else(|| TasksError::Object(format!("has no map {name}")))?;
        let map: maps::HashMap<&MapData, [u8; KEY], [u8; VALUE]> =
            maps::HashMap::try_from(map).map_err(|why| TasksError::Object(why.to_string()))?;
        let mut entries = Vec::new();
        for entry in &map {
            let (key, value) = entry.map_err(|why| TasksError::Probes(why.to_string()))?;
            let value = decode_value(&value).map_err(TasksError::Decode)?;
            entries.push((bytemuck::pod_read_unaligned(&key), value));
        }
        Ok(entries)
    }
}

/// Loads what the way needs; whether bytes are seen.
fn programs(
    ebpf: &mut Ebpf,
    way: ProbeWay,
    kernel: &AyaBtf,
    targets: &[Attachable],
) -> Result<(Vec<OwnedFd>, bool), TasksError> {
    let mut all: HashMap<&str, &mut Program> = ebpf.programs_mut().collect();
    let mut take =
        |name: &str| all.remove(name).ok_or_else(|| TasksError::Object(format!("has no program {name}")));
    let is_there = |name: &str| targets.iter().any(|target| target.name == name);
    let mut wanted: Vec<(&mut Program, Vec<&str>)> = Vec::new();
    let mut sees_bytes = true;
    for (name, point) in POINTS {
        let needed = name == "exits" || way == ProbeWay::Tracepoint;
        if !needed {
            continue;
        }
        if OF_SOCKETS.contains(&name) && !is_there(&format!("btf_trace_{point}")) {
            sees_bytes = false;
            continue;
        }
        wanted.push((take(name)?, vec![point]));
    }
    if way == ProbeWay::Fentry {
        let names = targets.iter().map(|target| target.name.as_str());
        let functions: Vec<&str> = names.filter(|name| !name.starts_with("btf_trace_")).collect();
        if functions.is_empty() {
            return Err(TasksError::Probes("the kernel's types hold no function of a system call".into()));
        }
        // Ways out first.
        wanted.push((take("exit_function")?, functions.clone()));
        wanted.push((take("enter_function")?, functions));
    }
    // The verifier takes its time with each.
    let loaded = thread::scope(|scope| {
        let start = |(program, targets): (&'_ mut Program, Vec<&'_ str>)| load(program, &targets, kernel);
        let loading: Vec<_> = wanted.into_iter().map(|one| scope.spawn(move || start(one))).collect();
        let ended = || TasksError::Probes("their loader ended".into());
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().map_err(|_| ended())?;
        loading.into_iter().map(join).collect::<Result<Vec<Vec<OwnedFd>>, TasksError>>()
    })?;
    Ok((loaded.into_iter().flatten().collect(), sees_bytes))
}

/// Loads a program for a tracepoint, or once for each of several functions: the kernel binds a program to one as it loads
/// it.
fn load(program: &mut Program, targets: &[&str], kernel: &AyaBtf) -> Result<Vec<OwnedFd>, TasksError> {
    let error = |why: ProgramError| load_error(&why);
    let own = |fd: &ProgramFd| fd.as_fd().try_clone_to_owned().map_err(TasksError::Attach);
    macro_rules! each {
        ($program:ident) => {
            targets
                .iter()
                .map(|target| {
                    $program.load(target, kernel).map_err(error)?;
                    let fd = own($program.fd().map_err(error)?);
                    $program.unload().map_err(error)?;
                    fd
                })
                .collect()
        };
    }
    match program {
        Program::BtfTracePoint(program) => each!(program),
        Program::FEntry(program) => each!(program),
        Program::FExit(program) => each!(program),
        _ => Err(TasksError::Object("has a probe of an unknown kind".into())),
    }
}

fn attach_error(why: io::Error) -> TasksError {
    TasksError::Probes(format!("cannot attach them: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Watched {
        Watched { pids: vec![std::process::id()], threads: 8, threshold_ns: 1_000_000 }
    }

    #[test]
    fn the_kernel_accepts_the_tracepoints_and_they_see_this_process() {
        let mut probes = SyscallProbes::load(ProbeWay::Tracepoint, &own()).expect("eBPF needs root");
        probes.attach().unwrap();
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let late = thread::spawn(move || {
            thread::sleep(std::time::Duration::from_millis(20));
            rustix::io::write(&writer, b"twelve bytes").unwrap();
        });
        let mut buffer = [0; 64];
        assert_eq!(rustix::io::read(&reader, &mut buffer).unwrap(), 12);
        late.join().unwrap();
        probes.detach();
        let counted = probes.read().unwrap();
        let bytes: Vec<u64> = counted.transfers.iter().map(|(_, transfer)| transfer.bytes).collect();
        assert!(bytes.iter().filter(|&&bytes| bytes == 12).count() == 2, "{counted:?}");
        assert!(!counted.waits.is_empty() && !counted.exits.is_empty(), "{counted:?}");
        assert_eq!(counted.dropped, [0; drops::COUNT as usize]);
    }
}
