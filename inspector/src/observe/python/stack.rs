//! The frames of every thread, breadth first: each round of reads takes one step of each thread that needs one.
//!
//! From 3.11 on frames lie one behind the other in a thread's data stack, which is read whole; only frames elsewhere (in
//! generators, on the C stack) need rounds of their own.

use std::collections::HashSet;

use super::{
    bytes::{i32_at, u8_at, u32_at, u64_at},
    layout::{CurrentFrame, FrameLayout, Layout, Position},
    reader::Reader,
    state::ThreadState,
};

/// Deepest stack that is read.
const MAX_DEPTH: usize = 2048;

/// Most chunks of one thread's data stack, and most bytes of one chunk.
const MAX_CHUNKS: usize = 64;
const MAX_CHUNK: u64 = 1 << 20;

/// `offsetof(_PyStackChunk, data)`: previous, size, top (Include/cpython/pystate.h).
const CHUNK_HEADER: u64 = 24;

/// `FRAME_OWNED_BY_GENERATOR` (Include/internal/pycore_frame.h).
const OWNED_BY_GENERATOR: u8 = 1;

/// From this owner on a frame is no Python frame but where the C stack calls the interpreter: `FRAME_OWNED_BY_CSTACK` in
/// 3.12 and 3.13, `FRAME_OWNED_BY_INTERPRETER` and `FRAME_OWNED_BY_CSTACK` after.
const FIRST_SHIM: u8 = 3;

/// Bits of a `_PyStackRef` that are not address.
const STACKREF_TAG: u64 = 3;

/// One frame, its code not yet read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawFrame {
    /// Where it lies.
    pub(super) address: u64,
    /// The code object, or what stands in its place.
    pub(super) code: u64,
    pub(super) place: Place,
    /// The outermost frame of one C call of the interpreter.
    pub(super) entry: bool,
    /// A generator's: complete by definition, also before its first traceable instruction.
    pub(super) generator: bool,
    /// Which copy of the byte code it runs (free-threaded, from 3.14).
    pub(super) copy: u32,
}

/// Where a frame is in its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// Bytes from the beginning.
    Offset(i64),
    /// An address in the byte code.
    Address(u64),
}

/// The frames of one thread.
#[derive(Debug, Default)]
pub(super) struct Stack {
    /// Innermost first.
    pub(super) frames: Vec<RawFrame>,
    /// Why these are not all, as one clause.
    pub(super) partial: Option<&'static str>,
}

struct Walk {
    stack: Stack,
    next: u64,
    seen: HashSet<u64>,
    chunks: Vec<(u64, Vec<u8>)>,
}

/// Reads the frames of all `threads`, in their order.
pub(super) fn stacks(reader: &Reader<'_>, layout: &Layout, threads: &[ThreadState]) -> Vec<Stack> {
    let mut walks = starts(reader, layout, threads);
    chunks(reader, threads, &mut walks);
    let length = layout.frame.length();
    loop {
        let mut waiting: Vec<&mut Walk> =
            walks.iter_mut().filter_map(|walk| walk.advance(layout, length).then_some(walk)).collect();
        if waiting.is_empty() {
            break;
        }
        let frames = reader.many(waiting.iter().map(|walk| (walk.next, length)));
        for (walk, bytes) in waiting.iter_mut().zip(frames) {
            match bytes.and_then(|bytes| Frame::parse(&layout.frame, layout.release, walk.next, &bytes)) {
                Some(frame) => walk.push(frame),
                None if reader.exhausted() => walk.stop("more was to be read than one process may ask for"),
                None => walk.stop("a frame could not be read"),
            }
        }
    }
    walks.into_iter().map(|walk| walk.stack).collect()
}

/// The innermost frame of each thread.
fn starts(reader: &Reader<'_>, layout: &Layout, threads: &[ThreadState]) -> Vec<Walk> {
    let heads: Vec<Option<u64>> = match layout.thread.frame {
        CurrentFrame::Object(_) | CurrentFrame::Direct(_) => {
            threads.iter().map(|thread| Some(thread.frame)).collect()
        }
        CurrentFrame::CFrame { current, .. } => reader
            .many(threads.iter().map(|thread| (thread.frame.wrapping_add(current as u64), 8)))
            .into_iter()
            .map(|bytes| u64_at(&bytes?, 0))
            .collect(),
    };
    heads
        .into_iter()
        .map(|head| {
            let partial = head.is_none().then_some("its innermost frame could not be found");
            Walk {
                stack: Stack { frames: Vec::new(), partial },
                next: head.unwrap_or(0),
                seen: HashSet::new(),
                chunks: Vec::new(),
            }
        })
        .collect()
}

