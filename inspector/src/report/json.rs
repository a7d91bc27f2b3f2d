//! The report as one JSON document on one line; [`super::schema`] describes it.

use serde::Serialize;

/// The document, with a final newline.
pub fn render<T: Serialize>(document: &T) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string(document)?;
    text.push('\n');
    Ok(text)
}
