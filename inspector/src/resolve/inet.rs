//! A blocked `connect`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{
    scene::{Blocked, Object},
    socket, text,
};
use crate::model::{Owner, Wait, WaitKind};

/// A `connect` that waits for an answer (TCP), or for room in the listener's backlog (unix).
pub(super) fn connect(blocked: &Blocked<'_>) -> Wait {
    let fd = blocked.fd(0);
    let inode = blocked.socket_inode(fd);
    let found = inode.and_then(|inode| blocked.scene.socket(inode));
    let wait = Wait { kind: WaitKind::Connect, fd: Some(fd), inode, ..Wait::default() };
    let mut wait = socket::describe(found, wait);
    if wait.remote.is_none() {
        wait.remote = blocked.thread.saved(blocked.argument(1), length(blocked)).and_then(sockaddr);
    }
    wait.owners = socket::peers(blocked, found);
    if wait.owners.is_empty() {
        wait.owners = listeners(blocked, wait.remote.as_deref(), found.map(|socket| socket.net_ns));
    }
    let what = match (&wait.remote, found) {
        (Some(remote), _) => format!("connect to {remote}"),
        (None, Some(found)) => format!("connect on {}", text::socket(found)),
        (None, None) => format!("connect on descriptor {fd}"),
    };
    let state = wait.socket_state.as_deref().map(|state| format!(" {state}")).unwrap_or_default();
    Wait { text: format!("{what}{state}"), ..wait }
}

fn length(blocked: &Blocked<'_>) -> usize {
    (blocked.argument(2) as u32).min(128) as usize
}

/// The processes that listen where the connection should go.
fn listeners(blocked: &Blocked<'_>, remote: Option<&str>, net_ns: Option<u64>) -> Vec<Owner> {
    let Some(remote) = remote else { return Vec::new() };
    let wildcards: Vec<String> = match remote.parse::<SocketAddr>() {
        Ok(address) => ["0.0.0.0", "[::]"].map(|any| format!("{any}:{}", address.port())).to_vec(),
        Err(_) => Vec::new(),
    };
    blocked
        .scene
        .capture
        .sockets
        .iter()
        .filter(|socket| socket.state == "LISTEN" && net_ns.is_none_or(|net_ns| socket.net_ns == net_ns))
        .filter(|socket| socket.local == remote || wildcards.contains(&socket.local))
        .take(4)
        .flat_map(|socket| {
            let evidence = format!("sock_diag: it listens on {}", socket.local);
            blocked.owners(Object::Inode(socket.inode), blocked.certainty(), &evidence, |_| true)
        })
        .collect()
}

/// The text of a `struct sockaddr`: family in host order, port in network order.
fn sockaddr(bytes: &[u8]) -> Option<String> {
    let family = i32::from(u16::from_le_bytes(*bytes.first_chunk()?));
    let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
    match family {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port()?).to_string())
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), port()?).to_string())
        }
        libc::AF_UNIX => {
            let path = bytes.get(2..)?;
            let (sign, name) = match path.split_first()? {
                (0, name) => ("@", name),
                _ => ("", path.split(|&byte| byte == 0).next()?),
            };
            Some(format!("{sign}{}", String::from_utf8_lossy(name)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(sockaddr(&[2, 0, 0x1f, 0x90, 10, 0, 0, 1, 0, 0]).as_deref(), Some("10.0.0.1:8080"));
        assert_eq!(sockaddr(b"\x01\0/tmp/x\0junk").as_deref(), Some("/tmp/x"));
        assert_eq!(sockaddr(b"\x01\0\0name").as_deref(), Some("@name"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            drop(sockaddr(&bytes));
        }
    }
}
