//! Memory that a process shares with others, and the threads that lock words in it name.
//!
//! A lock in shared memory holds its owner's thread id as the owner counts, whatever process that is of. Where it is no
//! thread of the waiter's process, it is looked up here, on the host: only a thread whose process maps the very same memory
//! can hold the lock, and a number that nobody has who could have taken it is an owner that has ended.

mod lookup;

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use lookup::Asked;

use super::{
    arguments,
    helper::protocol::{Reply, Request, ThreadReply},
    maps::{Mapping, Maps},
};
use crate::{
    model::{Gap, SavedMemory, SharedMapping, SharedObject, sharing::object_at},
    patience::Patience,
};

/// Most shared mappings kept of one process.
const MAX_MAPPINGS: usize = 8192;
/// Most thread ids looked up for one process.
const MAX_LOOKUPS: usize = 32;
/// What one look-up may take beyond [`crate::patience`]'s own deadline: it may read every process's mappings.
const LOOKUP: Duration = Duration::from_millis(250);
/// Bits of a robust or PI lock word (`include/uapi/linux/futex.h`).
const WAITERS: u32 = 0x8000_0000;
const TID_MASK: u32 = 0x3fff_ffff;

/// The process's shared mappings, and whom the words name that `pointed` holds of its threads' futex waits.
pub(super) fn read(request: &Request, pointed: &[ThreadReply]) -> Reply {
    let pid = request.pid;
    let (mappings, cut) = match Maps::read(pid) {
        Ok(maps) => shared(&maps),
        Err(why) => {
            let reason = format!(
                "its mappings could not be read ({why}): whether it shares locks with other processes is not known"
            );
            return Reply { gaps: vec![Gap::process("sharing", pid, reason)], ..Reply::default() };
        }
    };
    let reason =
        || format!("it has more than {MAX_MAPPINGS} shared mappings: locks in the others look like its own");
    let mut gaps: Vec<Gap> = cut.then(|| Gap::process("sharing", pid, reason())).into_iter().collect();
    let mut named_tids = Vec::new();
    let mut patience = Patience::default();
    for (object, ns_tid) in named(request, pointed, &mappings).into_iter().take(MAX_LOOKUPS) {
        let asked = Asked { pid, ns_tid, object };
        // One that does not come would not come for the next one either.
        let Ok(found) = patience.run(LOOKUP, move || lookup::look_up(asked)) else {
            let reason = "whom its locks in shared memory name could not be looked up in time: some have no owner here";
            gaps.push(Gap::process("sharing", pid, reason));
            break;
        };
        named_tids.push(found);
    }
    Reply { shared_memory: Some(mappings), named_tids, gaps, ..Reply::default() }
}

/// Shared mappings of memory and files, and whether there are more than are kept. No lock lies in a device.
pub(super) fn shared(maps: &Maps) -> (Vec<SharedMapping>, bool) {
    let in_memory =
        |path: &str| !path.starts_with("/dev/") || path.starts_with("/dev/shm/") || path == "/dev/zero";
    let wanted = |mapping: &&Mapping| mapping.shared && mapping.has_file() && in_memory(&mapping.path);
    let mut found = maps.iter().filter(wanted).map(|mapping| SharedMapping {
        start: mapping.start,
        end: mapping.end,
        device: mapping.file.0,
        inode: mapping.file.1,
        offset: mapping.offset,
        path: mapping.path.clone(),
        read_only: !mapping.writable,
    });
    let kept = found.by_ref().take(MAX_MAPPINGS).collect();
    (kept, found.next().is_some())
}

/// The thread ids that lock words in shared memory name and that are none of the process's own: by the shapes that
/// `resolve` decodes, each once.
fn named(
    request: &Request,
    pointed: &[ThreadReply],
    mappings: &[SharedMapping],
) -> BTreeSet<(SharedObject, u32)> {
    let own: BTreeSet<u32> = request.threads.iter().map(|thread| thread.ns_tid).collect();
    let pointed: HashMap<u32, &ThreadReply> = pointed.iter().map(|read| (read.tid, read)).collect();
    let mut found = BTreeSet::new();
    for thread in &request.threads {
        let Some(syscall) = &thread.syscall else { continue };
        let Some(read) = pointed.get(&thread.tid) else { continue };
        for word in arguments::futex_words(std::env::consts::ARCH, syscall, &read.memory) {
            let Some(object) = object_at(mappings, word) else { continue };
            let tids = tids(&read.memory, word).into_iter().filter(|tid| !own.contains(tid));
            found.extend(tids.map(|tid| (object.clone(), tid)));
        }
    }
    found
}

