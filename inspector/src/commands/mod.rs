//! Thin commands over the rooms.

use std::process::ExitCode;

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
