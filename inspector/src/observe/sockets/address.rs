//! Addresses and states of sockets in one form, wherever they come from.

use std::net::{IpAddr, SocketAddr};

use crate::model::Socket;

/// One socket with what links it to its peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// What is kept. Inode 0: nobody has a descriptor (not accepted yet, or closed).
    pub socket: Socket,
    /// Local address, IP sockets only.
    pub local: Option<SocketAddr>,
    /// Remote address, connected IP sockets only.
    pub remote: Option<SocketAddr>,
    /// Inodes of connections to this unix listener that it has not accepted.
    pub pending: Vec<u64>,
}

impl Entry {
    /// Sets both addresses, as text too.
    pub(super) fn set_addresses(&mut self, local: SocketAddr, remote: SocketAddr) {
        let (local, remote) = (canonical(local), canonical(remote));
        self.socket.local = if local.port() == 0 { String::new() } else { local.to_string() };
        self.local = Some(local);
        if remote.port() != 0 {
            self.socket.remote = remote.to_string();
            self.remote = Some(remote);
        }
    }
}

/// An IPv4 address that an IPv6 socket shows as `::ffff:a.b.c.d` is the IPv4 address that its peer shows; the scope of
/// an IPv6 address is left out for the same reason.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
        v4 @ IpAddr::V4(_) => v4,
    };
    SocketAddr::new(ip, address.port())
}

/// The kernel's name of a socket state (`include/net/tcp_states.h`).
pub(super) const fn state_name(state: u8) -> &'static str {
    match state {
        1 => "ESTABLISHED",
        2 => "SYN_SENT",
        3 => "SYN_RECV",
        4 => "FIN_WAIT1",
        5 => "FIN_WAIT2",
        6 => "TIME_WAIT",
        7 => "CLOSE",
        8 => "CLOSE_WAIT",
        9 => "LAST_ACK",
        10 => "LISTEN",
        11 => "CLOSING",
        12 => "NEW_SYN_RECV",
        _ => "UNKNOWN",
    }
}
