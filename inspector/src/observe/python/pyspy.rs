//! The second engine: the `py-spy` crate, for a runtime that the own reader does not recognise (2.7, 3.3–3.7, builds with
//! other layouts). Non-blocking always: it never pauses the target. It knows no daemon flags and only the newest
//! interpreter, and one thread that it cannot read costs it all of them.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
};

use py_spy::{
    Config, PythonSpy, StackTrace,
    config::{LineNo, LockingStrategy},
};

use super::PythonRead;
use crate::{
    model::{Frame, FrameKind, PythonEngine, PythonFrame, PythonRuntime, PythonThread},
    observe::{frames::FrameTable, helper::protocol::ThreadRequest, mapped_file, maps::Maps},
};

/// Reads process `pid`; the error is why py-spy could not, as one clause.
pub(super) fn read(
    pid: u32,
    threads: &[ThreadRequest],
    frames: &mut FrameTable,
) -> Result<PythonRead, String> {
    let user = user_of(pid)?;
    refuse_foreign_files(pid)?;
    let borrowed = FileUser::borrow(user);
    // Torn reads have made py-spy panic before; nothing of ours is touched in there.
    let read = catch_unwind(AssertUnwindSafe(|| snapshot(pid)));
    drop(borrowed);
    let (version, traces) = match read {
        Ok(read) => {
            read.map_err(|error| format!("{error:#} (it opens files as the target's user {})", user.0))?
        }
        Err(_) => return Err("py-spy panicked".to_owned()),
    };
    let mut read = PythonRead {
        runtime: PythonRuntime {
            version: version.text,
            release: version.release,
            engine: PythonEngine::PySpy,
            ..PythonRuntime::default()
        },
        ..PythonRead::default()
    };
    let mut matched: BTreeMap<u32, PythonThread> = BTreeMap::new();
    for trace in traces {
        let tid = threads
            .iter()
            .find(|thread| {
                thread.thread_pointer == Some(trace.thread_id)
                    || trace.os_thread_id == Some(u64::from(thread.ns_tid))
            })
            .map(|thread| thread.tid);
        let thread = thread(trace, version.release, frames);
        match tid {
            Some(tid) => {
                matched.entry(tid).or_insert(thread);
            }
            None => read.runtime.unmatched.push(thread),
        }
    }
    read.threads = matched.into_iter().collect();
    Ok(read)
}

/// Largest file that py-spy is given: it goes through all of its symbols.
const MAX_FILE: u64 = 1 << 30;

/// py-spy opens each mapped libpython by its path below `/proc/PID/root` and follows what it finds there: a link that
/// leads out of the target's root, a device, a pipe. So it is asked only where that path holds the mapped file itself.
/// (The program it opens through `/proc/PID/exe`, which cannot mislead.)
///
/// The path can be given to something else between this look and py-spy's own. [`FileUser`] keeps what is opened then to
/// what the target itself could open, unless it is root's; the helper's deadline ends an open that hangs.
fn refuse_foreign_files(pid: u32) -> Result<(), String> {
    let program = fs::metadata(format!("/proc/{pid}/exe"));
    if program.is_ok_and(|program| program.len() > MAX_FILE) {
        return Err(format!("not asked, since its program is larger than {MAX_FILE} bytes"));
    }
    let maps = Maps::read(pid).map_err(|error| format!("cannot read its memory map: {error}"))?;
    let libraries = maps.iter().filter(|region| region.path.contains("libpython"));
    let mut checked = HashSet::new();
    for region in libraries {
        if checked.insert(&region.path) && !mapped_file::is_at_its_path(pid, region, MAX_FILE) {
            let why = format!("is no longer the file that is mapped, or larger than {MAX_FILE} bytes");
            return Err(format!("not asked, since {} {why}", region.path));
        }
    }
    Ok(())
}

/// The effective user and group of a process.
fn user_of(pid: u32) -> Result<(u32, u32), String> {
    let status = fs::read(format!("/proc/{pid}/status"))
        .map_err(|error| format!("not asked, since its user is not known: {error}"))?;
    effective_ids(&status).ok_or_else(|| "not asked, since its user is not known".to_owned())
}

