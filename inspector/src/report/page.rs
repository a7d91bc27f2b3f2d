//! Text for people, built line by line: every piece is escaped, styles are ours alone.

use super::{color::Style, escape};

/// A page of text. Whatever is put on it, a line ends only where [`Page::end`] says so, and colours are switched on and
/// off only by [`Style`]s.
#[derive(Debug)]
pub struct Page {
    text: String,
    colored: bool,
}

impl Page {
    /// An empty page; `colored`: with ANSI colours.
    pub fn new(colored: bool) -> Self {
        Self { text: String::new(), colored }
    }

    /// Adds a piece to the current line.
    pub fn put(&mut self, style: Style, piece: &str) -> &mut Self {
        let piece = escape::line(piece);
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
        self
    }

    /// Adds a whole plain line.
    pub fn line(&mut self, piece: &str) -> &mut Self {
        self.plain(piece).end()
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
    fn only_styles_write_escapes() {
        let mut page = Page::new(true);
        page.put(Style::Bad, "WEDGED\x1b[0m").plain(" now").end();
        assert_eq!(page.into_text(), "\x1b[1;31mWEDGED\\x1b[0m\x1b[0m now\n");
    }
}
