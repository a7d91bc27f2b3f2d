//! One reading of one process, from the runtime to frames in the frame table.

use std::collections::{BTreeMap, HashMap};

use super::{
    PythonError, PythonRead,
    code::{CodeCache, Resolved},
    gil::{self, GilLayout, Reading},
    identity::{self, Threads},
    layout::Layout,
    locate::{self, Found},
    names,
    reader::Reader,
    stack::{self, Stack},
    state::{self, InterpreterState, ThreadState},
    sync,
};
use crate::{
    model::{
        Gap, Gil, Interpreter, PythonEngine, PythonFrame, PythonRuntime, PythonThread,
        ThreadState as KnownState,
    },
    observe::{frames::FrameTable, helper::protocol::ThreadRequest, maps::Maps, memory::TargetMemory},
};

/// See [`super::read`].
pub(super) fn read(
    memory: &dyn TargetMemory,
    pid: u32,
    threads: &[ThreadRequest],
    only_these: bool,
    frames: &mut FrameTable,
) -> Result<PythonRead, PythonError> {
    let maps = Maps::read(pid).map_err(|source| PythonError::Unreadable { pid, source })?;
    let reader = Reader::new(memory);
    let found = locate::find(&reader, pid, &maps)?;
    read_runtime(&reader, pid, &maps, &found, threads, only_these, frames)
        .map_err(|why| PythonError::NotRecognised { pid, why: why.to_owned() })
}

/// Reads a runtime that was found; the error is why it is none of a known layout.
pub(super) fn read_runtime(
    reader: &Reader<'_>,
    pid: u32,
    maps: &Maps,
    found: &Found,
    threads: &[ThreadRequest],
    only_these: bool,
    frames: &mut FrameTable,
) -> Result<PythonRead, &'static str> {
    let (layout, version, mut interpreters) = recognise(reader, maps, found)?;
    let mut states: Vec<ThreadState> =
        interpreters.iter_mut().flat_map(|interpreter| std::mem::take(&mut interpreter.threads)).collect();
    identity::native_ids(reader, maps, layout, &mut states);
    let by_thread = Threads::new(threads);
    if only_these {
        let mut all = std::mem::take(&mut states).into_iter();
        for interpreter in &mut interpreters {
            let own = all.by_ref().take(interpreter.count);
            let before = states.len();
            states.extend(own.filter(|state| by_thread.host_tid(state).is_some()));
            interpreter.count = states.len() - before;
        }
    }
    let stacks = stack::stacks(reader, layout, &states);
    let gils = read_gils(reader, layout, &interpreters);
    let mut codes = CodeCache::default();
    codes.load(reader, layout, stacks.iter().flat_map(|stack| &stack.frames));

    let mut read = PythonRead {
        runtime: PythonRuntime {
            version: version_text(version, layout.release),
            release: layout.release,
            engine: PythonEngine::Own,
            free_threaded: layout.free_threaded,
            runtime_address: Some(found.runtime),
            ..PythonRuntime::default()
        },
        ..PythonRead::default()
    };
    read.runtime.thread_states = states
        .iter()
        .filter_map(|state| Some(KnownState { address: state.address, tid: by_thread.host_tid(state)? }))
        .collect();

    let known = |interpreter: &InterpreterState| {
        if only_these { HashMap::new() } else { names::threads(reader, &layout.object, interpreter.modules) }
    };
    let known: Vec<HashMap<u64, names::Known>> = interpreters.iter().map(known).collect();
    let aside = reader.beside(sync::BUDGET, sync::MAX_PIECES);
    let mut sync =
        read_sync(&aside, layout, &codes, &states, &stacks, threads, &by_thread, &known).into_iter();
    if aside.exhausted() {
        let reason = "the variables of its frames lead to more objects than are read of one process: which locks its threads wait for and hold is not known of all";
        read.gaps.push(Gap::process("python", pid, reason));
    }

    let mut matched: BTreeMap<u32, Vec<PythonThread>> = BTreeMap::new();
    let mut states = states.iter().zip(&stacks);
    for (interpreter, known) in interpreters.iter().zip(&known) {
        let holder = interpreter.gil.and_then(|gil| gils.get(&gil)?.as_ref()).filter(|gil| gil.locked);
        for (state, stack) in states.by_ref().take(interpreter.count) {
            let mut thread = thread(layout, interpreter, state, stack, &mut codes, frames);
            thread.holds_gil = holder.is_some_and(|gil| gil.holder == state.address);
            let seen = sync.next().unwrap_or_default();
            (thread.waits_on, thread.holds, thread.descriptors) =
                (seen.waits_on, seen.holds, seen.descriptors);
            if let Some(known) = known.get(&state.ident) {
                thread.name.clone_from(&known.name);
                thread.daemon = known.daemon;
            }
            match by_thread.host_tid(state) {
                Some(tid) => matched.entry(tid).or_default().push(thread),
                None => read.runtime.unmatched.push(thread),
            }
        }
        if let Some(why) = interpreter.broken {
            let reason = format!("interpreter {}: {why}", interpreter.id);
            read.gaps.push(Gap::process("python", pid, reason));
        }
    }
    read.threads = matched.into_iter().filter_map(|(tid, threads)| Some((tid, merge(threads)?))).collect();
    read.runtime.interpreters = model(&interpreters, layout, &gils, &read.runtime);
    if reader.exhausted() {
        let reason = "more memory was to be read than one process may ask for: stacks or names are missing";
        read.gaps.push(Gap::process("python", pid, reason));
    }
    Ok(read)
}

