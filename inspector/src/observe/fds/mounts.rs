//! Which mounts of a process lie on file systems that answer without a network or another process.

use std::collections::HashSet;

/// Local file systems, by name in `mountinfo`. FUSE, NFS, 9p, virtiofs, Lustre… are left out on purpose: a look at a
/// file of theirs waits for somebody else.
const LOCAL: &[&str] = &[
    "bcachefs",
    "btrfs",
    "devtmpfs",
    "erofs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "overlay",
    "ramfs",
    "rootfs",
    "squashfs",
    "tmpfs",
    "vfat",
    "xfs",
    "zfs",
];
/// Most bytes read of `mountinfo`.
const MAX_BYTES: u64 = 1 << 20;

/// The local mounts of one process, read when first asked for.
pub(super) struct LocalMounts {
    pid: u32,
    ids: Option<HashSet<u32>>,
}

impl LocalMounts {
    pub(super) fn of(pid: u32) -> Self {
        Self { pid, ids: None }
    }

    /// Whether the mount `id` is known to be local.
    pub(super) fn contains(&mut self, id: Option<u32>) -> bool {
        let Some(id) = id else { return false };
        let path = format!("/proc/{}/mountinfo", self.pid);
        self.ids
            .get_or_insert_with(|| parse(&super::read_bounded(&path, MAX_BYTES).unwrap_or_default()))
            .contains(&id)
    }
}

/// `ID PARENT MAJ:MIN ROOT POINT OPTIONS [TAGS…] - TYPE SOURCE OPTIONS`.
fn parse(text: &str) -> HashSet<u32> {
    text.lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let kind = after.split(' ').next()?;
            LOCAL.contains(&kind).then(|| before.split(' ').next()?.parse().ok()).flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_left_out() {
        let ids = parse(
            "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
             27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
             30 27 0:40 / /data rw - nfs4 server:/x rw\nbroken\n",
        );
        assert_eq!(ids, HashSet::from([27]));
    }
}
