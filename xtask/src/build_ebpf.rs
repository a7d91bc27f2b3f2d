//! `cargo xtask build-ebpf`: makes the committed eBPF object from its sources, or checks that it comes from them.
//!
//! rustup's toolchains cannot build `core` for the eBPF target without their nightly's sources; Debian's do. Nothing is
//! installed here: what is missing is named.

use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const OBJECT: &str = "inspector/ebpf/inspector.bpf.o";
const RECORD: &str = "inspector/ebpf/inspector.bpf.toml";
const TARGET: &str = "bpfel-unknown-none";
/// The version of bpf-linker that the committed object is made with.
const LINKER: &str = "0.13.0";
const LLVM_BIN: &str = "/usr/lib/llvm-22/bin";
const RUSTC: &str = "/usr/bin/rustc";

/// Options of `cargo xtask build-ebpf`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Check that the committed object comes from the committed sources; with the toolchain that made it, also that it
    /// comes out byte for byte.
    #[arg(long)]
    check: bool,
    /// Write the object here and leave the committed one alone (for tests with a fresh object: see
    /// `INSPECTOR_EBPF_OBJECT` in inspector/build.rs).
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    out: Option<PathBuf>,
}

/// What is recorded beside the object.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// SHA-256 of the object.
    object_sha256: String,
    /// SHA-256 over the names and contents of everything that the object is made from.
    sources_sha256: String,
    toolchain: Toolchain,
}

/// The versions that the object's bytes depend on, besides the sources.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Toolchain {
    rustc: String,
    llvm: String,
    bpf_linker: String,
    aya_ebpf: String,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let root = crate_root()?;
    if options.check {
        return check(&root);
    }
    let toolchain = toolchain(&root)?;
    let built = build(&root, &root.join("target/ebpf"))?;
    if let Some(out) = &options.out {
        fs::copy(&built, out).with_context(|| format!("cannot write {}", out.display()))?;
        println!("{}", out.display());
        return Ok(());
    }
    let object = root.join(OBJECT);
    fs::create_dir_all(object.parent().context("the object has a folder")?)?;
    fs::copy(&built, &object).with_context(|| format!("cannot write {}", object.display()))?;
    let record = Record {
        object_sha256: sha256(&fs::read(&object)?),
        sources_sha256: sources_digest(&root)?,
        toolchain,
    };
    let text = format!(
        "# Made by `cargo xtask build-ebpf`, which also checks it (--check).\n{}",
        toml::to_string(&record)?
    );
    fs::write(root.join(RECORD), text)?;
    println!("{OBJECT}: {} bytes, sha256 {}", fs::metadata(&object)?.len(), record.object_sha256);
    Ok(())
}

/// What is missing to build the object here; absent when nothing is.
pub(crate) fn missing() -> Option<String> {
    crate_root().and_then(|root| toolchain(&root)).err().map(|error| format!("{error:#}"))
}

/// Checks the committed object and makes a fresh one at `out`.
pub(crate) fn check_and_build(out: PathBuf) -> anyhow::Result<()> {
    run(&Options { check: true, out: None })?;
    run(&Options { check: false, out: Some(out) })
}

/// Fails where the committed object does not come from the committed sources, as far as this machine can tell.
fn check(root: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(root.join(RECORD)).with_context(|| format!("cannot read {RECORD}"))?;
    let record: Record = toml::from_str(&text).with_context(|| format!("cannot read {RECORD}"))?;
    let committed = fs::read(root.join(OBJECT)).with_context(|| format!("cannot read {OBJECT}"))?;
    ensure!(
        sha256(&committed) == record.object_sha256,
        "{OBJECT} is not the object that {RECORD} describes: run `cargo xtask build-ebpf` and commit both"
    );
    ensure!(
        sources_digest(root)? == record.sources_sha256,
        "{OBJECT} is older than the sources in inspector-ebpf/: run `cargo xtask build-ebpf` and commit it"
    );
    let toolchain = toolchain(root)?;
    let built = fs::read(build(root, &root.join("target/ebpf"))?)?;
    if toolchain != record.toolchain {
        println!(
            "{OBJECT} comes from these sources; its bytes were not compared, since the toolchain differs:"
        );
        println!("  recorded: {:?}\n  here:     {toolchain:?}", record.toolchain);
        return Ok(());
    }
    ensure!(
        built == committed,
        "the same sources and toolchain give other bytes than the committed {OBJECT}"
    );
    println!("{OBJECT} comes from these sources, byte for byte");
    Ok(())
}

