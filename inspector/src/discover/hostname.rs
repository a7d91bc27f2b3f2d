//! The host name of a container, asked of the kernel in its UTS namespace: no file of the target is read.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
};

use rustix::thread::LinkNameSpaceType;

use crate::visit::visit;

/// Inode of the initial UTS namespace (`PROC_UTS_INIT_INO`, include/linux/proc_ns.h).
const INITIAL: u64 = 0xefff_fffe;
/// Most namespaces visited.
const MAX_NAMESPACES: usize = 256;

/// Host names by the inode of their UTS namespace.
#[derive(Debug)]
pub(super) struct Hostnames {
    host: Option<String>,
    known: BTreeMap<u64, Option<String>>,
}

impl Hostnames {
    /// Notes the host's: ours, or that of process 1.
    pub(super) fn new() -> Self {
        let ours = fs::metadata("/proc/self/ns/uts").is_ok_and(|own| own.ino() == INITIAL);
        let first = || File::open("/proc/1/ns/uts").ok().and_then(|namespace| name_in(&namespace));
        let host = if ours { Some(own_name()) } else { first() };
        Self { host, known: BTreeMap::new() }
    }

    /// The name in a UTS namespace, if it is another one than the host's. Needs `CAP_SYS_ADMIN`.
    ///
    /// A namespace alone says nothing: systemd gives one with the host's name to a service that may not change it.
    pub(super) fn other_than_hosts(&mut self, namespace: &File) -> Option<String> {
        let inode = namespace.metadata().ok()?.ino();
        if inode == INITIAL || !self.known.contains_key(&inode) && self.known.len() >= MAX_NAMESPACES {
            return None;
        }
        let name = self.known.entry(inode).or_insert_with(|| name_in(namespace)).clone();
        name.filter(|name| Some(name) != self.host.as_ref())
    }
}

fn name_in(namespace: &File) -> Option<String> {
    let ask = |joined: rustix::io::Result<()>| joined.is_ok().then(own_name);
    visit(namespace, LinkNameSpaceType::HostNameAndNISDomainName, ask).flatten()
}

fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_asked_for_its_name_unless_it_is_the_hosts() {
        let own = File::open("/proc/self/ns/uts").expect("a namespace");
        assert_eq!(name_in(&own).as_deref(), Some(own_name().as_str()), "joining one needs root");
        let mut names = Hostnames { host: Some(own_name()), known: BTreeMap::new() };
        assert_eq!(names.other_than_hosts(&own), None);
    }
}
