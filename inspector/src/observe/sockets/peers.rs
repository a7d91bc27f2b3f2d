//! Links sockets to their peers on this host.

use std::{
    collections::{HashMap, HashSet},
    hash::BuildHasher,
    net::{IpAddr, SocketAddr},
};

use super::address::Entry;
use crate::model::{PeerKind, Socket, SocketFamily, SocketProtocol};

type Tuple = (bool, SocketAddr, SocketAddr);

/// A peer as far as it is known.
#[derive(Clone, Debug, Default)]
struct Peer {
    inode: Option<u64>,
    kind: PeerKind,
    /// Its state, where nobody holds it.
    state: String,
}

impl Peer {
    fn of(inode: Option<u64>, kind: PeerKind) -> Self {
        Self { inode, kind, state: String::new() }
    }
}

/// Gives every connected socket its peer's inode, where the peer lives on this host. A connection that nobody has
/// accepted yet leads to the listener: its process has to act. Sockets without an inode (not accepted, or closed and
/// lingering) only serve to find that out.
pub(super) fn link(entries: Vec<Entry>) -> Vec<Socket> {
    let index = Index::of(&entries);
    let peers: Vec<Peer> = entries.iter().map(|entry| index.peer(entry)).collect();
    let names: HashMap<u64, String> = entries
        .iter()
        .filter(|entry| entry.socket.family == SocketFamily::Unix && !entry.socket.local.is_empty())
        .map(|entry| (entry.socket.inode, entry.socket.local.clone()))
        .collect();
    entries
        .into_iter()
        .zip(peers)
        .filter(|(entry, _)| entry.socket.inode != 0)
        .map(|(entry, peer)| {
            let mut socket = entry.socket;
            if socket.family == SocketFamily::Unix
                && let Some(name) = peer.inode.and_then(|peer| names.get(&peer))
            {
                socket.remote.clone_from(name);
            }
            Socket { peer_inode: peer.inode, peer_kind: peer.kind, peer_state: peer.state, ..socket }
        })
        .collect()
}

/// Whether one of the connections among `held` has its other end in none of the namespaces of `entries`.
pub(super) fn any_stranger<S: BuildHasher>(entries: &[Entry], held: &HashSet<u64, S>) -> bool {
    let index = Index::of(entries);
    entries.iter().filter(|entry| held.contains(&entry.socket.inode)).any(|entry| {
        tuple(entry).is_some_and(|(tcp, local, remote)| {
            // Before it is answered a connection has no other end.
            !remote.ip().is_loopback()
                && entry.socket.state == "ESTABLISHED"
                && !index.anywhere.contains_key(&(tcp, remote, local))
                && index.bound(entry.socket.net_ns, remote).is_none()
        })
    })
}

/// What leads from one end to the other.
#[derive(Default)]
struct Index<'a> {
    connected: HashMap<(u64, Tuple), &'a Entry>,
    /// In any namespace; `None`: in several.
    anywhere: HashMap<Tuple, Option<&'a Entry>>,
    listeners: HashMap<(u64, SocketAddr), u64>,
    /// UDP sockets that are connected to nobody.
    bound: HashMap<(u64, SocketAddr), u64>,
    /// From a unix connection that was not accepted to its listener.
    accepting: HashMap<u64, u64>,
}

impl<'a> Index<'a> {
    fn of(entries: &'a [Entry]) -> Self {
        let mut index = Self::default();
        for entry in entries {
            let socket = &entry.socket;
            if let Some(tuple) = tuple(entry) {
                index.connected.insert((socket.net_ns, tuple), entry);
                // Two connections of the same addresses in different namespaces: neither is known to be the peer.
                index.anywhere.entry(tuple).and_modify(|known| *known = None).or_insert(Some(entry));
            } else if let Some(local) = entry.local {
                let key = (socket.net_ns, local);
                if socket.state == "LISTEN" {
                    index.listeners.insert(key, socket.inode);
                } else if socket.protocol == SocketProtocol::Udp && socket.inode != 0 {
                    index.bound.insert(key, socket.inode);
                }
            }
            index.accepting.extend(entry.pending.iter().map(|&waiting| (waiting, socket.inode)));
        }
        index
    }

