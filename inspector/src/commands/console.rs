//! Where a command prints: results to stdout, complaints and progress to stderr.

use std::{
    cell::Cell,
    io::{self, ErrorKind, IsTerminal as _, Write as _},
};

use anyhow::Context as _;
use tracing_subscriber::{filter::LevelFilter, fmt};

use crate::{
    cli::{Global, When},
    report::escape,
};

/// The two streams, and what may be written to them.
#[derive(Debug)]
pub(super) struct Console {
    colored: bool,
    shows_progress: bool,
    in_progress: Cell<bool>,
}

impl Console {
    pub(super) fn new(global: &Global) -> Self {
        let level = match global.verbose {
            0 => LevelFilter::OFF,
            1 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        if level != LevelFilter::OFF {
            fmt().with_max_level(level).with_writer(io::stderr).with_ansi(io::stderr().is_terminal()).init();
        }
        Self {
            colored: match global.color {
                When::Always => true,
                When::Never => false,
                When::Auto => io::stdout().is_terminal() && may_color(),
            },
            shows_progress: !global.quiet && global.verbose == 0 && io::stderr().is_terminal(),
            in_progress: Cell::new(false),
        }
    }

    /// Text on stdout is coloured.
    pub(super) const fn colored(&self) -> bool {
        self.colored
    }

    /// Writes a whole result to stdout. A reader that has gone away (`| head`) has what it wanted.
    pub(super) fn print(&self, text: &str) -> anyhow::Result<()> {
        self.clear_progress();
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(error).context("cannot write to standard output")
            }
            _ => Ok(()),
        }
    }

    /// Shows what is going on, on one line that the next one replaces; only on a terminal.
    pub(super) fn progress(&self, what: &str) {
        if self.shows_progress {
            self.in_progress.set(true);
            write!(io::stderr(), "\r\x1b[K{}", escape::line(what)).ok();
        }
    }

    /// Wipes the progress line.
    pub(super) fn clear_progress(&self) {
        if self.in_progress.replace(false) {
            write!(io::stderr(), "\r\x1b[K").ok();
        }
    }

    /// Says on one line what went wrong. Where stderr is closed, the exit status has to do.
    pub(super) fn complain(&self, what: &str) {
        self.clear_progress();
        writeln!(io::stderr(), "inspector: {}", escape::line(what)).ok();
    }
}

/// NO_COLOR (no-color.org: set and not empty), and terminals that know no colours.
fn may_color() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb")
}
