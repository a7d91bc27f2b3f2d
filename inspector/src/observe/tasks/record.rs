//! From a record of the kernel-only walk to a [`Task`].

use std::sync::Arc;

use inspector_ebpf::{HAS_KERNEL_STACK, HAS_MM, HAS_NS_PID, HAS_REGISTERS, IS_COMPAT, TaskHead, TaskView};

use super::{Fingerprint, Task, clock::Calibration};
use crate::model::{MmapLock, Registers, Syscall, TaskState};

// Bits of `__state` and `exit_state`, include/linux/sched.h (the same since 4.14).
const TASK_UNINTERRUPTIBLE: u32 = 0x2;
const TASK_REPORT: u32 = 0x7f;
const TASK_NOLOAD: u32 = 0x400;
const TASK_IDLE: u32 = TASK_UNINTERRUPTIBLE | TASK_NOLOAD;
const TASK_RTLOCK_WAIT: u32 = 0x1000;
const TASK_FROZEN: u32 = 0x8000;

/// `JOBCTL_TRAP_FREEZE` (include/linux/sched/jobctl.h, 5.2): set on every thread of a frozen cgroup (v2).
const JOBCTL_TRAP_FREEZE: u64 = 1 << 23;

// Bits of `mmap_lock.count`, kernel/locking/rwsem.c.
const RWSEM_WRITER_LOCKED: u64 = 1;
const RWSEM_FLAG_WAITERS: u64 = 1 << 1;

// Scheduling policies of the fair class, which alone keeps `prev_sum_exec_runtime`.
const SCHED_NORMAL: u32 = 0;
const SCHED_BATCH: u32 = 3;
const SCHED_IDLE: u32 = 5;

/// What a record alone does not tell.
pub(super) struct Context<'a> {
    /// The scheduler's clock; `None` where this kernel lacks a member that the off-CPU time needs.
    pub(super) clock: Option<&'a Calibration>,
    /// `CLOCK_MONOTONIC` at the end of the sweep.
    pub(super) ended_ns: u64,
}

/// The thread that a record describes; `restart_syscall` is not looked behind.
pub(super) fn task(view: &TaskView<'_>, context: &Context<'_>) -> Task {
    let head = &view.head;
    let on_cpu = head.on_cpu != 0;
    // Of a thread on a CPU, what was saved is from its last entry into the kernel: neither its system call nor its
    // kernel stack is known.
    let has_stack = !on_cpu && head.present & HAS_KERNEL_STACK != 0;
    let kernel_stack = if has_stack { view.kernel().collect() } else { Arc::default() };
    // A thread made by the kernel for io_uring or vhost has registers, but never ran in user mode.
    let has_registers = head.present & HAS_REGISTERS != 0 && head.pc != 0;
    let registers = has_registers.then_some(Registers { pc: head.pc, sp: head.sp, fp: head.fp, lr: head.lr });
    let in_syscall = has_registers && !on_cpu && head.syscall >= 0 && head.present & IS_COMPAT == 0;
    let syscall = in_syscall.then(|| Syscall {
        number: head.syscall.cast_unsigned(),
        arguments: head.arguments,
        restarted: false,
    });
    Task {
        pid: head.tgid,
        tid: head.pid,
        ns_tid: (head.present & HAS_NS_PID != 0).then_some(head.ns_pid),
        comm: comm(&head.comm).into(),
        state: state(head.state, head.exit_state),
        on_cpu,
        syscall,
        registers,
        thread_pointer: Some(head.thread_pointer).filter(|&pointer| has_registers && pointer != 0),
        off_cpu_ns: off_cpu(head, context),
        fingerprint: Fingerprint {
            switched_in: head.pcount,
            last_arrival: head.last_arrival,
            cpu_ns: head.sum_exec,
            pc: head.pc,
            sp: head.sp,
        },
        kernel_stack,
        kernel_names: Vec::new(),
        frozen: Some(is_frozen(head)),
        mmap_lock: mmap_lock(head),
    }
}

