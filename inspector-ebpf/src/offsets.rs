//! Where the programs find the kernel's members.

use bytemuck::{Pod, Zeroable};

/// Offset of a member that this kernel does not have: the program leaves out what needs it.
pub const MISSING: u32 = u32::MAX;

/// Byte offsets of the kernel members that the programs read, resolved by userspace from the running kernel's BTF and
/// given to the programs as one global. A nested path (`sched_info.pcount`) is one offset; a pointer to follow is two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Offsets {
    /// `task_struct.pid`.
    pub pid: u32,
    /// `task_struct.tgid`.
    pub tgid: u32,
    /// `task_struct.comm`.
    pub comm: u32,
    /// `task_struct.__state`, `state` before 5.14.
    pub state: u32,
    /// `task_struct.exit_state`.
    pub exit_state: u32,
    /// `task_struct.flags`.
    pub flags: u32,
    /// `task_struct.on_cpu`.
    pub on_cpu: u32,
    /// `task_struct.jobctl`.
    pub jobctl: u32,
    /// `task_struct.policy`.
    pub policy: u32,
    /// `task_struct.nvcsw`.
    pub nvcsw: u32,
    /// `task_struct.nivcsw`.
    pub nivcsw: u32,
    /// `task_struct.sched_info.pcount`.
    pub pcount: u32,
    /// `task_struct.sched_info.last_arrival`.
    pub last_arrival: u32,
    /// `task_struct.se.sum_exec_runtime`.
    pub sum_exec: u32,
    /// `task_struct.se.prev_sum_exec_runtime`.
    pub prev_sum_exec: u32,
    /// `task_struct.thread.fsbase`, on arm64 `thread.uw.tp_value`.
    pub thread_pointer: u32,
    /// `task_struct.restart_block.fn`.
    pub restart_fn: u32,
    /// The word that tells a 32-bit system call: `task_struct.thread_info.status` on x86-64, `thread_info.flags` on
    /// arm64.
    pub compat_word: u32,
    /// The bit in it: `TS_COMPAT`, `TIF_32BIT`.
    pub compat_mask: u32,
    /// `task_struct.thread_pid`.
    pub thread_pid: u32,
    /// `pid.level`.
    pub pid_level: u32,
    /// `pid.numbers`, plus `upid.nr`.
    pub pid_numbers: u32,
    /// Size of `upid`.
    pub upid_size: u32,
    /// `task_struct.mm`.
    pub mm: u32,
    /// `mm_struct.mmap_lock.count`.
    pub mmap_lock_count: u32,
    /// The syscall number in `pt_regs`: `orig_ax`, `syscallno`.
    pub regs_syscall: u32,
    /// The six arguments in `pt_regs`.
    pub regs_arguments: [u32; 6],
    /// Instruction pointer in `pt_regs`.
    pub regs_pc: u32,
    /// Stack pointer in `pt_regs`.
    pub regs_sp: u32,
    /// Frame pointer in `pt_regs`.
    pub regs_fp: u32,
    /// Link register in `pt_regs`; [`MISSING`] on x86-64.
    pub regs_lr: u32,
    /// `task_struct.exit_code`.
    pub exit_code: u32,
    /// `task_struct.files`.
    pub files: u32,
    /// `files_struct.fdt`.
    pub files_table: u32,
    /// `fdtable.max_fds`.
    pub table_size: u32,
    /// `fdtable.fd`.
    pub table_files: u32,
    /// `file.f_inode`.
    pub file_inode: u32,
    /// `inode.i_ino`.
    pub inode_number: u32,
    /// `file.private_data`.
    pub file_private: u32,
    /// `sock.sk_socket`.
    pub sock_socket: u32,
    /// `socket.file`.
    pub socket_file: u32,
    /// Number of the system call `futex` (not an offset).
    pub futex_syscall: u32,
    /// Number of the system call `restart_syscall` (not an offset).
    pub restart_syscall: u32,
}

impl Offsets {
    /// No member found.
    pub const NONE: Self = bytemuck::must_cast([MISSING; size_of::<Self>() / 4]);

    /// As the words that are given to the programs.
    pub fn words(&self) -> &[u32] {
        bytemuck::must_cast_slice(core::slice::from_ref(self))
    }
}
