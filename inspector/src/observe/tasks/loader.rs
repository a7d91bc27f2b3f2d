//! aya's loader, without what it does first.

use std::thread;

use aya::EbpfLoader;
use rustix::{
    process::chroot,
    thread::{UnshareFlags, unshare_unsafe},
};

/// A folder without folders: nothing is found below it by an absolute path.
const EMPTY: &str = "/sys/kernel/btf";

/// A loader that relocates nothing against the running kernel's types: the object's offsets are data.
///
/// aya 0.14 reads and parses all types of the kernel as it makes a loader, wanted or not: tens of milliseconds. The loader is therefore made on a thread that sees an empty root directory and so finds no types. Where that
/// is not allowed (it takes CAP_SYS_CHROOT) it is made slowly.
pub(super) fn without_kernel_types() -> EbpfLoader<'static> {
    let make = || {
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        loader
    };
    let aside = thread::Builder::new().name("ebpf-loader".into()).spawn(move || {
        // SAFETY: `UnshareFlags::FS` alone changes what this one thread shares; it opens nothing afterwards but what `make`
        // does, and ends.
        if unsafe { unshare_unsafe(UnshareFlags::FS) }.is_ok() {
            chroot(EMPTY).ok();
        }
        make()
    });
    aside.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(make)
}

/// Maps of the walks, and of the probes. The object holds both; whoever loads it wants one of them.
pub(super) const OF_WALKS: [&str; 3] = ["WANTED", "READERS", "NAMES"];
pub(super) const OF_PROBES: [&str; 6] = ["WATCHED", "WAKERS", "TRANSFERS", "FLIGHTS", "WAITS", "EXITS"];

/// Leaves these maps as small as they can be.
pub(super) fn without(loader: &mut EbpfLoader<'_>, maps: &[&'static str]) {
    for map in maps {
        loader.map_max_entries(map, 1);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_the_other_thread_lost_its_root() {
        let loader = without_kernel_types();
        assert!(Path::new("/sys/kernel/btf/vmlinux").exists());
        drop(loader);
        let found = thread::spawn(|| {
            // SAFETY: as above.
            unsafe { unshare_unsafe(UnshareFlags::FS) }.expect("needs root");
            chroot(EMPTY).expect("needs root");
            aya::Btf::from_sys_fs().is_ok()
        });
        assert!(!found.join().unwrap(), "the folder is not empty any more: aya parses all types again");
    }
}
