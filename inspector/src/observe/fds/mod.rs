//! Open descriptors from `/proc/PID/fd` and `fdinfo`, and who else holds the same objects.
//!
//! None of these reads takes `mmap_lock`. One can still block: an epoll set's `fdinfo` takes `ep->mtx`
//! (`fs/eventpoll.c`, `ep_show_fdinfo`), which a thread of the target holds while it copies events to user memory, that
//! is, for as long as a page fault of its lasts. So call this where the caller can be abandoned.
//! No file is opened, and none is looked up unless it lies on a local file system: a network file system that hangs
//! costs nothing here.

mod fdinfo;
mod holders;
mod link;
mod locks;
mod mounts;
mod ring;

use std::{
    fs, io,
    os::unix::fs::FileTypeExt,
    path::Path,
    time::{Duration, Instant},
};

use self::{fdinfo::FdInfo, mounts::LocalMounts};
pub use self::{
    holders::{Shared, children, holders},
    locks::lock_waits,
};
use crate::model::{Fd, FdDetails, FdKind, Gap};

/// Most descriptors read of one process.
const MAX_FDS: usize = 65536;
/// Most bytes read of one `fdinfo` file: some 600 epoll targets.
const MAX_FDINFO: u64 = 64 * 1024;
/// Longest time for one process: less than the helper's stage may take, so that what was read is not lost.
const BUDGET: Duration = Duration::from_millis(700);
/// Longest path or link text kept, bytes.
const MAX_TEXT: usize = 4096;

/// Which descriptors to read.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// Every one (65536 at most).
    All,
    /// These.
    Only(&'a [i32]),
}

/// Reads descriptors of the process `pid` (the host's id), ascending. One that closes meanwhile is left out.
pub fn read(pid: u32, wanted: Wanted<'_>) -> (Vec<Fd>, Vec<Gap>) {
    let mut gaps = Vec::new();
    let root = format!("/proc/{pid}");
    let mut numbers = match wanted {
        Wanted::Only(numbers) => numbers.to_vec(),
        Wanted::All => match list(Path::new(&format!("{root}/fd"))) {
            Ok(numbers) => numbers,
            Err(error) => {
                gaps.push(Gap::process(
                    "fds",
                    pid,
                    format!("cannot list {root}/fd: {error}; sockets and pipes of its waits stay unnamed (needs root, or CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)"),
                ));
                return (Vec::new(), gaps);
            }
        },
    };
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.len() > MAX_FDS {
        gaps.push(Gap::process(
            "fds",
            pid,
            format!("it has {} descriptors; the first {MAX_FDS} were read", numbers.len()),
        ));
        numbers.truncate(MAX_FDS);
    }
    let mut mounts = LocalMounts::of(pid);
    let mut fds = Vec::with_capacity(numbers.len());
    let mut denied = 0_usize;
    let ended = Instant::now() + BUDGET;
    let count = numbers.len();
    for (index, fd) in numbers.into_iter().enumerate() {
        if Instant::now() > ended {
            gaps.push(Gap::process(
                "fds",
                pid,
                format!("it has {count} descriptors; the first {index} were read in the time that there is"),
            ));
            break;
        }
        match one(&root, fd, &mut mounts) {
            Ok(open) => fds.push(open),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied += 1,
            // Closed since it was listed.
            Err(_) => {}
        }
    }
    if denied > 0 {
        gaps.push(Gap::process(
            "fds",
            pid,
            format!("{denied} descriptors may not be read: permission denied (needs root or CAP_SYS_PTRACE)"),
        ));
    }
    (fds, gaps)
}

fn one(root: &str, fd: i32, mounts: &mut LocalMounts) -> io::Result<Fd> {
    let path = format!("{root}/fd/{fd}");
    let link = fs::read_link(&path)?;
    let mut text = link.to_string_lossy().into_owned();
    truncate(&mut text);
    let shown = read_bounded(&format!("{root}/fdinfo/{fd}"), MAX_FDINFO).unwrap_or_default();
    let info = FdInfo::parse(&shown);
    let mut kind = link::parse(&text, &info);
    if let FdKind::File { path: name } = &kind {
        // A FIFO looks like any file by its link. Its inode says what it is, but asking a network file system for one
        // can block: only local mounts are asked.
        if mounts.contains(info.mount)
            && fs::metadata(&path).is_ok_and(|metadata| metadata.file_type().is_fifo())
        {
            kind = FdKind::Pipe { inode: info.inode, path: Some(name.clone()) };
        }
    }
    let details = FdDetails {
        ring: matches!(kind, FdKind::IoUring).then(|| ring::parse(&shown)),
        protocol: kind.is_socket().then(|| protocol(&path)).flatten(),
        ..details(&kind, &info)
    };
    let details = (details != FdDetails::default()).then(|| Box::new(details));
    Ok(Fd { fd, flags: info.flags, kind, details })
}

