//! Interpreters and thread states: two linked lists in the target's memory.

use std::collections::HashSet;

use super::{
    bytes::u64_at,
    layout::{CurrentFrame, GilPlace, Layout},
    reader::{Reader, Windows},
};
use crate::observe::maps::Maps;

/// Most interpreters of one process, and most thread states of one interpreter; once that many thread states are held, no
/// further interpreter is read.
const MAX_INTERPRETERS: usize = 256;
const MAX_THREADS: usize = 1 << 15;

/// One `PyInterpreterState`.
#[derive(Debug)]
pub(super) struct InterpreterState {
    pub(super) address: u64,
    pub(super) id: i64,
    /// The dictionary `sys.modules`.
    pub(super) modules: u64,
    /// Address of its `_gil_runtime_state`.
    pub(super) gil: Option<u64>,
    pub(super) threads: Vec<ThreadState>,
    /// How many thread states it has.
    pub(super) count: usize,
    /// Why not every thread state is there, as one clause.
    pub(super) broken: Option<&'static str>,
}

/// One `PyThreadState`.
#[derive(Clone, Debug)]
pub(super) struct ThreadState {
    pub(super) address: u64,
    /// `pthread_self()`.
    pub(super) ident: u64,
    /// From 3.11.
    pub(super) native_id: Option<u32>,
    /// The innermost frame, or the `_PyCFrame` that leads to it.
    pub(super) frame: u64,
    /// The newest chunk of the data stack and its first free byte (from 3.11).
    pub(super) datastack: Option<(u64, u64)>,
}

/// Walks all interpreters and their thread states; the error is why what is at `runtime` is no runtime of this layout.
pub(super) fn interpreters(
    reader: &Reader<'_>,
    maps: &Maps,
    layout: &Layout,
    runtime: u64,
) -> Result<Vec<InterpreterState>, &'static str> {
    let mut windows = Windows::new(reader, maps);
    let head = runtime.wrapping_add(layout.interpreters_head as u64);
    let mut next = reader.pointer(head).ok_or("its list of interpreters cannot be read")?;
    if next == 0 {
        return Err("it has no interpreter: it starts up or shuts down");
    }
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut total = 0;
    while next != 0 && seen.len() < MAX_INTERPRETERS && seen.insert(next) {
        let (mut interpreter, head, following) =
            interpreter(reader, layout, runtime, next).ok_or("an interpreter cannot be read")?;
        threads(&mut windows, layout, &mut interpreter, head);
        if interpreter.threads.is_empty() && interpreter.broken.is_some() {
            return Err("its thread states do not point back to their interpreter");
        }
        interpreter.count = interpreter.threads.len();
        total += interpreter.count;
        if total >= MAX_THREADS && following != 0 {
            interpreter
                .broken
                .get_or_insert("there are too many thread states: interpreters behind it are missing");
            found.push(interpreter);
            break;
        }
        found.push(interpreter);
        next = following;
    }
    Ok(found)
}

/// The interpreter at `address`, its list of threads and the interpreter after it.
fn interpreter(
    reader: &Reader<'_>,
    layout: &Layout,
    runtime: u64,
    address: u64,
) -> Option<(InterpreterState, u64, u64)> {
    let offsets = &layout.interpreter;
    let at = |offset: usize| (address.wrapping_add(offset as u64), 8);
    let gil = match offsets.gil {
        GilPlace::Interpreter(offset) => at(offset),
        GilPlace::Runtime(_) => at(offsets.id),
    };
    let words =
        reader.many([at(offsets.next), at(offsets.id), at(offsets.threads_head), at(offsets.modules), gil]);
    let word = |index: usize| u64_at(words.get(index)?.as_ref()?, 0);
    let gil = match offsets.gil {
        GilPlace::Runtime(offset) => Some(runtime.wrapping_add(offset as u64)),
        GilPlace::Interpreter(_) => word(4).filter(|&gil| gil != 0),
    };
    let interpreter = InterpreterState {
        address,
        id: word(1)?.cast_signed(),
        modules: word(3).unwrap_or(0),
        gil,
        threads: Vec::new(),
        count: 0,
        broken: None,
    };
    Some((interpreter, word(2)?, word(0)?))
}

fn threads(windows: &mut Windows<'_, '_>, layout: &Layout, interpreter: &mut InterpreterState, head: u64) {
    let length = layout.thread.length();
    let mut next = head;
    let mut seen = HashSet::new();
    while next != 0 {
        if !seen.insert(next) || seen.len() > MAX_THREADS {
            interpreter.broken = Some("its list of thread states does not end");
            return;
        }
        let Some(bytes) = windows.get(next, length) else {
            interpreter.broken = Some("a thread state cannot be read, those behind it are missing");
            return;
        };
        // A thread state that does not point back was freed while the list was walked.
        let Some((state, following)) = thread(layout, next, interpreter.address, bytes) else {
            interpreter.broken =
                Some("a thread state was freed while it was read, those behind it are missing");
            return;
        };
        interpreter.threads.push(state);
        next = following;
    }
}

fn thread(layout: &Layout, address: u64, interpreter: u64, bytes: &[u8]) -> Option<(ThreadState, u64)> {
    let offsets = &layout.thread;
    if u64_at(bytes, offsets.interp)? != interpreter {
        return None;
    }
    let frame = match offsets.frame {
        CurrentFrame::Object(offset) | CurrentFrame::Direct(offset) => offset,
        CurrentFrame::CFrame { pointer, .. } => pointer,
    };
    let datastack = offsets.datastack.and_then(|offset| {
        let (chunk, top) = (u64_at(bytes, offset)?, u64_at(bytes, offset + 8)?);
        (chunk != 0).then_some((chunk, top))
    });
    let native_id =
        offsets.native_id.and_then(|offset| u32::try_from(u64_at(bytes, offset)?).ok()).filter(|&id| id != 0);
    let state = ThreadState {
        address,
        ident: u64_at(bytes, offsets.ident)?,
        native_id,
        frame: u64_at(bytes, frame)?,
        datastack,
    };
    Some((state, u64_at(bytes, offsets.next)?))
}
