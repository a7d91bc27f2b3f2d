//! Puts a process together: what the kernel said, what the helpers read, what the sweeps saw.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    frames::FrameTable,
    readings::{Reading, ThreadReading},
    tasks::Task,
    watch::{Key, Watch, Watched},
};
use crate::model::{Frame, FrameKind, Gap, Process, Stability, Thread, Tier};

/// The sight of a thread that its stack belongs to, and how far the stack can be trusted.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    /// As the sweep before the read saw it.
    pub(super) task: Task,
    /// Whether the sweep after the read saw the same.
    pub(super) stability: Stability,
}

/// Fills `process` with its threads.
pub(super) fn fill(
    process: &mut Process,
    mut reading: Reading,
    watch: &Watch,
    sights: &BTreeMap<Key, Sight>,
    kernel_names: &HashMap<u64, String>,
    tier: Tier,
) -> Vec<Gap> {
    let watched = watch.threads_of(process.pid);
    process.mmap_lock = watch.mmap_lock(process.pid);
    process.frozen = watched.first().and_then(|watched| watched.last.frozen).or(process.frozen);
    process.threads = watched
        .iter()
        .map(|watched| {
            let read = reading.threads.remove(&watched.last.tid).unwrap_or_default();
            let sight = sights.get(&(process.pid, watched.last.tid));
            thread(watched, sight, read, tier, kernel_names, &mut reading.frames)
        })
        .collect();
    if let Some(leader) = process.threads.iter().find(|thread| thread.tid == process.pid) {
        process.state = leader.state;
    }
    process.fds = reading.fds;
    process.python = reading.runtime;
    process.shared_memory = reading.shared_memory;
    process.named_tids = reading.named_tids;
    process.frames = reading.frames.into_frames().into_iter().map(Arc::new).collect();
    reading.gaps
}

fn thread(
    watched: &Watched,
    sight: Option<&Sight>,
    read: ThreadReading,
    tier: Tier,
    kernel_names: &HashMap<u64, String>,
    frames: &mut FrameTable,
) -> Thread {
    // A thread that no read was made of (it is new) is shown as it was last seen.
    let task = sight.map_or(&watched.last, |sight| &sight.task);
    let stability = match sight {
        _ if tier == Tier::Proc => Stability::Unchecked,
        Some(sight) => sight.stability,
        None => Stability::Unchecked,
    };
    // It has not run since its stack was read: the end of the window counts for its age.
    let still = task.fingerprint == watched.last.fingerprint;
    let on_cpu = task.on_cpu || stability == Stability::Running;
    Thread {
        tid: task.tid,
        ns_tid: task.ns_tid.unwrap_or(0),
        in_own_cgroup: false,
        comm: task.comm.as_ref().to_owned(),
        state: task.state,
        on_cpu,
        syscall: task.syscall,
        registers: task.registers.filter(|_| !on_cpu),
        thread_pointer: task.thread_pointer,
        off_cpu_ns: if still { watched.last.off_cpu_ns } else { task.off_cpu_ns },
        stability,
        activity: watched.activity(),
        kernel: kernel_frames(task, kernel_names, frames),
        native: read.native,
        python: read.python,
        memory: read.memory,
    }
}

/// A thread's kernel stack: `0x…` where no name is known.
fn kernel_frames(task: &Task, names: &HashMap<u64, String>, frames: &mut FrameTable) -> Vec<u32> {
    let frame = |function: String, address: Option<u64>| Frame {
        kind: FrameKind::Kernel,
        function,
        file: None,
        line: None,
        module: None,
        address,
    };
    let by_address = task.kernel_stack.iter().map(|&address| {
        let name = names.get(&address).cloned().unwrap_or_else(|| format!("{address:#x}"));
        frame(name, Some(address))
    });
    let named = task.kernel_names.iter().map(|name| frame(name.clone(), None));
    by_address.chain(named).filter_map(|frame| frames.intern(frame)).collect()
}
