//! Sockets by `sock_diag`, in every network namespace involved.
//!
//! `sock_diag` answers for the network namespace of the thread that asks (`net/ipv4/inet_diag.c`), so a namespace that
//! is not ours is visited by a thread of its own that ends afterwards; it needs CAP_SYS_ADMIN. Where netlink or the
//! visit is refused, `/proc/PID/net/{tcp,tcp6,udp,udp6,unix}` of a process in the namespace gives addresses, states
//! and queues, without byte counts and unix peers.

mod address;
mod diag;
mod namespaces;
mod peers;
mod proc_net;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    hash::BuildHasher,
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use rustix::thread::LinkNameSpaceType;

use self::address::Entry;
use crate::{
    model::{Gap, Socket},
    visit::visit,
};

/// Longest time for one namespace.
const BUDGET: Duration = Duration::from_secs(2);
/// Longest time for looking further than the namespaces of the wanted processes.
const FURTHER: Duration = Duration::from_millis(700);
/// Who lives in the network namespaces that containers get open sockets from: inspector, the host's first process and the
/// kernel's first thread (in the host's, even where process 1 may not be looked at).
const OUTSIDE: [&str; 3] = ["self", "1", "2"];
/// Most sockets kept of one namespace; once that many are held, no further one is visited.
const MAX_SOCKETS: usize = 1 << 18;
/// Most network namespaces visited.
const MAX_NAMESPACES: usize = 256;

/// Sockets of the network namespaces that were visited, to be linked to their peers.
#[derive(Default)]
pub struct Table {
    entries: Vec<Entry>,
    visited: BTreeSet<u64>,
}

/// Reads the sockets of the network namespaces that processes live in.
///
/// `net_ns_of`: pairs of the host's pid and the inode of its network namespace. Minimum kernel 4.2 (for `tcp_info`'s byte
/// counts); TCP state without `inet_diag` through `/proc`.
pub fn read(net_ns_of: &[(u32, u64)]) -> (Table, Vec<Gap>) {
    let mut gaps = Vec::new();
    let mut namespaces: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for &(pid, net_ns) in net_ns_of {
        namespaces.entry(net_ns).or_default().push(pid);
    }
    if namespaces.len() > MAX_NAMESPACES {
        gaps.push(Gap::host(
            "sockets",
            format!("{} network namespaces; the first {MAX_NAMESPACES} were visited", namespaces.len()),
        ));
    }
    let own = fs::metadata("/proc/thread-self/ns/net").map(|metadata| metadata.ino()).ok();
    let mut table = Table::default();
    for (net_ns, pids) in namespaces.into_iter().take(MAX_NAMESPACES) {
        if table.entries.len() >= MAX_SOCKETS {
            let reason = format!(
                "{} sockets are enough: some network namespaces were not visited",
                table.entries.len()
            );
            gaps.push(Gap::host("sockets", reason));
            break;
        }
        gaps.extend(table.add(net_ns, &pids, own, BUDGET));
    }
    (table, gaps)
}

impl Table {
    /// Dumps one namespace, `pids` being processes in it and `own` ours.
    fn add(&mut self, net_ns: u64, pids: &[u32], own: Option<u64>, budget: Duration) -> Option<Gap> {
        self.visited.insert(net_ns);
        let ended = Instant::now() + budget;
        let found =
            if own == Some(net_ns) { diag::dump(net_ns, ended) } else { dump_foreign(net_ns, pids, ended) };
        match found {
            Ok(found) => {
                self.entries.extend(found.entries);
                let reason = found.incomplete?;
                let reason = format!("sockets of network namespace {net_ns} are not complete: {reason}");
                Some(Gap::host("sockets", reason))
            }
            Err(why) => {
                let fallback = pids.iter().find_map(|&pid| proc_net::read(pid, net_ns));
                let cost = if fallback.is_some() {
                    "read from /proc instead, without byte counts and unix peers"
                } else {
                    "its sockets stay unnamed"
                };
                self.entries.extend(fallback.unwrap_or_default());
                Some(Gap::host("sockets", format!("sock_diag in network namespace {net_ns}: {why}; {cost}")))
            }
        }
    }

