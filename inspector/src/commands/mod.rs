//! Thin commands over the rooms: read the command line, call the rooms, print, and turn the outcome into an exit status.

mod console;
mod diagnose;
mod doctor;
mod dump;
mod emit;
mod interrupt;
mod knowledge;
mod look;
mod output_file;
mod packaging;
mod ps;

use std::{
    any::Any,
    io::Write as _,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    process::ExitCode,
};

use clap::Parser;
use console::Console;

use crate::cli::{Cli, Command};

/// How a command that did its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing is wrong, or nothing can be said.
    Done,
    /// The fleet is wedged or degraded.
    Trouble,
}

/// The command failed.
const FAILED: u8 = 1;
/// The fleet is wedged or degraded: for scripts and liveness hooks.
const TROUBLE: u8 = 3;

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    panic::set_hook(Box::new(report_panic));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version end here too, on stdout and with status 0. Nobody is left to tell of a closed pipe.
            let printed = error.print();
            if printed.is_err_and(|why| why.kind() != std::io::ErrorKind::BrokenPipe) {
                return ExitCode::from(FAILED);
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(FAILED));
        }
    };
    let console = Console::new(&cli.global);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| run(cli, &console)));
    console.clear_progress();
    match outcome {
        Ok(Ok(Outcome::Done)) => ExitCode::SUCCESS,
        Ok(Ok(Outcome::Trouble)) => ExitCode::from(TROUBLE),
        Ok(Err(error)) => {
            console.complain(&format!("{error:#}"));
            ExitCode::from(FAILED)
        }
        // The hook has said what happened.
        Err(_) => ExitCode::from(FAILED),
    }
}

fn run(cli: Cli, console: &Console) -> anyhow::Result<Outcome> {
    interrupt::watch()?;
    let global = &cli.global;
    match cli.command {
        Command::Ps(options) => ps::run(&options, global, console),
        Command::Dump(options) => dump::run(&options, global, console),
        Command::Diagnose(options) => diagnose::run(&options, global, console),
        Command::Schema => packaging::schema(console),
        Command::Completions { shell } => packaging::completions(shell, console),
        Command::Man { command } => packaging::man(&command, console),
        Command::Knowledge(command) => knowledge::run(&command, console),
        Command::Doctor(options) => doctor::run(&options, console),
    }
}

/// One line in place of a backtrace; `RUST_BACKTRACE=1` still shows one.
fn report_panic(info: &PanicHookInfo<'_>) {
    let message = message_of(info.payload());
    let place =
        info.location().map_or_else(String::new, |place| format!(" at {}:{}", place.file(), place.line()));
    let mut stderr = std::io::stderr().lock();
    // stderr may be closed; there is nobody else to tell.
    writeln!(stderr, "inspector: internal error: {message}{place}; please report it").ok();
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
        writeln!(stderr, "{}", std::backtrace::Backtrace::force_capture()).ok();
    }
}

fn message_of(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown")
}