/// What each thread waits on and holds, in the order of `states`.
#[allow(clippy::too_many_arguments, reason = "everything that was read before goes into it")]
fn read_sync(
    reader: &Reader<'_>,
    layout: &Layout,
    codes: &CodeCache,
    states: &[ThreadState],
    stacks: &[Stack],
    threads: &[ThreadRequest],
    by_thread: &Threads,
    known: &[HashMap<u64, names::Known>],
) -> Vec<sync::Seen> {
    let requests: HashMap<u32, &ThreadRequest> = threads.iter().map(|thread| (thread.tid, thread)).collect();
    let tids: HashMap<u64, u32> =
        states.iter().filter_map(|state| Some((state.ident, by_thread.host_tid(state)?))).collect();
    let ends: Vec<sync::ThreadEnd> =
        known.iter().flat_map(HashMap::values).filter_map(|known| known.end).collect();
    let asked: Vec<sync::Asked<'_>> = states
        .iter()
        .zip(stacks)
        .map(|(state, stack)| sync::Asked {
            ident: state.ident,
            request: by_thread.host_tid(state).and_then(|tid| requests.get(&tid).copied()),
            frames: &stack.frames,
        })
        .collect();
    sync::read(&sync::Source { reader, layout, codes, tids: &tids, ends: &ends }, &asked)
}

