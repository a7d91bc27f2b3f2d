//! Sockets, and who holds the other ends of what the processes hold.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    fds::{self, Shared},
    sockets,
};
use crate::model::{Bystander, Fd, FdKind, Gap, Process, Socket};

/// What one walk may take here; each bounds itself below that.
const DEADLINE: Duration = Duration::from_secs(3);

/// Sockets and bystanders.
#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) sockets: Vec<Socket>,
    pub(super) bystanders: Vec<Bystander>,
    pub(super) gaps: Vec<Gap>,
}

/// Every socket of the processes' network namespaces. On a thread of its own, so that helpers read meanwhile.
pub(super) async fn sockets(processes: &[Process]) -> Peers {
    let namespaces: Vec<(u32, u64)> =
        processes.iter().filter_map(|process| Some((process.pid, process.net_ns?))).collect();
    aside("sockets", move || {
        let (sockets, gaps) = sockets::read(&namespaces);
        Peers { sockets, gaps, ..Peers::default() }
    })
    .await
}

/// Keeps of `found` what concerns the processes, and looks for those who hold the other ends.
pub(super) async fn find(processes: &[Process], found: Peers) -> Peers {
    let captured: HashSet<u32> = processes.iter().map(|process| process.pid).collect();
    let fds: Vec<&Fd> = processes.iter().flat_map(|process| &process.fds).collect();
    let held: HashSet<u64> = fds.iter().filter_map(|fd| fd.socket_inode()).collect();
    let sockets = sockets::relevant(found.sockets, &held);
    let mut shared = Shared::default();
    for fd in fds {
        match fd.kind {
            FdKind::Pipe { inode, .. } => drop(shared.inodes.insert(inode)),
            FdKind::EventFd { id: Some(id), .. } => drop(shared.eventfds.insert(id)),
            _ => {}
        }
    }
    let own = sockets.iter().filter(|socket| held.contains(&socket.inode));
    shared.inodes.extend(own.filter_map(|socket| socket.peer_inode).filter(|peer| !held.contains(peer)));
    let waits_for_child = processes.iter().flat_map(|process| &process.threads).any(|thread| {
        let name = thread.syscall.and_then(|syscall| syscall.name(std::env::consts::ARCH));
        matches!(name, Some("wait4" | "waitid" | "vfork" | "clone" | "clone3"))
    });
    let mut peers = aside("fds", move || {
        let (mut bystanders, mut gaps) = fds::holders(&Arc::new(shared), &captured);
        if waits_for_child {
            let known: HashSet<u32> =
                bystanders.iter().map(|bystander| bystander.pid).chain(captured.clone()).collect();
            let (children, more) = fds::children(&captured, &known);
            bystanders.extend(children);
            gaps.extend(more);
        }
        Peers { bystanders, gaps, ..Peers::default() }
    })
    .await;
    peers.sockets = sockets;
    peers.gaps.extend(found.gaps);
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
