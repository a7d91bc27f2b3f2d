//! The helper's own side: a loop of requests on stdin, answers on stdout, nothing else.

use std::{
    cell::OnceCell,
    collections::HashMap,
    io::{self, BufReader},
    os::fd::{AsFd, BorrowedFd},
    process::ExitCode,
    rc::Rc,
};

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use super::{
    pointed,
    protocol::{self, Answer, Ask, Reply, Request, Stage, ThreadReply},
};
use crate::{
    model::{Gap, PythonRuntime},
    observe::{
        fds,
        frames::FrameTable,
        memory::ProcessReader,
        native::{WalkOptions, Walker},
        python, sharing,
        tasks::memory_walk::{self, ThreadMemory},
    },
};

/// The one argument that makes `inspector` a helper. Not part of the command line that users see.
pub const ARGUMENT: &str = "inspector-helper";

/// Most private memory of a helper, bytes. inspector's own readers stay far below it.
const MAX_MEMORY: u64 = 4 << 30;

/// Most bytes of unwind tables kept for a second reading, of all processes together.
const MAX_KEPT: u64 = 512 << 20;

/// Serves until stdin ends.
pub fn main() -> ExitCode {
    // The name that people see in `ps`; there is nobody to tell if it fails.
    rustix::thread::set_name(c"inspector-help").ok();
    // inspector is gone: so are we, as soon as the kernel lets us.
    set_parent_process_death_signal(Some(Signal::KILL)).ok();
    // A crash here is the target's doing; its memory does not belong into a core file.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).ok();
    // What a parser of somebody else's is made to allocate ends us, not the host's other processes.
    setrlimit(Resource::Data, Rlimit { current: Some(MAX_MEMORY), maximum: Some(MAX_MEMORY) }).ok();
    std::fs::write("/proc/self/oom_score_adj", "1000").ok();
    let walk = std::env::args().nth(2).and_then(|fd| memory_walk::inherited(fd.parse().ok()?));
    match serve(walk.as_ref().map(AsFd::as_fd)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// What is remembered of a process between its readings, and until the samples of its GILs.
#[derive(Default)]
struct Known {
    python: Option<(Rc<ProcessReader>, PythonRuntime)>,
    native: Option<Walker>,
    /// What arguments point to, until the words in it were looked at.
    pointed: Vec<ThreadReply>,
}

fn serve(walk: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut input = BufReader::new(io::stdin().lock());
    let mut output = io::stdout().lock();
    let mut known: HashMap<u32, Known> = HashMap::new();
    while let Some(ask) = protocol::read(&mut input)? {
        match ask {
            Ask::Read(request) => {
                // One walk serves both stages that need it, and few threads are not worth one over all.
                let walked = OnceCell::new();
                let walked =
                    || walked.get_or_init(|| walk_memory(walk.filter(|_| !request.again), request.pid));
                for &stage in &request.stages {
                    let reply = run(stage, &request, &walked, &mut known);
                    protocol::write(&mut output, &Answer::Stage(stage, Box::new(reply)))?;
                }
            }
            Ask::Gils { pid, runtime } => {
                if let Some(runtime) = runtime {
                    let memory = Rc::new(ProcessReader::new(pid));
                    known.entry(pid).or_default().python = Some((memory, runtime));
                }
                let python = known.get(&pid).and_then(|known| known.python.as_ref());
                let samples =
                    python.map_or_else(Vec::new, |(memory, runtime)| python::sample_gils(&**memory, runtime));
                protocol::write(&mut output, &Answer::Gils(samples))?;
            }
        }
    }
    Ok(())
}

/// User memory of threads by the host's tid.
pub(super) type Walked = HashMap<u32, ThreadMemory>;

/// What the memory walk gives of the threads that stood still meanwhile. What it does not give is read without it.
fn walk_memory(walk: Option<BorrowedFd<'_>>, pid: u32) -> Walked {
    let read = walk.and_then(|walk| memory_walk::read(walk, pid).ok()).unwrap_or_default();
    read.into_iter().filter(|(_, thread)| thread.stable).collect()
}

fn run<'w>(
    stage: Stage,
    request: &Request,
    walked: &dyn Fn() -> &'w Walked,
    known: &mut HashMap<u32, Known>,
) -> Reply {
    let memory = Rc::new(ProcessReader::new(request.pid));
    match stage {
        Stage::Descriptors => {
            let (fds, gaps) = fds::read(request.pid, fds::Wanted::All);
            Reply { fds, gaps, ..Reply::default() }
        }
        Stage::Arguments => {
            let reply = pointed::read(&memory, request, walked());
            if request.stages.contains(&Stage::Sharing) {
                known.entry(request.pid).or_default().pointed.clone_from(&reply.threads);
            }
            reply
        }
        Stage::Sharing => {
            let pointed = known.get_mut(&request.pid).map(|known| std::mem::take(&mut known.pointed));
            sharing::read(request, &pointed.unwrap_or_default())
        }
        Stage::Python => {
            let reply = read_python(&memory, request);
            if let Some(runtime) = reply.python.clone().filter(|_| !request.again) {
                // The first reading knows whose thread states are whose.
                known.entry(request.pid).or_default().python = Some((memory, runtime));
            }
            reply
        }
        Stage::Native => read_native(memory, request, walked(), known),
    }
}

fn read_python(memory: &ProcessReader, request: &Request) -> Reply {
    let mut frames = FrameTable::default();
    match python::read(memory, request.pid, &request.threads, request.again, &mut frames) {
        Ok(read) => Reply {
            python: Some(read.runtime),
            threads: read
                .threads
                .into_iter()
                .map(|(tid, python)| ThreadReply { tid, python: Some(python), ..ThreadReply::default() })
                .collect(),
            frames: frames.into_frames(),
            gaps: read.gaps,
            ..Reply::default()
        },
        Err(python::PythonError::NotPython(_)) => Reply::default(),
        Err(error) => {
            let reason = format!("no Python stacks: {error}");
            Reply { gaps: vec![Gap::process("python", request.pid, reason)], ..Reply::default() }
        }
    }
}

fn read_native(
    memory: Rc<ProcessReader>,
    request: &Request,
    walked: &Walked,
    known: &mut HashMap<u32, Known>,
) -> Reply {
    let kept = known.get_mut(&request.pid).and_then(|known| known.native.take());
    let kept = kept.filter(|walker| request.again && walker.knows(&request.threads));
    let made = kept.map_or_else(|| Walker::new(memory, request.pid, &WalkOptions::default()), Ok);
    let mut walker = match made {
        Ok(walker) => walker,
        Err(gap) => return Reply { gaps: vec![gap], ..Reply::default() },
    };
    let mut frames = FrameTable::default();
    let top = |tid| walked.get(&tid).map(|walked| &walked.stack);
    let read = walker.walk(&request.threads, &top, &mut frames);
    let held: u64 = known.values().filter_map(|known| known.native.as_ref()).map(Walker::weight).sum();
    if held.saturating_add(walker.weight()) <= MAX_KEPT {
        known.entry(request.pid).or_default().native = Some(walker);
    }
    Reply {
        threads: read
            .threads
            .into_iter()
            .map(|(tid, native)| ThreadReply { tid, native: Some(native), ..ThreadReply::default() })
            .collect(),
        frames: frames.into_frames(),
        gaps: read.gaps,
        ..Reply::default()
    }
}