/// The first layout under which the runtime makes sense.
fn recognise<'f>(
    reader: &Reader<'_>,
    maps: &Maps,
    found: &'f Found,
) -> Result<(&'f Layout, Option<u32>, Vec<InterpreterState>), &'static str> {
    let mut why = "no layout is known";
    for layout in &found.layouts {
        let interpreters = match state::interpreters(reader, maps, layout, found.runtime) {
            Ok(interpreters) => interpreters,
            Err(reason) => {
                why = reason;
                continue;
            }
        };
        if found.version.is_some() {
            return Ok((layout, found.version, interpreters));
        }
        // Nothing but what is read tells the version: it has to say so itself.
        let version = interpreters
            .iter()
            .find_map(|interpreter| names::hexversion(reader, &layout.object, interpreter.modules));
        if version.is_some_and(|version| ((version >> 24) as u8, (version >> 16) as u8) == layout.release) {
            return Ok((layout, version, interpreters));
        }
        why = "its version cannot be told";
    }
    Err(why)
}

/// `3.13.0`, `3.15.0rc3` out of `PY_VERSION_HEX` (Include/patchlevel.h).
fn version_text(version: Option<u32>, (major, minor): (u8, u8)) -> String {
    let Some(version) = version else { return format!("{major}.{minor}") };
    let (micro, level, serial) = ((version >> 8) & 0xff, (version >> 4) & 0xf, version & 0xf);
    let level = match level {
        0xa => format!("a{serial}"),
        0xb => format!("b{serial}"),
        0xc => format!("rc{serial}"),
        _ => String::new(),
    };
    format!("{major}.{minor}.{micro}{level}")
}

/// Every distinct GIL once; `None` where it never settled.
fn read_gils(
    reader: &Reader<'_>,
    layout: &Layout,
    interpreters: &[InterpreterState],
) -> BTreeMap<u64, Option<Reading>> {
    let mut addresses: Vec<u64> = interpreters.iter().filter_map(|interpreter| interpreter.gil).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let readings = gil::settle(reader, GilLayout::of(layout.free_threaded), &addresses);
    addresses.into_iter().zip(readings).collect()
}

fn thread(
    layout: &Layout,
    interpreter: &InterpreterState,
    state: &ThreadState,
    stack: &Stack,
    codes: &mut CodeCache,
    table: &mut FrameTable,
) -> PythonThread {
    let mut thread = PythonThread {
        interpreter: interpreter.id,
        ident: state.ident,
        native_id: state.native_id,
        partial: stack.partial.map(str::to_owned),
        ..PythonThread::default()
    };
    for raw in &stack.frames {
        match codes.resolve(layout, raw, table) {
            Resolved::Frame(frame) => thread.frames.push(PythonFrame { frame, entry: raw.entry }),
            Resolved::Hidden => {
                // The C call that it was the outermost frame of is now the next inner frame's.
                if raw.entry
                    && let Some(last) = thread.frames.last_mut()
                {
                    last.entry = true;
                }
            }
            Resolved::Torn => {
                thread
                    .partial
                    .get_or_insert_with(|| "a frame moved while it was read, it is left out".to_owned());
            }
            Resolved::Full => {
                thread.partial.get_or_insert_with(|| "the process has too many distinct frames".to_owned());
            }
        }
    }
    thread
}

/// A thread that runs a subinterpreter has a thread state in each: the newer interpreter's code was called by the
/// older one's, so its frames come first.
fn merge(mut threads: Vec<PythonThread>) -> Option<PythonThread> {
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.interpreter));
    let outermost = threads.last()?.clone();
    let mut merged = threads.iter().find(|thread| !thread.frames.is_empty()).unwrap_or(&outermost).clone();
    merged.frames = threads.iter().flat_map(|thread| thread.frames.iter().copied()).collect();
    merged.holds_gil = threads.iter().any(|thread| thread.holds_gil);
    merged.holds = threads.iter().flat_map(|thread| thread.holds.iter().cloned()).collect();
    merged.partial = threads.iter().find_map(|thread| thread.partial.clone());
    // `threading` of the interpreter that started the thread knows its name.
    merged.name = outermost.name.or(merged.name);
    merged.daemon = outermost.daemon.or(merged.daemon);
    Some(merged)
}

fn model(
    interpreters: &[InterpreterState],
    layout: &Layout,
    gils: &BTreeMap<u64, Option<Reading>>,
    runtime: &PythonRuntime,
) -> Vec<Interpreter> {
    let gil_layout = GilLayout::of(layout.free_threaded);
    // A shared GIL is listed at the oldest interpreter that has it.
    let owner =
        |gil: u64| interpreters.iter().filter(|other| other.gil == Some(gil)).map(|other| other.id).min();
    interpreters
        .iter()
        .map(|interpreter| {
            let own = interpreter.gil.filter(|&gil| owner(gil) == Some(interpreter.id));
            let reading = own.and_then(|gil| gils.get(&gil).copied().flatten());
            let gil = own.filter(|_| reading.is_none_or(|reading| reading.enabled)).map(|address| Gil {
                address,
                cond: Some(gil_layout.cond(address)),
                samples: reading
                    .map(|reading| gil::sample(reading, |state| runtime.host_tid(state)))
                    .into_iter()
                    .collect(),
            });
            Interpreter { id: interpreter.id, address: interpreter.address, gil }
        })
        .collect()
}
