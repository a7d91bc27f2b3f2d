//! `cargo xtask vm`: the same binary on another kernel, in a virtual machine.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::process::{cargo, exists, root, run, say};

/// The kernels of Debian 12 and of its backports.
const KERNELS: [&str; 2] = ["linux-image-6.1.0-50-cloud-amd64", "linux-image-6.12.100+deb12-cloud-amd64"];

/// Options of `cargo xtask vm`.
#[derive(Args)]
pub(crate) struct Options {
    /// Debian packages of the kernels to boot
    #[arg(long, default_values = KERNELS)]
    kernel: Vec<String>,
    /// Boot with a debug build, which is made faster
    #[arg(long)]
    debug: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { kernel: KERNELS.map(str::to_owned).to_vec(), debug: false }
    }
}

/// What the virtual machine may take before it is given up, seconds (software emulation).
const LIMIT_S: &str = "420";

/// Boots every kernel and checks what inspector said there.
pub(crate) fn vm(options: &Options) -> Result<()> {
    for (program, argument, package) in [
        ("qemu-system-x86_64", "--version", "qemu-system-x86"),
        ("busybox", "true", "busybox-static"),
        ("cpio", "--version", "cpio"),
        ("dpkg-deb", "--version", "dpkg"),
    ] {
        ensure!(
            exists(program, argument),
            "{program} is missing: apt-get install --no-install-recommends {package}"
        );
    }
    let profile = if options.debug { "dev" } else { "release" };
    run(&mut cargo(&["build", "--profile", profile, "-p", "inspector"]))?;
    let binary =
        root().join("target").join(if options.debug { "debug" } else { "release" }).join("inspector");
    let folder = root().join("target/vm");
    fs::create_dir_all(&folder)?;
    let initramfs = initramfs(&folder, &binary)?;
    let mut failed = Vec::new();
    for package in &options.kernel {
        let image = kernel(&folder, package)?;
        match boot(&folder, package, &image, &initramfs).and_then(|console| check(&console)) {
            Ok(version) => say(&format!("{package}: {version}: as expected")),
            Err(error) => {
                say(&format!("{package}: {error:#}"));
                failed.push(package.as_str());
            }
        }
    }
    ensure!(failed.is_empty(), "not as expected on {failed:?}; the consoles are in {}", folder.display());
    Ok(())
}

/// The kernel image of a package, downloaded once.
fn kernel(folder: &Path, package: &str) -> Result<PathBuf> {
    let unpacked = folder.join(package);
    if !unpacked.join("boot").exists() {
        run(Command::new("apt-get").args(["download", package]).current_dir(folder)).with_context(|| {
            format!("no kernel {package}; see: apt-cache search '^linux-image-.*cloud-amd64$'")
        })?;
        let prefix = format!("{package}_");
        let archive = entry(folder, &|name| {
            name.starts_with(&prefix) && Path::new(name).extension().is_some_and(|ending| ending == "deb")
        })?;
        run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
    }
    entry(&unpacked.join("boot"), &|name| name.starts_with("vmlinuz"))
}

