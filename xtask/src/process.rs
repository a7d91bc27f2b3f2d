//! Runs other programs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Says on stderr what comes next.
#[allow(clippy::print_stderr, reason = "progress of an xtask goes to stderr")]
pub(crate) fn say(line: &str) {
    eprintln!("xtask: {line}");
}

/// The cargo that runs this xtask, in the root of the checkout.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command to its end; an error names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    say(&line);
    let status = command.status().with_context(|| format!("cannot run {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Whether a program can be found and run.
pub(crate) fn exists(program: &str, argument: &str) -> bool {
    let quiet = || std::process::Stdio::null();
    let mut command = Command::new(program);
    command.arg(argument).stdin(quiet()).stdout(quiet()).stderr(quiet());
    command.status().is_ok_and(|status| status.success())
}
