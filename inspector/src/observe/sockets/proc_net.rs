//! Sockets from `/proc/PID/net`, for hosts where netlink is refused.
//!
//! Layout: `net/ipv4/tcp_ipv4.c` (`get_tcp4_sock`), `net/ipv6/tcp_ipv6.c`, `net/unix/af_unix.c` (`unix_seq_show`).

use std::{
    fs::File,
    io::Read,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::{
    MAX_SOCKETS,
    address::{Entry, state_name},
};
use crate::model::{Socket, SocketFamily, SocketProtocol};

/// Most bytes read of one table.
const MAX_BYTES: u64 = 32 << 20;

/// The sockets of the network namespace of `pid`; `None` when nothing could be read.
pub(super) fn read(pid: u32, net_ns: u64) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut any = false;
    for (name, family, protocol) in [
        ("tcp", SocketFamily::Inet, SocketProtocol::Tcp),
        ("tcp6", SocketFamily::Inet6, SocketProtocol::Tcp),
        ("udp", SocketFamily::Inet, SocketProtocol::Udp),
        ("udp6", SocketFamily::Inet6, SocketProtocol::Udp),
        ("unix", SocketFamily::Unix, SocketProtocol::Stream),
    ] {
        let Some(text) = table(pid, name) else { continue };
        any = true;
        for line in text.lines().skip(1) {
            let parsed = if family == SocketFamily::Unix { unix(line) } else { inet(line) };
            let Some(mut entry) = parsed else { continue };
            entry.socket.net_ns = net_ns;
            entry.socket.family = family;
            if family != SocketFamily::Unix {
                entry.socket.protocol = protocol;
            }
            entries.push(entry);
            if entries.len() >= MAX_SOCKETS {
                return Some(entries);
            }
        }
    }
    any.then_some(entries)
}

fn table(pid: u32, name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/net/{name}")).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// `SL LOCAL REMOTE STATE TX:RX TR:WHEN RETRANSMITS UID TIMEOUT INODE …`, hexadecimal but for the inode.
fn inet(line: &str) -> Option<Entry> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (send, receive) = words.get(4)?.split_once(':')?;
    let state = u8::from_str_radix(words.get(3)?, 16).ok()?;
    let mut entry = Entry {
        socket: Socket {
            inode: words.get(9)?.parse().ok()?,
            state: state_name(state).to_owned(),
            send_queue: u32::from_str_radix(send, 16).ok()?,
            recv_queue: u32::from_str_radix(receive, 16).ok()?,
            retransmits: u32::from_str_radix(words.get(6)?, 16).unwrap_or_default(),
            ..Socket::default()
        },
        ..Entry::default()
    };
    // TIME_WAIT: no owner, no data.
    if state == 6 {
        return None;
    }
    entry.set_addresses(address(words.get(1)?)?, address(words.get(2)?)?);
    Some(entry)
}

/// `0100007F:1F90`: each 32-bit word of the address in host byte order.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// `NUM: REFCOUNT PROTOCOL FLAGS TYPE STATE INODE [PATH]`.
fn unix(line: &str) -> Option<Entry> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let listening = u32::from_str_radix(words.get(3)?, 16).ok()? & 0x10000 != 0;
    // `enum socket_state` of `include/uapi/linux/net.h`: 2 connecting, 3 connected.
    let state = match (listening, u8::from_str_radix(words.get(5)?, 16).ok()?) {
        (true, _) => 10,
        (_, 3) => 1,
        (_, 2) => 2,
        _ => 7,
    };
    Some(Entry {
        socket: Socket {
            inode: words.get(6)?.parse().ok()?,
            protocol: match u32::from_str_radix(words.get(4)?, 16).ok()? {
                1 => SocketProtocol::Stream,
                2 => SocketProtocol::Datagram,
                5 => SocketProtocol::Seqpacket,
                _ => SocketProtocol::Other,
            },
            state: state_name(state).to_owned(),
            local: words.get(7).copied().unwrap_or_default().to_owned(),
            ..Socket::default()
        },
        ..Entry::default()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_in_host_order_by_word() {
        assert_eq!(address("0100007F:1F90").unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(address("00000000000000000000000001000000:0050").unwrap().to_string(), "[::1]:80");
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line in "[ 0-9A-F:é]{0,200}") {
            drop(inet(&line));
            drop(unix(&line));
        }
    }
}
