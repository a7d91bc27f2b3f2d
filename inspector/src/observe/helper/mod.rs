//! The helper process: the only place where a target's memory is read and its files are opened.

pub mod protocol;