/// Reads the used part of each thread's data stack.
fn chunks(reader: &Reader<'_>, threads: &[ThreadState], walks: &mut [Walk]) {
    let mut wanted: Vec<(usize, u64, usize)> = Vec::new();
    for (index, (thread, walk)) in threads.iter().zip(walks.iter()).enumerate() {
        if let Some((chunk, top)) = thread.datastack
            && walk.next != 0
            && let Some(used) =
                top.checked_sub(chunk).filter(|used| (CHUNK_HEADER..=MAX_CHUNK).contains(used))
        {
            wanted.push((index, chunk, used as usize));
        }
    }
    for _chunk in 0..MAX_CHUNKS {
        if wanted.is_empty() {
            return;
        }
        let read = reader.many(wanted.iter().map(|&(_, address, length)| (address, length)));
        let mut older: Vec<(usize, u64)> = Vec::new();
        for ((index, address, _), bytes) in wanted.drain(..).zip(read) {
            let (Some(bytes), Some(walk)) = (bytes, walks.get_mut(index)) else { continue };
            if let Some(previous) = u64_at(&bytes, 0).filter(|&previous| previous != 0) {
                older.push((index, previous));
            }
            walk.chunks.push((address, bytes));
        }
        let headers = reader.many(older.iter().map(|&(_, chunk)| (chunk, CHUNK_HEADER as usize)));
        for ((index, chunk), header) in older.into_iter().zip(headers) {
            // `top` counts the used words of `data`; it is kept up to date for all chunks but the newest.
            let used = header
                .and_then(|header| u64_at(&header, 16)?.checked_mul(8)?.checked_add(CHUNK_HEADER))
                .filter(|&used| used <= MAX_CHUNK);
            if let Some(used) = used {
                wanted.push((index, chunk, used as usize));
            }
        }
    }
}

impl Walk {
    /// Takes every step that needs no more memory; whether it then needs the frame at `next`.
    fn advance(&mut self, layout: &Layout, length: usize) -> bool {
        while self.next != 0 {
            let Some(frame) = self
                .held(self.next, length)
                .and_then(|bytes| Frame::parse(&layout.frame, layout.release, self.next, bytes))
            else {
                return true;
            };
            self.push(frame);
        }
        false
    }

    fn held(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.chunks.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..at.checked_add(length)?)
        })
    }

    fn push(&mut self, frame: Frame) {
        if !self.seen.insert(self.next) {
            return self.stop("its frames form a circle: they moved while they were read");
        }
        self.next = frame.previous;
        match frame.frame {
            Some(raw) => self.stack.frames.push(raw),
            None => self.mark_entry(),
        }
        if self.next == 0 {
            self.mark_entry();
        } else if self.seen.len() >= MAX_DEPTH {
            self.stop("the stack is deeper than 2048 frames: the outer ones are left out");
        }
    }

    /// The outermost frame so far is the first of its C call.
    fn mark_entry(&mut self) {
        if let Some(last) = self.stack.frames.last_mut() {
            last.entry = true;
        }
    }

    fn stop(&mut self, why: &'static str) {
        self.next = 0;
        self.stack.partial = Some(why);
    }
}

/// What is read of one frame.
struct Frame {
    previous: u64,
    /// `None` for a frame that is none of Python's.
    frame: Option<RawFrame>,
}

impl Frame {
    fn parse(layout: &FrameLayout, release: (u8, u8), address: u64, bytes: &[u8]) -> Option<Self> {
        let previous = u64_at(bytes, layout.previous)?;
        let owner = layout.owner.map(|offset| u8_at(bytes, offset)).map_or(Some(0), |owner| owner)?;
        if release >= (3, 12) && owner >= FIRST_SHIM {
            return Some(Self { previous, frame: None });
        }
        let place = match layout.position {
            Position::ByteOffset(offset) => Place::Offset(i64::from(i32_at(bytes, offset)?)),
            Position::UnitOffset(offset) => Place::Offset(i64::from(i32_at(bytes, offset)?) * 2),
            Position::Pointer(offset) => Place::Address(u64_at(bytes, offset)?),
        };
        let code = u64_at(bytes, layout.code)?;
        let entry = match layout.is_entry {
            Some(offset) => u8_at(bytes, offset)? != 0,
            // Before 3.11 each frame has its own C call; from 3.12 on the shim before it tells.
            None => layout.owner.is_none(),
        };
        let copy = layout.tlbc_index.map_or(Some(0), |offset| u32_at(bytes, offset))?;
        let code = if release >= (3, 13) { code & !STACKREF_TAG } else { code };
        let generator = owner == OWNED_BY_GENERATOR;
        Some(Self { previous, frame: Some(RawFrame { address, code, place, entry, generator, copy }) })
    }
}
