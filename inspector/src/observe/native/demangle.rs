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
        // f(A<int, int>, A<S0, S0>, A<S1, S1>, …): each parameter is twice as long as the one before.
        let mut name = String::from("_Z1f1AIiiE");
        for back in "0123456789ABCD".chars() {
            write!(name, "S_IS{back}_S{back}_E").unwrap();
        }
        let cut = demangle(&name);
        assert!(cut.starts_with("f(A<int, int>, A<A<int, int>, A<int, int> >"), "{cut}");
        assert!((MOST_BYTES..=MOST_BYTES + 4).contains(&cut.len()), "{}", cut.len());
        assert!(demangle(&"x".repeat(10_000)).len() <= MOST_BYTES);
    }
}
