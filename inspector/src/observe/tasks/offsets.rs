//! The kernel members that the programs need, looked up in the kernel's types; the only place that names them.

use inspector_ebpf::{MISSING, Offsets};

use super::btf::{Btf, TypeId};

/// The members' offsets, and one sentence for each feature that this kernel's types switch off.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) offsets: Offsets,
    pub(super) without: Vec<&'static str>,
}

/// Looks every member up. `None`: not even ids, so that there is no walk.
pub(super) fn resolve(btf: &Btf) -> Option<Resolved> {
    let mut found = Offsets::NONE;
    let mut without = Vec::new();
    let task = btf.structure("task_struct")?;
    let in_task = |path: &str| btf.member(task, path).map_or(MISSING, |member| member.offset);
    let either = |new: u32, old: &str| if new == MISSING { in_task(old) } else { new };

    found.pid = in_task("pid");
    found.tgid = in_task("tgid");
    found.comm = in_task("comm");
    if found.pid == MISSING || found.tgid == MISSING {
        return None;
    }
    // `state` until 5.13.
    found.state = either(in_task("__state"), "state");
    found.exit_state = in_task("exit_state");
    if found.state == MISSING || found.exit_state == MISSING {
        without.push("no scheduler states (task_struct has neither __state nor state)");
    }
    found.flags = in_task("flags");
    found.on_cpu = in_task("on_cpu");
    found.jobctl = in_task("jobctl");
    found.policy = in_task("policy");
    found.nvcsw = in_task("nvcsw");
    found.nivcsw = in_task("nivcsw");
    found.pcount = in_task("sched_info.pcount");
    found.last_arrival = in_task("sched_info.last_arrival");
    found.sum_exec = in_task("se.sum_exec_runtime");
    found.prev_sum_exec = in_task("se.prev_sum_exec_runtime");
    if [found.last_arrival, found.sum_exec, found.prev_sum_exec, found.policy].contains(&MISSING) {
        without
            .push("no off-CPU times (task_struct lacks sched_info.last_arrival or se.prev_sum_exec_runtime)");
    }
    found.restart_fn = in_task("restart_block.fn");
    // x86-64; arm64.
    found.thread_pointer = either(in_task("thread.fsbase"), "thread.uw.tp_value");
    if found.thread_pointer == MISSING {
        without.push("no thread pointers (task_struct has neither thread.fsbase nor thread.uw.tp_value)");
    }
    (found.compat_word, found.compat_mask) = compat(in_task);
    resolve_pid(btf, task, &mut found);
    if found.pid_numbers == MISSING {
        without.push("no thread ids of inner PID namespaces (the pid structure was not recognised)");
    }
    if let Some(mm) = btf.member(task, "mm") {
        let count = btf.pointee(mm.of).and_then(|mm| btf.member(mm, "mmap_lock.count"));
        found.mm = mm.offset;
        found.mmap_lock_count = count.map_or(MISSING, |count| count.offset);
    }
    if found.mmap_lock_count == MISSING {
        without.push("no state of mmap_lock (mm_struct has no mmap_lock.count)");
    }
    if resolve_registers(btf, &mut found).is_none() {
        without.push("no registers and system calls (pt_regs was not recognised)");
    }
    found.exit_code = in_task("exit_code");
    if resolve_files(btf, task, &mut found).is_none() {
        without.push(
            "no inodes of the files that the probes see bytes go through (files_struct was not recognised)",
        );
    }
    found.futex_syscall = syscalls::Sysno::futex as u32;
    found.restart_syscall = syscalls::Sysno::restart_syscall as u32;
    Some(Resolved { offsets: found, without })
}

/// Where a 32-bit system call shows: `TS_COMPAT` (`arch/x86/include/asm/thread_info.h`), `TIF_32BIT`
/// (`arch/arm64/include/asm/thread_info.h`).
fn compat(in_task: impl Fn(&str) -> u32) -> (u32, u32) {
    if cfg!(target_arch = "aarch64") {
        (in_task("thread_info.flags"), 1 << 22)
    } else {
        (in_task("thread_info.status"), 2)
    }
}

/// The numbers of a `struct pid`, reached through the task so that no other structure of that name is taken.
fn resolve_pid(btf: &Btf, task: TypeId, found: &mut Offsets) -> Option<()> {
    let thread_pid = btf.member(task, "thread_pid")?;
    let pid = btf.pointee(thread_pid.of)?;
    let level = btf.member(pid, "level")?;
    let numbers = btf.member(pid, "numbers")?;
    let upid = btf.element(numbers.of)?;
    let nr = btf.member(upid, "nr")?;
    found.upid_size = btf.size(upid)?;
    found.thread_pid = thread_pid.offset;
    found.pid_level = level.offset;
    found.pid_numbers = numbers.offset.checked_add(nr.offset)?;
    Some(())
}

/// The way from a task to the inode behind one of its descriptors.
fn resolve_files(btf: &Btf, task: TypeId, found: &mut Offsets) -> Option<()> {
    let files = btf.member(task, "files")?;
    let table = btf.member(btf.pointee(files.of)?, "fdt")?;
    let inside = btf.pointee(table.of)?;
    let (size, array) = (btf.member(inside, "max_fds")?, btf.member(inside, "fd")?);
    let file = btf.pointee(btf.pointee(array.of)?)?;
    let inode = btf.member(file, "f_inode")?;
    let number = btf.member(btf.pointee(inode.of)?, "i_ino")?;
    (found.files, found.files_table) = (files.offset, table.offset);
    (found.table_size, found.table_files) = (size.offset, array.offset);
    (found.file_inode, found.inode_number) = (inode.offset, number.offset);
    found.file_private = btf.member(file, "private_data")?.offset;
    let socket = btf.member(btf.structure("sock")?, "sk_socket")?;
    found.sock_socket = socket.offset;
    found.socket_file = btf.member(btf.pointee(socket.of)?, "file")?.offset;
    Some(())
}

/// The user registers: x86-64's names, then arm64's (`arch/*/include/asm/ptrace.h`).
fn resolve_registers(btf: &Btf, found: &mut Offsets) -> Option<()> {
    let regs = btf.structure("pt_regs")?;
    let at = |name: &str| btf.member(regs, name).map(|member| member.offset);
    if let Some(syscall) = at("orig_ax") {
        // The fourth argument of a system call is in r10, not in rcx.
        found.regs_arguments = [at("di")?, at("si")?, at("dx")?, at("r10")?, at("r8")?, at("r9")?];
        (found.regs_pc, found.regs_sp, found.regs_fp) = (at("ip")?, at("sp")?, at("bp")?);
        found.regs_syscall = syscall;
        return Some(());
    }
    let syscall = at("syscallno")?;
    let registers = at("regs")?;
    let register = |number: u32| registers + 8 * number;
    // x0 is overwritten by the result; the kernel keeps the first argument.
    found.regs_arguments = [at("orig_x0")?, register(1), register(2), register(3), register(4), register(5)];
    (found.regs_pc, found.regs_sp, found.regs_fp) = (at("pc")?, at("sp")?, register(29));
    found.regs_lr = register(30);
    found.regs_syscall = syscall;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_every_member() {
        let resolved = resolve(&Btf::of_running_kernel().unwrap()).unwrap();
        assert_eq!(resolved.without, Vec::<&str>::new());
        let missing = resolved.offsets.words().iter().filter(|&&offset| offset == MISSING).count();
        assert_eq!(missing, usize::from(cfg!(target_arch = "x86_64")), "x86-64 has no link register");
    }
}
