//! Finds the eBPF object that is embedded: the committed one, or the one that `INSPECTOR_EBPF_OBJECT` names (so that CI
//! tests the one that it has just built from source). No eBPF toolchain is needed here.

use std::{env, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=INSPECTOR_EBPF_OBJECT");
    let committed = PathBuf::from("ebpf/inspector.bpf.o");
    let object =
        env::var_os("INSPECTOR_EBPF_OBJECT").filter(|path| !path.is_empty()).map_or(committed, PathBuf::from);
    println!("cargo::rerun-if-changed={}", object.display());
    match object.canonicalize() {
        Ok(path) => println!("cargo::rustc-env=INSPECTOR_EBPF_EMBEDDED={}", path.display()),
        Err(why) => println!(
            "cargo::error=no eBPF object at {}: {why}; `cargo xtask build-ebpf` makes it",
            object.display()
        ),
    }
}
