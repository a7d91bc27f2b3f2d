//! Sockets, and who holds the other ends of what the processes hold.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    calls::Calls,
    fds::{self, Shared},
    ipc, sockets,
};
use crate::model::{Bystander, Fd, FdKind, Gap, IpcObject, LockClass, LockWait, Process, Socket};

/// What one walk may take here; each bounds itself below that.
const DEADLINE: Duration = Duration::from_secs(3);

/// Sockets, locks and bystanders.
#[derive(Default)]
pub(super) struct Peers {
    pub(super) table: sockets::Table,
    pub(super) sockets: Vec<Socket>,
    pub(super) bystanders: Vec<Bystander>,
    pub(super) locks: Vec<LockWait>,
    pub(super) ipc: Vec<IpcObject>,
    pub(super) gaps: Vec<Gap>,
}

/// Every socket of the processes' network namespaces. On a thread of its own, so that helpers read meanwhile.
pub(super) async fn sockets(processes: &[Process]) -> Peers {
    let namespaces: Vec<(u32, u64)> =
        processes.iter().filter_map(|process| Some((process.pid, process.net_ns?))).collect();
    aside("sockets", move || {
        let (table, gaps) = sockets::read(&namespaces);
        Peers { table, gaps, ..Peers::default() }
    })
    .await
}

/// Keeps of `found` what concerns the processes, and looks for those who hold the other ends.
pub(super) async fn find(processes: &[Process], found: Peers) -> Peers {
    let captured: HashSet<u32> = processes.iter().map(|process| process.pid).collect();
    let calls = Calls::of(processes);
    let fds: Vec<&Fd> = processes.iter().flat_map(|process| &process.fds).collect();
    let held: HashSet<u64> = fds.iter().filter_map(|fd| fd.socket_inode()).collect();
    let Peers { mut table, gaps: mut socket_gaps, .. } = found;
    let own_sockets = held.clone();
    let linked = aside("sockets", move || {
        let gaps = table.look_further(&own_sockets);
        let sockets = sockets::relevant(table.link(), &own_sockets);
        Peers { sockets, gaps, ..Peers::default() }
    })
    .await;
    socket_gaps.extend(linked.gaps);
    let sockets = linked.sockets;
    let mut shared = Shared::default();
    for fd in fds {
        match fd.kind {
            // A FIFO's inode is its file system's, a pipe's is the kernel's own.
            FdKind::Pipe { path: Some(_), .. } => {
                shared.files.extend(fd.details.as_ref().and_then(|details| Some((details.file?, true))));
            }
            FdKind::Pipe { inode, path: None } => drop(shared.inodes.insert(inode)),
            FdKind::EventFd { id: Some(id), .. } => drop(shared.eventfds.insert(id)),
            _ => {}
        }
    }
    let own = sockets.iter().filter(|socket| held.contains(&socket.inode));
    let peers = own.filter_map(|socket| socket.peer_inode);
    // Several may send to one datagram socket, which is connected to none of them.
    let is_own = |peer: u64| held.contains(&peer);
    let senders = sockets.iter().filter(|socket| socket.peer_inode.is_some_and(is_own));
    let others = peers.chain(senders.map(|socket| socket.inode));
    shared.inodes.extend(others.filter(|inode| !held.contains(inode)));
    shared.files.extend(calls.queues.iter().map(|&queue| (queue, false)));
    let mut peers = aside("fds", move || {
        let (locks, mut gaps) =
            if calls.lock { fds::lock_waits(&|pid| captured.contains(&pid)) } else { Default::default() };
        let (ipc, more) = ipc::read(&calls.ipc);
        gaps.extend(more);
        let last = ipc.iter().flat_map(|object| {
            let semaphores = object.semaphores.iter().map(|semaphore| semaphore.last);
            semaphores.chain([object.last_sender, object.last_receiver])
        });
        shared.pids.extend(last.filter(|&pid| pid != 0));
        for LockWait { held, .. } in &locks {
            match held.class {
                LockClass::Posix | LockClass::Lease => shared.pids.extend(held.pid),
                LockClass::Flock | LockClass::Ofd => shared.locks.push(held.clone()),
            }
        }
        let (mut bystanders, more) = fds::holders(&Arc::new(shared), &captured);
        gaps.extend(more);
        if calls.child {
            let known: HashSet<u32> =
                bystanders.iter().map(|bystander| bystander.pid).chain(captured.clone()).collect();
            let (children, more) = fds::children(&captured, &known);
            bystanders.extend(children);
            gaps.extend(more);
        }
        Peers { bystanders, locks, ipc, gaps, ..Peers::default() }
    })
    .await;
    peers.sockets = sockets;
    peers.gaps.extend(socket_gaps);
    peers
}

/// Runs a walk that blocks, and leaves it to itself if it takes too long.
async fn aside(source: &'static str, walk: impl FnOnce() -> Peers + Send + 'static) -> Peers {
    let why = match timeout(DEADLINE, tokio::task::spawn_blocking(walk)).await {
        Ok(Ok(peers)) => return peers,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", DEADLINE.as_secs()),
    };
    let reason =
        format!("the search for sockets and their other ends failed: {why}; some peers are not named");
    Peers { gaps: vec![Gap::host(source, reason)], ..Peers::default() }
}
