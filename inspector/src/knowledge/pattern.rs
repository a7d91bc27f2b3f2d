//! Regular expressions of knowledge files, compiled under a size limit.
//!
//! Classes (`\S`, `\d`, `\b`) are ASCII's: Unicode's make far larger automata, and every start would pay for them.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Deserializer, de};

/// Most bytes that one compiled expression may take: knowledge files come from users, and a repeated repetition
/// (`(a{999}){999}`) must not take the memory of the host.
const SIZE_LIMIT: usize = 1 << 20;

/// Most bytes of a target's text that an expression is run over. The engine is linear, so this bounds its time.
const TEXT_LIMIT: usize = 16 << 10;

/// One expression.
#[derive(Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles `text`.
    pub fn new(text: &str) -> Result<Self, regex::Error> {
        let mut builder = RegexBuilder::new(text);
        Ok(Self(builder.unicode(false).size_limit(SIZE_LIMIT).dfa_size_limit(SIZE_LIMIT).build()?))
    }

    /// Whether it matches somewhere in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(bounded(text).as_bytes())
    }

    /// The first group of the first match, where there is one and it is not empty.
    pub fn capture<'t>(&self, text: &'t str) -> Option<&'t str> {
        let found = self.0.captures(bounded(text).as_bytes())?.get(1)?;
        // `None` too where an expression of single bytes cuts a character.
        text.get(found.range()).filter(|found| !found.is_empty())
    }
}

/// The first [`TEXT_LIMIT`] bytes, cut at a character.
fn bounded(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_LIMIT)).unwrap_or(text)
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_str(), f)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(|error| {
            // The crate draws the expression with a marker under it, over several lines; the last says what is wrong.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            de::Error::custom(format!("not a regular expression: {}", reason.trim_start_matches("error: ")))
        })
    }
}
