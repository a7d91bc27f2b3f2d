//! `cargo xtask fleet real ENGINE`: the verdict on a real SGLang or vLLM pair.
//!
//! The pair is stood up by a kit outside this repository (`--kit`), which needs gigabytes and minutes. Each case is one
//! `inspector diagnose` of all of the pair's engine processes, compared with what the kit knows to be true, and kept:
//! `tests/captures/real/ENGINE/CASE.capture` is what was seen, `CASE.expected.json` what was expected and whether it held;
//! the test `captures` analyses them again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::demo::build;
use crate::process::{Owned, capture, root, say};

/// Options of `cargo xtask fleet real`.
#[derive(Args)]
pub(crate) struct Options {
    /// Which engine
    engine: Engine,
    /// The kit's program
    #[arg(long, value_name = "FILE")]
    kit: PathBuf,
    /// SGLang's transfer backend
    #[arg(long, default_value = "nixl", value_parser = ["nixl", "mooncake"])]
    backend: String,
    /// How often to diagnose the idle and the loaded pair
    #[arg(long, default_value_t = 20, value_name = "N")]
    healthy: u32,
    /// Only these cases (idle, load, or a wedge's name); may be repeated
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
}

impl Options {
    /// Everything that is known of an engine, with the kit's program at `kit`.
    pub(crate) fn all(engine: Engine, kit: &Path) -> Self {
        Self { engine, kit: kit.to_owned(), backend: "nixl".into(), healthy: 20, case: Vec::new() }
    }
}

/// The Python that the kit made for SGLang, which has torch.
pub(crate) fn torch_python() -> Option<PathBuf> {
    let folder = std::env::var_os("INSPECTOR_FLEET_DIR").map(PathBuf::from);
    let folder =
        folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/inspector-fleet")))?;
    Some(folder.join("venvs/sglang/bin/python")).filter(|python| python.exists())
}

/// What the kit can stand up.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Sglang,
    Vllm,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }

    /// The wedges of the kit's table that hang.
    fn wedges(self) -> &'static [&'static str] {
        match self {
            Self::Sglang => &[
                "decode-stopped",
                "prefill-stopped",
                "mid-transfer",
                "detokenizer-stopped",
                "bootstrap-stopped",
                "prefill-only-request",
                "decode-only-request",
                "link-down",
            ],
            Self::Vllm => &["decode-stopped", "prefill-stopped", "mid-transfer", "link-down"],
        }
    }
}

/// Engine processes of the pair; the kit's helpers are none of inspector's business.
const KINDS: [&str; 5] = ["http", "scheduler", "detokenizer", "engine", "worker"];

pub(crate) fn real(options: &Options) -> Result<()> {
    let kit = Kit { program: root().join(&options.kit) };
    ensure!(
        kit.program.exists(),
        "{} is not there: give the fleet kit's program by --kit",
        kit.program.display()
    );
    let inspector = build(false)?;
    let directory = root().join("tests/captures/real").join(options.engine.name());
    fs::create_dir_all(&directory)?;
    let wanted = |name: &str| options.case.is_empty() || options.case.iter().any(|case| case == name);

    kit.ask(&["install", options.engine.name()])?;
    let mut start = vec!["start", options.engine.name()];
    if options.engine == Engine::Sglang {
        start.extend(["--backend", &options.backend]);
    }
    let _stop = Stop(&kit);
    kit.ask(&start)?;

    let mut outcomes = Vec::new();
    for (name, load) in [("idle", false), ("load", true)] {
        if wanted(name) {
            outcomes.push(healthy(&kit, &inspector, &directory, name, load, options.healthy)?);
        }
    }
    for name in options.engine.wedges().iter().filter(|name| wanted(name)) {
        outcomes.push(wedged(&kit, &inspector, &directory, name)?);
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.held).count();
    for outcome in &outcomes {
        say(&format!("{:22} {:5} {}", outcome.case, if outcome.held { "ok" } else { "NOT" }, outcome.said));
    }
    ensure!(failed == 0, "{failed} of {} cases did not get the expected verdict", outcomes.len());
    Ok(())
}

/// One case and what became of it.
struct Outcome {
    case: String,
    held: bool,
    said: String,
}

/// Diagnoses a pair that is well `runs` times.
fn healthy(
    kit: &Kit,
    inspector: &Path,
    directory: &Path,
    case: &str,
    load: bool,
    runs: u32,
) -> Result<Outcome> {
    let seconds = (runs * 6 + 10).to_string();
    let mut clients = load.then(|| {
        Owned::start(kit.command(&["load", "--seconds", &seconds]).stdout(std::process::Stdio::null()))
    });
    if let Some(Err(error)) = clients.take_if(|clients| clients.is_err()) {
        return Err(error);
    }
    let (mut alarms, mut slowest, mut last) = (Vec::new(), Duration::ZERO, String::new());
    for _ in 0..runs {
        let start = Instant::now();
        let (report, capture) = diagnose(inspector, &kit.pids()?)?;
        slowest = slowest.max(start.elapsed());
        if report["verdict"]["family"] != "healthy" {
            alarms.push(report["verdict"]["summary"].clone());
            last = capture;
        } else if alarms.is_empty() {
            last = capture;
        }
    }
    let held = alarms.is_empty();
    let expected = json!({
        "case": case, "engine_state": if load { "serving" } else { "idle" }, "status": "healthy", "family": "healthy",
        "runs": runs, "false_alarms": alarms, "held": held,
    });
    keep(directory, case, &last, &expected)?;
    let said = format!(
        "{} of {runs} runs healthy, slowest {:.2} s",
        runs as usize - alarms.len(),
        slowest.as_secs_f64()
    );
    Ok(Outcome { case: case.to_owned(), held, said })
}

