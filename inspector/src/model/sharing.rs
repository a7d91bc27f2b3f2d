//! Memory that processes share: what lies where, and which threads its words name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A shared mapping of a process, as `/proc/PID/maps` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// The file's device, `major << 20 | minor`; anonymous shared memory has one too, of the kernel's own tmpfs.
    pub device: u64,
    /// The file's inode.
    pub inode: u64,
    /// Where in the file the mapping begins.
    pub offset: u64,
    /// Its path in the target's mount namespace.
    pub path: String,
    /// It may not be written to: whoever maps it like this takes no lock in it.
    #[serde(default)]
    pub read_only: bool,
}

impl SharedMapping {
    /// What lies at `address`, if it is inside.
    pub fn object_at(&self, address: u64) -> Option<SharedObject> {
        if address >= self.end {
            return None;
        }
        let offset = self.offset.checked_add(address.checked_sub(self.start)?)?;
        let device = format!("{:x}:{:x}", self.device >> 20, self.device & 0xf_ffff);
        Some(SharedObject { device, inode: self.inode, offset, path: self.path.clone() })
    }

    /// Whether a lock at that very place of that very file can be taken through the mapping.
    pub fn can_lock(&self, object: &SharedObject) -> bool {
        !self.read_only && self.holds(object)
    }

    /// Whether the mapping holds that very place of that very file.
    pub fn holds(&self, object: &SharedObject) -> bool {
        let length = self.end.saturating_sub(self.start);
        let inside = object.offset.checked_sub(self.offset).is_some_and(|at| at < length);
        inside
            && self.inode == object.inode
            && self.object_at(self.start).is_some_and(|own| own.device == object.device)
            // A System V segment shows its id for an inode (ipc/shm.c, newseg), beside files that count for themselves.
            && is_sysv(&self.path) == is_sysv(&object.path)
    }
}

/// What lies at `address` in mappings that are ordered by address.
pub fn object_at(mappings: &[SharedMapping], address: u64) -> Option<SharedObject> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    mappings.get(after.checked_sub(1)?)?.object_at(address)
}

/// Identity of an object in memory that several processes can map, each at an address of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SharedObject {
    /// Device of the mapped file, `major:minor` in hexadecimal, as `/proc/PID/maps` prints it.
    pub device: String,
    /// Inode of the mapped file; of a System V segment its id.
    pub inode: u64,
    /// Where in the file the object lies.
    pub offset: u64,
    /// Path as the waiter's process maps it: a file, `/memfd:NAME`, `/dev/zero` for anonymous memory, `/SYSV…`.
    pub path: String,
}

impl SharedObject {
    /// The same place in the same file is the same object. Not so of System V segments, whose ids are counted anew in each
    /// IPC namespace.
    pub fn is_unique(&self) -> bool {
        !is_sysv(&self.path)
    }
}

fn is_sysv(path: &str) -> bool {
    path.starts_with("/SYSV")
}

/// A thread id that a word in shared memory names and that no thread of the waiter's process has, looked up on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedTid {
    /// The id, as the waiter's PID namespace counts.
    pub ns_tid: u32,
    /// The object whose word names it.
    pub object: SharedObject,
    /// The thread that has this id there; `None`: there is none, or it was not found.
    pub thread: Option<Namesake>,
    /// Every process that maps the object was looked at, and all of them live in the waiter's PID namespace: where
    /// `thread` is `None`, the thread that took the lock has ended.
    pub complete: bool,
}

/// A thread that bears an id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namesake {
    /// Its process, the host's id.
    pub pid: u32,
    /// Its tid, the host's.
    pub tid: u32,
    /// `comm` of the thread.
    pub comm: String,
    /// Its process maps the object and can write to it.
    pub maps_object: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(path: &str) -> SharedMapping {
        SharedMapping {
            start: 0x7000,
            end: 0x9000,
            device: 1,
            inode: 77,
            offset: 0x3000,
            path: path.into(),
            read_only: false,
        }
    }

    #[test]
    fn an_object_is_a_place_in_a_file() {
        let object = mapping("/dev/zero").object_at(0x8010).expect("inside");
        assert_eq!((object.device.as_str(), object.inode, object.offset), ("0:1", 77, 0x4010));
        let elsewhere =
            SharedMapping { start: 0x10_0000, end: 0x10_1000, offset: 0x4000, ..mapping("/dev/zero") };
        assert!(elsewhere.holds(&object));
        assert!(!SharedMapping { offset: 0x5000, ..elsewhere.clone() }.holds(&object), "another page");
        let read_only = SharedMapping { read_only: true, ..elsewhere.clone() };
        assert!(elsewhere.can_lock(&object) && read_only.holds(&object) && !read_only.can_lock(&object));
        assert!(!SharedMapping { end: 0, ..elsewhere.clone() }.holds(&object), "no mapping at all");
        assert!(!SharedMapping { inode: 78, ..elsewhere.clone() }.holds(&object));
        assert!(!SharedMapping { device: 2, ..elsewhere.clone() }.holds(&object));
        assert!(!SharedMapping { path: "/SYSV00000000".into(), ..elsewhere }.holds(&object));
        assert_eq!(mapping("").object_at(0x9000), None);
        assert_eq!(mapping("").object_at(0x6fff), None);
    }
}
