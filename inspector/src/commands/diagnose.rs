//! `inspector diagnose`.

use super::{Outcome, console::Console, emit, look::Look};
use crate::{
    cli::{Diagnose, Global},
    report::text,
};

pub(super) fn run(options: &Diagnose, global: &Global, console: &Console) -> anyhow::Result<Outcome> {
    emit::check(&options.output)?;
    let look = Look::new(&options.targets, &options.depth, options.duration).probed(options.probes);
    let report = look.diagnosed(global, console)?;
    emit::emit(report, &options.output, text::verdict, None, console)
}
