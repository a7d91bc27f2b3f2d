//! The stretches of a thread's stack that were read so far.

/// An address whose eight bytes were not read yet, or cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing(pub(super) u64);

/// Most stretches kept. A walk goes up the stack, so the oldest is not needed again.
const MAX_STRETCHES: usize = 4;

/// Stack memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack(Vec<(u64, Vec<u8>)>);

impl Stack {
    /// Adds bytes at `address`.
    pub(super) fn add(&mut self, address: u64, bytes: Vec<u8>) {
        if self.0.len() >= MAX_STRETCHES {
            self.0.remove(0);
        }
        self.0.push((address, bytes));
    }

    /// The little-endian `u64` at `address`.
    pub(super) fn read(&self, address: u64) -> Result<u64, Missing> {
        self.0
            .iter()
            .rev()
            .find_map(|(start, bytes)| word(bytes, address.checked_sub(*start)?))
            .ok_or(Missing(address))
    }
}

fn word(bytes: &[u8], offset: u64) -> Option<u64> {
    let offset = usize::try_from(offset).ok()?;
    let bytes = bytes.get(offset..offset.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_only_what_was_added() {
        let mut stack = Stack::default();
        stack.add(0x1000, vec![1; 16]);
        assert_eq!(stack.read(0x1008), Ok(0x0101_0101_0101_0101));
        assert_eq!(stack.read(0x1009), Err(Missing(0x1009)), "the last byte is not there");
        assert_eq!(stack.read(0xfff), Err(Missing(0xfff)));
        assert_eq!(stack.read(u64::MAX), Err(Missing(u64::MAX)));
    }

    #[test]
    fn forgets_the_oldest() {
        let mut stack = Stack::default();
        for page in 0..=MAX_STRETCHES as u64 {
            stack.add(page << 12, vec![0; 8]);
        }
        assert_eq!(stack.read(0), Err(Missing(0)));
        assert_eq!(stack.read(1 << 12), Ok(0));
    }
}
