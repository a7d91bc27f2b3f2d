//! The `inspector` binary: reads the command line, runs one command, turns its outcome into an exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    inspector::commands::main()
}