/// Compiles the programs; the object.
fn build(root: &Path, target_dir: &Path) -> anyhow::Result<PathBuf> {
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    // No path of the building machine may reach the object, or two machines could never make the same one.
    let mut flags = String::from("-Cpanic=abort");
    for (from, to) in [(root, "inspector"), (cargo_home.as_path(), "cargo")] {
        write!(flags, "\u{1f}--remap-path-prefix={}={to}", from.display())?;
    }
    let mut path = OsString::from(LLVM_BIN);
    if let Some(inherited) = env::var_os("PATH") {
        path.push(":");
        path.push(inherited);
    }
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args(["build", "--locked", "--release", "--package", "inspector-ebpf", "--bin", "inspector-ebpf"])
        .args(["--features", "programs", "--target", TARGET, "-Z", "build-std=core", "--target-dir"])
        .arg(target_dir)
        .env("PATH", path)
        .env("RUSTC", RUSTC)
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "none")
        .stdin(Stdio::null())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the eBPF programs did not compile");
    let object = target_dir.join(TARGET).join("release/inspector-ebpf");
    let bytes = fs::read(&object).with_context(|| format!("cannot read {}", object.display()))?;
    for (what, place) in [("the checkout", root), ("cargo's home", &cargo_home)] {
        let place = place.to_string_lossy();
        let found = bytes.windows(place.len()).any(|window| window == place.as_bytes());
        ensure!(!found, "the object holds the path of {what}: {place}");
    }
    Ok(object)
}

/// The versions found here, or one sentence for each thing that is missing.
fn toolchain(root: &Path) -> anyhow::Result<Toolchain> {
    let mut missing = Vec::new();
    let verbose = output(Command::new(RUSTC).arg("-vV"));
    let field = |name: &str| {
        let text = verbose.as_deref()?;
        text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let (rustc, llvm) = (field("release:"), field("LLVM version:"));
    if rustc.is_none() {
        missing.push(format!("{RUSTC} with its library's sources: apt-get install rustc-web rust-web-src"));
    } else if !has_library_sources() {
        missing.push("the sources of Rust's core library: apt-get install rust-web-src".to_owned());
    }
    if !Path::new(LLVM_BIN).is_dir() {
        missing.push(format!("LLVM 22 in {LLVM_BIN}: apt-get install llvm-22-dev"));
    }
    let linker = output(Command::new("bpf-linker").arg("--version"))
        .and_then(|text| text.split_whitespace().nth(1).map(str::to_owned));
    if linker.as_deref() != Some(LINKER) {
        missing.push(format!(
            "bpf-linker {LINKER} (found: {}): PATH={LLVM_BIN}:$PATH RUSTFLAGS=-L/usr/lib/llvm-22/lib cargo install \
             bpf-linker --version {LINKER} --no-default-features --features llvm-22",
            linker.as_deref().unwrap_or("none")
        ));
    }
    if let (true, Some(rustc), Some(llvm), Some(bpf_linker)) = (missing.is_empty(), rustc, llvm, linker) {
        let aya_ebpf = locked_version(root, "aya-ebpf")?;
        return Ok(Toolchain { rustc, llvm, bpf_linker, aya_ebpf });
    }
    bail!(
        "building the eBPF object needs what is not here (nothing was installed):\n  - {}",
        missing.join("\n  - ")
    )
}

fn has_library_sources() -> bool {
    output(Command::new(RUSTC).args(["--print", "sysroot"]))
        .is_some_and(|sysroot| Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir())
}

fn locked_version(root: &Path, package: &str) -> anyhow::Result<String> {
    let lock = fs::read_to_string(root.join("Cargo.lock"))?;
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{package}\""));
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    Ok(version.with_context(|| format!("Cargo.lock has no {package}"))?.to_owned())
}

/// One digest of all files that make the object, names included, in a fixed order.
fn sources_digest(root: &Path) -> anyhow::Result<String> {
    let mut files = Vec::new();
    collect(&root.join("inspector-ebpf"), &mut files)?;
    files.sort();
    let mut text = String::new();
    for file in files {
        let name = file.strip_prefix(root)?.to_string_lossy().into_owned();
        writeln!(text, "{}  {name}", sha256(&fs::read(&file)?))?;
    }
    Ok(sha256(text.as_bytes()))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn crate_root() -> anyhow::Result<PathBuf> {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(xtask.parent().context("xtask lies in the workspace")?.to_path_buf())
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
