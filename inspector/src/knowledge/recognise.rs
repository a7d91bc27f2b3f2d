//! From what was seen of a process or thread to the rule that describes it.

use std::sync::Arc;

use super::{Expected, File, IdleState, Knowledge, Library, ProcessRule, Sets, ThreadRule};
use crate::model::{Frame, FrameKind, Wait, Worker};

/// Longest role, backend or rank that is taken from a target's own words.
const VALUE_LIMIT: usize = 64;

impl Knowledge {
    /// The rule for a process with these arguments and this `comm`, and the file that holds it.
    pub fn process_rule(&self, arguments: &[String], comm: &str) -> Option<(&File, &ProcessRule)> {
        let command = joined(arguments);
        self.files.iter().find_map(|file| {
            let rule = file.process.iter().find(|rule| {
                if command.is_empty() {
                    rule.comm.as_ref().is_some_and(|pattern| pattern.is_match(comm))
                } else {
                    rule.command.as_ref().is_some_and(|pattern| pattern.is_match(&command))
                }
            })?;
            Some((file, rule))
        })
    }

    /// The rule that recognised a worker.
    pub fn rule_of(&self, worker: &Worker) -> Option<&ProcessRule> {
        self.file(&worker.engine)?.process.iter().find(|rule| rule.kind == worker.kind)
    }

    /// The rule for a thread of `worker`. `python_name` is its name in `threading`, `frames` its stack.
    ///
    /// A name that says something decides; a function on the stack is asked only where the name is Python's default
    /// (`Thread-3`, all that 3.8 and 3.9 give) or missing.
    pub fn thread_rule(
        &self,
        worker: Option<&Worker>,
        python_name: Option<&str>,
        comm: &str,
        frames: &[Arc<Frame>],
    ) -> Option<&ThreadRule> {
        let anonymous = python_name.is_none_or(is_default_name);
        self.files_for(worker).flat_map(|file| &file.thread).find(|rule| {
            let kind_fits = rule.kinds.is_empty()
                || worker.is_some_and(|worker| rule.kinds.iter().any(|kind| *kind.get_ref() == worker.kind));
            kind_fits
                && (matches_some(rule.name.as_ref(), python_name)
                    || (python_name.is_none()
                        && rule.comm.as_ref().is_some_and(|pattern| pattern.is_match(comm)))
                    || (anonymous
                        && rule.function.as_ref().is_some_and(|pattern| {
                            frames.iter().any(|frame| pattern.is_match(last_component(&frame.function)))
                        })))
        })
    }

    /// The native libraries that a thread with this stack is in, innermost first.
    pub fn libraries(&self, frames: &[Arc<Frame>]) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        let libraries = || self.files.iter().flat_map(|file| &file.library);
        for frame in frames.iter().filter(|frame| frame.kind == FrameKind::Native) {
            let is_its = |library: &&Library| {
                library.functions.iter().any(|function| frame.function.starts_with(function.as_str()))
            };
            let library = libraries().find(is_its).map(|library| library.name.as_str());
            found.extend(library.filter(|name| !found.contains(name)));
        }
        found
    }

    /// Whether a thread that waits like this, under that stack, is in a known healthy idle state. `rule` is the
    /// thread's own; a scheduler's idle states are only those that its rule names, since a state that is harmless in a
    /// helper (a queue's `get`) may be the wedge itself there.
    pub fn is_idle(
        &self,
        worker: Option<&Worker>,
        rule: Option<&ThreadRule>,
        wait: &Wait,
        frames: &[Arc<Frame>],
    ) -> bool {
        let own = rule.into_iter().flat_map(|rule| &rule.idle);
        let general = self.files_for(worker).filter(|_| !rule.is_some_and(|rule| rule.scheduler));
        own.chain(general.flat_map(|file| &file.idle)).any(|state| matches_idle(state, wait, frames))
    }

    /// Where threads of `rule` have to exist in `worker`: the expectation that fits its role and backend, and how
    /// many it asks for (`environment` may change that).
    pub fn expectation<'k>(
        &self,
        worker: &Worker,
        rule: &'k ThreadRule,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Option<(&'k Expected, u32)> {
        let listed = |list: &[String], value: Option<&str>| {
            list.is_empty() || value.is_some_and(|value| list.iter().any(|entry| entry == value))
        };
        let expected = rule.expected.iter().find(|expected| {
            listed(&expected.roles, worker.role.as_deref())
                && listed(&expected.backends, worker.backend.as_deref())
        })?;
        let changed =
            expected.count_env.as_deref().and_then(environment).and_then(|value| value.trim().parse().ok());
        Some((expected, changed.unwrap_or(expected.count)))
    }

    /// Rules for threads of this worker.
    pub fn thread_rules(&self, worker: &Worker) -> impl Iterator<Item = &ThreadRule> {
        self.file(&worker.engine).into_iter().flat_map(|file| &file.thread).filter(|rule| {
            rule.kinds.is_empty() || rule.kinds.iter().any(|kind| *kind.get_ref() == worker.kind)
        })
    }

    /// The worker's own file, then those of libraries.
    fn files_for(&self, worker: Option<&Worker>) -> impl Iterator<Item = &File> {
        let own = worker.and_then(|worker| self.file(&worker.engine));
        let libraries = self
            .files
            .iter()
            .filter(move |file| file.process.is_empty() || file.process.iter().all(|rule| rule.plain))
            .filter(move |file| own.is_none_or(|own| own.name != file.name));
        own.into_iter().chain(libraries)
    }
}

