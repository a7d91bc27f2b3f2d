//! The `bpf(2)` commands that aya does not offer in the form needed here: a link that is iterated many times (aya's is
//! used up by its first iterator), one that walks a single process, a program that is run without its tracepoint, and an
//! empty program to try `fentry` with.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::btf::TypeId;

// `enum bpf_cmd` and `enum bpf_attach_type`, include/uapi/linux/bpf.h.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_ITER_CREATE: libc::c_int = 33;
const BPF_TRACE_FENTRY: u32 = 24;
const BPF_TRACE_ITER: u32 = 28;
const BPF_PROG_TYPE_TRACING: u32 = 26;

/// A new iterator of a link: the next read starts a new walk.
///
/// # Minimum kernel version
/// 5.8.
pub(super) fn iterator(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// The `iter_create` member of `union bpf_attr`.
    #[repr(C)]
    struct Attributes {
        link: u32,
        flags: u32,
    }
    let attributes = Attributes { link: link.as_raw_fd().cast_unsigned(), flags: 0 };
    create(BPF_ITER_CREATE, attributes)
}

/// A link of a task iterator, over all threads or over those of one process (in the caller's PID namespace).
///
/// # Minimum kernel version
/// 5.8; of one process: 6.1.
pub(super) fn link(program: BorrowedFd<'_>, tgid: Option<u32>) -> io::Result<OwnedFd> {
    /// The `task` member of `union bpf_iter_link_info`.
    #[repr(C)]
    struct Task {
        tid: u32,
        pid: u32,
        pid_fd: u32,
    }
    /// The `link_create` member of `union bpf_attr`.
    #[repr(C)]
    struct Attributes {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
        info: u64,
        info_length: u32,
        padding: u32,
    }
    let task = Task { tid: 0, pid: tgid.unwrap_or(0), pid_fd: 0 };
    let mut attributes = Attributes {
        program: program.as_raw_fd().cast_unsigned(),
        target: 0,
        attach_type: BPF_TRACE_ITER,
        flags: 0,
        info: 0,
        info_length: 0,
        padding: 0,
    };
    if tgid.is_some() {
        attributes.info = (&raw const task).expose_provenance() as u64;
        attributes.info_length = size_of::<Task>() as u32;
    }
    create(BPF_LINK_CREATE, attributes)
}

/// An empty tracing program: it shows what the kernel allows, and does nothing.
#[derive(Debug)]
pub(super) struct TracingProgram(OwnedFd);

impl TracingProgram {
    /// Loads one for the entry of a kernel function.
    ///
    /// # Minimum kernel version
    /// 5.5.
    pub(super) fn fentry(function: TypeId) -> io::Result<Self> {
        /// The `prog_load` members of `union bpf_attr`, up to the last one that is used.
        #[repr(C)]
        struct Attributes {
            program_type: u32,
            instruction_count: u32,
            instructions: u64,
            license: u64,
            log_level: u32,
            log_size: u32,
            log: u64,
            kernel_version: u32,
            flags: u32,
            name: [u8; 16],
            interface: u32,
            attach_type: u32,
            btf: u32,
            func_info_size: u32,
            func_info: u64,
            func_info_count: u32,
            line_info_size: u32,
            line_info: u64,
            line_info_count: u32,
            attach_to: u32,
        }
        // r0 = 0; exit.
        let instructions: [u64; 2] = [0xb7, 0x95];
        let attributes = Attributes {
            program_type: BPF_PROG_TYPE_TRACING,
            instruction_count: instructions.len() as u32,
            instructions: instructions.as_ptr().expose_provenance() as u64,
            license: c"Dual MIT/GPL".as_ptr().expose_provenance() as u64,
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: *b"inspector_probe\0",
            interface: 0,
            attach_type: BPF_TRACE_FENTRY,
            btf: 0,
            func_info_size: 0,
            func_info: 0,
            func_info_count: 0,
            line_info_size: 0,
            line_info: 0,
            line_info_count: 0,
            attach_to: function.0,
        };
        create(BPF_PROG_LOAD, attributes).map(Self)
    }

