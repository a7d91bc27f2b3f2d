//! What was measured, as rows.

use serde::Serialize;

/// One measured number.
#[derive(Serialize)]
pub(super) struct Row {
    what: &'static str,
    who: &'static str,
    value: f64,
    unit: &'static str,
    /// To the reference of its part: py-spy with native frames, or nothing running.
    ratio: Option<f64>,
}

impl Row {
    pub(super) fn new(
        what: &'static str,
        who: &'static str,
        value: f64,
        unit: &'static str,
        ratio: Option<f64>,
    ) -> Self {
        Self { what, who, value, unit, ratio }
    }
}

/// Prints rows side by side.
pub(super) fn print(rows: &[Row]) {
    println!("| what | who | value | ratio |\n|---|---|---|---|");
    for row in rows {
        let ratio = row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        println!("| {} | {} | {:.3} {} | {ratio} |", row.what, row.who, row.value, row.unit);
    }
}

/// The middle one of some numbers; 0 where there are none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
