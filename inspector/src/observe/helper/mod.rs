//! The helper process: the only place where a target's memory is read and its files are opened.
//!
//! Such a read can block for ever (`process_vm_readv` takes `mmap_lock` unkillably, a page may never come, a file
//! system may hang), and a target that crashes a parser must not take inspector down. So each read happens in a child
//! of ours that is asked for one stage after the other under a deadline, and that is killed or, where the kernel does
//! not let it go, abandoned.

mod client;
mod pointed;
pub mod protocol;
pub mod serve;

pub use client::{Helper, HelperError};
