//! `futex_waitv`: several futexes in one wait.

use super::{SavedMemory, Syscall};

/// One word that a `futex_waitv` waits for (`struct futex_waitv`, include/uapi/linux/futex.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitvWord {
    /// Address of the word.
    pub address: u64,
    /// The value that it must hold.
    pub expected: u32,
    /// `FUTEX2_*`.
    pub flags: u32,
}

impl WaitvWord {
    /// `sizeof(struct futex_waitv)`.
    pub const SIZE: usize = 24;
    /// Most of them in one call (`FUTEX_WAITV_MAX`).
    pub const MOST: usize = 128;

    /// Those of a call, from what was saved of its array, which may lie on two pages and so in two pieces.
    pub fn saved(syscall: &Syscall, saved: &[SavedMemory]) -> Vec<Self> {
        let [mut next, count, ..] = syscall.arguments;
        let end = next.saturating_add(Self::bytes(count));
        let mut bytes: Vec<u8> = Vec::new();
        while next < end {
            let piece = saved.iter().find(|piece| piece.address == next && !piece.bytes.is_empty());
            let Some(piece) = piece else { break };
            let room = usize::try_from(end - next).unwrap_or(0);
            bytes.extend(piece.bytes.iter().take(room));
            next = next.saturating_add(piece.bytes.len() as u64);
        }
        Self::parse(&bytes)
    }

    /// Length of an array of so many entries, as far as it is kept.
    pub fn bytes(count: u64) -> u64 {
        // The kernel takes an `unsigned int`.
        (count & 0xffff_ffff).min(Self::MOST as u64).saturating_mul(Self::SIZE as u64)
    }

    /// The entries in `bytes`, as many as are whole.
    pub fn parse(bytes: &[u8]) -> Vec<Self> {
        let (entries, _) = bytes.as_chunks::<{ Self::SIZE }>();
        let word = |entry: &[u8; Self::SIZE]| {
            let (values, rest) = entry.as_chunks::<8>();
            let [value, address, _] = values else { return None };
            let flags = entry.get(16..20).and_then(|flags| flags.try_into().ok())?;
            debug_assert!(rest.is_empty());
            Some(Self {
                address: u64::from_le_bytes(*address),
                // 32 bits is the only size that the kernel takes so far.
                expected: u64::from_le_bytes(*value) as u32,
                flags: u32::from_le_bytes(flags),
            })
        };
        entries.iter().take(Self::MOST).filter_map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_waitv() {
        let mut bytes = Vec::new();
        for (value, address, flags) in [(2_u64, 0x1000_u64, 130_u32), (7, 0x2000, 2)] {
            bytes.extend(value.to_le_bytes());
            bytes.extend(address.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend([0; 4]);
        }
        bytes.extend([1; 23]);
        let words = WaitvWord::parse(&bytes);
        assert_eq!(words.len(), 2);
        assert_eq!(words[0], WaitvWord { address: 0x1000, expected: 2, flags: 130 });
        assert_eq!(words[1].flags, 2);
        assert_eq!(WaitvWord::parse(&[0; 24 * 200]).len(), WaitvWord::MOST);
    }
}
