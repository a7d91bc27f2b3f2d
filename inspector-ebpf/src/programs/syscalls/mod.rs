//! The probes on system calls of the watched processes: what they wait for and for how long, who wakes whom, which bytes
//! go where, which threads end. Everything is added up in maps; nothing is sent.
//!
//! There are two ways to attach them, with one body: `fentry`/`fexit` on each system call's own function
//! (`__x64_sys_futex`), and the tracepoints `sys_enter`/`sys_exit`, which every system call of every thread passes. Their
//! contexts begin alike: the user's registers first, and on the way out the result behind them.
//!
//! A thread of another process costs a look into two tables: the call's number, then the process.

mod call;
mod ends;
mod flight;
mod transfer;
mod update;
mod waker;
