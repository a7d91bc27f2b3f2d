//! inspector's own commands: `cargo xtask demo`, `cargo xtask test`, and what they are made of.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "results go to stdout, progress to stderr")]

mod bench;
mod build_ebpf;
mod demo;
mod interrupt;
mod process;
mod pythons;
mod real;
mod table;
mod test;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "inspector's own commands", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a small fleet, wedge it, and print inspector's verdict; files go to target/demo
    Demo(demo::Options),
    /// Measure inspector beside py-spy and pystack on one target
    Bench(bench::Options),
    /// Make the embedded eBPF object from its sources, or check that it comes from them
    BuildEbpf(build_ebpf::Options),
    /// Run what CI runs: formatting, lints, licences, unit and end-to-end tests
    Test(test::Options),
    /// Run inspector on other kernels, in virtual machines
    Vm(vm::Options),
    /// Prepare the CPythons that a new machine lacks (3.13 to 3.15 of Debian forky), for tests with INSPECTOR_PYTHONS=all
    Pythons(pythons::Options),
    /// Print what inspector says beside what other tools say, on the same processes
    #[command(subcommand)]
    Table(Table),
    /// Work with fleets
    #[command(subcommand)]
    Fleet(Fleet),
}

#[derive(Subcommand)]
enum Table {
    /// Every kind of wait, each in a thread that really blocks so; fails where inspector's answer is not the fixture's
    Waits(table::Options),
}

#[derive(Subcommand)]
enum Fleet {
    /// Diagnose a real SGLang or vLLM pair, well and wedged, and compare with what is known to be true
    Real(real::Options),
}

fn main() -> ExitCode {
    interrupt::watch();
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // What was under way says no more than that.
        Err(_) if interrupt::check().is_err() => {
            eprintln!("xtask: interrupted; what was started is ended");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(options) => demo::demo(&options),
        Command::Bench(options) => bench::bench(&options),
        Command::BuildEbpf(options) => build_ebpf::run(&options),
        Command::Test(options) => test::tests(&options),
        Command::Vm(options) => vm::vm(&options),
        Command::Pythons(options) => pythons::pythons(&options),
        Command::Table(Table::Waits(options)) => table::waits(&options),
        Command::Fleet(Fleet::Real(options)) => real::real(&options),
    }
}
