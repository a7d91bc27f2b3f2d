//! `cargo xtask pythons`: CPythons newer than a new machine has, in a Debian of their own.
//!
//! Debian forky is unpacked by debootstrap into `~/.cache/inspector/pythons/forky`, beside `bin/python3.15` and so on: each
//! starts an interpreter in there, in a mount namespace of its own that shows the folder of its script, `/tmp` and
//! `/proc`. Tests with `INSPECTOR_PYTHONS=all` find them; they also stand for a target in a container.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::process::{exists, run, say};

/// Versions in Debian forky.
const VERSIONS: [&str; 3] = ["3.13", "3.14", "3.15"];

/// Options of `cargo xtask pythons`.
#[derive(Args)]
pub(crate) struct Options {
    /// Mirror to take the packages from
    #[arg(long, value_name = "URL", default_value = "http://deb.debian.org/debian")]
    mirror: String,
    /// Unpack everything again
    #[arg(long)]
    fresh: bool,
}

pub(crate) fn pythons(options: &Options) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("debootstrap and chroot need root: run `cargo xtask pythons` as root");
    }
    if !exists("debootstrap", "--version") {
        bail!("debootstrap is not installed: apt-get install debootstrap");
    }
    let folder = folder()?;
    let root = folder.join("forky");
    let done = folder.join("forky.done");
    if options.fresh {
        fs::remove_file(&done).ok();
    }
    if done.exists() {
        say(&format!("{} is there already", root.display()));
    } else {
        unpack(&folder, &root, &options.mirror)?;
        fs::write(&done, "")?;
    }
    let programs = folder.join("bin");
    fs::create_dir_all(&programs)?;
    for version in VERSIONS {
        let program = programs.join(format!("python{version}"));
        fs::write(&program, wrapper(&root, version))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        run(Command::new(&program).args(["-c", "import sys; print(sys.version)"]))?;
    }
    Ok(())
}

/// Where the Pythons are kept: outside the checkout, so that all checkouts share them.
fn folder() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set: no folder to keep the Pythons in")?;
    Ok(cache.join("inspector/pythons"))
}

fn unpack(folder: &Path, root: &Path, mirror: &str) -> Result<()> {
    fs::create_dir_all(folder)?;
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    // An older debootstrap has no script for forky; it is that of sid.
    let script = folder.join("forky.script");
    if fs::symlink_metadata(&script).is_err() {
        symlink("/usr/share/debootstrap/scripts/sid", &script)?;
    }
    let packages: Vec<String> = VERSIONS.iter().map(|version| format!("python{version}")).collect();
    // The keyring of an older Debian does not know forky's key; nothing in there runs outside of tests.
    run(Command::new("debootstrap")
        .args(["--variant=minbase", "--no-check-gpg"])
        .arg(format!("--include={}", packages.join(",")))
        .arg("forky")
        .arg(root)
        .arg(mirror)
        .arg(&script))
}

/// A program that becomes the interpreter: its pid is the interpreter's.
fn wrapper(root: &Path, version: &str) -> String {
    let root = root.display();
    format!(
        "#!/bin/sh\n\
         # Made by `cargo xtask pythons`.\n\
         exec unshare --mount -- sh -eu -c '\n\
         root=$1; shift\n\
         mount -t proc proc \"$root/proc\"\n\
         mount --bind /tmp \"$root/tmp\"\n\
         case $1 in /tmp/*) ;; /*) folder=$(dirname \"$1\"); mkdir -p \"$root$folder\"; \
         mount --bind \"$folder\" \"$root$folder\" ;; esac\n\
         exec chroot \"$root\" /usr/bin/python{version} \"$@\"\n\
         ' sh '{root}' \"$@\"\n"
    )
}
