//! The command line: the one source of the help, the man pages and the completions.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    time::Duration,
};

use clap::{
    ArgAction, Args, Parser, Subcommand, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser as _},
};
use clap_complete::Shell;

/// Tells, without stopping anything, why an LLM-serving fleet hangs while every health check is green
#[derive(Debug, Parser)]
#[command(name = "inspector", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 done (healthy or unknown), 3 wedged or degraded, 1 failed, 2 wrong usage."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
}

/// Options of every command.
#[derive(Args, Debug)]
pub struct Global {
    /// When to colour text [NO_COLOR is honoured by `auto`]
    #[arg(long, value_enum, default_value_t = When::Auto, global = true, value_name = "WHEN")]
    pub color: When,

    /// Read more knowledge files (`*.toml`) from this folder; they go before the built-in ones
    #[arg(long, global = true, value_name = "DIR")]
    pub knowledge: Option<PathBuf>,

    /// Log what is done to stderr; twice for more
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub verbose: u8,

    /// No progress on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the workers found: engine, role, rank, GPUs, ports, state
    Ps(Ps),
    /// Show every thread: its stack in Python, native code and the kernel, what it waits on, for how long
    Dump(Dump),
    /// Watch for a moment, then say who is stuck, on what, who has to move first, and what to do
    Diagnose(Diagnose),
    /// Say what this host allows, and what each missing thing costs
    Doctor(Doctor),
    /// Print the JSON schema of `--json`
    Schema,
    /// Work with knowledge files
    #[command(subcommand)]
    Knowledge(Knowledge),
    /// Print shell completions
    Completions {
        /// For which shell
        shell: Shell,
    },
    /// Print a man page (roff)
    Man {
        /// The command whose page is wanted (`knowledge check`: two words); without it, the page of inspector itself
        command: Vec<String>,
    },
}

/// `inspector ps`.
#[derive(Args, Debug)]
pub struct Ps {
    /// Which processes.
    #[command(flatten)]
    pub targets: Targets,

    /// Print the JSON document (`.workers`) instead of the table
    #[arg(long)]
    pub json: bool,
}

/// `inspector dump`.
#[derive(Args, Debug)]
pub struct Dump {
    /// Which processes.
    #[command(flatten)]
    pub targets: Targets,

    /// How deep to look.
    #[command(flatten)]
    pub depth: Depth,

    /// Print who waits for whom as a graph, and no stacks
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["json", "folded"])]
    pub graph: Option<Drawing>,

    /// What to print and write.
    #[command(flatten)]
    pub output: Output,
}

/// `inspector diagnose`.
#[derive(Args, Debug)]
pub struct Diagnose {
    /// Which processes.
    #[command(flatten)]
    pub targets: Targets,

    /// For how long to watch (500ms, 1s, 1m30s)
    #[arg(short, long, value_parser = parse_duration, default_value = "1s", value_name = "TIME")]
    pub duration: Duration,

    /// How deep to look.
    #[command(flatten)]
    pub depth: Depth,

    /// How to attach the probes on waits and wakes while watching (see `inspector doctor`)
    #[arg(long, value_enum, default_value_t = Probes::Auto, value_name = "WAY")]
    pub probes: Probes,

    /// What to print and write.
    #[command(flatten)]
    pub output: Output,
}

/// `inspector doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `inspector knowledge`.
#[derive(Debug, Subcommand)]
pub enum Knowledge {
    /// Check knowledge files, or folders of them, and say where they are wrong
    Check {
        /// Files or folders
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
}

/// Linux has no pid above (`PID_MAX_LIMIT`, include/linux/threads.h).
const MAX_PID: i64 = 4_194_304;

/// Which processes a command looks at.
#[derive(Args, Debug)]
pub struct Targets {
    /// Look at this process only; may be repeated [default: every worker of a known engine]
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=MAX_PID))]
    pub pids: Vec<u32>,

    /// The same, without the flag
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=MAX_PID))]
    pub more_pids: Vec<u32>,

    /// Plain Python processes too
    #[arg(short, long, conflicts_with_all = ["pids", "more_pids"])]
    pub all: bool,
}

/// How deep a command looks.
#[derive(Args, Debug)]
pub struct Depth {
    /// Read no Python stacks
    #[arg(long)]
    pub no_python: bool,

    /// Walk no native stacks
    #[arg(long)]
    pub no_native: bool,

    /// Use a lower tier than this host allows (see `inspector doctor`)
    #[arg(long, value_enum, value_name = "TIER")]
    pub tier: Option<LowerTier>,
}

/// What a command prints and writes.
#[derive(Args, Debug)]
pub struct Output {
    /// Print the whole result as one JSON document (`inspector schema` describes it)
    #[arg(long)]
    pub json: bool,

