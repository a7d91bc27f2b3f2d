//! `cargo xtask test`: what CI runs, in CI's order.

use anyhow::{Result, bail};
use clap::Args;

use crate::process::{cargo, exists, run, say};

/// Options of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Also what is too long for CI: the real fleet, many repetitions.
    #[arg(long)]
    all: bool,
    /// Only the end-to-end tests.
    #[arg(long)]
    end_to_end: bool,
}

pub(crate) fn tests(options: &Options) -> Result<()> {
    if !options.end_to_end {
        checks()?;
    }
    let mut tests = cargo(&["test", "--workspace"]);
    if options.all {
        tests.env("INSPECTOR_TEST_ALL", "1");
    }
    run(&mut tests)
}

fn checks() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    if exists("cargo-deny", "--version") {
        run(&mut cargo(&["deny", "check"]))?;
    } else if in_ci() {
        bail!("cargo-deny is not installed, and CI needs it: cargo install --locked cargo-deny");
    } else {
        say("cargo-deny is not installed: licences and advisories are not checked");
    }
    Ok(())
}

/// CI installs everything: what is missing there is an error.
fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}
