//! Which thread of the process a thread state belongs to.

use std::collections::HashMap;

use super::{bytes::u32_at, elf_image::Image, layout::Layout, reader::Reader, state::ThreadState};
use crate::observe::{helper::protocol::ThreadRequest, maps::Maps};

/// No glibc's `struct pthread` is larger (2304 bytes in 2.36).
const MAX_PTHREAD: u32 = 1 << 16;

/// Fills in the tids that the runtime does not know (until 3.10): glibc keeps them in its thread structure, at the
/// offset that it exports for debuggers as `_thread_db_pthread_tid` (nptl_db/structs.def).
pub(super) fn native_ids(reader: &Reader<'_>, maps: &Maps, layout: &Layout, threads: &mut [ThreadState]) {
    if layout.thread.native_id.is_some() {
        return;
    }
    let Some(offset) = tid_offset(reader, maps) else { return };
    let tids = reader.many(threads.iter().map(|thread| (thread.ident.wrapping_add(u64::from(offset)), 4)));
    for (thread, tid) in threads.iter_mut().zip(tids) {
        thread.native_id = tid.and_then(|bytes| u32_at(&bytes, 0)).filter(|&tid| tid != 0);
    }
}

/// `offsetof(struct pthread, tid)` of the process's libc. The descriptor is size in bits, number of elements, offset.
fn tid_offset(reader: &Reader<'_>, maps: &Maps) -> Option<u32> {
    let libc = maps.iter().filter(|region| region.offset == 0).filter(|region| {
        let name = region.file_name();
        // Until glibc 2.33 the thread library is a file of its own.
        name.starts_with("libpthread") || name.starts_with("libc.so") || name.starts_with("libc-2.")
    });
    libc.take(4).find_map(|region| {
        let symbol = Image::open(reader, region.start)?.symbol("_thread_db_pthread_tid")?;
        let descriptor = reader.one(symbol.address, 12)?;
        let offset = u32_at(&descriptor, 8)?;
        (u32_at(&descriptor, 0)? == 32 && offset < MAX_PTHREAD).then_some(offset)
    })
}

/// Finds threads by what thread states tell of them.
#[derive(Debug)]
pub(super) struct Threads {
    by_pointer: HashMap<u64, u32>,
    by_ns_tid: HashMap<u32, u32>,
}

impl Threads {
    pub(super) fn new(threads: &[ThreadRequest]) -> Self {
        Self {
            by_pointer: threads
                .iter()
                .filter_map(|thread| Some((thread.thread_pointer?, thread.tid)))
                .collect(),
            by_ns_tid: threads
                .iter()
                .filter(|thread| thread.ns_tid != 0)
                .map(|thread| (thread.ns_tid, thread.tid))
                .collect(),
        }
    }

    /// The host's tid of a thread state's thread. The thread pointer, which the kernel told, counts more than the
    /// number that the runtime keeps (it is stale after a fork in some releases).
    pub(super) fn host_tid(&self, thread: &ThreadState) -> Option<u32> {
        self.by_pointer.get(&thread.ident).or_else(|| self.by_ns_tid.get(&thread.native_id?)).copied()
    }
}
