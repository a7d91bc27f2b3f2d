//! From a raw wait (system call, arguments, saved memory, descriptors, frames) to what the thread waits on. Pure.

pub mod stacks;

use crate::model::{Capture, Frame, StackEnd, Wait};

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
    pub frames: Vec<Frame>,
    /// Why the native part ends where it ends.
    pub stack_end: StackEnd,
}

/// Resolves every thread of a capture, in the capture's order.
pub fn resolve(_capture: &Capture) -> Vec<ResolvedThread> {
    Vec::new()
}
