//! What packagers and editors of JSON consumers need: completions, man pages, the schema. All come from the definitions
//! that the program runs by.

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Outcome, console::Console};
use crate::{cli::Cli, report};

/// `inspector schema`.
pub(super) fn schema(console: &Console) -> anyhow::Result<Outcome> {
    console.print(&report::schema::render()?)?;
    Ok(Outcome::Done)
}

/// `inspector completions SHELL`.
pub(super) fn completions(shell: Shell, console: &Console) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "inspector", &mut script);
    console.print(&String::from_utf8(script).context("the completions are not UTF-8")?)?;
    Ok(Outcome::Done)
}

/// `inspector man [COMMAND...]`.
pub(super) fn man(command: &[String], console: &Console) -> anyhow::Result<Outcome> {
    let mut definition = Cli::command();
    definition.build();
    for name in command {
        definition = definition
            .find_subcommand(name)
            .cloned()
            .with_context(|| format!("no command is called {name}; `inspector --help` lists them"))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(definition)
        .source(concat!("inspector ", env!("CARGO_PKG_VERSION")))
        .manual("inspector")
        .render(&mut page)
        .context("cannot render the man page")?;
    console.print(&String::from_utf8(page).context("the man page is not UTF-8")?)?;
    Ok(Outcome::Done)
}