fn entry(folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<PathBuf> {
    let found = fs::read_dir(folder)?.flatten().find(|entry| wanted(&entry.file_name().to_string_lossy()));
    found.map(|entry| entry.path()).with_context(|| format!("nothing suitable in {}", folder.display()))
}

/// A root file system of busybox, a Python, the fixtures and the binary.
fn initramfs(folder: &Path, binary: &Path) -> Result<PathBuf> {
    let (tree, archive) = (folder.join("root"), folder.join("initramfs"));
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    let fixtures = root().join("tests/fixtures/vm");
    install(&which("busybox")?, &tree.join("bin/busybox"))?;
    install(&fixtures.join("init"), &tree.join("init"))?;
    install(&fixtures.join("blocked.py"), &tree.join("blocked.py"))?;
    fs::set_permissions(tree.join("init"), fs::Permissions::from_mode(0o755))?;
    let python = Path::new("/usr/bin/python3.11");
    ensure!(python.exists(), "python3.11 is missing: apt-get install python3.11");
    let traffic = folder.join("traffic");
    let source = root().join("tests/fixtures/probes/traffic.c");
    run(Command::new("cc").args(["-O1", "-pthread", "-D_GNU_SOURCE", "-o"]).arg(&traffic).arg(source))?;
    for program in [python, &traffic, binary] {
        let name = program.file_name().context("a program has a name")?;
        install(program, &tree.join("usr/bin").join(name))?;
        libraries(program, &tree)?;
    }
    fs::create_dir_all(tree.join("usr/lib"))?;
    run(Command::new("cp").args(["-a", "/usr/lib/python3.11"]).arg(tree.join("usr/lib")))?;
    let pack = "find . | cpio --quiet -o -H newc | gzip -1";
    let output = fs::File::create(&archive)?;
    run(Command::new("sh").args(["-c", pack]).current_dir(&tree).stdout(output))?;
    Ok(archive)
}

fn which(program: &str) -> Result<PathBuf> {
    let output = Command::new("sh").args(["-c", &format!("command -v {program}")]).output()?;
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

fn install(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// The shared libraries of a program, at their own paths.
fn libraries(program: &Path, tree: &Path) -> Result<()> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for path in text.split_whitespace().filter(|word| word.starts_with('/')) {
        install(Path::new(path), &tree.join(path.trim_start_matches('/')))?;
    }
    Ok(())
}

/// Boots and returns what the console said.
fn boot(folder: &Path, package: &str, kernel: &Path, initramfs: &Path) -> Result<String> {
    say(&format!("booting {package}"));
    let output = Command::new("timeout")
        .args([
            LIMIT_S,
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            "-m",
            "2G",
            "-smp",
            "2",
            "-nographic",
            "-no-reboot",
        ])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", "console=ttyS0 quiet panic=-1"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let console = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    fs::write(folder.join(format!("{package}.log")), &console)?;
    ensure!(output.status.success(), "the virtual machine did not end by itself within {LIMIT_S} s");
    Ok(console)
}

/// Compares what inspector said with what the fixture does; the kernel's version.
fn check(console: &str) -> Result<String> {
    let section = |name: &str| {
        let (_, rest) =
            console.split_once(&format!("=== {name}\n")).with_context(|| format!("no {name} section"))?;
        Ok::<_, anyhow::Error>(rest.split("\n===").next().unwrap_or_default().trim())
    };
    let expected: Value =
        serde_json::from_str(section("expected")?).context("the fixture did not come up")?;
    let dump: Value = serde_json::from_str(section("dump")?).context("inspector dump printed no JSON")?;
    ensure!(dump["tier"] == "ebpf", "tier {}: {}", dump["tier"], dump["gaps"]);
    let threads = dump["threads"].as_array().context("no threads")?;
    for (tid, wanted) in expected["threads"].as_object().context("no expectation")? {
        let thread = threads.iter().find(|thread| thread["tid"].as_u64() == tid.parse().ok());
        let thread = thread.with_context(|| format!("thread {tid} is missing"))?;
        ensure!(
            thread["wait"]["kind"] == wanted["kind"],
            "thread {tid} waits on {}, not {}",
            thread["wait"],
            wanted["kind"]
        );
        for kind in ["python", "native", "kernel"] {
            let frames = thread["frames"].as_array().context("no frames")?;
            ensure!(
                frames.iter().any(|frame| frame["kind"] == kind),
                "thread {tid} has no {kind} frames: {}",
                thread["frames"]
            );
        }
        let names = thread["frames"].to_string();
        let Some(function) = wanted["function"].as_str() else { bail!("no function") };
        ensure!(names.contains(function), "thread {tid} is not in {function}");
    }
    for way in ["fentry", "tracepoint"] {
        let facts = section(&format!("{way} facts"))?;
        let seen: Value = serde_json::from_str(section(&format!("{way} probes"))?)
            .with_context(|| format!("inspector diagnose --probes {way} printed no JSON"))?;
        probes(way, facts, &seen).with_context(|| format!("--probes {way}"))?;
    }
    Ok(section("kernel")?.to_owned())
}

/// Compares what the probes saw with what the program did: `facts` is what it printed.
fn probes(way: &str, facts: &str, seen: &Value) -> Result<()> {
    let line = |start: &str| facts.lines().find_map(|line| line.strip_prefix(start)).context("no facts");
    let names: Value = serde_json::from_str(line("ready ")?)?;
    let ended: u64 = line("done ")?.trim().parse()?;
    let probes = &seen["probes"];
    ensure!(probes["way"] == way, "{}", seen["gaps"]);
    let one = |list: &str, wanted: &[(&str, &Value)]| {
        let all = probes[list].as_array().with_context(|| format!("no {list}"))?;
        let mut fitting =
            all.iter().filter(|entry| wanted.iter().all(|(name, value)| entry[*name] == **value));
        fitting.next().cloned().with_context(|| format!("no {wanted:?} in {list}: {}", probes[list]))
    };
    let sockets = [("near", "out", 3000), ("far", "in", 3000), ("far", "out", 210), ("near", "in", 210)];
    let pipes = [("pipe_out", "out", 90), ("pipe_in", "in", 90)];
    // Only the functions show what goes through pipes, and tracepoints show sockets from 6.3 on; before, a gap says so.
    let old = seen["gaps"].to_string().contains("from 6.3 on");
    ensure!(!old || way == "tracepoint", "{}", seen["gaps"]);
    let shown = if old { Vec::new() } else { sockets.to_vec() };
    let more = if way == "fentry" { pipes.to_vec() } else { Vec::new() };
    for (fd, direction, bytes) in shown.into_iter().chain(more) {
        let transfer = one("transfers", &[("fd", &names[fd]), ("direction", &direction.into())])?;
        ensure!(transfer["bytes"] == bytes, "{fd} {direction}: {bytes} bytes expected, got {transfer}");
    }
    let woken = one("wakers", &[("address", &names["semaphore_at"])])?;
    ensure!(woken["tid"] == names["waker"], "the semaphore's waker is {}, not {woken}", names["waker"]);
    let waited = one("waits", &[("tid", &names["semaphore"]), ("address", &names["semaphore_at"])])?;
    ensure!(waited["count"].as_u64() > Some(5), "{waited}");
    let end = one("exits", &[("tid", &ended.into())])?;
    ensure!(end["comm"] == "short-lived", "{end}");
    for waiter in ["condvar", "semaphore", "eventfd"] {
        let mut threads = seen["threads"].as_array().into_iter().flatten();
        let thread = threads.find(|thread| thread["tid"] == names[waiter]).context("a thread is missing")?;
        // In a slow machine it is often on its way from one wait to the next.
        let wait = &thread["wait"];
        ensure!(wait["kind"] != waiter || wait["last_waker"]["tid"] == names["waker"], "{waiter}: {wait}");
    }
    Ok(())
}