impl File {
    /// What the flags in `arguments` and the variables in `environment` say about `sets`; `role` is the worker's, for
    /// defaults that depend on it.
    pub fn setting(
        &self,
        sets: Sets,
        arguments: &[String],
        environment: impl Fn(&str) -> Option<String>,
        role: Option<&str>,
    ) -> Option<String> {
        self.setting.iter().filter(|setting| setting.sets == sets).find_map(|setting| {
            let given = setting
                .flag
                .as_deref()
                .and_then(|flag| flag_value(arguments, flag))
                .map(str::to_owned)
                .or_else(|| setting.env.as_deref().and_then(&environment));
            let Some(given) = given else {
                let holds = setting.default_roles.is_empty()
                    || role.is_some_and(|role| setting.default_roles.iter().any(|listed| listed == role));
                return setting.default.clone().filter(|_| holds);
            };
            let value = match &setting.json {
                None => given,
                Some(pointer) => {
                    let document: serde_json::Value = serde_json::from_str(&given).ok()?;
                    document.pointer(pointer)?.as_str()?.to_owned()
                }
            };
            match setting.values.get(&value) {
                Some(meaning) => Some(meaning.clone()),
                None => setting.keep_others.then(|| clean(&value)),
            }
            .filter(|value| !value.is_empty())
        })
    }
}

/// The rank that a rule's pattern finds in the arguments.
pub(crate) fn rank(rule: &ProcessRule, arguments: &[String]) -> Option<String> {
    let command = joined(arguments);
    rule.rank.as_ref()?.capture(&command).map(clean).filter(|rank| !rank.is_empty())
}

/// Whether a wait under a stack is this idle state.
pub fn matches_idle(state: &IdleState, wait: &Wait, frames: &[Arc<Frame>]) -> bool {
    if !state.waits.is_empty() && !state.waits.contains(&wait.kind) {
        return false;
    }
    if state.deadline.is_some_and(|deadline| deadline != wait.has_deadline) {
        return false;
    }
    let Some((first, outer)) = state.frames.split_first() else { return !state.waits.is_empty() };
    let mut stack = frames.iter().filter(|frame| frame.kind == FrameKind::Python);
    let found = if state.anywhere {
        stack.any(|frame| is_function(frame, first))
    } else {
        stack.next().is_some_and(|frame| is_function(frame, first))
    };
    found && outer.iter().all(|function| stack.any(|frame| is_function(frame, function)))
}

fn is_function(frame: &Frame, name: &str) -> bool {
    frame.function == name || last_component(&frame.function) == name
}

/// The last component of a qualified name: `get` of `FastQueue.get`, `run` of `start.<locals>.run`; before Python
/// 3.11 there is nothing else.
pub fn last_component(function: &str) -> &str {
    function.rsplit('.').next().unwrap_or(function)
}

/// `Thread-3`, and the `Thread-3 (run)` of 3.10+ for a function that says nothing.
fn is_default_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("Thread-") else { return false };
    rest.strip_suffix(" (run)").unwrap_or(rest).bytes().all(|byte| byte.is_ascii_digit())
}

fn matches_some(pattern: Option<&super::Pattern>, text: Option<&str>) -> bool {
    pattern.zip(text).is_some_and(|(pattern, text)| pattern.is_match(text))
}

/// The arguments as one line; a title is padded with the rest of the old arguments' room.
fn joined(arguments: &[String]) -> String {
    arguments.join(" ").trim().to_owned()
}

/// The value of a flag: the last one counts, as argparse has it.
fn flag_value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
    let mut found = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == flag {
            found = rest.clone().next().map(String::as_str).or(found);
        } else if let Some(value) = argument.strip_prefix(flag).and_then(|rest| rest.strip_prefix('=')) {
            found = Some(value);
        }
    }
    found
}

/// A target's word, bounded and printable.
fn clean(value: &str) -> String {
    value.chars().filter(|character| !character.is_control()).take(VALUE_LIMIT).collect()
}
