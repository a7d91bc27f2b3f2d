//! The programs and what they share.

mod kernel;
mod memory;
mod tasks;
