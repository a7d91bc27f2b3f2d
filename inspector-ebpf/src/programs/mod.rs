//! The programs and what they share.

mod kernel;
mod memory;
mod names;
mod syscalls;
mod tasks;
