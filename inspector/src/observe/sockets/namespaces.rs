//! The network namespaces of the host's processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

use crate::{model::Gap, patience::Patience};

/// Most processes looked at.
const MAX_PROCESSES: usize = 65536;

/// Every namespace that a process lives in and that is not in `known`, with one such process. A process of another user
/// shows its namespace to the privileged only and is left out silently.
pub(super) fn others(known: &BTreeSet<u64>, ended: Instant) -> (BTreeMap<u64, u32>, Vec<Gap>) {
    let mut found = BTreeMap::new();
    let mut patience = Patience::default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids.take(MAX_PROCESSES) {
        if Instant::now() > ended {
            let reason = format!(
                "the search for network namespaces stopped at pid {pid}, for time: a connection's other end may be in another"
            );
            return (found, vec![Gap::host("sockets", reason)]);
        }
        let link = patience.run(Duration::ZERO, move || fs::read_link(format!("/proc/{pid}/ns/net")));
        let Ok(Ok(link)) = link else { continue };
        let inode = link.to_str().and_then(inode);
        if let Some(inode) = inode.filter(|inode| !known.contains(inode)) {
            found.entry(inode).or_insert(pid);
        }
    }
    (found, Vec::new())
}

/// `net:[4026531840]`.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_is_found_unless_it_is_known() {
        let link = fs::read_link("/proc/self/ns/net").unwrap();
        let own = inode(link.to_str().unwrap()).unwrap();
        let ended = Instant::now() + Duration::from_secs(5);
        assert!(others(&BTreeSet::new(), ended).0.contains_key(&own));
        assert!(!others(&BTreeSet::from([own]), ended).0.contains_key(&own));
        assert_eq!(inode("net:[x]"), None);
    }
}
