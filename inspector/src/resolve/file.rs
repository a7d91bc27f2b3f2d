//! Waits on files, FIFOs being opened and devices.

use super::{Direction, kernel, scene::Blocked};
use crate::model::{FdKind, Wait, WaitKind};

/// A blocked `open`: of a FIFO it waits for the other end, else for the file system.
pub(super) fn open(blocked: &Blocked<'_>) -> Option<Wait> {
    // `fs/pipe.c`: fifo_open waits in wait_for_partner.
    if !blocked.kernel().any(|function| matches!(function, "fifo_open" | "wait_for_partner")) {
        return None;
    }
    let (path_at, flags) = if blocked.name == "open" {
        (blocked.argument(0), blocked.argument(1))
    } else {
        (blocked.argument(1), if blocked.name == "openat" { blocked.argument(2) } else { 0 })
    };
    let path = path(blocked, path_at).unwrap_or_else(|| "a FIFO".to_owned());
    let writes = flags & 3 == libc::O_WRONLY as u64;
    let (kind, other) = if writes { (WaitKind::PipeWrite, "reader") } else { (WaitKind::PipeRead, "writer") };
    Some(Wait { kind, text: format!("open of {path}: no {other} has opened it"), ..Wait::default() })
}

/// The string at `address`, as far as it was saved.
fn path(blocked: &Blocked<'_>, address: u64) -> Option<String> {
    let piece =
        blocked.thread.memory.iter().find(|piece| {
            address.checked_sub(piece.address).is_some_and(|at| at < piece.bytes.len() as u64)
        })?;
    let start = usize::try_from(address - piece.address).ok()?;
    let text = piece.bytes.get(start..)?.split(|&byte| byte == 0).next()?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

/// An `ioctl` that blocks: a driver, where the descriptor is a device.
pub(super) fn ioctl(blocked: &Blocked<'_>) -> Option<Wait> {
    match blocked.open(blocked.fd(0)).map(|open| &open.kind) {
        Some(FdKind::Device { path }) => Some(device(blocked, path)),
        _ => None,
    }
}

/// A wait in a device driver.
pub(super) fn device(blocked: &Blocked<'_>, path: &str) -> Wait {
    Wait {
        kind: WaitKind::Device,
        text: format!("{} of {path}", blocked.name),
        fd: Some(blocked.fd(0)),
        kernel_function: kernel::reason(blocked.kernel()).map(str::to_owned),
        ..Wait::default()
    }
}

/// A blocked read or write of something with a path. It may be a FIFO whose inode could not be looked at.
pub(super) fn transfer(blocked: &Blocked<'_>, path: &str) -> Wait {
    let piped = |direction| {
        let (kind, verb) = match direction {
            Direction::In => (WaitKind::PipeRead, "read from"),
            Direction::Out => (WaitKind::PipeWrite, "write to"),
        };
        Wait { kind, text: format!("{verb} fifo {path}"), fd: Some(blocked.fd(0)), ..Wait::default() }
    };
    match blocked.kernel().find_map(kernel::pipe_function) {
        Some(direction) => piped(direction),
        None => Wait {
            kind: WaitKind::Disk,
            text: format!("{} of {path}", blocked.name),
            fd: Some(blocked.fd(0)),
            kernel_function: kernel::reason(blocked.kernel()).map(str::to_owned),
            ..Wait::default()
        },
    }
}
