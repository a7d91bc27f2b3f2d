//! From a raw wait (system call, arguments, saved memory, descriptors, frames) to what the thread waits on. Pure.
//!
//! One file a family of waits. Each decoder takes a [`scene::Blocked`] and gives a [`Wait`] or declines; what no decoder
//! recognises keeps its system call's name and says that it was not decoded, so nothing is guessed.

mod child;
mod epoll;
mod event;
mod file;
mod futex;
mod inet;
mod ipc;
mod kernel;
mod lock;
mod pipe;
mod poll;
mod ring;
mod scene;
mod socket;
pub mod stacks;
mod state;
mod targets;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod wakers;
mod zmq;

use std::sync::Arc;

use scene::{Blocked, Scene};
use wakers::Wakers;

use crate::model::{Capture, FdKind, Frame, Process, StackEnd, Thread, Wait, WaitKind};

/// Most owners listed of one wait, be there more: an object that hundreds hold names nobody.
pub const MAX_OWNERS: usize = 16;

/// What was made of one thread.
#[derive(Clone, Debug)]
pub struct ResolvedThread {
    /// The host's pid.
    pub pid: u32,
    /// The host's tid.
    pub tid: u32,
    /// What it waits on.
    pub wait: Wait,
    /// Kernel, native and Python frames in one stack, innermost first.
    pub frames: Vec<Arc<Frame>>,
    /// Why the stack ends where it ends.
    pub stack_end: StackEnd,
}

/// Resolves every thread of a capture, in the capture's order.
pub fn resolve(capture: &Capture) -> Vec<ResolvedThread> {
    let scene = Scene::new(capture);
    let wakers = Wakers::of(capture);
    capture
        .processes
        .iter()
        .flat_map(|process| process.threads.iter().map(move |thread| (process, thread)))
        .map(|(process, thread)| {
            let mut wait = wait(&scene, process, thread);
            wakers.note(&scene, process, thread, &mut wait);
            ResolvedThread {
                pid: process.pid,
                tid: thread.tid,
                wait,
                frames: stacks::merge(process, thread),
                stack_end: stack_end(thread),
            }
        })
        .collect()
}

/// How the native walk ended; where nothing is wrong with that, what is wrong with the Python frames: a stack must not
/// look whole when it is not.
fn stack_end(thread: &Thread) -> StackEnd {
    let partial = thread.python.as_ref().and_then(|python| python.partial.as_deref());
    match (&thread.native.end, partial) {
        (StackEnd::Complete | StackEnd::NotWalked, Some(why)) => {
            StackEnd::Stopped(format!("Python frames are missing: {why}"))
        }
        (end, _) => end.clone(),
    }
}

/// What one thread waits on: its scheduler state first (a stopped or running thread waits on nothing else), then the
/// system call.
fn wait(scene: &Scene<'_>, process: &Process, thread: &Thread) -> Wait {
    let called = Blocked::new(scene, process, thread).map(|blocked| (blocked, blocked.name));
    let mut wait = state::resolve(scene, process, thread, call);
    if wait.syscall.is_none() && wait.kind != WaitKind::Zombie {
        wait.syscall = called.map(|(_, name)| name.to_owned());
    }
    wait
}

/// Dispatches on the system call that a sleeping thread is in.
fn call(blocked: &Blocked<'_>) -> Wait {
    let decoded = match blocked.name {
        "futex" | "futex_wait" | "futex_waitv" => futex::resolve(blocked),
        "nanosleep" | "clock_nanosleep" => Some(time::sleep(blocked)),
        "poll" | "ppoll" | "select" | "pselect6" => Some(poll::resolve(blocked)),
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => Some(epoll::resolve(blocked)),
        "read" | "readv" | "pread64" | "preadv" | "preadv2" | "recvfrom" | "recvmsg" | "recvmmsg" => {
            transfer(blocked, Direction::In)
        }
        "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "sendto" | "sendmsg" | "sendmmsg"
        | "sendfile" => transfer(blocked, Direction::Out),
        "splice" | "tee" => transfer(blocked, Direction::In),
        "connect" => Some(inet::connect(blocked)),
        "accept" | "accept4" => Some(socket::accept(blocked)),
        "wait4" | "waitid" => Some(child::wait(blocked)),
        "vfork" | "clone" | "clone3" => Some(child::vfork(blocked)),
        "open" | "openat" | "openat2" => file::open(blocked),
        "flock" | "fcntl" => lock::resolve(blocked),
        "ioctl" => file::ioctl(blocked),
        "pause" | "rt_sigsuspend" | "rt_sigtimedwait" => Some(event::signal(blocked)),
        "semop" | "semtimedop" => Some(ipc::semaphore(blocked)),
        "msgsnd" | "msgrcv" => Some(ipc::queue(blocked)),
        "mq_timedsend" | "mq_timedreceive" => Some(ipc::posix_queue(blocked)),
        "io_uring_enter" => Some(ring::resolve(blocked)),
        _ => None,
    };
    decoded.unwrap_or_else(|| kernel::undecoded(blocked))
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// A blocked read or write, by what its descriptor refers to.
fn transfer(blocked: &Blocked<'_>, direction: Direction) -> Option<Wait> {
    let fd = blocked.fd(0);
    match blocked.open(fd).map(|open| &open.kind) {
        Some(FdKind::Socket { inode }) => Some(socket::transfer(blocked, *inode, direction)),
        Some(FdKind::Pipe { inode, path }) => {
            Some(pipe::resolve(blocked, *inode, path.as_deref(), direction))
        }
        Some(FdKind::EventFd { id, count }) => Some(event::eventfd(blocked, *id, *count)),
        Some(FdKind::TimerFd { remaining_ns }) => Some(time::timerfd(blocked, *remaining_ns)),
        Some(FdKind::SignalFd) => Some(event::signal(blocked)),
        Some(FdKind::Device { path }) => Some(file::device(blocked, path)),
        Some(FdKind::File { path }) => Some(file::transfer(blocked, path)),
        // Descriptors could not be read: the call or the kernel's frames still tell the family.
        None => kernel::transfer(blocked, direction),
        Some(_) => Some(event::other(blocked)),
    }
}
