//! The kernel-only walk: every thread of the wanted processes, without touching user memory.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, seq_file},
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_task_stack, bpf_ktime_get_ns, bpf_probe_read_kernel,
        bpf_probe_read_kernel_buf, bpf_seq_write, bpf_task_pt_regs,
    },
    macros::map,
    maps::{Array, HashMap, PerCpuArray},
};
use aya_log_ebpf::warn;
use bytemuck::Zeroable;
use inspector_ebpf::{
    FRAMES, HAS_KERNEL_STACK, HAS_MM, HAS_NS_PID, HAS_REGISTERS, IS_COMPAT, RECORD_VERSION, TaskHead,
    TaskRecord, Told, UNCHANGED, WANT_READER,
};

use super::kernel::{IteratorContext, member, offset};

/// `PF_KTHREAD` (`include/linux/sched.h`): no user registers.
const PF_KTHREAD: u32 = 0x0020_0000;

/// Wanted processes, by tgid; the value is `WANT_ALL` or `WANT_READER`.
#[map]
static WANTED: HashMap<u32, u32> = HashMap::with_max_entries(1 << 16, BPF_F_NO_PREALLOC);

/// What was told of each thread last, so that one that has not run since is told in few words. A thread that finds no room
/// is told in full each time.
#[map]
static TOLD: HashMap<u32, Told> = HashMap::with_max_entries(1 << 16, BPF_F_NO_PREALLOC);

/// The reader's epoch.
#[map]
static EPOCH: Array<u64> = Array::with_max_entries(1, 0);

/// A record is larger than the 512 bytes of stack. Only one thread reads this iterator, so nothing else writes here
/// while the program runs.
#[map]
static RECORD: PerCpuArray<TaskRecord> = PerCpuArray::with_max_entries(1, 0);

/// Minimum kernel: 5.15 (`bpf_task_pt_regs`).
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
extern "C" fn tasks(context: *const IteratorContext) -> i32 {
    // SAFETY: the kernel passes a context of this layout, and the verifier checks every access through it.
    unsafe {
        let task = (*context).task;
        let seq = (*(*context).meta).seq;
        // The walk ends with one call without a task.
        if !task.is_null() {
            let _ = record(context, seq, task);
        }
    }
    // Anything else would end the walk.
    0
}

#[inline(always)]
unsafe fn record(context: *const IteratorContext, seq: *mut seq_file, task: *const c_void) -> Option<()> {
    // SAFETY: `task` is the iterator's task, and the record is this CPU's own.
    unsafe {
        let tgid: u32 = member(task, offset!(tgid)?);
        let wanted = *WANTED.get(&tgid)?;
        let pid: u32 = member(task, offset!(pid)?);
        if wanted == WANT_READER && pid != bpf_get_current_pid_tgid() as u32 {
            return None;
        }
        let record = RECORD.get_ptr_mut(0)?;
        let head = &mut (*record).head;
        *head = TaskHead::zeroed();
        head.version = RECORD_VERSION;
        head.tgid = tgid;
        head.pid = pid;
        head.at_ns = bpf_ktime_get_ns();
        scheduling(head, task);
        let told = Told {
            pcount: head.pcount,
            last_arrival: head.last_arrival,
            sum_exec: head.sum_exec,
            epoch: EPOCH.get(0).copied().unwrap_or(0),
        };
        let resting = head.on_cpu == 0 && head.exit_state == 0 && head.last_arrival != 0;
        if resting && TOLD.get(&pid).is_some_and(|last| *last == told) {
            address_space(head, task);
            head.present |= UNCHANGED;
            head.length = size_of::<TaskHead>() as u32;
            let _ = bpf_seq_write(seq, record.cast_const().cast(), head.length);
            return Some(());
        }
        identity(head, task);
        address_space(head, task);
        if head.exit_state == 0 {
            registers(head, task);
        }
        let mut length = size_of::<TaskHead>();
        if head.exit_state == 0 {
            let bytes = bpf_get_task_stack(
                task.cast_mut().cast(),
                (&raw mut (*record).kernel).cast(),
                (FRAMES * 8) as u32,
                0,
            );
            if (0..=(FRAMES * 8) as i64).contains(&bytes) {
                head.present |= HAS_KERNEL_STACK;
                length += bytes as usize;
            } else {
                warn!(context, "no kernel stack of thread {}: error {}", pid, bytes);
            }
        }
        head.length = length as u32;
        // On overflow the kernel grows its buffer and calls the program again for this task.
        let written = bpf_seq_write(seq, record.cast_const().cast(), length as u32);
        if resting && written == 0 {
            let _ = TOLD.insert(&pid, &told, 0);
        }
        Some(())
    }
}

