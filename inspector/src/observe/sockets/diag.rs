//! Netlink `sock_diag` dumps of the calling thread's network namespace.

use std::{
    io,
    net::SocketAddr,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    time::{Duration, Instant},
};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP, SockDiagMessage,
    inet::{self, InetRequest, InetResponse, SocketId},
    unix::{self, UnixRequest, UnixResponse, nlas::UnixDiagName},
};
use netlink_sys::{Socket as Netlink, SocketAddr as NetlinkAddr, protocols::NETLINK_SOCK_DIAG};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::{
    Found, MAX_SOCKETS,
    address::{Entry, state_name},
};
use crate::model::{Socket, SocketFamily, SocketProtocol, SocketTimer, TimerKind};

/// Room for one answer; the kernel fills at most 32 KiB in a dump (`net/netlink/af_netlink.c`).
const BUFFER: usize = 64 * 1024;
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_millis(500);
/// Most waiting connections kept of one unix listener.
const MAX_PENDING: usize = 4096;

/// Dumps TCP, UDP (both over IPv4 and IPv6) and unix sockets.
pub(super) fn dump(net_ns: u64, ended: Instant) -> Result<Found, String> {
    let mut found = Found::default();
    let mut refused = Vec::new();
    for (family, protocol) in
        [(AF_INET, IPPROTO_TCP), (AF_INET6, IPPROTO_TCP), (AF_INET, IPPROTO_UDP), (AF_INET6, IPPROTO_UDP)]
    {
        let request = SockDiagMessage::InetRequest(InetRequest {
            family,
            protocol,
            extensions: inet::ExtensionFlags::INFO,
            // TIME_WAIT sockets have neither an owner nor data.
            states: inet::StateFlags::all() - inet::StateFlags::TIME_WAIT,
            socket_id: if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() },
        });
        // A protocol whose diag module is missing (IPv6 off) fails alone.
        if let Err(error) = one(request, net_ns, protocol, ended, &mut found) {
            refused.push(error);
        }
    }
    let request = SockDiagMessage::UnixRequest(UnixRequest {
        // The crate names two states only; datagram sockets are in TCP_CLOSE, connecting ones in TCP_SYN_SENT.
        state_flags: unix::StateFlags::from_bits_retain(u32::MAX),
        inode: 0,
        show_flags: unix::ShowFlags::NAME
            | unix::ShowFlags::PEER
            | unix::ShowFlags::ICONS
            | unix::ShowFlags::RQLEN,
        cookie: [0xff; 8],
    });
    if let Err(error) = one(request, net_ns, 0, ended, &mut found) {
        refused.push(error);
    }
    match refused.first() {
        Some(error) if found.entries.is_empty() => Err(error.to_string()),
        Some(error) => {
            found.incomplete.get_or_insert_with(|| format!("one of five dumps failed: {error}"));
            Ok(found)
        }
        None => Ok(found),
    }
}