/// Brings a thread that has not run since it was told of up to date, by a record without the rest.
pub(super) fn rests(task: &mut Task, head: &TaskHead, context: &Context<'_>) {
    task.state = state(head.state, head.exit_state);
    task.off_cpu_ns = off_cpu(head, context);
    task.frozen = Some(is_frozen(head));
    task.mmap_lock = mmap_lock(head);
}

const fn is_frozen(head: &TaskHead) -> bool {
    head.state & TASK_FROZEN != 0 || head.jobctl & JOBCTL_TRAP_FREEZE != 0
}

/// The letter that `/proc/PID/stat` would show (`task_state_index`, include/linux/sched.h).
fn state(state: u32, exit_state: u32) -> TaskState {
    if state & TASK_IDLE == TASK_IDLE {
        return TaskState::Idle;
    }
    // A frozen thread and one that waits for a sleeping spin lock are shown as uninterruptible.
    let shown = if state & (TASK_RTLOCK_WAIT | TASK_FROZEN) != 0 {
        TASK_UNINTERRUPTIBLE
    } else {
        (state | exit_state) & TASK_REPORT
    };
    match u32::BITS - shown.leading_zeros() {
        0 => TaskState::Running,
        1 => TaskState::Sleeping,
        2 => TaskState::Disk,
        3 => TaskState::Stopped,
        4 => TaskState::Traced,
        5 => TaskState::Dead,
        6 => TaskState::Zombie,
        7 => TaskState::Parked,
        _ => TaskState::Unknown,
    }
}

/// `last_arrival` is when the last slice began; what it ran since then, until it left the CPU, is the CPU time spent
/// since that switch-in.
fn off_cpu(head: &TaskHead, context: &Context<'_>) -> Option<u64> {
    let fair = matches!(head.policy, SCHED_NORMAL | SCHED_BATCH | SCHED_IDLE);
    if head.on_cpu != 0 || head.last_arrival == 0 || !fair {
        return None;
    }
    let slice = head.sum_exec.checked_sub(head.prev_sum_exec)?;
    let since = context.clock?.monotonic(head.last_arrival.checked_add(slice)?)?;
    Some(context.ended_ns.saturating_sub(since))
}

fn mmap_lock(head: &TaskHead) -> MmapLock {
    if head.present & HAS_MM == 0 {
        MmapLock::Unknown
    } else if head.mmap_lock_count & (RWSEM_WRITER_LOCKED | RWSEM_FLAG_WAITERS) == 0 {
        MmapLock::Free
    } else {
        MmapLock::Contended
    }
}

fn comm(bytes: &[u8; 16]) -> String {
    let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_proc() {
        for (bits, exit, letter) in [
            (0, 0, 'R'),
            (0x1, 0, 'S'),
            (0x2001, 0, 'S'), // freezable
            (0x2, 0, 'D'),
            (0x102, 0, 'D'),  // killable
            (0x8000, 0, 'D'), // frozen
            (0x4, 0, 'T'),
            (0x104, 0, 'T'),
            (0x8, 0, 't'),
            (0x108, 0, 't'),
            (0x80, 0x20, 'Z'),
            (0x80, 0x10, 'X'),
            (0x402, 0, 'I'),
            (0x40, 0, 'P'),
        ] {
            assert_eq!(state(bits, exit).letter(), letter, "{bits:#x} {exit:#x}");
        }
    }

    #[test]
    fn a_lock_with_readers_only_is_free() {
        let mut head: TaskHead = bytemuck::Zeroable::zeroed();
        assert_eq!(mmap_lock(&head), MmapLock::Unknown);
        head.present = HAS_MM;
        head.mmap_lock_count = 3 << 8;
        assert_eq!(mmap_lock(&head), MmapLock::Free);
        head.mmap_lock_count |= RWSEM_FLAG_WAITERS;
        assert_eq!(mmap_lock(&head), MmapLock::Contended);
    }

    #[test]
    fn a_comm_that_is_not_text_is_kept_readable() {
        assert_eq!(comm(b"python3\0\0\0\0\0\0\0\0\0"), "python3");
        assert_eq!(comm(&[0xff; 16]).chars().count(), 16);
    }
}