    /// A socket stays in the namespace that it was made in: one that was inherited by a container, or sent into it, is not
    /// where its holder lives. Whoever made it lives outside as a rule. Sockets of other families are in no namespace's
    /// list.
    fn look_outside<S: BuildHasher>(&mut self, held: &HashSet<u64, S>, own: Option<u64>) {
        let known: HashSet<u64> = self.entries.iter().map(|entry| entry.socket.inode).collect();
        if held.iter().all(|inode| known.contains(inode)) {
            return;
        }
        for pid in OUTSIDE {
            let namespace = fs::metadata(format!("/proc/{pid}/ns/net")).map(|metadata| metadata.ino());
            let Some(net_ns) = namespace.ok().filter(|net_ns| !self.visited.contains(net_ns)) else {
                continue;
            };
            // One that may not be visited is no worse than one that was not looked for.
            self.add(net_ns, &pid.parse().into_iter().collect::<Vec<u32>>(), own, FURTHER);
        }
    }

    /// Visits further namespaces of the host for sockets among `held` that are in none of those visited so far, and for the
    /// other ends of their connections: a peer may be a process that nobody asked for, in a container of its own.
    pub fn look_further<S: BuildHasher>(&mut self, held: &HashSet<u64, S>) -> Vec<Gap> {
        let own = fs::metadata("/proc/thread-self/ns/net").map(|metadata| metadata.ino()).ok();
        self.look_outside(held, own);
        if !peers::any_stranger(&self.entries, held) {
            return Vec::new();
        }
        let ended = Instant::now() + FURTHER;
        let (namespaces, mut gaps) = namespaces::others(&self.visited, ended);
        let count = namespaces.len();
        for (index, (net_ns, pid)) in namespaces.into_iter().enumerate() {
            let left = ended.saturating_duration_since(Instant::now());
            if left.is_zero() || self.entries.len() >= MAX_SOCKETS || index >= MAX_NAMESPACES {
                let reason = format!(
                    "{index} of {count} further network namespaces were visited in the time that there is: a connection's other end may be in another"
                );
                gaps.push(Gap::host("sockets", reason));
                break;
            }
            // One that may not be visited, or is gone by now, is no worse than one that was not looked for.
            self.add(net_ns, &[pid], own, left);
            if !peers::any_stranger(&self.entries, held) {
                break;
            }
        }
        gaps
    }

    /// All sockets that somebody holds, peers on this host linked by [`Socket::peer_inode`]; [`relevant`] narrows them.
    pub fn link(self) -> Vec<Socket> {
        peers::link(self.entries)
    }
}

/// The sockets among `sockets` that concern the holders of `inodes`: their own, the peers of these, and every listener
/// (so that "nobody listens there" can be told).
pub fn relevant<S: BuildHasher>(sockets: Vec<Socket>, inodes: &HashSet<u64, S>) -> Vec<Socket> {
    let peers: HashSet<u64> = sockets
        .iter()
        .filter(|socket| inodes.contains(&socket.inode))
        .filter_map(|socket| socket.peer_inode)
        .collect();
    sockets
        .into_iter()
        .filter(|socket| {
            inodes.contains(&socket.inode)
                || peers.contains(&socket.inode)
                || socket.peer_inode.is_some_and(|peer| inodes.contains(&peer))
                || socket.state == "LISTEN"
        })
        .collect()
}

/// What one namespace gave.
#[derive(Default)]
struct Found {
    entries: Vec<Entry>,
    /// Why there may be more, as one clause.
    incomplete: Option<String>,
}

