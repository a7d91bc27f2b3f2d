//! The helper process: the only place where a target's memory is read and its files are opened.
//!
//! Such a read can block for ever (`process_vm_readv` takes `mmap_lock` unkillably, a page may never come), so it
//! happens in a child of ours that is given one process to read, a deadline, and can be abandoned.

pub mod protocol;
