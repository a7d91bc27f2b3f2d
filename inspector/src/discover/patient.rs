//! The parts of `/proc/PID` that the process can hold up, read with patience.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    time::Duration,
};

use super::{MAX_FDS, stat::Basics};
use crate::{
    knowledge::Knowledge,
    patience::{Late, Patience},
};

/// Most bytes of arguments that are kept.
const ARGUMENTS_LIMIT: u64 = 64 << 10;

/// Most bytes of an environment that are looked at.
const ENVIRONMENT_LIMIT: u64 = 256 << 10;

/// Longest value of a variable that is kept.
const VALUE_LIMIT: usize = 4 << 10;

/// Reads what a process can hold up.
#[derive(Default)]
pub(super) struct Patient(Patience);

/// What the links of a process lead to.
#[derive(Default)]
pub(super) struct Links {
    pub(super) exe: Option<String>,
    pub(super) net_ns: Option<u64>,
    pub(super) pid_ns: Option<u64>,
    /// Its UTS namespace.
    pub(super) uts: Option<File>,
    /// Minor numbers of the NVIDIA devices that it has open.
    pub(super) gpus: Vec<u32>,
}

impl Patient {
    /// `stat` and `status`; `None`: no such process.
    pub(super) fn basics(&mut self, pid: u32) -> Result<Option<Basics>, Late> {
        self.0.run(Duration::ZERO, move || Basics::read(pid))
    }

    /// The arguments of a process; empty for a zombie.
    pub(super) fn arguments(&mut self, pid: u32) -> Result<Vec<String>, String> {
        let bytes = self.read(pid, "cmdline", ARGUMENTS_LIMIT)?;
        Ok(split_arguments(&bytes))
    }

    /// The variables of a process's environment that knowledge files ask for, as it was started with.
    pub(super) fn environment(
        &mut self,
        pid: u32,
        knowledge: &Knowledge,
    ) -> Result<BTreeMap<String, String>, String> {
        let bytes = self.read(pid, "environ", ENVIRONMENT_LIMIT)?;
        Ok(split_environment(&bytes, |name| knowledge.keeps_variable(name)))
    }

    /// What its links lead to.
    pub(super) fn links(&mut self, pid: u32) -> Result<Links, Late> {
        self.0.run(Duration::ZERO, move || {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().take(MAX_FDS);
            let device = |entry: io::Result<fs::DirEntry>| {
                fs::read_link(entry.ok()?.path()).ok()?.to_str()?.strip_prefix("/dev/nvidia")?.parse().ok()
            };
            let exe = fs::read_link(format!("/proc/{pid}/exe"));
            let namespace = |kind: &str| Some(fs::metadata(format!("/proc/{pid}/ns/{kind}")).ok()?.ino());
            Links {
                exe: exe.ok().map(|path| path.to_string_lossy().into_owned()),
                net_ns: namespace("net"),
                pid_ns: namespace("pid"),
                uts: File::open(format!("/proc/{pid}/ns/uts")).ok(),
                gpus: descriptors.filter_map(device).collect(),
            }
        })
    }

    fn read(&mut self, pid: u32, file: &str, limit: u64) -> Result<Vec<u8>, String> {
        let path = format!("/proc/{pid}/{file}");
        let name = path.clone();
        let read = self.0.run(Duration::ZERO, move || {
            let mut bytes = Vec::new();
            File::open(&name)?.take(limit).read_to_end(&mut bytes).map(|_| bytes)
        });
        match read {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(format!("{path} cannot be read: {error}")),
            Err(late) => Err(format!("{path} {late}")),
        }
    }
}

/// Arguments end in a NUL each; a title that overwrote them is padded with NULs.
fn split_arguments(bytes: &[u8]) -> Vec<String> {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let used = bytes.get(..end).unwrap_or_default();
    if used.is_empty() {
        return Vec::new();
    }
    used.split(|&byte| byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

fn split_environment(bytes: &[u8], keep: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    bytes
        .split(|&byte| byte == 0)
        .filter_map(|entry| {
            let equals = entry.iter().position(|&byte| byte == b'=')?;
            let (name, value) = entry.split_at(equals);
            let name = std::str::from_utf8(name).ok().filter(|name| keep(name))?;
            let value = value.get(1..).unwrap_or_default();
            let value = value.get(..value.len().min(VALUE_LIMIT)).unwrap_or_default();
            Some((name.to_owned(), String::from_utf8_lossy(value).into_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_not_padded_and_empty_arguments_stay() {
        assert_eq!(split_arguments(b"sglang::scheduler\0\0\0\0"), ["sglang::scheduler"]);
        assert_eq!(split_arguments(b"a\0\0b\0"), ["a", "", "b"]);
        assert!(split_arguments(b"").is_empty() && split_arguments(b"\0\0").is_empty());
    }

    #[test]
    fn only_what_is_asked_for_is_kept_of_an_environment() {
        let kept = split_environment(b"A=1\0SECRET=x\0B=2=3\0=\0junk\0\xff=1\0", |name| name != "SECRET");
        assert_eq!(
            kept.into_iter().collect::<Vec<_>>(),
            [(String::new(), String::new()), ("A".into(), "1".into()), ("B".into(), "2=3".into())]
        );
    }
}
