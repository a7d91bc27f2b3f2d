//! The eBPF tier: loads the walk once, then reads it for each sweep.

use std::{
    collections::BTreeSet,
    fmt,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread,
};

use aya::{
    Btf as AyaBtf, Ebpf, Endianness,
    maps::{Array, HashMap, MapData},
    programs::{Iter, Program},
};
use inspector_ebpf::{WANT_ALL, WANT_READER};

use super::{
    TasksError, bpf,
    btf::{Btf, excerpt},
    error::load_error,
    loader,
    memory_walk::Grants,
    names::KernelNames,
    offsets,
    warnings::Warnings,
};

/// The object that `cargo xtask build-ebpf` makes, or the one that `INSPECTOR_EBPF_OBJECT` named at compile time.
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("INSPECTOR_EBPF_EMBEDDED"));

/// Levels that the programs' own warnings are compared with.
const WARNINGS: u8 = aya_log::Level::Warn as u8;
pub(super) const SILENCE: u8 = 0;

/// Most bytes of one sweep: a bound on what a host of very many threads makes us hold (about 400 000 deep stacks).
const MAX_SWEEP: usize = 256 << 20;

/// Kernel functions by address.
pub(super) type Names = std::collections::HashMap<u64, String>;

/// The object's programs by name.
type Programs<'a> = std::collections::HashMap<&'a str, &'a mut Program>;

/// The loaded walks.
#[derive(Debug)]
pub(super) struct Walk {
    link: OwnedFd,
    wanted: HashMap<MapData, u32, u32>,
    epoch: Epoch,
    /// The walk that reads user memory, or why there is none.
    memory: Result<Arc<Grants>, String>,
    names: Result<KernelNames, String>,
    watched: BTreeSet<u32>,
    warnings: Option<Warnings>,
    /// Holds the programs and maps.
    _ebpf: Ebpf,
    buffer: Vec<u8>,
    /// What this kernel's types switch off, one clause each.
    pub(super) without: Vec<&'static str>,
    /// Whether the off-CPU times can be trusted: all their members exist.
    pub(super) times: bool,
}

impl Walk {
    /// Looks the members up, loads the programs and attaches the walks. With `warnings` the programs report what they
    /// meet; without, the verifier drops the code that would.
    pub(super) fn open(warnings: bool) -> Result<Self, TasksError> {
        let types = Btf::of_running_kernel().map_err(TasksError::Btf)?;
        let resolved = offsets::resolve(&types).ok_or(TasksError::Members)?;
        let target = types.attachable(&["bpf_iter_task"], &[]);
        if target.is_empty() {
            return Err(TasksError::NoIterator);
        }
        drop(types);
        let parse = move || AyaBtf::parse(&excerpt(&target), Endianness::Little);
        let target = thread::Builder::new().spawn(parse);
        let target = target.map_err(|why| TasksError::Load(format!("no thread to read types: {why}")))?;

        let mut loader = loader::without_kernel_types();
        loader
            .override_global("OFFSETS", resolved.offsets.words(), true)
            .override_global(aya_log::LEVEL, if warnings { &WARNINGS } else { &SILENCE }, true)
            .map_max_entries(
                "AYA_LOGS",
                if warnings { 128 << 10 } else { rustix::param::page_size() as u32 },
            );
        loader::without(&mut loader, &loader::OF_PROBES);
        let mut ebpf = loader.load(OBJECT).map_err(|why| load_error(&why))?;
        let wanted = map(&mut ebpf, "WANTED")?;
        let readers = map(&mut ebpf, "READERS")?;
        let epoch = ebpf.take_map("EPOCH").ok_or_else(|| TasksError::Object("has no map EPOCH".into()))?;
        let epoch = Epoch(Array::try_from(epoch).map_err(|why| TasksError::Object(why.to_string()))?);
        let target = target.join().map_err(|_| TasksError::Load("aya's reader of types ended".into()))?;
        let target = target.map_err(|why| TasksError::Load(why.to_string()))?;
        let symbols = ebpf.take_map("NAMES");
        let mut programs: Programs<'_> = ebpf.programs_mut().collect();
        let [tasks, memory, names] = ["tasks", "memory", "names"].map(|name| programs.remove(name));
        // The verifier takes its time with each.
        let (tasks, memory, names) = thread::scope(|scope| {
            let memory = thread::Builder::new().spawn_scoped(scope, || load(memory, "memory", &target));
            let tasks = load(tasks, "tasks", &target);
            let names = KernelNames::load(names, symbols);
            (tasks, memory.map(thread::ScopedJoinHandle::join), names)
        });
        let link = bpf::link(tasks?.as_fd(), None).map_err(TasksError::Attach)?;
        let memory = match memory {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(_)) => Err(TasksError::Load("its loader ended".into())),
            Err(why) => Err(TasksError::Load(format!("no thread to load it: {why}"))),
        };
        let memory = memory.map(|program| Arc::new(Grants::new(program, readers)));
        let memory = memory.map_err(|why| why.to_string());
        let names = names.map_err(|why| why.to_string());
        let warnings = warnings.then(|| Warnings::of(&mut ebpf)).transpose()?;
        let found = &resolved.offsets;
        let times = ![found.last_arrival, found.sum_exec, found.prev_sum_exec, found.policy]
            .contains(&inspector_ebpf::MISSING);
        let without = resolved.without;
        let mut walk = Self {
            link,
            wanted,
            epoch,
            warnings,
            memory,
            names,
            watched: BTreeSet::new(),
            _ebpf: ebpf,
            buffer: Vec::new(),
            without,
            times,
        };
        walk.wanted
            .insert(std::process::id(), WANT_READER, 0)
            .map_err(|why| TasksError::Filter(why.to_string()))?;
        Ok(walk)
    }

    /// Replaces the set of wanted processes.
    pub(super) fn watch(&mut self, pids: &[u32]) -> Result<(), TasksError> {
        let own = std::process::id();
        let next: BTreeSet<u32> = pids.iter().copied().collect();
        for &pid in self.watched.difference(&next) {
            let result =
                if pid == own { self.wanted.insert(pid, WANT_READER, 0) } else { self.wanted.remove(&pid) };
            result.map_err(|why| TasksError::Filter(why.to_string()))?;
        }
        for &pid in next.difference(&self.watched) {
            self.wanted.insert(pid, WANT_ALL, 0).map_err(|why| TasksError::Filter(why.to_string()))?;
        }
        self.watched = next;
        Ok(())
    }

    /// Whether the process was asked for (inspector's own thread is walked anyway, to calibrate the clock).
    pub(super) fn watches(&self, pid: u32) -> bool {
        self.watched.contains(&pid)
    }

    /// The walk that reads user memory, or why there is none.
    pub(super) fn memory(&self) -> Result<&Arc<Grants>, &str> {
        self.memory.as_ref().map_err(String::as_str)
    }

    /// The kernel's functions that hold `addresses`, where it knows one.
    pub(super) fn kernel_names(&mut self, addresses: &[u64]) -> Result<Names, TasksError> {
        match &mut self.names {
            Ok(names) => names.of(addresses),
            Err(why) => Err(TasksError::Names(why.clone())),
        }
    }

    /// Makes the next walk tell all of every thread again.
    pub(super) fn forget(&mut self) -> Result<(), TasksError> {
        self.epoch.advance().map_err(|why| TasksError::Filter(why.to_string()))
    }

    /// Walks once; the records.
    pub(super) fn read(&mut self) -> Result<&[u8], TasksError> {
        let iterator = bpf::iterator(self.link.as_fd()).map_err(TasksError::Read)?;
        self.buffer.clear();
        bpf::read_all(&iterator, &mut self.buffer, MAX_SWEEP, || {}).map_err(TasksError::Read)?;
        if let Some(warnings) = &mut self.warnings {
            warnings.pass_on();
        }
        Ok(&self.buffer)
    }
}

