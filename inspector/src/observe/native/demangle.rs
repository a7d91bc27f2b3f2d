//! Symbol table names as their sources have them.

use std::fmt::{self, Write};

/// Longest name as the symbol table has it, and longest name kept; C++ templates reach thousands of characters. A few bytes
/// of back-references can stand for a name of any length.
const MOST_BYTES: usize = 4096;

/// The name in the source, for a name that is mangled. A plain C name is left alone, though `f` and `i` would be types of
/// the Itanium C++ ABI.
pub(super) fn demangle(name: &str) -> String {
    let mut text = Bounded(String::new());
    let mangled =
        name.strip_prefix('_').is_some_and(|rest| rest.starts_with(['Z', 'R']) || rest.starts_with("_Z"));
    if !mangled || name.len() > MOST_BYTES {
        return clip(name);
    }
    let whole = match rustc_demangle::try_demangle(name) {
        Ok(symbol) => write!(text, "{symbol:#}").is_ok(),
        Err(_) => cpp_demangle::Symbol::new(name).is_ok_and(|symbol| {
            symbol.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::new()).is_ok()
        }),
    };
    if whole || text.is_full() { text.0 } else { clip(name) }
}

fn clip(name: &str) -> String {
    name.get(..name.floor_char_boundary(MOST_BYTES)).unwrap_or_default().to_owned()
}

/// Takes what fits and then refuses, which ends the demangler.
struct Bounded(String);

impl Bounded {
    fn is_full(&self) -> bool {
        self.0.len() > MOST_BYTES
    }
}

impl Write for Bounded {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if self.is_full() {
            return Err(fmt::Error);
        }
        let room = (MOST_BYTES + 4).saturating_sub(self.0.len());
        self.0.push_str(piece.get(..piece.floor_char_boundary(room)).unwrap_or_default());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_are_written_as_in_the_source() {
        assert_eq!(
            demangle("_ZN3zmq13socket_base_t4sendEPNS_5msg_tEi"),
            "zmq::socket_base_t::send(zmq::msg_t*, int)"
        );
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangle("_RNvCskwGfYPst2Cb_3foo16example_function"), "foo::example_function");
    }

    #[test]
    fn plain_names_are_no_types() {
        for name in ["f", "i", "v", "St", "Ss", "Pc", "main", "_start", "_Py_Main", "_Zebra", "_Z", "_R", ""]
        {
            assert_eq!(demangle(name), name);
        }
    }

    #[test]
    fn a_name_that_unfolds_without_end_is_cut() {
        // Each template argument is the pair of the one before: thirty of them are a billion.
        let mut name = String::from("_Z1fI1aE");
        for step in 0..30 {
            let back = if step == 0 { "S_".to_owned() } else { format!("S{}_", radix36(step - 1)) };
            name = format!(
                "_Z1fI{}St4pairI{back}{back}EE",
                name.trim_start_matches("_Z1fI").trim_end_matches('E')
            );
        }
        assert!(demangle(&name).len() <= MOST_BYTES + 4);
        assert!(demangle(&"x".repeat(10_000)).len() <= MOST_BYTES);
    }

    fn radix36(number: usize) -> char {
        char::from_digit(number as u32 % 36, 36).unwrap_or('0').to_ascii_uppercase()
    }
}