/// Dumps the sockets of a namespace that is not ours.
fn dump_foreign(net_ns: u64, pids: &[u32], ended: Instant) -> Result<Found, String> {
    let handle = pids
        .iter()
        .find_map(|pid| {
            let handle = fs::File::open(format!("/proc/{pid}/ns/net")).ok()?;
            // The pid may have been reused by a process elsewhere.
            (handle.metadata().ok()?.ino() == net_ns).then_some(handle)
        })
        .ok_or("no process of it is left, or its ns/net may not be opened (needs CAP_SYS_PTRACE)")?;
    let ask = |joined: rustix::io::Result<()>| {
        joined.map_err(|error| format!("cannot join it: {error} (needs CAP_SYS_ADMIN)"))?;
        diag::dump(net_ns, ended)
    };
    visit(&handle, LinkNameSpaceType::Network, ask)
        .unwrap_or_else(|| Err("the visiting thread failed".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream, UdpSocket},
        os::{fd::AsRawFd, unix::net::UnixStream},
    };

    use super::*;
    use crate::model::{SocketFamily, SocketProtocol};

    fn inode(fd: &impl AsRawFd) -> u64 {
        fs::metadata(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap().ino()
    }

    fn own_namespace() -> u64 {
        fs::metadata("/proc/self/ns/net").unwrap().ino()
    }

    #[test]
    fn both_ends_of_own_connections_are_linked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"hello").unwrap();
        let (left, right) = UnixStream::pair().unwrap();
        let udp = UdpSocket::bind("[::1]:0").unwrap();

        let (table, gaps) = read(&[(std::process::id(), own_namespace())]);
        assert_eq!(gaps, []);
        let sockets = table.link();
        let find = |wanted: u64| sockets.iter().find(|socket| socket.inode == wanted).unwrap();
        let (a, b) = (find(inode(&client)), find(inode(&server)));
        assert_eq!((a.peer_inode, b.peer_inode), (Some(b.inode), Some(a.inode)));
        assert_eq!((&a.local, &a.remote, a.state.as_str()), (&b.remote, &b.local, "ESTABLISHED"));
        assert_eq!(a.local, client.local_addr().unwrap().to_string());
        assert_eq!(b.recv_queue, 5);
        assert_eq!(b.bytes_received, Some(5));
        assert!(a.last_sent_ns.is_some());
        assert_eq!(find(inode(&listener)).state, "LISTEN");
        assert_eq!(find(inode(&left)).peer_inode, Some(inode(&right)));
        assert_eq!(find(inode(&left)).protocol, SocketProtocol::Stream);
        let datagram = find(inode(&udp));
        assert_eq!((datagram.family, datagram.protocol), (SocketFamily::Inet6, SocketProtocol::Udp));
        assert_eq!(datagram.local, udp.local_addr().unwrap().to_string());

        let own = HashSet::from([inode(&client)]);
        let narrowed = relevant(sockets, &own);
        assert!(narrowed.iter().any(|socket| socket.inode == inode(&server)));
        assert!(!narrowed.iter().any(|socket| socket.inode == inode(&left)));
    }

    #[test]
    fn a_connection_that_nobody_accepted_leads_to_the_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let unix_listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let unix_client = UnixStream::connect(&path).unwrap();
        let sockets = read(&[(std::process::id(), own_namespace())]).0.link();
        let find = |wanted: u64| sockets.iter().find(|socket| socket.inode == wanted).unwrap();
        assert_eq!(find(inode(&client)).peer_inode, Some(inode(&listener)));
        assert_eq!(find(inode(&unix_client)).peer_inode, Some(inode(&unix_listener)));
        assert_eq!(find(inode(&unix_client)).remote, path.to_str().unwrap());
    }

    #[test]
    fn proc_tells_the_same_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let sockets = peers::link(proc_net::read(std::process::id(), own_namespace()).unwrap());
        let find = |wanted: u64| sockets.iter().find(|socket| socket.inode == wanted).unwrap();
        let socket = find(inode(&client));
        assert_eq!(socket.remote, client.peer_addr().unwrap().to_string());
        assert_eq!(socket.peer_inode, Some(inode(&server)));
        assert_eq!(find(inode(&listener)).state, "LISTEN");
    }

    #[test]
    fn a_namespace_that_is_gone_is_a_gap() {
        let (table, gaps) = read(&[(u32::MAX, 1)]);
        assert!(table.link().is_empty());
        assert!(gaps[0].reason.contains("no process of it is left"), "{gaps:?}");
    }
}
