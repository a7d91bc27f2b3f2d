//! The probes on system calls: loads the programs, attaches them for the length of an observation, reads their maps.
//!
//! While they are attached by tracepoints, every system call of every thread on the host is a little slower; attached by
//! `fentry`, only the probed calls are.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    thread,
};

use aya::{
    Btf as AyaBtf, Ebpf, Endianness,
    maps::{Array, HashMap, MapData},
    programs::Program,
};
use inspector_ebpf::probe::{self, ProbeRecord, decode_value, drops};

use super::{
    TasksError, bpf,
    btf::{Attachable, Btf, excerpt},
    calls,
    clock::monotonic_ns,
    ebpf::{OBJECT, SILENCE},
    error::load_error,
    fentry, loader, offsets,
    source::check_namespace,
};
use crate::model::ProbeWay;

/// The tracepoints that every system call passes, and the one that every thread ends at.
const POINTS: [&str; 3] = ["sys_enter", "sys_exit", "sched_process_exit"];
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
    links: Vec<OwnedFd>,
    span: Span,
    /// Holds the maps.
    ebpf: Ebpf,
}

/// From when to when the probes were attached, `CLOCK_MONOTONIC`, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// All were attached.
    pub from_ns: u64,
    /// None was detached yet.
    pub to_ns: u64,
}

/// What the maps hold.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Who woke waiters of which futex word.
    pub wakers: Vec<(probe::WakerKey, probe::Waker)>,
    /// Bytes by descriptor and direction.
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
    /// Loads them; they are attached to nothing. `way`: the only one to try; `None`: `fentry` where the kernel allows it,
    /// tracepoints where not.
    ///
    /// # Minimum kernel version
    /// 5.11; by `fentry` on arm64 6.4.
    pub fn load(way: Option<ProbeWay>, watched: &Watched) -> Result<Self, TasksError> {
        check_namespace()?;
        let way = match way {
            Some(way) => way,
            None if fentry::try_attach().is_ok() => ProbeWay::Fentry,
            None => ProbeWay::Tracepoint,
        };
        let types = Btf::of_running_kernel().map_err(TasksError::Btf)?;
        let resolved = offsets::resolve(&types).ok_or(TasksError::Members)?;
        let functions = if way == ProbeWay::Fentry { calls::functions() } else { Vec::new() };
        let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
        let targets = types.attachable(&functions, &POINTS);
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
        let programs = programs(&mut ebpf, way, &kernel, &targets)?;
        let mut probes = Self { way, programs, links: Vec::new(), span: Span::default(), ebpf };
        probes.watch(&watched.pids)?;
        Ok(probes)
    }

    /// How they are attached.
    pub fn way(&self) -> ProbeWay {
        self.way
    }

    /// Attaches them, those on ways out first: a call that was seen to begin is seen to end.
    pub fn attach(&mut self) -> Result<(), TasksError> {
        for program in &self.programs {
            self.links.push(bpf::attach(program.as_fd()).map_err(attach_error)?);
        }
        self.span.from_ns = monotonic_ns();
        Ok(())
    }

    /// Detaches them; what they counted stays.
    pub fn detach(&mut self) {
        self.span.to_ns = monotonic_ns();
        self.links.clear();
    }

    /// From when to when they were attached.
    pub fn span(&self) -> Span {
        self.span
    }

    /// What they counted.
    pub fn read(&self) -> Result<Counted, TasksError> {
        let missed = self.programs.iter().map(|program| bpf::misses(program.as_fd()).unwrap_or(0)).sum();
        let array: Array<&MapData, u64> = self.array("DROPS")?;
        let mut dropped = [0; drops::COUNT as usize];
        for (index, count) in (0..).zip(&mut dropped) {
            *count = array.get(&index, 0).map_err(|why| TasksError::Probes(why.to_string()))?;
        }
        Ok(Counted {
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
        let filter = |why: aya::maps::MapError| TasksError::Filter(why.to_string());
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
        let map: HashMap<&MapData, [u8; KEY], [u8; VALUE]> =
            HashMap::try_from(map).map_err(|why| TasksError::Object(why.to_string()))?;
        let mut entries = Vec::new();
        for entry in &map {
            let (key, value) = entry.map_err(|why| TasksError::Probes(why.to_string()))?;
            let value = decode_value(&value).map_err(TasksError::Decode)?;
            entries.push((bytemuck::pod_read_unaligned(&key), value));
        }
        Ok(entries)
    }
}

/// Loads what the way needs, once for each function that it attaches to.
fn programs(
    ebpf: &mut Ebpf,
    way: ProbeWay,
    kernel: &AyaBtf,
    targets: &[Attachable],
) -> Result<Vec<OwnedFd>, TasksError> {
    let mut all: std::collections::HashMap<&str, &mut Program> = ebpf.programs_mut().collect();
    let mut take =
        |name: &str| all.remove(name).ok_or_else(|| TasksError::Object(format!("has no program {name}")));
    let ends = take("exits")?;
    let (leave, enter) = match way {
        ProbeWay::Fentry => (take("exit_function")?, take("enter_function")?),
        ProbeWay::Tracepoint => (take("exit_point")?, take("enter_point")?),
    };
    let functions: Vec<&str> = targets
        .iter()
        .map(|target| target.name.as_str())
        .filter(|name| !name.starts_with("btf_trace_"))
        .collect();
    if way == ProbeWay::Fentry && functions.is_empty() {
        return Err(TasksError::Probes("the kernel's types hold no function of a system call".into()));
    }
    // The verifier takes its time with each.
    thread::scope(|scope| {
        let leave = scope.spawn(|| load(leave, &functions, kernel, "sys_exit"));
        let enter = scope.spawn(|| load(enter, &functions, kernel, "sys_enter"));
        let mut programs = load(ends, &[], kernel, "sched_process_exit")?;
        for loading in [leave, enter] {
            let loaded = loading.join().map_err(|_| TasksError::Probes("their loader ended".into()))?;
            programs.extend(loaded?);
        }
        Ok(programs)
    })
}

/// Loads a program for a tracepoint, or once for each of several functions: the kernel binds a program to one as it loads
/// it.
fn load(
    program: &mut Program,
    functions: &[&str],
    kernel: &AyaBtf,
    point: &str,
) -> Result<Vec<OwnedFd>, TasksError> {
    let error = |why: aya::programs::ProgramError| load_error(&why);
    let own = |fd: &aya::programs::ProgramFd| fd.as_fd().try_clone_to_owned().map_err(TasksError::Attach);
    match program {
        Program::BtfTracePoint(program) => {
            program.load(point, kernel).map_err(error)?;
            Ok(vec![own(program.fd().map_err(error)?)?])
        }
        Program::FEntry(program) => {
            let one = |function: &&str| {
                program.load(function, kernel).map_err(error)?;
                let fd = own(program.fd().map_err(error)?);
                program.unload().map_err(error)?;
                fd
            };
            functions.iter().map(one).collect()
        }
        Program::FExit(program) => {
            let one = |function: &&str| {
                program.load(function, kernel).map_err(error)?;
                let fd = own(program.fd().map_err(error)?);
                program.unload().map_err(error)?;
                fd
            };
            functions.iter().map(one).collect()
        }
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
        let mut probes = SyscallProbes::load(Some(ProbeWay::Tracepoint), &own()).expect("eBPF needs root");
        probes.attach().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
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
