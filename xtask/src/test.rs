//! `cargo xtask test`: what CI runs, in CI's order.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use crate::build_ebpf;
use crate::process::{cargo, exists, root, run, say};
use crate::real::{self, Engine};
use crate::vm;

/// Options of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Also what is too long for CI: many repetitions, all Pythons, NIXL, the bars on a quiet machine, other kernels in
    /// virtual machines
    #[arg(long)]
    all: bool,
    /// With --all: also real SGLang and vLLM pairs, stood up by the kit's program (see `cargo xtask fleet real`)
    #[arg(long, value_name = "FILE", requires = "all")]
    kit: Option<PathBuf>,
    /// Leave out formatting, lints and licences
    #[arg(long)]
    no_checks: bool,
}

pub(crate) fn tests(options: &Options) -> Result<()> {
    if !options.no_checks {
        checks()?;
    }
    let object = fresh_object()?;
    let with_object = |mut command: Command| {
        if let Some(object) = &object {
            command.env("INSPECTOR_EBPF_OBJECT", object);
        }
        command
    };
    // With the same packages and targets as the tests, cargo builds each dependency once; the end-to-end tests then run
    // exactly this binary.
    run(&mut with_object(cargo(&["build", "--workspace", "--all-targets"])))?;
    let mut tests = with_object(cargo(&["test", "--workspace", "--no-fail-fast"]));
    tests.env("INSPECTOR_BIN", target().join("debug/inspector"));
    if options.all {
        tests.env("INSPECTOR_TEST_ALL", "1").env("INSPECTOR_PYTHONS", "all");
        match options.kit.as_ref().and_then(|_| real::torch_python()) {
            Some(python) => drop(tests.env("INSPECTOR_TORCH_PYTHON", python)),
            None => say("no PyTorch was tested: --kit FILE brings one, once it has installed sglang"),
        }
    }
    run(&mut tests)?;
    if options.all {
        vm::vm(&vm::Options::default())?;
        match &options.kit {
            Some(kit) => {
                real::real(&real::Options::all(Engine::Sglang, kit))?;
                real::real(&real::Options::all(Engine::Vllm, kit))?;
            }
            None => say("no real fleet was tested: --kit FILE names what stands one up"),
        }
    }
    Ok(())
}

/// Formatting, lints, licences and advisories.
fn checks() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    if exists("cargo-deny", "--version") {
        run(&mut cargo(&["deny", "check", "bans", "licenses", "sources"]))?;
        // The database of advisories is fetched; a machine without a way to it can still check everything else.
        if run(&mut cargo(&["deny", "fetch", "db"])).is_ok() {
            run(&mut cargo(&["deny", "check", "advisories"]))?;
        } else {
            say("the database of advisories cannot be reached: advisories are not checked");
        }
    } else if in_ci() {
        bail!("cargo-deny is not installed, and CI needs it: cargo install --locked cargo-deny");
    } else {
        say("cargo-deny is not installed: licences and advisories are not checked");
    }
    Ok(())
}

/// The eBPF object built from the sources just now, to test with; without the toolchain the committed one is tested.
fn fresh_object() -> Result<Option<PathBuf>> {
    match build_ebpf::missing() {
        None => {
            let object = target().join("fresh.bpf.o");
            say("checking the committed eBPF object and building a fresh one");
            build_ebpf::check_and_build(object.clone())?;
            Ok(Some(object))
        }
        Some(missing) if in_ci() => bail!("CI builds the eBPF object from source: {missing}"),
        Some(missing) => {
            say(&format!("the committed eBPF object is tested as it is: {missing}"));
            Ok(None)
        }
    }
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into)
}

/// CI installs everything: what is missing there is an error.
fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}
