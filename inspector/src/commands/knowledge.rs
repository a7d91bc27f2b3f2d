//! `inspector knowledge`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::{Outcome, console::Console};
use crate::{
    cli,
    knowledge::{File, read_file},
    report::page::Page,
};

pub(super) fn run(command: &cli::Knowledge, console: &Console) -> anyhow::Result<Outcome> {
    match command {
        cli::Knowledge::Check { paths } => check(paths, console),
    }
}

/// Checks every file, also behind one that is wrong.
fn check(paths: &[PathBuf], console: &Console) -> anyhow::Result<Outcome> {
    let mut page = Page::new(false);
    let mut wrong = 0;
    for path in files(paths)? {
        match read_file(&path) {
            Ok(file) => {
                page.line(&describe(&path, &file));
            }
            Err(error) => {
                wrong += 1;
                console.complain(&error.to_string());
            }
        }
    }
    console.print(&page.into_text())?;
    match wrong {
        0 => Ok(Outcome::Done),
        1 => bail!("1 file is wrong; docs/knowledge.md describes the layout"),
        _ => bail!("{wrong} files are wrong; docs/knowledge.md describes the layout"),
    }
}

/// The files themselves, and the `*.toml` of folders.
fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.with_context(|| format!("cannot read {}", path.display()))?.path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                found.push(path);
            }
        }
        if found.is_empty() {
            bail!("{} holds no *.toml", path.display());
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

/// `sglang.toml: sglang: rules for processes 6, threads 12; actions 6`.
fn describe(path: &Path, file: &File) -> String {
    format!(
        "{}: {}: rules for processes {}, threads {}; actions {}",
        path.display(),
        file.name,
        file.process.len(),
        file.thread.len(),
        file.action.len()
    )
}
