//! The rows: which fixtures there are, and what is true of their threads.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process::root;

/// One program that blocks on purpose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fixture {
    /// Below `tests/fixtures`: `.c`, `.cc` or `.py`; else a program of the `tests` crate.
    pub(super) program: String,
    /// How the table calls it, where that is not just the program.
    name: Option<String>,
    /// Compiler for C, where it is not the host's `cc`.
    pub(super) compiler: Option<String>,
    /// In a word, `FOLDER` stands for an empty folder of its own, `FILE` for a file in it.
    #[serde(default)]
    pub(super) arguments: Vec<String>,
    /// Flags for the compiler.
    #[serde(default)]
    pub(super) flags: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    /// Packages that a Python program needs.
    #[serde(default)]
    pub(super) packages: Vec<String>,
    /// What is done to it once it is ready.
    pub(super) state: Option<Done>,
    /// Seconds that another tool may take for one of its processes.
    #[serde(default = "a_minute")]
    pub(super) deadline: u64,
    /// Other tools, and who only reads its files in `/proc`, could hang in it so that they cannot be ended.
    #[serde(default)]
    pub(super) dangerous: bool,
    /// What is true of its threads, by the name that it gives them in its `ready` line.
    pub(super) rows: BTreeMap<String, Row>,
}

impl Fixture {
    /// How the table calls it.
    pub(super) fn name(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.program)
    }
}

fn a_minute() -> u64 {
    60
}

/// What can be done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Done {
    /// SIGSTOP.
    Stopped,
    /// A cgroup above its own is frozen.
    Frozen,
    /// A cgroup above its own has a CPU quota that does not suffice.
    Throttled,
}

/// What is true of one thread.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// `wait.kind`.
    pub(super) kind: String,
    /// `wait.flavour`, where it has to be a certain one.
    pub(super) flavour: Option<String>,
    /// How sure its owners have to be, which the fixture names; `none`: there must be none; `told`: as the fixture says.
    #[serde(default)]
    pub(super) owner: Expected,
    /// Rows whose owners are owners of this one as well.
    #[serde(default)]
    pub(super) with: Vec<String>,
    /// What its text has to say: what names the object where no number does.
    pub(super) says: Option<String>,
    /// The lock's owner has ended, and inspector must say so.
    #[serde(default)]
    pub(super) gone: bool,
    /// The address that the fixture names is another one than that of the object.
    #[serde(default)]
    pub(super) elsewhere: bool,
}

/// What has to be said of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Expected {
    #[default]
    None,
    Proven,
    Likely,
    Told,
}

#[derive(Deserialize)]
struct File {
    fixture: Vec<Fixture>,
}

/// Reads `tests/fixtures/waits/expected.toml`.
pub(super) fn read() -> Result<Vec<Fixture>> {
    let path = root().join("tests/fixtures/waits/expected.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let file: File = toml::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(file.fixture)
}
