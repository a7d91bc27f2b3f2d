//! A stream of records, as a walk writes them: each begins with its version and its length, and bytes follow its head.

use core::fmt;

use bytemuck::AnyBitPattern;

/// Version of the records; both sides are built from one source, so another one is a damaged or foreign stream.
pub const RECORD_VERSION: u32 = 1;

/// A stream that is not what the programs write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The stream ends inside a record.
    Truncated {
        /// Bytes left.
        left: usize,
    },
    /// Another version than [`RECORD_VERSION`].
    Version {
        /// The record's.
        found: u32,
    },
    /// A length that no record can have.
    Length {
        /// The record's.
        found: u32,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { left } => {
                write!(formatter, "the stream ends inside a record ({left} bytes left)")
            }
            Self::Version { found } => {
                write!(formatter, "record version {found}, but this build reads version {RECORD_VERSION}")
            }
            Self::Length { found } => write!(formatter, "no record is {found} bytes long"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// The records of `stream`: their heads, and what follows them: whole units of `unit` bytes, `most` bytes in all.
pub(crate) fn records<Head: AnyBitPattern>(
    stream: &[u8],
    unit: usize,
    most: usize,
) -> impl Iterator<Item = Result<(Head, &[u8]), DecodeError>> {
    let mut rest = stream;
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let record = first(rest, unit, most);
        // After an error nothing tells where the next record begins.
        rest = record.as_ref().map_or(&[], |(_, _, after)| *after);
        Some(record.map(|(head, body, _)| (head, body)))
    })
}

/// The first record's head, what follows it, and the records behind it.
fn first<Head: AnyBitPattern>(
    stream: &[u8],
    unit: usize,
    most: usize,
) -> Result<(Head, &[u8], &[u8]), DecodeError> {
    let truncated = DecodeError::Truncated { left: stream.len() };
    let start = stream.get(..size_of::<Head>()).ok_or(truncated)?;
    let [version, found]: [u32; 2] = bytemuck::pod_read_unaligned(start.get(..8).ok_or(truncated)?);
    if version != RECORD_VERSION {
        return Err(DecodeError::Version { found: version });
    }
    let length = found as usize;
    let body = length.checked_sub(size_of::<Head>());
    if !body.is_some_and(|body| body % unit == 0 && body <= most) {
        return Err(DecodeError::Length { found });
    }
    let (record, rest) = stream.split_at_checked(length).ok_or(truncated)?;
    let body = record.get(size_of::<Head>()..).ok_or(truncated)?;
    Ok((bytemuck::pod_read_unaligned(start), body, rest))
}