/// What the scheduler knows.
///
/// # Safety
/// `task` is the iterator's task.
#[inline(always)]
unsafe fn scheduling(head: &mut TaskHead, task: *const c_void) {
    // SAFETY: the caller's.
    unsafe {
        if let Some(at) = offset!(state) {
            head.state = member(task, at);
        }
        if let Some(at) = offset!(exit_state) {
            head.exit_state = member(task, at);
        }
        if let Some(at) = offset!(flags) {
            head.flags = member(task, at);
        }
        if let Some(at) = offset!(on_cpu) {
            head.on_cpu = member(task, at);
        }
        if let Some(at) = offset!(policy) {
            head.policy = member(task, at);
        }
        if let Some(at) = offset!(jobctl) {
            head.jobctl = member(task, at);
        }
        if let Some(at) = offset!(pcount) {
            head.pcount = member(task, at);
        }
        if let Some(at) = offset!(last_arrival) {
            head.last_arrival = member(task, at);
        }
        if let Some(at) = offset!(sum_exec) {
            head.sum_exec = member(task, at);
        }
        if let Some(at) = offset!(prev_sum_exec) {
            head.prev_sum_exec = member(task, at);
        }
        if let Some(at) = offset!(nvcsw) {
            head.nvcsw = member(task, at);
        }
        if let Some(at) = offset!(nivcsw) {
            head.nivcsw = member(task, at);
        }
        if let Some(at) = offset!(restart_fn) {
            head.restart_fn = member(task, at);
        }
    }
}

/// Names.
///
/// # Safety
/// `task` is the iterator's task.
#[inline(always)]
unsafe fn identity(head: &mut TaskHead, task: *const c_void) {
    // SAFETY: the caller's; what is not of a type that the verifier knows is read by helper, which checks it.
    unsafe {
        if let Some(at) = offset!(comm) {
            let _ = bpf_probe_read_kernel_buf(task.byte_add(at as usize).cast(), &mut head.comm);
        }
        if let (Some(thread_pid), Some(level), Some(numbers), Some(size)) =
            (offset!(thread_pid), offset!(pid_level), offset!(pid_numbers), offset!(upid_size))
        {
            // Null once the thread is being reaped.
            let pid: *const c_void = member(task, thread_pid);
            if !pid.is_null() {
                let level: u32 = member(pid, level);
                if level == 0 {
                    head.ns_pid = head.pid;
                    head.present |= HAS_NS_PID;
                } else {
                    // The index is not a constant: no checked load, and on 6.1 not even arithmetic on a pointer
                    // whose type the verifier knows. Read by helper, the pointer is a mere number to it.
                    let pid = bpf_probe_read_kernel(task.byte_add(thread_pid as usize).cast::<u64>());
                    let number = pid.and_then(|pid| {
                        let at = pid + u64::from(numbers) + u64::from(level & 63) * u64::from(size);
                        bpf_probe_read_kernel(at as *const u32)
                    });
                    if let Ok(number) = number {
                        head.ns_pid = number;
                        head.present |= HAS_NS_PID;
                    }
                }
            }
        }
    }
}

/// The lock of its address space, which others take too.
///
/// # Safety
/// `task` is the iterator's task.
#[inline(always)]
unsafe fn address_space(head: &mut TaskHead, task: *const c_void) {
    // SAFETY: the caller's.
    unsafe {
        if let (Some(mm), Some(count)) = (offset!(mm), offset!(mmap_lock_count)) {
            // Null in kernel threads and in what has exited.
            let mm: *const c_void = member(task, mm);
            if !mm.is_null() {
                head.mmap_lock_count = member(mm, count);
                head.present |= HAS_MM;
            }
        }
    }
}

/// User registers and the system call in them.
///
/// # Safety
/// `task` is the iterator's task, and has not exited: its kernel stack holds the registers.
#[inline(always)]
unsafe fn registers(head: &mut TaskHead, task: *const c_void) {
    if head.flags & PF_KTHREAD != 0 {
        return;
    }
    let (Some(syscall), Some(pc), Some(sp), Some(fp)) =
        (offset!(regs_syscall), offset!(regs_pc), offset!(regs_sp), offset!(regs_fp))
    else {
        return;
    };
    // SAFETY: the caller's; the verifier knows the type of what the helper returns.
    unsafe {
        let regs = bpf_task_pt_regs(task.cast_mut().cast()) as *const c_void;
        if regs.is_null() {
            return;
        }
        head.syscall = member(regs, syscall);
        head.pc = member(regs, pc);
        head.sp = member(regs, sp);
        head.fp = member(regs, fp);
        if let Some(at) = offset!(regs_lr) {
            head.lr = member(regs, at);
        }
        macro_rules! argument {
            ($index:literal) => {
                if let Some(at) = offset!(regs_arguments[$index]) {
                    head.arguments[$index] = member(regs, at);
                }
            };
        }
        argument!(0);
        argument!(1);
        argument!(2);
        argument!(3);
        argument!(4);
        argument!(5);
        head.present |= HAS_REGISTERS;
        if let Some(at) = offset!(thread_pointer) {
            head.thread_pointer = member(task, at);
        }
        if let (Some(at), Some(mask)) = (offset!(compat_word), offset!(compat_mask)) {
            let word: u32 = member(task, at);
            if word & mask != 0 {
                head.present |= IS_COMPAT;
            }
        }
    }
}