    /// Attaches it; dropping the descriptor detaches it again.
    pub(super) fn attach(&self) -> io::Result<OwnedFd> {
        attach(self.0.as_fd())
    }
}

/// Attaches a tracing program to the function or tracepoint that it was loaded for; dropping the descriptor detaches it.
///
/// # Minimum kernel version
/// 5.5.
pub(super) fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// The `raw_tracepoint` member of `union bpf_attr`.
    #[repr(C)]
    struct Attributes {
        name: u64,
        program: u32,
        padding: u32,
    }
    let attributes = Attributes { name: 0, program: program.as_raw_fd().cast_unsigned(), padding: 0 };
    create(BPF_RAW_TRACEPOINT_OPEN, attributes)
}

/// How often a program was not run since it was running already on that CPU.
///
/// # Minimum kernel version
/// 5.12; before, always 0.
pub(super) fn misses(program: BorrowedFd<'_>) -> io::Result<u64> {
    /// Where `recursion_misses` lies in `struct bpf_prog_info`.
    const AT: usize = 208;
    /// The `info` member of `union bpf_attr`.
    #[repr(C)]
    struct Attributes {
        program: u32,
        length: u32,
        info: u64,
    }
    let mut info = [0_u64; AT / 8 + 1];
    let mut attributes = Attributes {
        program: program.as_raw_fd().cast_unsigned(),
        length: size_of_val(&info) as u32,
        info: info.as_mut_ptr().expose_provenance() as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attributes)?;
    // The kernel wrote behind the compiler's back.
    Ok(std::hint::black_box(info).last().copied().unwrap_or_default())
}

/// Runs a raw tracepoint's program once, on this CPU, without the tracepoint.
///
/// # Minimum kernel version
/// 5.10.
pub(super) fn run(program: BorrowedFd<'_>) -> io::Result<()> {
    /// The `test` member of `union bpf_attr`, up to the last member that is used.
    #[repr(C)]
    struct Attributes {
        program: u32,
        result: u32,
    }
    let mut attributes = Attributes { program: program.as_raw_fd().cast_unsigned(), result: 0 };
    bpf(BPF_PROG_TEST_RUN, &mut attributes).map(drop)
}

/// A command that returns a new descriptor.
fn create<T>(command: libc::c_int, mut attributes: T) -> io::Result<OwnedFd> {
    let fd = bpf(command, &mut attributes)?;
    // SAFETY: each of these commands returns a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<i32> {
    let attributes = std::ptr::from_mut(attributes);
    // SAFETY: the kernel reads (and for a run writes) at most `size_of::<T>()` bytes of attributes, and reads what they
    // point to, which outlives the call. The addresses in them were exposed, so the compiler knows that what lies there
    // can be read.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result as i32)
}

/// The kernel's buffer holds 32 KiB (`kernel/bpf/bpf_iter.c`); a larger read gains nothing.
const CHUNK: usize = 32 << 10;

/// Reads until the walk ends, and calls `before` each read. One read returns what fits the kernel's buffer, so a short one
/// means nothing.
pub(super) fn read_all(
    iterator: &OwnedFd,
    buffer: &mut Vec<u8>,
    most: usize,
    before: impl Fn(),
) -> io::Result<()> {
    loop {
        before();
        let filled = buffer.len();
        if filled > most {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("more than {most} bytes of records"),
            ));
        }
        buffer.resize(filled + CHUNK, 0);
        let room = buffer.get_mut(filled..).unwrap_or_default();
        let result = rustix::io::read(iterator, room);
        buffer.truncate(filled + result.unwrap_or(0));
        match result {
            Ok(0) => return Ok(()),
            // After a million threads without a record the kernel pauses the walk.
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
}
