//! What the threads of the watched processes wait for in system calls and for how long, who wakes whom, which bytes go
//! where, which threads end. Everything is added up in maps; nothing is sent.
//!
//! There are two ways to see it:
//!
//! * by the tracepoints of the scheduler ([`scheduler`]) and of sockets ([`sockets`]): a call that does not sleep costs
//!   nothing, whoever makes it. The tracepoints of system calls are no alternative: empty programs on `sys_enter` and
//!   `sys_exit` make every short call of every thread on the host a third slower;
//! * by `fentry` and `fexit` on the system calls' own functions ([`functions`]): they see bytes through pipes and eventfds
//!   too.
//!
//! Threads of other processes are told by one look into a table.

mod call;
mod ends;
mod files;
mod flight;
mod functions;
mod scheduler;
mod sockets;
mod transfer;
mod update;
mod waker;
mod watched;
