//! inspector's own commands: `cargo xtask test` and its kin.

mod process;
mod test;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "inspector's own commands")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run what CI runs: formatting, lints, unit tests, end-to-end tests.
    Test(test::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Test(options) => test::tests(&options),
    }
}
