//! Strings that a target controls, made safe to print: a thread may be named `\x1b[2J` or `ok\nHEALTHY`.

use std::{borrow::Cow, fmt::Write as _};

use crate::model::format::{clip, clip_start};

/// The text with everything that could move the cursor, start a line or reorder the line written as an escape.
pub fn line(text: &str) -> Cow<'_, str> {
    // Nearly every name is printable ASCII, and a dump has tens of thousands.
    if is_printable_ascii(text) || !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            _ if is_unsafe(character) => {
                // Writing to a String cannot fail.
                match u32::from(character) {
                    code @ 0..=0xff => write!(safe, "\\x{code:02x}"),
                    code => write!(safe, "\\u{{{code:x}}}"),
                }
                .ok();
            }
            _ => safe.push(character),
        }
    }
    Cow::Owned(safe)
}

/// [`line`], and of that at most `limit` characters.
pub fn name(text: &str, limit: usize) -> String {
    clip(&line(text), limit).into_owned()
}

/// [`line`], and of that at most the last `limit` characters.
pub fn path(text: &str, limit: usize) -> String {
    clip_start(&line(text), limit).into_owned()
}

fn is_printable_ascii(text: &str) -> bool {
    // No exit inside a chunk: so the compiler compares many bytes at once.
    let printable = |chunk: &[u8]| chunk.iter().fold(true, |all, byte| all & matches!(byte, b' '..=b'~'));
    text.as_bytes().chunks(32).all(printable)
}

/// Control characters (C0, DEL, C1), line and paragraph separators, and the invisible marks that reorder or hide
/// text (Unicode Technical Report 36, "bidirectional text spoofing").
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{line, name, path};

    #[test]
    fn harmless_text_is_left_alone() {
        assert_eq!(line("Thread-4 (transfer_worker) · naïve"), "Thread-4 (transfer_worker) · naïve");
    }

    #[test]
    fn escapes_show_what_was_there() {
        assert_eq!(line("ok\nHEALTHY"), "ok\\nHEALTHY");
        assert_eq!(line("\x1b[2Jx\x07\r\t\u{9b}"), "\\x1b[2Jx\\x07\\r\\t\\x9b");
        assert_eq!(line("a\u{202e}b\u{2028}"), "a\\u{202e}b\\u{2028}");
    }

    #[test]
    fn what_is_long_once_it_is_escaped_is_cut() {
        assert_eq!(name("\n\n\n", 5), "\\n\\n…");
        assert_eq!(path("/a/\n.py", 5), "…n.py");
    }

    proptest! {
        #[test]
        fn nothing_escapes_a_line(text in any::<String>()) {
            let safe = line(&text);
            let escapes = safe.chars().find(|&c| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}'));
            prop_assert_eq!(escapes, None);
        }
    }
}
