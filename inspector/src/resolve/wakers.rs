//! Who last woke waiters of an object that names no owner, as the probes saw it.
//!
//! It is what is likely, not what is known: somebody else may be the next. And it is only said of objects that somebody
//! was seen to wake at; one at which all stood still over the whole window has no waker.

use std::collections::HashMap;

use super::scene::Scene;
use crate::model::{
    Capture, FdKind, Probes, Process, Thread, Wait, WaitKind, probes::TransferDirection, wait::LastWaker,
};

/// The probes' wakers by what they woke at.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    /// By pid and address of the futex word.
    futexes: HashMap<(u32, u64), Woke>,
    /// By pid and descriptor of an eventfd or a pipe.
    descriptors: HashMap<(u32, i32), Woke>,
    /// By an eventfd's id: who wrote to it.
    eventfds: HashMap<u64, Woke>,
    to_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Woke {
    pid: u32,
    tid: u32,
    at_ns: u64,
    times: u64,
}

impl Wakers {
    /// Those of a capture.
    pub(super) fn of(capture: &Capture) -> Self {
        let Some(probes) = &capture.probes else { return Self::default() };
        let mut wakers = Self { eventfds: eventfds(capture, probes), to_ns: probes.to_ns, ..Self::default() };
        for waker in &probes.wakers {
            let woke =
                Woke { pid: waker.waker_pid, tid: waker.tid, at_ns: waker.last_ns, times: waker.calls };
            if let Some(address) = waker.address {
                wakers.futexes.insert((waker.pid, address), woke);
            } else if let Some(fd) = waker.fd {
                wakers.descriptors.insert((waker.pid, fd), woke);
            }
        }
        wakers
    }

    /// Notes in `wait` who last woke a waiter of its object, where it has no owner.
    pub(super) fn note(&self, scene: &Scene<'_>, process: &Process, thread: &Thread, wait: &mut Wait) {
        if !wait.owners.is_empty() {
            return;
        }
        let found = match wait.kind {
            WaitKind::Condvar => self.condvar(process, thread),
            WaitKind::Semaphore | WaitKind::PythonLock | WaitKind::Futex => {
                word(thread).and_then(|word| self.futex(process, word))
            }
            WaitKind::Eventfd => self.eventfd(scene, process, wait),
            _ => None,
        };
        // Whoever woke the others before it went to sleep itself does not wake itself.
        let Some(woke) = found.filter(|woke| woke.tid != thread.tid) else { return };
        let here = scene.thread(woke.tid).filter(|(owner, _)| owner.pid == woke.pid);
        wait.last_waker = Some(LastWaker {
            pid: woke.pid,
            tid: woke.tid,
            before_end_ns: self.to_ns.saturating_sub(woke.at_ns),
            times: woke.times,
            ended: here.is_none(),
        });
    }

    fn futex(&self, process: &Process, word: u64) -> Option<Woke> {
        self.futexes.get(&(process.pid, word)).copied()
    }

    /// The waiters of a condition variable are in two groups that take turns, each with a word of its own beside the
    /// other's (`__g_signals`, glibc `sysdeps/nptl/bits/thread-shared-types.h`).
    fn condvar(&self, process: &Process, thread: &Thread) -> Option<Woke> {
        let word = word(thread)?;
        let groups = [Some(word), word.checked_add(4), word.checked_sub(4)];
        let neighbours = groups.into_iter().flatten().filter(|other| other / 8 == word / 8);
        let woke: Vec<Woke> = neighbours.filter_map(|word| self.futex(process, word)).collect();
        let times = woke.iter().fold(0, |sum: u64, woke| sum.saturating_add(woke.times));
        woke.into_iter().max_by_key(|woke| woke.at_ns).map(|last| Woke { times, ..last })
    }

    /// Who was seen to wake a reader of this very descriptor; else who wrote to the eventfd that it is.
    fn eventfd(&self, scene: &Scene<'_>, process: &Process, wait: &Wait) -> Option<Woke> {
        let fd = wait.fd?;
        let wrote = || match scene.fd(process, fd)?.kind {
            FdKind::EventFd { id, .. } => self.eventfds.get(&id?).copied(),
            _ => None,
        };
        self.descriptors.get(&(process.pid, fd)).copied().or_else(wrote)
    }
}

/// The word that a futex call waits at.
fn word(thread: &Thread) -> Option<u64> {
    thread.syscall?.arguments.first().copied()
}