    fn peer(&self, entry: &Entry) -> Peer {
        let net_ns = entry.socket.net_ns;
        if entry.socket.family == SocketFamily::Unix {
            if let Some(&listener) = self.accepting.get(&entry.socket.inode) {
                return Peer::of(Some(listener), PeerKind::NotAccepted);
            }
            return Peer::of(entry.socket.peer_inode.filter(|&inode| inode != 0), PeerKind::Connected);
        }
        let Some((tcp, local, remote)) = tuple(entry) else { return Peer::default() };
        let swapped = (tcp, remote, local);
        let other = match self.connected.get(&(net_ns, swapped)) {
            Some(&other) => other,
            // Between containers of one host; a loopback address means something else in each namespace.
            None if !remote.ip().is_loopback() && self.anywhere.contains_key(&swapped) => {
                match self.anywhere.get(&swapped) {
                    Some(&Some(other)) => other,
                    _ => return Peer::default(),
                }
            }
            None if !tcp => return Peer::of(self.bound(net_ns, remote), PeerKind::Bound),
            // Between two processes of one namespace both ends are seen, unless one is gone (TIME_WAIT is not asked for).
            None if remote.ip().is_loopback() && entry.socket.state != "SYN_SENT" => {
                return Peer::of(None, PeerKind::Absent);
            }
            None => return Peer::default(),
        };
        if other.socket.inode != 0 {
            return Peer::of(Some(other.socket.inode), PeerKind::Connected);
        }
        // Only a connection that is still open both ways waits to be accepted; a closed one lingers in other states.
        if other.socket.state == "ESTABLISHED" || other.socket.state == "SYN_RECV" {
            let listener = at(&self.listeners, other.socket.net_ns, remote);
            return Peer::of(listener.filter(|_| entry.socket.state == "ESTABLISHED"), PeerKind::NotAccepted);
        }
        Peer { inode: None, kind: PeerKind::Closed, state: other.socket.state.clone() }
    }

    /// The UDP socket that gets what is sent to `remote`.
    fn bound(&self, net_ns: u64, remote: SocketAddr) -> Option<u64> {
        at(&self.bound, net_ns, remote)
    }
}

/// Who is at an address, or at all addresses of its port.
fn at(map: &HashMap<(u64, SocketAddr), u64>, net_ns: u64, to: SocketAddr) -> Option<u64> {
    let addresses = [to.ip(), IpAddr::from([0; 4]), IpAddr::from([0; 16])];
    addresses.into_iter().find_map(|ip| map.get(&(net_ns, SocketAddr::new(ip, to.port()))).copied())
}

fn tuple(entry: &Entry) -> Option<Tuple> {
    Some((entry.socket.protocol == SocketProtocol::Tcp, entry.local?, entry.remote?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(inode: u64, net_ns: u64, local: &str, remote: &str, state: &str) -> Entry {
        let mut entry = Entry {
            socket: Socket { inode, net_ns, state: state.into(), ..Socket::default() },
            ..Entry::default()
        };
        entry.set_addresses(local.parse().unwrap(), remote.parse().unwrap());
        entry
    }

    fn linked(entries: Vec<Entry>, inode: u64) -> (Option<u64>, PeerKind, String) {
        let socket = link(entries).into_iter().find(|socket| socket.inode == inode).unwrap();
        (socket.peer_inode, socket.peer_kind, socket.peer_state)
    }

    const NOBODY: &str = "0.0.0.0:0";

    #[test]
    fn an_end_that_nobody_holds_says_in_which_state_it_is() {
        let ends = |state| {
            vec![
                entry(1, 9, "127.0.0.1:10", "127.0.0.1:20", "CLOSE_WAIT"),
                entry(0, 9, "127.0.0.1:20", "127.0.0.1:10", state),
                entry(3, 9, "127.0.0.1:20", NOBODY, "LISTEN"),
            ]
        };
        assert_eq!(linked(ends("FIN_WAIT2"), 1), (None, PeerKind::Closed, "FIN_WAIT2".into()));
        let mut open = ends("ESTABLISHED");
        open[0].socket.state = "ESTABLISHED".into();
        assert_eq!(linked(open, 1), (Some(3), PeerKind::NotAccepted, String::new()));
    }

    #[test]
    fn an_end_that_is_not_there_is_absent_on_the_loopback_only() {
        let alone = |remote| vec![entry(1, 9, "127.0.0.1:10", remote, "ESTABLISHED")];
        assert_eq!(linked(alone("127.0.0.1:20"), 1).1, PeerKind::Absent);
        assert_eq!(linked(alone("10.0.0.1:20"), 1), (None, PeerKind::Connected, String::new()));
    }

    #[test]
    fn a_connection_into_another_namespace_is_a_stranger_until_that_is_read() {
        let mut entries = vec![entry(1, 9, "10.0.0.1:10", "10.0.0.2:20", "ESTABLISHED")];
        let held = HashSet::from([1]);
        assert!(any_stranger(&entries, &held));
        assert!(!any_stranger(&entries, &HashSet::from([2])));
        entries.push(entry(2, 8, "10.0.0.2:20", "10.0.0.1:10", "ESTABLISHED"));
        assert!(!any_stranger(&entries, &held));
        assert_eq!(linked(entries.clone(), 1).0, Some(2));
        // The same addresses in a third one: nobody knows which of the two it is.
        entries.push(entry(3, 7, "10.0.0.2:20", "10.0.0.1:10", "ESTABLISHED"));
        assert_eq!(linked(entries, 1), (None, PeerKind::Connected, String::new()));
    }

    #[test]
    fn a_datagram_goes_to_who_is_bound_there() {
        let udp = |inode, local, remote| {
            let mut entry = entry(inode, 9, local, remote, "CLOSE");
            entry.socket.protocol = SocketProtocol::Udp;
            entry
        };
        let entries = vec![udp(1, "127.0.0.1:10", "127.0.0.1:20"), udp(2, "0.0.0.0:20", NOBODY)];
        assert_eq!(linked(entries, 1), (Some(2), PeerKind::Bound, String::new()));
    }
}
