//! Whom a thread id in a lock's words names.
//!
//! The id is the owner's own number, in the owner's PID namespace. In memory that is the process's own, only its own threads
//! can have written it. In memory that is shared, any thread of any process that maps the same place of the same file can.

use super::{Futex, MAX_TID, likely_unless};
use crate::model::{Certainty, Namesake, Owner, Process, Thread};

/// Most threads named for one number.
const MOST: usize = 8;

/// Who holds a lock, as far as its words tell.
pub(super) struct Holder {
    /// The thread; several where the number means several, none where nobody has it.
    pub(super) owners: Vec<Owner>,
    /// `held by …`.
    pub(super) by: String,
    /// No thread that could have taken the lock has that number.
    pub(super) gone: bool,
}

/// A live thread that the number can mean.
struct Candidate<'a> {
    process: &'a Process,
    thread: &'a Thread,
    certainty: Certainty,
}

impl<'a> Futex<'a> {
    /// Whoever has the number `tid` where this lock is taken. `source`: the word that says so, for the evidence.
    pub(super) fn holder(&self, tid: u32, source: &str) -> Holder {
        let evidence = format!("{source} holds {tid}");
        let candidates = self.candidates(tid);
        if candidates.is_empty() {
            return self.nobody_captured(tid, &evidence);
        }
        let by = match candidates.as_slice() {
            [only] => self.name_of(only),
            several => {
                format!("tid {tid}, which is one of {} threads in their PID namespaces", several.len())
            }
        };
        let alone = candidates.len() == 1;
        let owner = |candidate: &Candidate<'_>| Owner {
            pid: candidate.process.pid,
            tid: Some(candidate.thread.tid),
            certainty: likely_unless(alone, candidate.certainty),
            evidence: evidence.clone(),
        };
        let owners = candidates.iter().map(owner).collect();
        Holder { owners, by: format!("held by {by}"), gone: false }
    }

    /// The captured threads that the number can mean.
    fn candidates(&self, tid: u32) -> Vec<Candidate<'a>> {
        if tid == 0 || tid > MAX_TID {
            return Vec::new();
        }
        let (process, scene) = (self.blocked.process, self.blocked.scene);
        let known = self.blocked.certainty();
        let own = scene.thread_by_ns_tid(process, tid);
        let mut found: Vec<Candidate<'a>> =
            own.map(|thread| Candidate { process, thread, certainty: known }).into_iter().collect();
        let Some(object) = &self.shared else {
            // Mappings that could not be read: the lock may be shared after all.
            if found.is_empty() && !self.is_own_memory() && process.ns_pids.len() <= 1 {
                let other = scene.thread(tid).filter(|(other, _)| other.ns_pids.len() <= 1);
                found.extend(other.map(|(process, thread)| Candidate {
                    process,
                    thread,
                    certainty: Certainty::Likely,
                }));
            }
            return found;
        };
        for &(other, thread) in scene.threads_by_number(tid) {
            if other.pid == process.pid || found.len() >= MOST {
                continue;
            }
            let same_numbers = same_namespace(process, other);
            // Looked up on the host, in the waiter's own namespace.
            let looked_up = same_numbers
                && self.namesake(tid).is_some_and(|found| found.pid == other.pid && found.maps_object);
            if other.maps(object) || looked_up {
                // Elsewhere the same number can also be that of a thread that nobody looked at.
                let exact = same_numbers && object.is_unique();
                found.push(Candidate { process: other, thread, certainty: likely_unless(exact, known) });
            }
        }
        found
    }

    /// A captured thread has that number.
    pub(super) fn names_somebody(&self, tid: u32) -> bool {
        !self.candidates(tid).is_empty()
    }

    /// What is known of a number that no captured thread can have.
    fn nobody_captured(&self, tid: u32, evidence: &str) -> Holder {
        let nobody = |by: String, gone: bool| Holder { owners: Vec::new(), by, gone };
        if self.is_own_memory() {
            return nobody(
                format!(
                    "held by tid {tid}, which is no thread of the process: it ended, or the process forked"
                ),
                true,
            );
        }
        match (self.namesake(tid), self.looked_up(tid)) {
            (Some(found), _) if found.maps_object => {
                let Namesake { pid, tid, comm, .. } = found;
                let evidence = format!("{evidence}; its process maps the same memory");
                let owner = Owner { pid: *pid, tid: Some(*tid), certainty: Certainty::Likely, evidence };
                Holder {
                    owners: vec![owner],
                    by: format!("held by {comm} (tid {tid} of pid {pid}, which was not looked at)"),
                    gone: false,
                }
            }
            (Some(found), _) => nobody(
                format!(
                    "held by tid {tid}; the thread of that number ({} of pid {}) does not map this memory",
                    found.comm, found.pid
                ),
                false,
            ),
            (None, Some(true)) => nobody(
                format!(
                    "held by tid {tid}, which has ended, as no thread that maps this memory has that number"
                ),
                true,
            ),
            (None, _) => nobody(
                format!("held by tid {tid}, which is no thread of the processes that were looked at"),
                false,
            ),
        }
    }

    /// No other process can write to the word.
    fn is_own_memory(&self) -> bool {
        self.shared.is_none() && (self.private || self.blocked.process.shared_memory.is_some())
    }

    /// The thread that was found under that number when the memory was read.
    fn namesake(&self, tid: u32) -> Option<&'a Namesake> {
        self.named(tid)?.thread.as_ref()
    }

    /// Whether it is known that there is none; `None`: it was not looked up.
    fn looked_up(&self, tid: u32) -> Option<bool> {
        self.named(tid).map(|named| named.complete)
    }

    fn named(&self, tid: u32) -> Option<&'a crate::model::NamedTid> {
        let object = self.shared.as_ref()?;
        let named = &self.blocked.process.named_tids;
        named.iter().find(|named| named.ns_tid == tid && named.object == *object)
    }

    fn name_of(&self, candidate: &Candidate<'_>) -> String {
        let Candidate { process, thread, .. } = candidate;
        if thread.tid == self.blocked.thread.tid {
            return "this very thread".to_owned();
        }
        let of = if process.pid == self.blocked.process.pid {
            String::new()
        } else {
            format!(" of pid {}", process.pid)
        };
        format!("{} (tid {}{of})", thread.name(), thread.tid)
    }

    /// The process's own numbers of its threads are known: a thread whose number in an inner PID namespace could not be read
    /// has none, in older captures the host's.
    pub(super) fn tids_are_known(&self) -> bool {
        let process = self.blocked.process;
        process.ns_pids.len() <= 1
            || process.threads.iter().all(|thread| thread.ns_tid != 0 && thread.ns_tid != thread.tid)
    }
}

/// Their threads are numbered alike.
fn same_namespace(one: &Process, other: &Process) -> bool {
    match (one.pid_ns, other.pid_ns) {
        (Some(one), Some(other)) => one == other,
        _ => one.ns_pids.len() <= 1 && other.ns_pids.len() <= 1,
    }
}
