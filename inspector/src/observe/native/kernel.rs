//! Names for kernel addresses, from `/proc/kallsyms`.
//!
//! Read here and not through blazesym: one table of offsets into the text holds 120,000 symbols without an allocation
//! a symbol, and the file is read once a run.

use std::{cell::OnceCell, fs::File, io, io::Read as _};

use crate::model::{Frame, FrameKind, Gap};

/// Most bytes of `kallsyms` that are read; a distribution's kernel with its modules has about 15 MiB.
const MAX_BYTES: u64 = 256 << 20;

/// The kernel's symbols, read when the first address is asked for.
#[derive(Debug, Default)]
pub struct KernelSymbols(OnceCell<Result<Table, String>>);

/// Names in the text, by address.
#[derive(Debug, Default)]
struct Table {
    text: Vec<u8>,
    /// Address, and where in `text` the name lies.
    symbols: Vec<(u64, u32, u16)>,
}

impl KernelSymbols {
    /// Nothing is read yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The frames at `addresses`, return addresses as `bpf_get_task_stack` gives them; `0x…` where no symbol is known.
    pub fn frames(&self, addresses: &[u64]) -> Vec<Frame> {
        let table = if addresses.is_empty() { None } else { self.table().as_ref().ok() };
        addresses
            .iter()
            .map(|&address| {
                // A call may be the last instruction of its function: its return address belongs to the next one.
                let name = table.and_then(|table| table.name(address.checked_sub(1)?));
                Frame {
                    kind: FrameKind::Kernel,
                    function: name.unwrap_or_else(|| format!("{address:#x}")),
                    file: None,
                    line: None,
                    module: None,
                    address: Some(address),
                }
            })
            .collect()
    }

    /// Why kernel frames have no names; `None`: they have, or none was asked for.
    pub fn gap(&self) -> Option<Gap> {
        let why = self.0.get()?.as_ref().err()?;
        Some(Gap::host("native", format!("{why}: kernel frames are shown as addresses")))
    }

    fn table(&self) -> &Result<Table, String> {
        self.0.get_or_init(|| {
            let text = read().map_err(|error| format!("cannot read /proc/kallsyms ({error})"))?;
            let table = Table::parse(text);
            if table.symbols.is_empty() {
                // kernel/ksyms_common.c, kallsyms_show_value: CAP_SYSLOG, or kptr_restrict 0 and the like.
                return Err(
                    "/proc/kallsyms hides its addresses (needs CAP_SYSLOG, and kernel.kptr_restrict below 2)"
                        .into(),
                );
            }
            Ok(table)
        })
    }
}

fn read() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open("/proc/kallsyms")?.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

impl Table {
    /// Lines of `address type name [module]` (kernel/kallsyms.c, `s_show`). Code alone is kept; an address of 0 is a
    /// hidden one.
    fn parse(text: Vec<u8>) -> Self {
        let mut symbols = Vec::with_capacity(text.len() / 45);
        let mut start = 0;
        for line in text.split(|&byte| byte == b'\n') {
            if let Some((address, from, length)) = parse_line(line)
                && let (Ok(offset), Ok(length)) = (u32::try_from(start + from), u16::try_from(length))
            {
                symbols.push((address, offset, length));
            }
            start += line.len() + 1;
        }
        symbols.sort_by_key(|symbol| symbol.0);
        Self { text, symbols }
    }

    fn name(&self, address: u64) -> Option<String> {
        let after = self.symbols.partition_point(|symbol| symbol.0 <= address);
        // Of several names of one address, the first.
        let (start, ..) = *self.symbols.get(after.checked_sub(1)?)?;
        let (_, offset, length) =
            *self.symbols.get(self.symbols.partition_point(|symbol| symbol.0 < start))?;
        let name = self.text.get(offset as usize..)?.get(..usize::from(length))?;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

/// The symbol's address, and where in the line its name lies.
fn parse_line(line: &[u8]) -> Option<(u64, usize, usize)> {
    let digits = line.iter().position(|&byte| byte == b' ')?;
    let address = line.get(..digits)?.iter().try_fold(0_u64, |value, &digit| {
        Some(value.checked_mul(16)? | u64::from(char::from(digit).to_digit(16)?))
    })?;
    if address == 0 || !matches!(line.get(digits + 1)?, b't' | b'T' | b'w' | b'W') {
        return None;
    }
    let from = digits + 3;
    let name = line.get(from..)?;
    let length = name.iter().position(u8::is_ascii_whitespace).unwrap_or(name.len());
    Some((address, from, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] =
        b"ffffffff81000000 T _text\nffffffff81000000 t alias\nffffffff81000100 t do_wait\t[module]\n\
        ffffffff81000180 D some_data\n0000000000000000 T hidden\nnonsense\n\nffffffff81000200 W weak";

    #[test]
    fn finds_the_function_that_holds_an_address() {
        let table = Table::parse(TEXT.to_vec());
        let name = |address| table.name(address);
        assert_eq!(name(0xffff_ffff_8100_0000).as_deref(), Some("_text"));
        assert_eq!(name(0xffff_ffff_8100_00ff).as_deref(), Some("_text"));
        assert_eq!(name(0xffff_ffff_8100_01f0).as_deref(), Some("do_wait"), "data is not code");
        assert_eq!(name(u64::MAX).as_deref(), Some("weak"));
        assert_eq!(name(0x1000), None);
        assert_eq!(table.symbols.len(), 4);
    }

    #[test]
    fn hidden_addresses_give_no_table() {
        assert!(Table::parse(b"0000000000000000 T a\n0000000000000000 t b\n".to_vec()).symbols.is_empty());
    }

    #[test]
    fn names_the_running_kernel_or_says_why_not() {
        let symbols = KernelSymbols::new();
        assert_eq!(symbols.gap(), None, "nothing was asked for");
        let Ok(table) = symbols.table() else {
            assert!(symbols.gap().expect("a gap").reason.contains("kallsyms"));
            return;
        };
        let &(start, ..) = table.symbols.first().expect("symbols");
        let frames = symbols.frames(&[start + 1, 0, 1]);
        assert!(!frames[0].function.starts_with("0x"));
        assert_eq!((frames[1].function.as_str(), frames[2].function.as_str()), ("0x0", "0x1"));
    }
}