/// What may be an owner's thread id near a futex word: of a mutex (2: contended) the word at 8; of a robust or PI one the
/// word itself; of a read-write lock (3: locked, with waiters) the writer, at 16 or 12 from where readers and writers wait.
fn tids(memory: &[SavedMemory], word: u64) -> Vec<u32> {
    let at = |offset: u64| {
        let address = word.checked_add(offset)?;
        memory.iter().find_map(|piece| {
            let start = usize::try_from(address.checked_sub(piece.address)?).ok()?;
            Some(u32::from_le_bytes(piece.bytes.get(start..start.checked_add(4)?)?.try_into().ok()?))
        })
    };
    let candidates = match at(0) {
        Some(2) => vec![at(8)],
        Some(3) => vec![at(12), at(16)],
        Some(value) if value & WAITERS != 0 => vec![Some(value & TID_MASK)],
        _ => Vec::new(),
    };
    candidates.into_iter().flatten().filter(|tid| (1..=1 << 22).contains(tid)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{model::Syscall, observe::helper::protocol::ThreadRequest};

    const MAPS: &[u8] = b"1000-3000 rw-s 00004000 00:01 77 /memfd:lock (deleted)\n\
        3000-4000 rw-p 00000000 08:01 9 /tmp/private\n\
        5000-6000 rw-s 00000000 00:06 9 /dev/nvidiactl\n7000-8000 rw-s 00000000 00:17 8 /dev/shm/a\n";

    fn waiter(words: &[u32], address: u64) -> (Request, Vec<ThreadReply>) {
        #[cfg(target_arch = "x86_64")]
        let number = 202;
        #[cfg(target_arch = "aarch64")]
        let number = 98;
        let syscall = Syscall { number, arguments: [address, 0, 2, 0, 0, 0], restarted: false };
        let thread = ThreadRequest { tid: 5, ns_tid: 5, syscall: Some(syscall), ..ThreadRequest::default() };
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let memory = vec![SavedMemory { address, bytes }];
        let reply = ThreadReply { tid: 5, memory, ..ThreadReply::default() };
        (Request { pid: 5, threads: vec![thread], ..Request::default() }, vec![reply])
    }

    fn found(words: &[u32], address: u64) -> Vec<(u64, u32)> {
        let (request, pointed) = waiter(words, address);
        let (mappings, _) = shared(&Maps::parse(MAPS));
        named(&request, &pointed, &mappings).into_iter().map(|(object, tid)| (object.offset, tid)).collect()
    }

    #[test]
    fn shared_memory_without_devices() {
        let (mappings, cut) = shared(&Maps::parse(MAPS));
        let paths: Vec<&str> = mappings.iter().map(|mapping| mapping.path.as_str()).collect();
        assert_eq!((paths, cut), (vec!["/memfd:lock", "/dev/shm/a"], false));
    }

    #[test]
    fn owners_by_the_shape_of_the_lock() {
        assert_eq!(found(&[2, 0, 4711, 1, 128, 0], 0x1010), [(0x4010, 4711)]);
        assert_eq!(found(&[0x8000_1268, 0, 4712, 1, 144, 0], 0x1010), [(0x4010, 4712)]);
        assert_eq!(
            found(&[3, 1, 0, 0, 4713], 0x2008),
            [(0x5008, 1), (0x5008, 4713)].map(|(a, b)| (a, b))[1..]
        );
        assert!(found(&[2, 0, 5, 1, 128, 0], 0x1010).is_empty(), "a thread of the process itself");
        assert!(found(&[2, 0, 4711, 1, 128, 0], 0x3010).is_empty(), "memory that is not shared");
        assert!(found(&[1, 0, 4711, 1], 0x1010).is_empty(), "no lock that is waited for");
    }

    proptest! {
        #[test]
        fn whatever_lies_there(words in proptest::collection::vec(any::<u32>(), 0..8), address in 0u64..0x9000) {
            prop_assert!(found(&words, address).len() <= 2);
        }
    }
}
