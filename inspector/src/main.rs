//! The `inspector` binary: reads the command line, runs one command, turns its outcome into an exit status.

use std::{env, process::ExitCode};

use inspector::{commands, observe::helper::serve};

fn main() -> ExitCode {
    // inspector starts itself again as its own helper; users never type this.
    if env::args_os().nth(1).is_some_and(|argument| argument == serve::ARGUMENT) {
        return serve::main();
    }
    commands::main()
}
