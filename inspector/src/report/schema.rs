//! The JSON schema (draft 2020-12) of the report, made from the types that write it: the two cannot disagree.

use crate::model::Report;

/// The schema, indented, with a final newline.
pub fn render() -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(&schemars::schema_for!(Report))?;
    text.push('\n');
    Ok(text)
}
