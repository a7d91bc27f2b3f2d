//! `inspector dump`.

use std::time::Duration;

use super::{Outcome, console::Console, emit, look::Look};
use crate::{
    cli::{Dump, Global},
    report::text,
};

pub(super) fn run(options: &Dump, global: &Global, console: &Console) -> anyhow::Result<Outcome> {
    emit::check(&options.output)?;
    let look = Look::new(&options.targets, &options.depth, Duration::ZERO);
    let report = look.report(global, console)?;
    emit::emit(report, &options.output, text::dump, options.graph, console)
}
