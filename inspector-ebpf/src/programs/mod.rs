//! The programs and what they share.

mod kernel;
mod tasks;
