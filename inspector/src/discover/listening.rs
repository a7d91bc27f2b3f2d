//! TCP ports that a process listens on. Pure: from its descriptors and the sockets that were read.

use std::collections::BTreeSet;

use crate::model::{Fd, Socket, SocketFamily, SocketProtocol};

/// The ports of the listening TCP sockets among `fds`, ascending.
pub fn listening(fds: &[Fd], sockets: &[Socket]) -> Vec<u16> {
    let own: BTreeSet<u64> = fds.iter().filter_map(Fd::socket_inode).collect();
    let ports: BTreeSet<u16> = sockets
        .iter()
        .filter(|socket| own.contains(&socket.inode) && socket.state == "LISTEN")
        .filter(|socket| socket.protocol == SocketProtocol::Tcp)
        .filter(|socket| matches!(socket.family, SocketFamily::Inet | SocketFamily::Inet6))
        .filter_map(|socket| socket.local.rsplit_once(':')?.1.parse().ok())
        .collect();
    ports.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FdKind;

    #[test]
    fn only_own_tcp_listeners_count() {
        let fd = |inode| Fd { fd: 3, flags: 0, kind: FdKind::Socket { inode }, ..Fd::default() };
        let socket = |inode, local: &str, state: &str| Socket {
            inode,
            local: local.into(),
            state: state.into(),
            ..Socket::default()
        };
        let sockets = [
            socket(1, "127.0.0.1:8301", "LISTEN"),
            socket(2, "[::]:80", "LISTEN"),
            socket(3, "127.0.0.1:9", "ESTABLISHED"),
            socket(4, "127.0.0.1:7", "LISTEN"),
            Socket {
                protocol: SocketProtocol::Stream,
                family: SocketFamily::Unix,
                ..socket(5, "/run/a:1", "LISTEN")
            },
        ];
        assert_eq!(listening(&[fd(2), fd(1), fd(3), fd(5)], &sockets), [80, 8301]);
    }
}
