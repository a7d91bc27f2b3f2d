//! What is known of serving engines: `knowledge/*.toml`, embedded, and the user's own files.
//!
//! Data, not code: who a process is ([`recognise`]), which threads it has, when they are idle and what users see when
//! one is gone, what to do. Rooms ask; nothing here looks at a process.

mod format;
mod pattern;
mod recognise;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub use format::{Action, Expected, File, IdleState, Library, ProcessRule, Sets, Setting, ThreadRule};
pub use pattern::Pattern;
pub(crate) use recognise::rank;
pub use recognise::{last_component, matches_idle};

use crate::model::report::Family;

/// The built-in files, engines before libraries: the order in which processes are matched.
const BUILTIN: [(&str, &str); 11] = [
    ("sglang.toml", include_str!("../../knowledge/sglang.toml")),
    ("vllm.toml", include_str!("../../knowledge/vllm.toml")),
    ("dynamo.toml", include_str!("../../knowledge/dynamo.toml")),
    ("tensorrt-llm.toml", include_str!("../../knowledge/tensorrt-llm.toml")),
    ("nixl.toml", include_str!("../../knowledge/nixl.toml")),
    ("mooncake.toml", include_str!("../../knowledge/mooncake.toml")),
    ("ucx.toml", include_str!("../../knowledge/ucx.toml")),
    ("zeromq.toml", include_str!("../../knowledge/zeromq.toml")),
    ("pytorch.toml", include_str!("../../knowledge/pytorch.toml")),
    ("python.toml", include_str!("../../knowledge/python.toml")),
    ("general.toml", include_str!("../../knowledge/general.toml")),
];

/// Largest file that is read.
const FILE_LIMIT: u64 = 1 << 20;

/// Most files that one folder may hold.
const FILE_COUNT_LIMIT: usize = 256;

/// Why a knowledge file was refused.
#[derive(Debug, thiserror::Error)]
pub enum KnowledgeError {
    /// It could not be read.
    #[error("cannot read {path}: {why}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        why: io::Error,
    },
    /// It is larger than 1 MiB, or the folder holds more than 256 files.
    #[error("{path} is too large: a knowledge file has at most 1 MiB, a folder at most 256 of them")]
    TooLarge {
        /// The file or folder.
        path: PathBuf,
    },
    /// It does not have the layout that docs/knowledge.md describes.
    #[error("{path}:{line}: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
}

/// All knowledge files, in the order of precedence.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    files: Vec<File>,
}

impl Knowledge {
    /// What the binary carries.
    ///
    /// # Panics
    /// If an embedded file is broken: a test parses each of them, so that no such binary can be made.
    #[expect(clippy::panic, reason = "the embedded files are constants that a unit test parses")]
    pub fn builtin() -> Self {
        let files = BUILTIN
            .iter()
            .map(|(name, text)| {
                parse(Path::new(name), text).unwrap_or_else(|error| panic!("built-in {error}"))
            })
            .collect();
        Self { files }
    }

    /// The built-in files and those of a folder (`*.toml`, by name). A user's file goes before the built-in ones and
    /// takes the place of the one with the same `name`.
    pub fn load(folder: &Path) -> Result<Self, KnowledgeError> {
        let read = |why| KnowledgeError::Read { path: folder.into(), why };
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                paths.push(path);
            }
            if paths.len() > FILE_COUNT_LIMIT {
                return Err(KnowledgeError::TooLarge { path: folder.into() });
            }
        }
        paths.sort();
        let mut files = paths.iter().map(|path| read_file(path)).collect::<Result<Vec<_>, _>>()?;
        for builtin in Self::builtin().files {
            if !files.iter().any(|file| file.name == builtin.name) {
                files.push(builtin);
            }
        }
        Ok(Self { files })
    }

    /// The files.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The file of this name.
    pub fn file(&self, name: &str) -> Option<&File> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Whether a variable of a target's environment may be kept.
    pub fn keeps_variable(&self, name: &str) -> bool {
        self.files.iter().flat_map(|file| &file.environment).any(|allowed| match allowed.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == allowed,
        })
    }

    /// What to do about `family` where a thread of the kind `thread` of `engine` is the culprit: the engine's own
    /// advice, the one for the thread first, else the general one.
    pub fn action(&self, family: Family, engine: Option<&str>, thread: Option<&str>) -> Option<&str> {
        let own = self.files.iter().filter(|file| Some(file.name.as_str()) == engine);
        let libraries = self.files.iter().filter(|file| file.process.is_empty());
        let actions = || own.clone().chain(libraries.clone()).flat_map(|file| &file.action);
        actions()
            .find(|action| {
                action.family == family && action.thread.is_some() && action.thread.as_deref() == thread
            })
            .or_else(|| actions().find(|action| action.family == family && action.thread.is_none()))
            .map(|action| action.text.as_str())
    }
}

/// Reads and checks one file.
pub fn read_file(path: &Path) -> Result<File, KnowledgeError> {
    let read = |why| KnowledgeError::Read { path: path.into(), why };
    let meta = fs::metadata(path).map_err(read)?;
    if !meta.is_file() {
        return Err(read(io::Error::other("not a regular file")));
    }
    if meta.len() > FILE_LIMIT {
        return Err(KnowledgeError::TooLarge { path: path.into() });
    }
    parse(path, &fs::read_to_string(path).map_err(read)?)
}

/// Parses and checks the text of one file; `path` is for the error.
pub fn parse(path: &Path, text: &str) -> Result<File, KnowledgeError> {
    let invalid = |at: usize, message: String| KnowledgeError::Invalid {
        path: path.into(),
        line: 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count(),
        message,
    };
    let file: File = toml::from_str(text).map_err(|error: toml::de::Error| {
        invalid(error.span().map_or(0, |span| span.start), error.message().to_owned())
    })?;
    if file.name.is_empty()
        || !file.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    {
        return Err(invalid(0, "`name` must be letters, digits, `-`, `_` and `.`".into()));
    }
    let kinds: Vec<&str> = file.process.iter().map(|rule| rule.kind.as_str()).collect();
    let references = file
        .process
        .iter()
        .flat_map(|rule| rule.waits_for.iter().chain(&rule.peers_with))
        .chain(file.thread.iter().flat_map(|rule| &rule.kinds));
    for reference in references {
        if !kinds.contains(&reference.get_ref().as_str()) {
            let message = format!("no [[process]] of this file has the kind `{}`", reference.get_ref());
            return Err(invalid(reference.span().start, message));
        }
    }
    if let Some(rule) = file.process.iter().find(|rule| rule.command.is_none() && rule.comm.is_none()) {
        return Err(invalid(0, format!("[[process]] `{}` needs `command` or `comm`", rule.kind)));
    }
    let nameless = |rule: &&ThreadRule| rule.name.is_none() && rule.comm.is_none() && rule.function.is_none();
    if let Some(rule) = file.thread.iter().find(nameless) {
        return Err(invalid(0, format!("[[thread]] `{}` needs `name`, `comm` or `function`", rule.role)));
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
