//! From the maps' entries to the capture's lists.

use std::collections::BTreeMap;

use inspector_ebpf::probe::{self, drops, object};

use crate::{
    model::{
        Gap, ProbeWay, Probes, Process, Syscall,
        probes::{Dropped, ThreadExit, TimedWait, Transfer, TransferDirection, Waker},
    },
    observe::tasks::probes::Counted,
};

/// What the entries are seen in: nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) way: ProbeWay,
    /// The first sweep.
    pub(super) start_ns: u64,
}

/// The lists, ordered.
pub(super) fn probes(counted: &Counted, frame: &Frame, threshold_ns: u64) -> Probes {
    let since = |at_ns: u64| at_ns.saturating_sub(frame.start_ns);
    let waker = |(key, waker): &(probe::WakerKey, probe::Waker)| Waker {
        pid: key.tgid,
        address: (key.kind == object::FUTEX).then_some(key.object),
        fd: (key.kind == object::DESCRIPTOR).then_some(key.object as u32 as i32),
        waker_pid: waker.tgid,
        tid: waker.tid,
        last_ns: since(waker.last_ns),
        calls: waker.calls,
        woken: waker.woken,
    };
    let transfer = |(key, transfer): &(probe::TransferKey, probe::Transfer)| Transfer {
        pid: key.tgid,
        fd: (key.fd != probe::NO_FD).then_some(key.fd.cast_signed()),
        direction: if key.direction == probe::IN { TransferDirection::In } else { TransferDirection::Out },
        inode: (key.inode != 0).then_some(key.inode),
        bytes: transfer.bytes,
        calls: transfer.calls,
        tid: transfer.tid,
        last_ns: since(transfer.last_ns),
    };
    let exit = |&(tid, ref exit): &(u32, probe::Exit)| ThreadExit {
        pid: exit.tgid,
        tid,
        at_ns: since(exit.at_ns),
        comm: comm(&exit.comm),
        status: exit.code >> 8 & 0xff,
        signal: Some(exit.code & 0x7f).filter(|&signal| signal != 0),
    };
    let mut wakers: Vec<Waker> = counted.wakers.iter().map(waker).collect();
    wakers.sort_unstable_by_key(|waker| (waker.pid, waker.address, waker.fd));
    let mut transfers: Vec<Transfer> = counted.transfers.iter().map(transfer).collect();
    transfers
        .sort_unstable_by_key(|transfer| (transfer.pid, transfer.inode, transfer.fd, transfer.direction));
    let mut exits: Vec<ThreadExit> = counted.exits.iter().map(exit).collect();
    exits.sort_unstable_by_key(|exit| (exit.at_ns, exit.pid, exit.tid));
    let [wakes, moves, waits, threads, ends] =
        [drops::WAKERS, drops::TRANSFERS, drops::WAITS, drops::FLIGHTS, drops::EXITS]
            .map(|which| counted.dropped.get(which as usize).copied().unwrap_or_default());
    Probes {
        way: frame.way,
        from_ns: since(counted.from_ns),
        to_ns: since(counted.to_ns),
        threshold_ns,
        wakers,
        transfers,
        waits: timed_waits(counted, frame, threshold_ns),
        exits,
        dropped: Dropped {
            wakers: wakes,
            transfers: moves,
            waits,
            threads,
            exits: ends,
            missed: counted.missed,
        },
    }
}

/// Those that are over and those that go on, by thread, call and object.
fn timed_waits(counted: &Counted, frame: &Frame, threshold_ns: u64) -> Vec<TimedWait> {
    let since = |at_ns: u64| at_ns.saturating_sub(frame.start_ns);
    let mut waits: BTreeMap<(u32, u32, u32, u32, u64), TimedWait> = BTreeMap::new();
    for (key, over) in &counted.waits {
        let of = (over.tgid, key.tid, key.call, key.kind, key.object);
        let wait = waits.entry(of).or_insert_with(|| wait(of));
        wait.count = over.count;
        wait.total_ns = over.total_ns;
        wait.longest_ns = over.longest_ns;
        wait.last_ns = Some(since(over.last_ns));
    }
    for &(tid, flight) in &counted.flights {
        if flight.started_ns == 0 || counted.to_ns.saturating_sub(flight.started_ns) < threshold_ns {
            continue;
        }
        let of = (flight.tgid, tid, flight.call, flight.kind, flight.object);
        waits.entry(of).or_insert_with(|| wait(of)).since_ns = Some(since(flight.started_ns));
    }
    waits.into_values().collect()
}

