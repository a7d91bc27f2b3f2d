//! Facts about running processes: one collector a file, each under a deadline, each returning what it saw and what it
//! could not see and why. Nothing here stops, signals or writes to a target.
//!
//! The kernel-only sweep ([`tasks`]) touches no user memory and runs in inspector itself. Everything that can block on
//! a target (its memory, its files) happens in a [`helper`] process that can be abandoned.

pub mod arguments;
pub mod fds;
pub mod frames;
pub mod helper;
pub mod memory;
pub mod native;
pub mod python;
pub mod sockets;
pub mod tasks;