/// Wedges the pair, diagnoses it, undoes the wedge.
fn wedged(kit: &Kit, inspector: &Path, directory: &Path, case: &str) -> Result<Outcome> {
    let truth = kit.answer(&["wedge", case])?;
    let (report, capture) = diagnose(inspector, &kit.pids()?)?;
    kit.answer(&["unwedge"])?;
    let verdict = &report["verdict"];
    let parties = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let culprits = parties(&truth["culprits"]);
    let named = |party: &Value| parties(&verdict["culprits"]).iter().any(|said| said["pid"] == party["pid"]);
    // Where no process is at fault (a half or the network is missing), threads and sockets alone do not show it: the case
    // is open, and the verdict must at least blame nobody.
    let open = culprits.is_empty();
    let held = if open {
        parties(&verdict["culprits"]).is_empty()
    } else {
        verdict["family"] == "peer-stopped" && culprits.iter().all(named)
    };
    let brief = |party: &Value| {
        json!({"role": party["role"], "kind": party["kind"], "pid": party["pid"],
        "tid": party["tid"], "thread": party["thread"], "state": party["state"]})
    };
    let list = |name: &str| parties(&truth[name]).iter().map(brief).collect::<Vec<_>>();
    let expected = json!({
        "case": case, "done": truth["done"], "hangs": truth["wedged"], "culprits": list("culprits"),
        "blocked": list("blocked"), "victims": list("victims"), "open": open, "held": held,
        "said": {"status": verdict["status"], "family": verdict["family"]},
    });
    keep(directory, case, &capture, &expected)?;
    let said = format!("{} {}: {}", verdict["status"], verdict["family"], verdict["summary"]);
    let said = if open { format!("(open) {said}") } else { said };
    Ok(Outcome { case: case.to_owned(), held, said })
}

/// Keeps a capture and what was expected of it; where this machine keeps its files is nobody's business.
fn keep(directory: &Path, case: &str, capture: &str, expected: &Value) -> Result<()> {
    let mut capture = capture.to_owned();
    let places = [root().parent().map(Path::to_owned), std::env::var_os("HOME").map(PathBuf::from)];
    for (place, name) in places.iter().zip(["WORKSPACE", "HOME"]) {
        if let Some(place) = place.as_ref().and_then(|place| place.to_str()).filter(|place| place.len() > 1) {
            capture = capture.replace(&format!("{place}/"), &format!("{name}/"));
        }
    }
    fs::write(directory.join(format!("{case}.capture")), capture)?;
    let expected = serde_json::to_string_pretty(expected)? + "\n";
    Ok(fs::write(directory.join(format!("{case}.expected.json")), expected)?)
}

/// The report, and the capture behind it.
fn diagnose(inspector: &Path, pids: &[u64]) -> Result<(Value, String)> {
    let file = tempfile::Builder::new().suffix(".capture").tempfile()?.into_temp_path();
    let mut command = Command::new(inspector);
    command.args(["diagnose", "--json", "-o"]).arg(&file);
    for pid in pids {
        command.arg("--pid").arg(pid.to_string());
    }
    let (status, text) = capture(&mut command)?;
    ensure!(matches!(status.code(), Some(0 | 3)), "inspector diagnose failed: {status}");
    Ok((serde_json::from_str(&text).context("inspector printed no JSON")?, fs::read_to_string(&file)?))
}

/// The kit's program.
struct Kit {
    program: PathBuf,
}

impl Kit {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("python3");
        command.arg(&self.program).args(arguments);
        command
    }

    /// Runs it and reads its answer, whatever it thinks of it.
    fn answer(&self, arguments: &[&str]) -> Result<Value> {
        let (_, text) = capture(&mut self.command(arguments))?;
        serde_json::from_str(&text).with_context(|| format!("fleet {} printed no JSON", arguments.join(" ")))
    }

    /// Runs it and expects it to be content.
    fn ask(&self, arguments: &[&str]) -> Result<()> {
        say(&format!("fleet {}", arguments.join(" ")));
        let (status, text) = capture(&mut self.command(arguments))?;
        if !status.success() {
            bail!("fleet {}: {status}: {text}", arguments.join(" "));
        }
        Ok(())
    }

    fn pids(&self) -> Result<Vec<u64>> {
        let status = self.answer(&["status"])?;
        let processes = status["processes"].as_array().context("no processes")?;
        Ok(processes
            .iter()
            .filter(|process| KINDS.iter().any(|kind| process["kind"] == *kind))
            .filter_map(|process| process["pid"].as_u64())
            .collect())
    }
}

/// Ends the pair, however this command ends.
struct Stop<'a>(&'a Kit);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        // Not through `capture`: after Ctrl-C that refuses to wait.
        self.0.command(&["stop"]).stdout(std::process::Stdio::null()).status().ok();
    }
}
