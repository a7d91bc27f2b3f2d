//! Compiles C fixtures into the target directory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::paths;

/// Compiles `source` (relative to `tests/fixtures`) with `cc -g -O1 -pthread` and `flags`; gives the program. Compiled once
/// per content and flags.
pub fn c(source: &str, flags: &[&str]) -> Result<PathBuf> {
    with("cc", source, flags)
}

/// As [`c`], against musl (Debian: musl-tools).
pub fn musl(source: &str, flags: &[&str]) -> Result<PathBuf> {
    with("musl-gcc", source, flags)
}

fn with(compiler: &str, source: &str, flags: &[&str]) -> Result<PathBuf> {
    let source = paths::fixtures().join(source);
    let text = std::fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
    let mut digest = DefaultHasher::new();
    (text, compiler, flags).hash(&mut digest);
    let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let directory = paths::target().join("fixtures");
    std::fs::create_dir_all(&directory)?;
    let program = directory.join(format!("{stem}-{:016x}", digest.finish()));
    if !program.exists() {
        compile(compiler, &source, flags, &program)?;
    }
    Ok(program)
}

/// As [`c`] for a C++20 source; `None`, with a line on stderr, where there is no `c++`.
#[allow(clippy::print_stderr, reason = "a fixture that was left out must be seen in the test's output")]
pub fn cpp(source: &str, flags: &[&str]) -> Result<Option<PathBuf>> {
    if Command::new("c++").arg("--version").output().is_err() {
        eprintln!("SKIPPED: {source}: no c++ (install g++)");
        return Ok(None);
    }
    let flags: Vec<&str> = ["-std=c++20"].into_iter().chain(flags.iter().copied()).collect();
    with("c++", source, &flags).map(Some)
}

fn compile(compiler: &str, source: &Path, flags: &[&str], program: &Path) -> Result<()> {
    // Several tests may want the same fixture at once: each compiles into a file of its own, the rename is atomic.
    let unique = tempfile::Builder::new().prefix(".cc-").tempdir_in(program.parent().unwrap_or(program))?;
    let fresh = unique.path().join("program");
    let output = Command::new(compiler)
        .args(["-g", "-O1", "-Wall", "-pthread", "-D_GNU_SOURCE", "-o"])
        .arg(&fresh)
        .arg(source)
        .args(flags)
        .output()
        .with_context(|| format!("cannot run {compiler}: install gcc and musl-tools"))?;
    if !output.status.success() {
        bail!("{compiler} {}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(std::fs::rename(&fresh, program)?)
}