/// The last thread that wrote to each eventfd, through whichever descriptor of whichever process.
fn eventfds(capture: &Capture, probes: &Probes) -> HashMap<u64, Woke> {
    let mut ids = HashMap::new();
    for process in &capture.processes {
        for fd in &process.fds {
            if let FdKind::EventFd { id: Some(id), .. } = fd.kind {
                ids.insert((process.pid, fd.fd), id);
            }
        }
    }
    let mut found: HashMap<u64, Woke> = HashMap::new();
    let written = probes.transfers.iter().filter(|transfer| transfer.direction == TransferDirection::Out);
    for transfer in written {
        let Some(&id) = transfer.fd.and_then(|fd| ids.get(&(transfer.pid, fd))) else { continue };
        let (pid, tid, at_ns) = (transfer.pid, transfer.tid, transfer.last_ns);
        let times = transfer.calls;
        let woke = found.entry(id).or_insert(Woke { pid, tid, at_ns, times: 0 });
        let times = woke.times.saturating_add(times);
        *woke = if at_ns >= woke.at_ns { Woke { pid, tid, at_ns, times } } else { Woke { times, ..*woke } };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Fd, Owner, Syscall,
        probes::{Transfer, Waker},
    };

    const PID: u32 = 100;
    const WORD: u64 = 0x7000;

    fn capture() -> Capture {
        let waker = |address, tid, last_ns, calls| Waker {
            pid: PID,
            address: Some(address),
            waker_pid: PID,
            tid,
            last_ns,
            calls,
            ..Waker::default()
        };
        let transfer = |pid, fd, tid, last_ns| Transfer {
            pid,
            fd: Some(fd),
            tid,
            last_ns,
            calls: 2,
            direction: TransferDirection::Out,
            ..Transfer::default()
        };
        let probes = Probes {
            to_ns: 10_000,
            wakers: vec![
                waker(WORD, 2, 4_000, 3),
                waker(WORD + 4, 3, 9_000, 4),
                waker(WORD + 8, 2, 9_500, 1),
            ],
            transfers: vec![
                transfer(PID, 5, 2, 7_000),
                transfer(200, 8, 201, 8_000),
                transfer(PID, 6, 3, 9_000),
            ],
            ..Probes::default()
        };
        let thread = |tid| Thread {
            tid,
            syscall: Some(Syscall { arguments: [WORD, 0, 0, 0, 0, 0], ..Syscall::default() }),
            ..Thread::default()
        };
        let kind = |id| FdKind::EventFd { id: Some(id), count: 0 };
        let eventfd = |fd, id| Fd { fd, flags: 2, kind: kind(id), details: None };
        let process = |pid, threads: &[u32], fds| Process {
            pid,
            threads: threads.iter().copied().map(thread).collect(),
            fds,
            ..Process::default()
        };
        let processes = vec![
            process(PID, &[1, 2, 3], vec![eventfd(5, 77), eventfd(6, 78)]),
            process(200, &[201], vec![eventfd(8, 77)]),
        ];
        Capture { processes, probes: Some(probes), ..Capture::default() }
    }

    /// What is noted of a wait of the first process's first thread.
    fn noted(capture: &Capture, tid: u32, mut wait: Wait) -> Option<LastWaker> {
        let scene = Scene::new(capture);
        let process = &capture.processes[0];
        let thread = process.thread(tid).unwrap();
        Wakers::of(capture).note(&scene, process, thread, &mut wait);
        wait.last_waker
    }

    fn wait(kind: WaitKind) -> Wait {
        Wait { kind, fd: Some(5), ..Wait::default() }
    }

    #[test]
    fn the_last_who_woke_at_the_word_is_named() {
        let seen = noted(&capture(), 1, wait(WaitKind::Semaphore)).unwrap();
        assert_eq!((seen.tid, seen.before_end_ns, seen.times, seen.ended), (2, 6_000, 3, false));
    }

    #[test]
    fn both_groups_of_a_condition_count_and_no_word_behind_them() {
        let seen = noted(&capture(), 1, wait(WaitKind::Condvar)).unwrap();
        assert_eq!((seen.tid, seen.before_end_ns, seen.times), (3, 1_000, 7));
    }

    #[test]
    fn an_eventfd_is_one_object_in_two_processes() {
        let seen = noted(&capture(), 1, wait(WaitKind::Eventfd)).unwrap();
        assert_eq!((seen.pid, seen.tid, seen.before_end_ns, seen.times), (200, 201, 2_000, 4));
    }

    #[test]
    fn who_woke_a_reader_of_the_descriptor_goes_before_who_wrote() {
        let mut capture = capture();
        let waker =
            Waker { pid: PID, fd: Some(5), waker_pid: PID, tid: 3, last_ns: 1_000, ..Waker::default() };
        capture.probes.as_mut().unwrap().wakers.push(waker);
        assert_eq!(noted(&capture, 1, wait(WaitKind::Eventfd)).unwrap().tid, 3);
    }

    #[test]
    fn nobody_is_named_beside_an_owner_or_as_its_own_waker_or_without_probes() {
        let owned = Wait { owners: vec![Owner::default()], ..wait(WaitKind::Semaphore) };
        assert_eq!(noted(&capture(), 1, owned), None);
        assert_eq!(
            noted(&capture(), 2, wait(WaitKind::Semaphore)),
            None,
            "it woke others, then slept itself"
        );
        assert_eq!(noted(&capture(), 1, wait(WaitKind::Mutex)), None, "a mutex has an owner or is free");
        let none = Capture { probes: None, ..capture() };
        assert_eq!(noted(&none, 1, wait(WaitKind::Semaphore)), None);
    }

    #[test]
    fn a_waker_that_ended_is_said_to_have() {
        let mut capture = capture();
        capture.processes[0].threads.retain(|thread| thread.tid != 2);
        assert!(noted(&capture, 1, wait(WaitKind::Semaphore)).unwrap().ended);
    }
}
