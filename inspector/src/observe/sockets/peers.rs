//! Links sockets to their peers on this host.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use super::address::Entry;
use crate::model::{Socket, SocketFamily, SocketProtocol};

type Tuple = (bool, SocketAddr, SocketAddr);

/// Gives every connected socket its peer's inode, where the peer lives on this host. A connection that nobody has
/// accepted yet leads to the listener: its process has to act. Sockets without an inode (not accepted, or closed and
/// lingering) only serve to find that out.
pub(super) fn link(entries: Vec<Entry>) -> Vec<Socket> {
    let mut connected: HashMap<(u64, Tuple), u64> = HashMap::new();
    let mut anywhere: HashMap<Tuple, Option<u64>> = HashMap::new();
    let mut listeners: HashMap<(u64, SocketAddr), u64> = HashMap::new();
    let mut accepting: HashMap<u64, u64> = HashMap::new();
    let mut names: HashMap<u64, String> = HashMap::new();
    for entry in &entries {
        let socket = &entry.socket;
        if let Some(tuple) = tuple(entry) {
            connected.insert((socket.net_ns, tuple), socket.inode);
            // Two connections of the same addresses in different namespaces: neither is known to be the peer.
            anywhere.entry(tuple).and_modify(|inode| *inode = None).or_insert(Some(socket.inode));
        } else if let (Some(local), "LISTEN") = (entry.local, socket.state.as_str()) {
            listeners.insert((socket.net_ns, local), socket.inode);
        }
        accepting.extend(entry.pending.iter().map(|&waiting| (waiting, socket.inode)));
        if socket.family == SocketFamily::Unix && !socket.local.is_empty() {
            names.insert(socket.inode, socket.local.clone());
        }
    }
    let peer_of = |entry: &Entry| -> Option<u64> {
        let net_ns = entry.socket.net_ns;
        if entry.socket.family == SocketFamily::Unix {
            let peer = entry.socket.peer_inode.filter(|&inode| inode != 0);
            return accepting.get(&entry.socket.inode).copied().or(peer);
        }
        let (tcp, local, remote) = tuple(entry)?;
        let swapped = (tcp, remote, local);
        let inode = match connected.get(&(net_ns, swapped)) {
            Some(&inode) => inode,
            // Between containers of one host; a loopback address means something else in each namespace.
            None if !remote.ip().is_loopback() => (*anywhere.get(&swapped)?)?,
            None => return None,
        };
        if inode != 0 {
            return Some(inode);
        }
        // Only a connection that is still open both ways waits to be accepted; a closed one lingers in other states.
        let wildcards = [remote.ip(), IpAddr::from([0; 4]), IpAddr::from([0; 16])];
        wildcards
            .into_iter()
            .find_map(|ip| listeners.get(&(net_ns, SocketAddr::new(ip, remote.port()))).copied())
            .filter(|_| entry.socket.state == "ESTABLISHED")
    };
    let peers: Vec<Option<u64>> = entries.iter().map(peer_of).collect();
    entries
        .into_iter()
        .zip(peers)
        .filter(|(entry, _)| entry.socket.inode != 0)
        .map(|(entry, peer_inode)| {
            let mut socket = entry.socket;
            if socket.family == SocketFamily::Unix
                && let Some(name) = peer_inode.and_then(|peer| names.get(&peer))
            {
                socket.remote.clone_from(name);
            }
            Socket { peer_inode, ..socket }
        })
        .collect()
}

fn tuple(entry: &Entry) -> Option<Tuple> {
    Some((entry.socket.protocol == SocketProtocol::Tcp, entry.local?, entry.remote?))
}