/// One dump, on a socket of its own so that a late answer cannot be taken for the next dump's.
fn one(
    request: SockDiagMessage,
    net_ns: u64,
    protocol: u8,
    ended: Instant,
    found: &mut Found,
) -> io::Result<()> {
    let mut socket = Netlink::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&NetlinkAddr::new(0, 0))?;
    set_socket_timeout(socket.as_fd(), Timeout::Recv, Some(ANSWER))?;

    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, request.into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut buffer = vec![0_u8; BUFFER];
    let mut unread = 0_usize;
    loop {
        if Instant::now() > ended || found.entries.len() >= MAX_SOCKETS {
            found.incomplete =
                Some(format!("stopped after {} sockets, for time or number", found.entries.len()));
            return Ok(());
        }
        let length = socket.recv(&mut buffer.as_mut_slice(), 0)?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        if rest.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        // A netlink message begins with its length and is padded to 4 bytes (`include/uapi/linux/netlink.h`).
        while let Some(total) = rest.first_chunk().map(|head| u32::from_ne_bytes(*head) as usize) {
            let Some(one) = rest.get(..total).filter(|_| total >= 16) else { break };
            match NetlinkMessage::<SockDiagMessage>::deserialize(one).map(|message| message.payload) {
                Ok(NetlinkPayload::Done(_)) => {
                    if unread > 0 {
                        found.incomplete = Some(format!("{unread} answers could not be understood"));
                    }
                    return Ok(());
                }
                Ok(NetlinkPayload::Error(error)) => return Err(error.to_io()),
                Ok(NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(answer))) => {
                    found.entries.push(inet_entry(&answer, net_ns, protocol));
                }
                Ok(NetlinkPayload::InnerMessage(SockDiagMessage::UnixResponse(answer))) => {
                    found.entries.push(unix_entry(&answer, net_ns));
                }
                Ok(_) => {}
                Err(_) => unread += 1,
            }
            rest = rest.get(total.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn inet_entry(answer: &InetResponse, net_ns: u64, protocol: u8) -> Entry {
    let header = &answer.header;
    let mut entry = Entry {
        socket: Socket {
            inode: u64::from(header.inode),
            net_ns,
            family: if header.family == AF_INET { SocketFamily::Inet } else { SocketFamily::Inet6 },
            protocol: if protocol == IPPROTO_TCP { SocketProtocol::Tcp } else { SocketProtocol::Udp },
            state: state_name(header.state).to_owned(),
            recv_queue: header.recv_queue,
            send_queue: header.send_queue,
            timer: header.timer.as_ref().and_then(timer),
            ..Socket::default()
        },
        ..Entry::default()
    };
    let id = &header.socket_id;
    entry.set_addresses(
        SocketAddr::new(id.source_address, id.source_port),
        SocketAddr::new(id.destination_address, id.destination_port),
    );
    for attribute in &answer.nlas {
        if let inet::nlas::Nla::TcpInfo(bytes) = attribute {
            tcp_info(&mut entry.socket, bytes);
        }
    }
    entry
}

fn timer(timer: &inet::Timer) -> Option<SocketTimer> {
    let (kind, expires) = match timer {
        inet::Timer::Retransmit(expires, _) => (TimerKind::Retransmission, expires),
        inet::Timer::KeepAlive(expires) => (TimerKind::Keepalive, expires),
        inet::Timer::Probe(expires) => (TimerKind::ZeroWindowProbe, expires),
        inet::Timer::TimeWait => return None,
    };
    Some(SocketTimer { kind, expires_ns: u64::try_from(expires.as_nanos()).unwrap_or(u64::MAX) })
}

/// `struct tcp_info` (`include/uapi/linux/tcp.h`): retransmits at 2, probes at 3, last_data_sent at 44, last_data_recv
/// at 52 (milliseconds), bytes_acked at 120, bytes_received at 128. Older kernels give fewer bytes.
fn tcp_info(socket: &mut Socket, bytes: &[u8]) {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if socket.state == "LISTEN" {
        return;
    }
    let byte = |at: usize| bytes.get(at).copied().map_or(0, u32::from);
    socket.retransmits = byte(2).max(byte(3));
    let since = |milliseconds: u32| u64::from(milliseconds) * 1_000_000;
    socket.last_sent_ns = u32_at(44).map(since);
    socket.last_received_ns = u32_at(52).map(since);
    socket.bytes_acked = u64_at(120);
    socket.bytes_received = u64_at(128);
}

fn unix_entry(answer: &UnixResponse, net_ns: u64) -> Entry {
    use unix::nlas::Nla;
    let header = &answer.header;
    let mut entry = Entry {
        socket: Socket {
            inode: u64::from(header.inode),
            net_ns,
            family: SocketFamily::Unix,
            protocol: match i32::from(header.kind) {
                libc::SOCK_STREAM => SocketProtocol::Stream,
                libc::SOCK_DGRAM => SocketProtocol::Datagram,
                libc::SOCK_SEQPACKET => SocketProtocol::Seqpacket,
                _ => SocketProtocol::Other,
            },
            state: state_name(header.state).to_owned(),
            ..Socket::default()
        },
        ..Entry::default()
    };
    for attribute in &answer.nlas {
        match attribute {
            Nla::Name(UnixDiagName::Pathname(path)) => {
                entry.socket.local = String::from_utf8_lossy(path.as_bytes()).into_owned();
            }
            Nla::Name(UnixDiagName::Abstract(name)) => {
                entry.socket.local = format!("@{}", String::from_utf8_lossy(name));
            }
            Nla::Peer(peer) => entry.socket.peer_inode = Some(u64::from(*peer)),
            Nla::PendingConnections(inodes) => {
                entry.pending = inodes.iter().take(MAX_PENDING).map(|&inode| u64::from(inode)).collect();
            }
            Nla::ReceiveQueueLength(received, sent) => {
                entry.socket.recv_queue = *received;
                entry.socket.send_queue = *sent;
            }
            _ => {}
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_tcp_info_leaves_the_rest_unknown() {
        let mut socket = Socket::default();
        let mut bytes = vec![0; 104];
        bytes[2] = 3;
        bytes[44..48].copy_from_slice(&1500_u32.to_ne_bytes());
        tcp_info(&mut socket, &bytes);
        assert_eq!(socket.retransmits, 3);
        assert_eq!(socket.last_sent_ns, Some(1_500_000_000));
        assert_eq!(socket.bytes_received, None);
        tcp_info(&mut socket, &[]);
        assert_eq!(socket.last_sent_ns, None);
    }
}