/// The second numbers of the lines `Uid` and `Gid`. (The line `Name` before them need not be UTF-8, and holds no newline.)
fn effective_ids(status: &[u8]) -> Option<(u32, u32)> {
    let id = |key: &[u8]| {
        let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key))?;
        std::str::from_utf8(line).ok()?.split_whitespace().nth(1)?.parse().ok()
    };
    Some((id(b"Uid:")?, id(b"Gid:")?))
}

/// This thread opens files as another user while it lives, and as its own again after that. The capability to read
/// other processes stays (capabilities(7), "Effect of user ID changes on capabilities"). Without privilege it has no
/// effect: files are opened as who inspector runs as.
struct FileUser {
    own: (u32, u32),
}

impl FileUser {
    fn borrow(user: (u32, u32)) -> Self {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        set_file_user(user);
        Self { own }
    }
}

impl Drop for FileUser {
    fn drop(&mut self) {
        set_file_user(self.own);
    }
}

/// Both calls look at the other ids and at CAP_SETUID and CAP_SETGID, which a change of them does not take.
fn set_file_user((uid, gid): (u32, u32)) {
    // SAFETY: the calls take numbers, and concern the calling thread only.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
}

struct Version {
    text: String,
    release: (u8, u8),
}

fn snapshot(pid: u32) -> Result<(Version, Vec<StackTrace>), anyhow::Error> {
    let config = Config {
        blocking: LockingStrategy::NonBlocking,
        native: false,
        include_idle: true,
        lineno: LineNo::LastInstruction,
        ..Config::default()
    };
    let mut spy = PythonSpy::new(pid.cast_signed(), &config)?;
    let traces = spy.get_stack_traces()?;
    let number = |part: u64| u8::try_from(part).unwrap_or(u8::MAX);
    let release = (number(spy.version.major), number(spy.version.minor));
    Ok((Version { text: spy.version.to_string(), release }, traces))
}

fn thread(trace: StackTrace, release: (u8, u8), table: &mut FrameTable) -> PythonThread {
    let mut thread = PythonThread {
        name: trace.thread_name,
        ident: trace.thread_id,
        native_id: trace.os_thread_id.and_then(|id| u32::try_from(id).ok()),
        holds_gil: trace.owns_gil,
        ..PythonThread::default()
    };
    for frame in trace.frames {
        let entry = match release {
            (3, 11) => frame.is_entry,
            release if release >= (3, 12) => frame.is_shim_entry,
            _ => true,
        };
        let interned = table.intern(Frame {
            kind: FrameKind::Python,
            function: frame.name,
            file: Some(frame.filename),
            line: u32::try_from(frame.line).ok().filter(|&line| line > 0),
            module: None,
            address: None,
        });
        match interned {
            Some(frame) => thread.frames.push(PythonFrame { frame, entry }),
            None => thread.partial = Some("the process has too many distinct frames".to_owned()),
        }
    }
    thread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_opened_as_the_target_and_then_as_ourselves_again() {
        if !rustix::process::geteuid().is_root() {
            // Nothing to borrow from: without privilege it changes nothing.
            return;
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || fs::File::open(file.path()).is_ok();
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
        assert!(open());
        {
            let _nobody = FileUser::borrow((65534, 65534));
            assert!(!open(), "a file of mode 0600");
            let maps = fs::read(format!("/proc/{}/maps", other.id()));
            assert!(maps.is_ok_and(|maps| !maps.is_empty()), "processes of others are read as before");
        }
        assert!(open());
        other.kill().expect("killed");
        other.wait().expect("reaped");
    }

    #[test]
    fn ids_are_the_effective_ones() {
        let status = b"Name:\tUid:\xff\nUid:\t1000\t1001\t1002\t1003\nGid:\t4\t5\t6\t7\n";
        assert_eq!(effective_ids(status), Some((1001, 5)));
        assert_eq!(effective_ids(b"Name:\tx\n"), None);
    }
}