fn wait((pid, tid, call, kind, object): (u32, u32, u32, u32, u64)) -> TimedWait {
    let syscall = Syscall { number: call, ..Syscall::default() };
    TimedWait {
        pid,
        tid,
        syscall: syscall.name(std::env::consts::ARCH).unwrap_or_default().to_owned(),
        address: (kind == object::FUTEX).then_some(object),
        fd: (kind == object::DESCRIPTOR).then_some(object as u32 as i32),
        ..TimedWait::default()
    }
}

/// Gives bytes that are known by their inode only the descriptor that refers to it.
pub(in crate::observe) fn name_descriptors(probes: &mut Probes, processes: &[Process]) {
    for transfer in probes.transfers.iter_mut().filter(|transfer| transfer.fd.is_none()) {
        let Some(process) = processes.iter().find(|process| process.pid == transfer.pid) else { continue };
        let mut same = process.fds.iter().filter(|fd| fd.socket_inode() == transfer.inode);
        if let (Some(one), None) = (same.next(), same.next()) {
            transfer.fd = transfer.inode.map(|_| one.fd);
        }
    }
}

/// A `comm`, up to its end.
fn comm(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// What there was no room for.
pub(super) fn gap(dropped: &Dropped) -> Option<Gap> {
    let lost = [
        (dropped.wakers, "wakes at further objects"),
        (dropped.transfers, "transfers through further sockets"),
        (dropped.waits, "waits for further objects"),
        (dropped.threads, "calls of further threads"),
        (dropped.exits, "ends of further threads"),
        (dropped.missed, "events that the kernel did not show"),
    ];
    let lost: Vec<String> =
        lost.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let reason = format!(
        "the probes are bounded, and left out {}: some wakers, bytes or ends are not known",
        lost.join(", ")
    );
    (!lost.is_empty()).then(|| Gap::host("probes", reason))
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable as _;
    use probe::{Exit, Flight, PROBE_VERSION, WaitKey, Waited};

    use super::*;

    const FRAME: Frame = Frame { way: ProbeWay::Tracepoint, start_ns: 1_000 };

    fn key(object: u64) -> WaitKey {
        let call = syscalls::Sysno::futex as u32;
        WaitKey { tid: 7, call, kind: object::FUTEX, reserved: 0, object }
    }

    #[test]
    fn a_wait_that_goes_on_joins_those_that_are_over() {
        let over = Waited {
            version: PROBE_VERSION,
            tgid: 5,
            count: 2,
            total_ns: 900,
            longest_ns: 600,
            last_ns: 4_000,
        };
        let flight = |object, started_ns| Flight {
            version: PROBE_VERSION,
            tgid: 5,
            started_ns,
            call: key(object).call,
            kind: object::FUTEX,
            object,
        };
        let counted = Counted {
            waits: vec![(key(64), over)],
            from_ns: 1_500,
            to_ns: 9_000,
            flights: vec![(7, flight(64, 5_000)), (8, flight(64, 0)), (9, flight(64, 8_990))],
            ..Counted::default()
        };
        let seen = probes(&counted, &FRAME, 100);
        assert_eq!((seen.from_ns, seen.to_ns), (500, 8_000));
        let [wait] = seen.waits.as_slice() else { panic!("{:?}", seen.waits) };
        assert_eq!((wait.pid, wait.tid, wait.syscall.as_str()), (5, 7, "futex"));
        assert_eq!((wait.address, wait.fd), (Some(64), None));
        assert_eq!((wait.count, wait.total_ns, wait.longest_ns), (2, 900, 600));
        assert_eq!((wait.last_ns, wait.since_ns), (Some(3_000), Some(4_000)));
    }

    #[test]
    fn an_exit_tells_a_status_from_a_signal() {
        let mut exit = Exit { version: PROBE_VERSION, tgid: 5, at_ns: 2_000, code: 3 << 8, ..Exit::zeroed() };
        exit.comm[..6].copy_from_slice(b"worker");
        let killed = Exit { code: 9, at_ns: 1_900, ..exit };
        let counted = Counted { exits: vec![(7, exit), (8, killed)], ..Counted::default() };
        let exits = probes(&counted, &FRAME, 0).exits;
        assert_eq!(exits.iter().map(|exit| exit.tid).collect::<Vec<_>>(), [8, 7]);
        assert_eq!((exits[0].status, exits[0].signal), (0, Some(9)));
        assert_eq!((exits[1].status, exits[1].signal, exits[1].comm.as_str()), (3, None, "worker"));
    }

    #[test]
    fn what_was_left_out_is_a_gap() {
        assert!(gap(&Dropped::default()).is_none());
        let reason = gap(&Dropped { wakers: 3, exits: 1, ..Dropped::default() }).unwrap().reason;
        assert!(reason.contains("3 wakes") && reason.contains("1 ends"), "{reason}");
    }
}