/// What the walk has told counts for one epoch.
struct Epoch(Array<MapData, u64>);

impl Epoch {
    fn advance(&mut self) -> Result<(), aya::maps::MapError> {
        let now = self.0.get(&0, 0)?;
        self.0.set(0, now.wrapping_add(1), 0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Epoch")
    }
}

fn map<V: aya::Pod>(ebpf: &mut Ebpf, name: &str) -> Result<HashMap<MapData, u32, V>, TasksError> {
    let map = ebpf.take_map(name).ok_or_else(|| TasksError::Object(format!("has no map {name}")))?;
    HashMap::try_from(map).map_err(|why| TasksError::Object(why.to_string()))
}

fn load(program: Option<&mut Program>, name: &str, target: &AyaBtf) -> Result<OwnedFd, TasksError> {
    let program = program.ok_or_else(|| TasksError::Object(format!("has no program {name}")))?;
    let program: &mut Iter = program.try_into().map_err(|why| load_error(&why))?;
    program.load("task", target).map_err(|why| load_error(&why))?;
    let fd = program.fd().map_err(|why| load_error(&why))?;
    fd.as_fd().try_clone_to_owned().map_err(TasksError::Attach)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_accepts_the_programs_with_and_without_their_warnings() {
        for warnings in [false, true] {
            let mut walk = Walk::open(warnings).expect("eBPF needs root");
            walk.memory().expect("kernel 5.18");
            walk.watch(&[std::process::id()]).unwrap();
            let seen = inspector_ebpf::decode(walk.read().unwrap()).count();
            assert!(seen >= 2, "the test's main thread and this one: {seen}");
        }
    }

    #[test]
    fn the_kernel_names_what_is_on_its_stacks_and_nothing_else() {
        let mut walk = Walk::open(false).expect("eBPF needs root");
        walk.watch(&[std::process::id()]).unwrap();
        // The test's main thread waits for this one.
        let views = inspector_ebpf::decode(walk.read().unwrap()).flatten();
        let frames: Vec<u64> = views.flat_map(|view| view.kernel().collect::<Vec<_>>()).collect();
        let many: Vec<u64> = frames.iter().copied().cycle().take(600).chain([1, u64::MAX]).collect();
        let names = walk.kernel_names(&many).unwrap();
        assert!(frames.iter().all(|frame| names.contains_key(frame)), "{frames:x?} {names:?}");
        assert!(names.values().any(|name| name.contains("schedule") || name.contains("wait")), "{names:?}");
        assert!(!names.contains_key(&1) && !names.contains_key(&u64::MAX), "{names:?}");
    }
}
