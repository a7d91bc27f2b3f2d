//! A kernel address and the name that the kernel gives it.

use bytemuck::{Pod, Zeroable};

/// Addresses named in one run of the program.
pub const SYMBOLS: usize = 256;
/// Room for a name and its end; longer ones are cut (`KSYM_NAME_LEN` is 512, the longest in use below 100).
const NAME: usize = 120;

/// One address and, once the program ran, its symbol's name.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Symbol {
    /// A kernel address; 0 ends the list.
    pub address: u64,
    /// The name, ended by a zero; empty where the program did not get to it.
    pub name: [u8; NAME],
}

impl Symbol {
    /// The name: `None` where there is none, which the kernel prints as a number.
    pub fn name(&self) -> Option<&str> {
        let end = self.name.iter().position(|&byte| byte == 0)?;
        let name = core::str::from_utf8(self.name.get(..end)?).ok()?;
        // A module's follows in brackets (`sprint_symbol_no_offset`, kernel/kallsyms.c).
        let name = name.split(' ').next()?;
        (!name.is_empty() && !name.starts_with("0x")).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_numbers() {
        let symbol = |text: &[u8]| {
            let mut symbol = Symbol::zeroed();
            symbol.name[..text.len()].copy_from_slice(text);
            symbol
        };
        assert_eq!(symbol(b"do_wait").name(), Some("do_wait"));
        assert_eq!(symbol(b"nf_hook [nf_tables]").name(), Some("nf_hook"));
        assert_eq!(symbol(b"0xffffffff81000000").name(), None);
        assert_eq!(symbol(b"").name(), None);
        assert_eq!(symbol(&[b'x'; NAME]).name(), None, "it has no end");
        assert_eq!(symbol(&[0xff]).name(), None);
    }
}
