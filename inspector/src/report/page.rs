//! Text for people, built line by line: every piece is escaped, styles are ours alone.

use std::ops::Range;

use super::{color::Style, escape};
use crate::model::format::clip;

/// Most characters of a line: whatever pieces it is made of, a page can be read and pasted.
const MOST_CHARACTERS: usize = 2000;

/// A page of text. Whatever is put on it, a line ends only where [`Page::end`] says so, and colours are switched on and
/// off only by [`Style`]s.
#[derive(Debug)]
pub struct Page {
    text: String,
    colored: bool,
    /// Characters that the current line still has room for.
    room: usize,
}

impl Page {
    /// An empty page; `colored`: with ANSI colours.
    pub fn new(colored: bool) -> Self {
        Self { text: String::new(), colored, room: MOST_CHARACTERS }
    }

    /// Adds a piece to the current line.
    pub fn put(&mut self, style: Style, piece: &str) -> &mut Self {
        let piece = escape::line(piece);
        let piece = clip(&piece, self.room);
        self.room = self.room.saturating_sub(piece.chars().count());
        if !self.colored || style == Style::Plain || piece.is_empty() {
            self.text.push_str(&piece);
        } else {
            self.text.push_str(style.start());
            self.text.push_str(&piece);
            self.text.push_str(Style::END);
        }
        self
    }

    /// Adds a piece in the terminal's own colour.
    pub fn plain(&mut self, piece: &str) -> &mut Self {
        self.put(Style::Plain, piece)
    }

    /// Ends the line.
    pub fn end(&mut self) -> &mut Self {
        self.text.push('\n');
        self.room = MOST_CHARACTERS;
        self
    }

    /// Adds a whole plain line.
    pub fn line(&mut self, piece: &str) -> &mut Self {
        self.plain(piece).end()
    }

    /// Where the next line begins, after [`Page::end`].
    pub fn position(&self) -> usize {
        self.text.len()
    }

    /// Adds lines once more that are on the page already, between two [`Page::position`]s.
    pub fn repeat(&mut self, lines: Range<usize>) -> &mut Self {
        self.text.extend_from_within(lines);
        self
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::{Page, Style};

    #[test]
    fn a_hostile_name_stays_on_its_line_and_without_colour() {
        let mut page = Page::new(false);
        page.plain("thread ").put(Style::Bad, "x\nHEALTHY \x1b[32m").end();
        assert_eq!(page.into_text(), "thread x\\nHEALTHY \\x1b[32m\n");
    }

    #[test]
    fn a_line_has_an_end() {
        let mut page = Page::new(false);
        for piece in ["a", "\n", "b"] {
            page.plain(&piece.repeat(1500));
        }
        page.end().line("next");
        let text = page.into_text();
        let lines: Vec<&str> = text.lines().collect();
        let [long, next] = lines[..] else { panic!("{} lines", lines.len()) };
        assert_eq!(long.chars().count(), 2000);
        assert!(long.ends_with('…'), "{long}");
        assert_eq!(next, "next");
    }

    #[test]
    fn only_styles_write_escapes() {
        let mut page = Page::new(true);
        page.put(Style::Bad, "WEDGED\x1b[0m").plain(" now").end();
        assert_eq!(page.into_text(), "\x1b[1;31mWEDGED\\x1b[0m\x1b[0m now\n");
    }
}
