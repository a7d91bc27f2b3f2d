//! Joining another namespace; for `discover` and `observe`.

use std::{fs::File, os::fd::AsFd as _, thread};

use rustix::{
    io,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// Does `work` in `namespace`, told whether it could be joined (needs CAP_SYS_ADMIN). On a thread of its own: whoever
/// joins a namespace stays there. `None`: no thread could be had, or it panicked.
pub(crate) fn visit<T: Send>(
    namespace: &File,
    kind: LinkNameSpaceType,
    work: impl FnOnce(io::Result<()>) -> T + Send,
) -> Option<T> {
    let go = || work(move_into_link_name_space(namespace.as_fd(), Some(kind)));
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("visit".into()).spawn_scoped(scope, go);
        thread.ok()?.join().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_namespace_is_not_joined() {
        let uts = File::open("/proc/self/ns/uts").expect("a namespace");
        let joined = visit(&uts, LinkNameSpaceType::Network, |joined| joined.is_ok());
        assert_eq!(joined, Some(false));
    }
}
