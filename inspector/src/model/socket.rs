//! Sockets, as `sock_diag` reports them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SocketFamily {
    /// IPv4.
    #[default]
    Inet,
    /// IPv6.
    Inet6,
    /// Unix domain.
    Unix,
    /// Another family, known by its `/proc/PID/fd` link only.
    Other,
}

/// Protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SocketProtocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// Unix stream.
    Stream,
    /// Unix datagram.
    Datagram,
    /// Unix sequenced packets.
    Seqpacket,
    /// Anything else.
    Other,
}

/// What a TCP socket's timer is armed for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimerKind {
    /// What was sent is not acknowledged: it is sent again.
    #[default]
    Retransmission,
    /// A quiet connection is asked whether it is still there.
    Keepalive,
    /// The peer's receive window is closed: it is asked whether it has room.
    ZeroWindowProbe,
}

/// A timer that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketTimer {
    /// What for.
    pub kind: TimerKind,
    /// Nanoseconds until it expires.
    pub expires_ns: u64,
}

/// How a socket's other end on this host was found, or why there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PeerKind {
    /// It is connected to this one. Where no peer is known, nothing is known of it.
    #[default]
    Connected,
    /// The connection has not been accepted: the peer is the listener.
    NotAccepted,
    /// A datagram socket that is bound to the address that this one sends to, and connected to nobody.
    Bound,
    /// The other end was closed: the kernel keeps it, nobody holds it.
    Closed,
    /// There is no socket at the other end, which would be in the same network namespace.
    Absent,
}

/// One socket.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Socket {
    /// Its inode: the key to [`super::FdKind::Socket`].
    pub inode: u64,
    /// Inode of the network namespace it lives in.
    pub net_ns: u64,
    /// Address family.
    pub family: SocketFamily,
    /// Protocol.
    pub protocol: SocketProtocol,
    /// `127.0.0.1:41872`, `[::1]:80`, a unix path (`@` for the abstract namespace); empty: unbound.
    pub local: String,
    /// The other end, same forms; empty: none.
    pub remote: String,
    /// State in the kernel's words: `ESTABLISHED`, `SYN_SENT`, `LISTEN`, `CLOSE_WAIT`…
    pub state: String,
    /// Bytes received and not yet read (for a listener: connections waiting to be accepted).
    pub recv_queue: u32,
    /// Bytes sent and not yet acknowledged (for a listener: the backlog).
    pub send_queue: u32,
    /// Inode of the peer (unix: `UNIX_DIAG_PEER`; TCP on this host: by swapping the addresses); `None`: no local peer.
    pub peer_inode: Option<u64>,
    /// What the peer is to it.
    #[serde(default)]
    pub peer_kind: PeerKind,
    /// State of a peer that nobody holds; empty: none.
    #[serde(default)]
    pub peer_state: String,
    /// Its timer, where one runs (TCP).
    #[serde(default)]
    pub timer: Option<SocketTimer>,
    /// Consecutive retransmissions without an answer.
    pub retransmits: u32,
    /// Nanoseconds since the last byte was sent (`tcp_info`), where known.
    pub last_sent_ns: Option<u64>,
    /// Nanoseconds since the last byte was received (`tcp_info`), where known.
    pub last_received_ns: Option<u64>,
    /// Bytes received over the socket's life (`tcp_info`), where known.
    pub bytes_received: Option<u64>,
    /// Bytes acknowledged by the peer over the socket's life (`tcp_info`), where known.
    pub bytes_acked: Option<u64>,
}

impl Socket {
    /// It takes datagrams, from whoever sends to it.
    pub const fn is_datagram(&self) -> bool {
        matches!(self.protocol, SocketProtocol::Udp | SocketProtocol::Datagram)
    }
}
