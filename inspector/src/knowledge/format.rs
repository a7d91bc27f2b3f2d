//! The layout of a knowledge file (docs/knowledge.md describes it for those who write one).

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::Pattern;
use crate::model::{WaitKind, report::Family};

/// One file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct File {
    /// Engine or library: what `worker.engine` says. A user's file replaces a built-in one of the same name.
    pub name: String,
    /// What it describes, one line.
    pub about: String,
    /// Versions that it was read from.
    pub read_from: Vec<String>,
    /// Environment variables that may be kept; a trailing `*` stands for any ending. Nothing else is ever kept.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Processes; the first rule that matches counts. A file without any describes a library: its threads and idle
    /// states apply to every process.
    #[serde(default)]
    pub process: Vec<ProcessRule>,
    /// What flags and environment variables say.
    #[serde(default)]
    pub setting: Vec<Setting>,
    /// Threads; the first rule that matches counts.
    #[serde(default)]
    pub thread: Vec<ThreadRule>,
    /// Native libraries, by their functions.
    #[serde(default)]
    pub library: Vec<Library>,
    /// Healthy idle states that do not belong to one kind of thread.
    #[serde(default)]
    pub idle: Vec<IdleState>,
    /// What to do.
    #[serde(default)]
    pub action: Vec<Action>,
}

/// How to recognise a process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProcessRule {
    /// Kind of process inside the engine.
    pub kind: String,
    /// Matches the arguments, joined by single spaces: a title that overwrote them, or a command line.
    pub command: Option<Pattern>,
    /// Matches `comm`; consulted where the arguments are empty or could not be read.
    pub comm: Option<Pattern>,
    /// Its first group is the rank; run over the arguments.
    pub rank: Option<Pattern>,
    /// One of these functions is on the main thread's stack once start-up is over; before that, no thread is missed.
    #[serde(default)]
    pub ready: Vec<Pattern>,
    /// Kinds of the same process tree that this one cannot do without.
    #[serde(default)]
    pub waits_for: Vec<Spanned<String>>,
    /// Kinds in another tree of the engine that this one exchanges requests or KV with, without a thread that blocks.
    #[serde(default)]
    pub peers_with: Vec<Spanned<String>>,
    /// A program of no engine: taken only when all programs are asked for, or by its pid.
    #[serde(default)]
    pub plain: bool,
}

/// What a setting gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sets {
    /// `worker.role`.
    Role,
    /// `worker.backend`.
    Backend,
}

/// A flag or environment variable that tells the role or the transfer backend.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Setting {
    /// What it gives.
    pub sets: Sets,
    /// Command-line flag, as `--flag VALUE` or `--flag=VALUE`.
    pub flag: Option<String>,
    /// Environment variable; the flag goes first.
    pub env: Option<String>,
    /// The value is JSON: the pointer (RFC 6901) to the part that counts.
    pub json: Option<String>,
    /// What values mean.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// A value that `values` does not list is taken as it is; otherwise it says nothing.
    #[serde(default)]
    pub keep_others: bool,
    /// What holds where neither flag nor variable is there, but the command line could be read.
    pub default: Option<String>,
    /// The default holds only for these roles (for a backend).
    #[serde(default)]
    pub default_roles: Vec<String>,
}

/// How to recognise a thread, and what is normal for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ThreadRule {
    /// What reports call it.
    pub role: String,
    /// Kinds of process that have it; none: any.
    #[serde(default)]
    pub kinds: Vec<Spanned<String>>,
    /// Matches its Python name.
    pub name: Option<Pattern>,
    /// Matches the `comm` of a thread without a Python name.
    pub comm: Option<Pattern>,
    /// Matches a function on its stack, where its Python name says nothing (`Thread-3`, no name).
    pub function: Option<Pattern>,
    /// It schedules requests: while it stands still, nothing is served.
    #[serde(default)]
    pub scheduler: bool,
    /// It serves others: when it blocks for good outside its idle states, or ends, somebody waits.
    #[serde(default)]
    pub serving: bool,
    /// It is started when it is first needed: that siblings have it says nothing.
    #[serde(default)]
    pub lazy: bool,
    /// Functions in which it waits for a process at the other end of a transfer.
    #[serde(default)]
    pub waits_for_peer: Vec<Pattern>,
    /// Where it has to exist.
    #[serde(default)]
    pub expected: Vec<Expected>,
    /// Its healthy idle states.
    #[serde(default)]
    pub idle: Vec<IdleState>,
}

/// A native library that is worth naming when a thread is in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Library {
    /// What reports call it.
    pub name: String,
    /// How the names of its functions begin, as they are shown.
    pub functions: Vec<String>,
}

/// Where a thread has to exist.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expected {
    /// Roles of the process; none: any.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Transfer backends of the process; none: any.
    #[serde(default)]
    pub backends: Vec<String>,
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// What it is called.
    pub thread: String,
    /// Environment variable that changes the count.
    pub count_env: Option<String>,
    /// Requests go on without it, so that its loss degrades and does not wedge.
    #[serde(default)]
    pub survivable: bool,
    /// What users see when it is gone.
    pub effect: String,
}

const fn one() -> u32 {
    1
}

/// A healthy idle state.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IdleState {
    /// Functions, by their last component (`get` is `FastQueue.get` too), innermost first. The first one has to be the
    /// innermost Python frame (see `anywhere`), each further one somewhere outside the one before. None: by wait alone.
    #[serde(default)]
    pub frames: Vec<String>,
    /// The first of `frames` may be anywhere on the stack.
    #[serde(default)]
    pub anywhere: bool,
    /// Kinds of wait; none: any.
    #[serde(default)]
    pub waits: Vec<WaitKind>,
    /// With or without a deadline; absent: either.
    pub deadline: Option<bool>,
}

/// What to do about a family.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Action {
    /// The family.
    pub family: Family,
    /// Only where this kind of thread is the culprit.
    pub thread: Option<String>,
    /// What to do, one or two sentences.
    pub text: String,
}