    /// Print folded stacks, one line a distinct stack, for flamegraphs
    #[arg(long, conflicts_with = "json")]
    pub folded: bool,

    /// Write a file too, in the format of its ending: .json, .folded, .txt, a graph of who waits for whom in .svg, .dot or
    /// .mmd, or .capture (everything that was seen, for a bug report); may be repeated
    #[arg(short = 'o', long = "output", value_name = "FILE", value_parser = OsStringValueParser::new().try_map(OutputFile::parse))]
    pub files: Vec<OutputFile>,
}

/// When text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// A tier below the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LowerTier {
    /// No eBPF: /proc and reads of target memory
    Memory,
    /// /proc alone
    Proc,
}

/// Formats of a drawn graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Drawing {
    /// Graphviz
    Dot,
    /// A flowchart that issue trackers draw by themselves
    Mermaid,
    /// A picture for a browser
    Svg,
}

/// How the probes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Probes {
    /// By tracepoints where the kernel allows it, else by fentry
    Auto,
    /// To the functions of system calls: sees bytes through pipes too; takes seconds to attach
    Fentry,
    /// To the tracepoints of the scheduler and of sockets
    Tracepoint,
    /// Not at all
    Off,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Where.
    pub path: PathBuf,
    /// In what format.
    pub format: Format,
}

/// Formats of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Text,
    /// The JSON document.
    Json,
    /// Folded stacks.
    Folded,
    /// Who waits for whom, drawn.
    Graph(Drawing),
    /// Everything that was seen, before it was analysed.
    Capture,
}

impl OutputFile {
    fn parse(path: OsString) -> Result<Self, String> {
        let path = PathBuf::from(path);
        let format = match path.extension().and_then(OsStr::to_str) {
            Some("json") => Format::Json,
            Some("folded") => Format::Folded,
            Some("txt") => Format::Text,
            Some("svg") => Format::Graph(Drawing::Svg),
            Some("dot") => Format::Graph(Drawing::Dot),
            Some("mmd") => Format::Graph(Drawing::Mermaid),
            Some("capture") => Format::Capture,
            _ => {
                let endings = ".json, .folded, .txt, .svg, .dot, .mmd or .capture";
                return Err(format!("the ending decides the format: use {endings}"));
            }
        };
        Ok(Self { path, format })
    }
}

/// Longest observation: an hour. Longer watching is not what one command is for.
const LONGEST: Duration = Duration::from_hours(1);

/// `500ms`, `1s`, `2m`, `1m30s`, `1h`; a bare number is refused, since nobody agrees on its unit.
fn parse_duration(text: &str) -> Result<Duration, String> {
    const HOW: &str = "write it as 500ms, 1s, 2m or 1m30s";
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(HOW.into());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(HOW)?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale = match unit {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3_600.0,
            _ => return Err(HOW.into()),
        };
        let number: f64 = number.parse().map_err(|_| HOW)?;
        total = Duration::try_from_secs_f64(number * scale)
            .ok()
            .and_then(|part| total.checked_add(part))
            .filter(|&sum| sum <= LONGEST)
            .ok_or("an hour is the longest observation")?;
        rest = tail;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_humane() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1h"), Ok(LONGEST));
        for wrong in ["", "1", "s", "1x", "-1s", "1s2", "..s", "2h", "99999999999999999999h", "1s 2s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_ending_decides_the_format() {
        let parse = |path: &str| OutputFile::parse(OsString::from(path)).map(|file| file.format);
        assert_eq!(parse("a/b.json"), Ok(Format::Json));
        assert_eq!(parse("b.folded"), Ok(Format::Folded));
        assert_eq!(parse("b.txt"), Ok(Format::Text));
        assert!(parse("b").is_err());
        assert_eq!(parse("b.svg"), Ok(Format::Graph(Drawing::Svg)));
        assert!(parse("b.png").is_err());
    }

    #[test]
    fn pid_and_all_exclude_each_other() {
        assert!(Cli::try_parse_from(["inspector", "ps", "--pid", "1", "--all"]).is_err());
        assert!(Cli::try_parse_from(["inspector", "dump", "--pid", "0"]).is_err());
        assert!(Cli::try_parse_from(["inspector", "dump", "-p", "1", "-p", "2", "--json"]).is_ok());
        assert!(
            Cli::try_parse_from(["inspector", "diagnose", "-d", "2s", "-o", "a.json", "-o", "b.folded"])
                .is_ok()
        );
    }

    proptest! {
        #[test]
        fn no_duration_panics(text in "\\PC{0,12}") {
            if let Ok(duration) = parse_duration(&text) {
                prop_assert!(duration <= LONGEST);
            }
        }
    }
}
