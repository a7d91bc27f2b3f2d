//! Pythons to test with, and virtual environments.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::paths;

/// The versions that a test of CPython's own structures runs on.
pub const VERSIONS: [&str; 6] = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"];

/// Versions that inspector leaves to the py-spy crate.
pub const OLD: [&str; 3] = ["2.7", "3.6", "3.7"];

/// The pyenv interpreter of a version (`3.11`), where it is installed.
pub fn pyenv(version: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")))?;
    let prefix = format!("{version}.");
    std::fs::read_dir(root.join("versions"))
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path().join("bin").join(format!("python{version}")))
        .find(|python| python.exists())
}

/// The versions that `cargo xtask pythons` prepares.
pub const PREPARED: [&str; 3] = ["3.13", "3.14", "3.15"];

/// The interpreter of a version that `cargo xtask pythons` prepared, where it did.
pub fn prepared(version: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let python = cache.join("inspector/pythons/bin").join(format!("python{version}"));
    python.exists().then_some(python)
}

/// An interpreter of each of [`VERSIONS`], with `INSPECTOR_PYTHONS=all` also of each of [`PREPARED`]. A version that is
/// not installed is left out with a line on stderr, or is an error with `INSPECTOR_PYTHONS=all`.
pub fn all() -> Result<Vec<(&'static str, PathBuf)>> {
    let strict = is_strict();
    let mut found = installed(&VERSIONS)?;
    for version in PREPARED {
        match prepared(version) {
            Some(python) if strict => found.push((version, python)),
            None if strict => {
                bail!("INSPECTOR_PYTHONS=all, but there is no Python {version}: run `cargo xtask pythons`")
            }
            _ => say(&format!("SKIPPED: Python {version} of Debian forky (INSPECTOR_PYTHONS=all tests it)")),
        }
    }
    Ok(found)
}

/// An interpreter of each of [`OLD`], as [`all`] leaves versions out; there may be none.
pub fn old() -> Result<Vec<(&'static str, PathBuf)>> {
    from_pyenv(&OLD)
}

fn is_strict() -> bool {
    std::env::var("INSPECTOR_PYTHONS").is_ok_and(|value| value == "all")
}

/// pyenv's, or where it has none the host's own.
fn installed(versions: &[&'static str]) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut found = from_pyenv(versions)?;
    if found.is_empty() {
        let system = system();
        let version = version_of(&system)?;
        let known = versions.iter().find(|&&known| known == version);
        let known = known.with_context(|| {
            format!("pyenv has none of the Pythons {versions:?}, and {} is {version}", system.display())
        })?;
        found.push((known, system));
    }
    Ok(found)
}

fn from_pyenv(versions: &[&'static str]) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut found = Vec::new();
    for &version in versions {
        match pyenv(version) {
            Some(python) => found.push((version, python)),
            None if is_strict() => bail!("INSPECTOR_PYTHONS=all, but pyenv has no Python {version}"),
            None => say(&format!("SKIPPED: pyenv has no Python {version}")),
        }
    }
    Ok(found)
}

/// `3.11`.
fn version_of(python: &Path) -> Result<String> {
    let print = "import sys; print('%d.%d' % sys.version_info[:2])";
    let output = Command::new(python).args(["-c", print]).output();
    let output = output.with_context(|| format!("cannot run {}", python.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[allow(clippy::print_stderr, reason = "a skipped interpreter must be seen in the test's output")]
fn say(line: &str) {
    eprintln!("{line}");
}

/// Any Python 3 of the host.
pub fn system() -> PathBuf {
    std::env::var_os("INSPECTOR_PYTHON").map_or_else(|| "python3".into(), PathBuf::from)
}

/// The interpreter of a virtual environment of `python` with `packages` (`pyzmq==27.1.0`). Made once, kept in
/// `target/venvs` (or `INSPECTOR_VENVS`), safe to ask for from several processes at once.
pub fn venv(python: &Path, packages: &[&str]) -> Result<PathBuf> {
    let output = Command::new(python)
        .arg(paths::root().join("tests/fleet/environment.py"))
        .args(packages)
        .env("INSPECTOR_VENVS", venvs())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", python.display()))?;
    if !output.status.success() {
        bail!("no virtual environment of {} with {packages:?}", python.display());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Where virtual environments are kept.
pub(crate) fn venvs() -> PathBuf {
    std::env::var_os("INSPECTOR_VENVS").map_or_else(|| paths::target().join("venvs"), PathBuf::from)
}
