//! The second engine: the `py-spy` crate, for a runtime that the own reader does not recognise (2.7, 3.3–3.7, builds with
//! other layouts). Non-blocking always: it never pauses the target. It knows no daemon flags and only the newest
//! interpreter, and one thread that it cannot read costs it all of them.

use std::{
    collections::{BTreeMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use py_spy::{
    Config, PythonSpy, StackTrace,
    config::{LineNo, LockingStrategy},
};

use super::{PythonRead, elf_file, maps::Maps};
use crate::{
    model::{Frame, FrameKind, PythonEngine, PythonFrame, PythonRuntime, PythonThread},
    observe::{frames::FrameTable, helper::protocol::ThreadRequest},
};

/// Reads process `pid`; the error is why py-spy could not, as one clause.
pub(super) fn read(
    pid: u32,
    threads: &[ThreadRequest],
    frames: &mut FrameTable,
) -> Result<PythonRead, String> {
    refuse_foreign_files(pid)?;
    // Torn reads have made py-spy panic before; nothing of ours is touched in there.
    let read = catch_unwind(AssertUnwindSafe(|| snapshot(pid)));
    let (version, traces) = match read {
        Ok(read) => read.map_err(|error| format!("{error:#}"))?,
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

/// py-spy opens each mapped libpython by its path below `/proc/PID/root` and follows what it finds there: a link that
/// leads out of the target's root, a device, a pipe. So it is asked only where that path holds the mapped file itself.
/// (The program it opens through `/proc/PID/exe`, which cannot mislead.)
fn refuse_foreign_files(pid: u32) -> Result<(), String> {
    let maps = Maps::read(pid).map_err(|error| format!("cannot read its memory map: {error}"))?;
    let libraries = maps.regions().iter().filter(|region| region.path.contains("libpython"));
    let mut checked = HashSet::new();
    for region in libraries {
        if checked.insert(&region.path) && !elf_file::is_at_its_path(pid, region) {
            return Err(format!("not asked, since {} is no longer the file that is mapped", region.path));
        }
    }
    Ok(())
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
