//! The memory that system calls' arguments point to: what is named first, and what that leads to.

use std::collections::BTreeMap;

use super::{
    protocol::{Reply, Request, ThreadReply},
    serve::Walked,
};
use crate::{
    model::SavedMemory,
    observe::{
        arguments,
        memory::{Piece, ProcessReader, TargetMemory as _},
    },
};

/// Most bytes kept of the memory that one thread's arguments point to.
const MAX_BYTES: usize = 64 << 10;

/// What was kept, by the host's tid.
type Saved = BTreeMap<u32, Vec<SavedMemory>>;

/// Reads it for every thread of a request; what the walk over the threads gave already is not read again.
pub(super) fn read(memory: &ProcessReader, request: &Request, walked: &Walked) -> Reply {
    let arch = std::env::consts::ARCH;
    let mut saved = Saved::new();
    for thread in request.threads.iter().filter(|thread| thread.syscall.is_some()) {
        let futex = walked.get(&thread.tid).and_then(|walked| walked.futex.as_ref());
        if let Some(futex) = futex {
            saved.entry(thread.tid).or_default().push(futex.clone());
        }
    }
    add(memory, request, &mut saved, |syscall, _| arguments::wanted(arch, syscall));
    add(memory, request, &mut saved, |syscall, saved| arguments::wanted_next(arch, syscall, saved));
    let reply = |(tid, memory)| ThreadReply { tid, memory, ..ThreadReply::default() };
    Reply { threads: saved.into_iter().map(reply).collect(), ..Reply::default() }
}

/// One step: what `wanted` names for each thread, given what was saved of it so far.
fn add(
    memory: &ProcessReader,
    request: &Request,
    saved: &mut Saved,
    wanted: impl Fn(&crate::model::Syscall, &[SavedMemory]) -> Vec<(u64, usize)>,
) {
    let mut owners = Vec::new();
    let mut pieces = Vec::new();
    for thread in &request.threads {
        let Some(syscall) = &thread.syscall else { continue };
        let known = saved.get(&thread.tid).map_or(&[][..], Vec::as_slice);
        let mut total: usize = known.iter().map(|piece| piece.bytes.len()).sum();
        for (address, length) in wanted(syscall, known) {
            total = total.saturating_add(length);
            if total > MAX_BYTES {
                break;
            }
            if !known.iter().any(|piece| piece.holds(address, length)) {
                owners.push(thread.tid);
                pieces.push(Piece::new(address, length));
            }
        }
    }
    memory.read_many(&mut pieces);
    for (tid, mut piece) in owners.into_iter().zip(pieces).filter(|(_, piece)| piece.filled > 0) {
        piece.bytes.truncate(piece.filled);
        saved.entry(tid).or_default().push(SavedMemory { address: piece.address, bytes: piece.bytes });
    }
}
