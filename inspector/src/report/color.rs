//! The few colours that the text uses; they repeat what the words say, so that nothing is lost without them.

/// How a piece of text looks on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The terminal's own colour.
    Plain,
    /// A heading.
    Bold,
    /// Secondary: addresses, files, units.
    Dim,
    /// Something is wrong.
    Bad,
    /// Look here: likely, degraded, unknown.
    Warn,
    /// All is well; proven.
    Good,
    /// A name: thread, process.
    Name,
}

impl Style {
    /// Back to the terminal's own colour.
    pub const END: &'static str = "\x1b[0m";

    /// The sequence that switches the style on (ECMA-48 SGR).
    pub const fn start(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Bad => "\x1b[1;31m",
            Self::Warn => "\x1b[33m",
            Self::Good => "\x1b[32m",
            Self::Name => "\x1b[36m",
        }
    }
}
