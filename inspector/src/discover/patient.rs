//! `/proc/PID/cmdline` and `environ`, read on a thread that may be abandoned.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use crate::knowledge::Knowledge;

/// Most bytes of arguments that are kept.
const ARGUMENTS_LIMIT: u64 = 64 << 10;

/// Most bytes of an environment that are looked at.
const ENVIRONMENT_LIMIT: u64 = 256 << 10;

/// Longest value of a variable that is kept.
const VALUE_LIMIT: usize = 4 << 10;

/// How long one file may take. It takes microseconds unless the target's `mmap_lock` is held; a busy process that maps
/// memory holds it for moments only.
const DEADLINE: Duration = Duration::from_millis(250);

/// How many may take that long, and how long one may take after that: a host where many processes hang has to be reported
/// in time, and those that do not hang have to be in the report.
const PATIENT_READS: u32 = 4;
const SHORT_DEADLINE: Duration = Duration::from_millis(20);

/// How many readers may be left hanging, each a thread of ours. After that nothing more is read.
const MAX_ABANDONED: u32 = 100;

/// One reading thread at a time; one that does not answer is left behind and another one takes its place.
#[derive(Default)]
pub(super) struct Patient {
    reader: RefCell<Option<Reader>>,
    abandoned: Cell<u32>,
}

struct Reader {
    requests: Sender<(String, u64)>,
    answers: Receiver<io::Result<Vec<u8>>>,
}

impl Patient {
    /// The arguments of a process; empty for a zombie.
    pub(super) fn arguments(&self, pid: u32) -> Result<Vec<String>, String> {
        let bytes = self.read(pid, "cmdline", ARGUMENTS_LIMIT)?;
        Ok(split_arguments(&bytes))
    }

    /// The variables of a process's environment that knowledge files ask for, as it was started with.
    pub(super) fn environment(
        &self,
        pid: u32,
        knowledge: &Knowledge,
    ) -> Result<BTreeMap<String, String>, String> {
        let bytes = self.read(pid, "environ", ENVIRONMENT_LIMIT)?;
        Ok(split_environment(&bytes, |name| knowledge.keeps_variable(name)))
    }

    fn read(&self, pid: u32, file: &str, limit: u64) -> Result<Vec<u8>, String> {
        let path = format!("/proc/{pid}/{file}");
        if self.abandoned.get() >= MAX_ABANDONED {
            return Err(format!(
                "{path} was not read: {MAX_ABANDONED} processes before it did not let theirs be read"
            ));
        }
        let mut slot = self.reader.borrow_mut();
        let reader = match slot.take() {
            Some(reader) => reader,
            None => {
                Reader::start().map_err(|error| format!("{path} was not read: no thread for it: {error}"))?
            }
        };
        if reader.requests.send((path.clone(), limit)).is_err() {
            return Err(format!("{path} was not read: the reading thread ended"));
        }
        let deadline = if self.abandoned.get() < PATIENT_READS { DEADLINE } else { SHORT_DEADLINE };
        match reader.answers.recv_timeout(deadline) {
            Ok(answer) => {
                *slot = Some(reader);
                answer.map_err(|error| format!("{path} cannot be read: {error}"))
            }
            Err(RecvTimeoutError::Timeout) => {
                self.abandoned.set(self.abandoned.get().saturating_add(1));
                let deadline = deadline.as_millis();
                Err(format!(
                    "{path} did not come within {deadline} ms: the process's memory map is locked, or its pages do not come"
                ))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("{path} was not read: the reading thread ended"))
            }
        }
    }
}

impl Reader {
    /// The thread ends when its `Reader` is dropped, or, if it hangs, with the command: the kernel's wait is killable.
    fn start() -> io::Result<Self> {
        let (requests, todo) = channel::<(String, u64)>();
        let (done, answers) = channel();
        thread::Builder::new().name("proc-reader".into()).spawn(move || {
            for (path, limit) in todo {
                let mut bytes = Vec::new();
                let read = File::open(&path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
                if done.send(read.map(|_| bytes)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { requests, answers })
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

    #[test]
    fn a_file_that_never_comes_costs_its_deadline_and_very_many_of_them_end_the_reading() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("cmdline");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let patient = Patient::default();
        // The path is built from a pid; a reader of its own stands in for a process that hangs.
        for _ in 0..3 {
            let reader = Reader::start().unwrap();
            reader.requests.send((fifo.to_string_lossy().into_owned(), 10)).unwrap();
            assert!(matches!(
                reader.answers.recv_timeout(Duration::from_millis(20)),
                Err(RecvTimeoutError::Timeout)
            ));
        }
        patient.abandoned.set(MAX_ABANDONED - 1);
        assert!(
            patient.read(std::process::id(), "cmdline", 10).unwrap().len() == 10,
            "those that answer are read"
        );
        patient.abandoned.set(MAX_ABANDONED);
        assert!(patient.arguments(std::process::id()).unwrap_err().contains("was not read"));
        // Opens the other end, so that no thread is left behind.
        drop(std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap());
    }
}