/// What `fdinfo` adds to the kind.
fn details(kind: &FdKind, info: &FdInfo) -> FdDetails {
    let is_file = matches!(kind, FdKind::File { .. } | FdKind::Pipe { path: Some(_), .. }) && info.inode != 0;
    FdDetails {
        file: info.mount.filter(|_| is_file).map(|mount| (mount, info.inode)),
        signals: info.signals,
        watches: info.watches,
        locks: info.locks.clone(),
        ..FdDetails::default()
    }
}

/// The protocol of a socket, where it is none of those that `sock_diag` is asked about (`net/socket.c`,
/// `sockfs_xattr_get`: the kernel's own name, no file system is asked).
fn protocol(path: &str) -> Option<String> {
    let mut name = [0; 32];
    let length = rustix::fs::getxattr(path, "system.sockprotoname", &mut name[..]).ok()?;
    let name = name.get(..length)?.split(|&byte| byte == 0).next()?;
    let name = std::str::from_utf8(name).ok()?;
    let asked = ["TCP", "TCPv6", "UDP", "UDPv6", "UNIX", "UNIX-STREAM"];
    (!name.is_empty() && !asked.contains(&name)).then(|| name.to_owned())
}

/// The numeric names in a `/proc` folder, one more than [`MAX_FDS`] at most so that the caller can tell.
fn list(folder: &Path) -> io::Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let Ok(entry) = entry else { break };
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            numbers.push(number);
        }
        if numbers.len() > MAX_FDS {
            break;
        }
    }
    Ok(numbers)
}

/// Reads a file of `/proc`, at most `limit` bytes.
pub(super) fn read_bounded(path: &str, limit: u64) -> io::Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn truncate(text: &mut String) {
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::pipe,
        os::{
            fd::{AsRawFd, FromRawFd, OwnedFd},
            unix::net::UnixStream,
        },
    };

    use super::*;

    fn owned(fd: i32) -> OwnedFd {
        assert!(fd >= 0);
        // SAFETY: the caller passes a descriptor that a system call has just returned and nobody else owns.
        unsafe { OwnedFd::from_raw_fd(fd) }
    }

    #[test]
    fn own_descriptors_are_told_apart() {
        let (reader, writer) = pipe().unwrap();
        let (left, _right) = UnixStream::pair().unwrap();
        // SAFETY: plain system calls without pointers.
        let (eventfd, epoll) = unsafe { (owned(libc::eventfd(7, 0)), owned(libc::epoll_create1(0))) };
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: `event` lives through the call.
        let added = unsafe {
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, reader.as_raw_fd(), &raw mut event)
        };
        assert_eq!(added, 0);
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: `name` is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let fifo_fd = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();

        let (fds, gaps) = read(std::process::id(), Wanted::All);
        assert_eq!(gaps, []);
        let kind = |fd: i32| fds.iter().find(|open| open.fd == fd).map(|open| open.kind.clone());
        assert!(matches!(kind(reader.as_raw_fd()), Some(FdKind::Pipe { path: None, inode }) if inode > 0));
        assert!(matches!(kind(left.as_raw_fd()), Some(FdKind::Socket { inode }) if inode > 0));
        assert!(matches!(kind(eventfd.as_raw_fd()), Some(FdKind::EventFd { id: Some(_), count: 7 })));
        assert!(
            matches!(kind(fifo_fd.as_raw_fd()), Some(FdKind::Pipe { path: Some(_), inode }) if inode > 0)
        );
        let Some(FdKind::Epoll { targets }) = kind(epoll.as_raw_fd()) else { panic!("not an epoll set") };
        assert_eq!(targets.len(), 1);
        assert_eq!(targets[0].fd, reader.as_raw_fd());
        assert_ne!(targets[0].events & libc::EPOLLIN as u32, 0);
        let access = |fd: i32| fds.iter().find(|open| open.fd == fd).unwrap().flags & libc::O_ACCMODE as u32;
        assert_eq!(access(writer.as_raw_fd()), libc::O_WRONLY as u32);

        let (some, _) = read(std::process::id(), Wanted::Only(&[reader.as_raw_fd(), 1 << 20]));
        assert_eq!(some.len(), 1);
    }

    #[test]
    fn a_process_that_is_not_there_gives_one_sentence() {
        let (fds, gaps) = read(u32::MAX, Wanted::All);
        assert!(fds.is_empty());
        assert_eq!(gaps.len(), 1);
        assert!(gaps[0].reason.contains("cannot list"));
    }
}
