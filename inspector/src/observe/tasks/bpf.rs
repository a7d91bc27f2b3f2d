//! The two `bpf(2)` commands that aya does not offer in the form needed here: a link that
//! is iterated many times (aya's is used up by its first iterator), and one that walks a single process.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

// `enum bpf_cmd` and `enum bpf_attach_type`, include/uapi/linux/bpf.h.
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_ITER_CREATE: libc::c_int = 33;
const BPF_TRACE_ITER: u32 = 28;

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
    bpf(BPF_ITER_CREATE, &attributes)
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
        attributes.info = (&raw const task).addr() as u64;
        attributes.info_length = size_of::<Task>() as u32;
    }
    bpf(BPF_LINK_CREATE, &attributes)
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of attributes, and what they point to outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands return a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
