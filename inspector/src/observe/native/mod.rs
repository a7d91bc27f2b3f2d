//! Native stacks: framehop over `.eh_frame` from registers and memory, symbols by blazesym.
//!
//! Nothing is stopped: a thread that does not run cannot change its stack, so its registers and the memory above its
//! stack pointer are its exact state. All threads are walked side by side, and what they need of memory is read in
//! batches: one read brings the innermost pages of every stack, and few threads need more.

mod arch;
mod demangle;
mod expression;
#[cfg(test)]
mod hostile;
mod image;
mod modules;
mod row;
mod stack;
mod symbols;
mod thread;

use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

use blazesym::symbolize::Symbolizer;

use self::{modules::Modules, stack::Stack, thread::Walk};
use super::{
    frames::FrameTable,
    helper::protocol::ThreadRequest,
    maps::Maps,
    memory::{Piece, TargetMemory},
};
use crate::model::{Gap, NativeStack, SavedMemory};

/// Most frames of one stack, whatever is asked for.
const MAX_FRAMES: usize = 512;
/// Threads walked side by side: what one `process_vm_readv` takes (`UIO_MAXIOV`), and a bound on memory.
const SIDE_BY_SIDE: usize = 1024;
/// Stack bytes read at first, besides the rest of the page; enough for a blocked thread of Python 3.11 or later, whose
/// frames need no C stack.
const FIRST_READ: u64 = 4 << 10;
/// Stack bytes read when those are not enough.
const NEXT_READ: u64 = 32 << 10;

/// How to walk.
#[derive(Clone, Copy, Debug)]
pub struct WalkOptions {
    /// Most frames of one stack; 512 is the most that is given.
    pub max_frames: usize,
    /// Open no file of the target: unwind tables from its memory, no symbols but the vDSO's.
    pub memory_only: bool,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self { max_frames: MAX_FRAMES, memory_only: false }
    }
}

/// The native stacks of one process.
#[derive(Debug, Default)]
pub struct NativeRead {
    /// Stacks by the host's tid, in the order of the request.
    pub threads: Vec<(u32, NativeStack)>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// Walks stacks of one process, and remembers its images and their symbols between walks.
pub struct Walker {
    memory: Rc<dyn TargetMemory>,
    modules: Modules,
    cache: arch::Cache,
    symbolizer: Symbolizer,
    limit: usize,
}

impl Walker {
    /// A walker of process `pid` (the host's), as it is mapped now.
    ///
    /// To be called in the helper process: it reads memory and opens files, either of which can block without end.
    pub fn new(memory: Rc<dyn TargetMemory>, pid: u32, options: &WalkOptions) -> Result<Self, Gap> {
        let maps = Maps::read(pid).map_err(|error| {
            let reason = format!("cannot read /proc/{pid}/maps ({error}): no native stacks");
            Gap::process("native", pid, reason)
        })?;
        Ok(Self {
            modules: Modules::new(pid, maps, Rc::clone(&memory), options.memory_only),
            memory,
            cache: arch::Cache::new(),
            symbolizer: symbols::symbolizer(),
            limit: options.max_frames.min(MAX_FRAMES),
        })
    }

    /// About how much memory it holds, bytes.
    pub fn weight(&self) -> u64 {
        self.modules.table_bytes()
    }

    /// Whether the threads are where something was mapped when the walker was made.
    pub fn knows(&self, threads: &[ThreadRequest]) -> bool {
        let registers = threads.iter().filter_map(|thread| thread.registers);
        registers.flat_map(|registers| [registers.pc, registers.sp]).all(|at| self.modules.covers(at))
    }

    /// Walks the stacks of `threads` and interns their frames.
    ///
    /// `top`: the top of a thread's stack, where it was read already. A thread without registers (it runs) gets no frames
    /// and [`crate::model::StackEnd::NotWalked`].
    pub fn walk<'t>(
        &mut self,
        threads: &[ThreadRequest],
        top: &dyn Fn(u32) -> Option<&'t SavedMemory>,
        frames: &mut FrameTable,
    ) -> NativeRead {
        let memory = &*self.memory;
        let modules = &mut self.modules;
        let mut walks: Vec<Walk> = threads
            .iter()
            .filter_map(|thread| {
                let mut walk = Walk::new(thread.tid, thread.registers?, self.limit);
                // Another stack pointer: it ran since the registers were saved.
                if let Some(top) = top(thread.tid).filter(|top| top.address == walk.stack_pointer()) {
                    walk.stack.add(top.address, top.bytes.clone());
                }
                Some(walk)
            })
            .collect();
        for batch in walks.chunks_mut(SIDE_BY_SIDE) {
            walk_batch(batch, modules, &mut self.cache, memory);
            // The frames are kept; the memory of thousands of stacks is not.
            for walk in batch {
                walk.stack = Stack::default();
            }
        }

        let distinct: BTreeSet<_> = walks.iter().flat_map(|walk| &walk.frames).copied().collect();
        let distinct: Vec<_> = distinct.into_iter().collect();
        let mut named = symbols::name(&distinct, &self.symbolizer, modules, memory);
        let indices: HashMap<_, _> = distinct
            .iter()
            .filter_map(|frame| Some((*frame, frames.intern(named.remove(frame)?)?)))
            .collect();

        let mut stacks: HashMap<u32, NativeStack> = walks
            .into_iter()
            .map(|walk| {
                let frames = walk.frames.iter().filter_map(|frame| indices.get(frame).copied()).collect();
                (walk.tid, NativeStack { frames, end: walk.end.unwrap_or_default() })
            })
            .collect();
        let threads = threads
            .iter()
            .map(|thread| (thread.tid, stacks.remove(&thread.tid).unwrap_or_default()))
            .collect();
        NativeRead { threads, gaps: std::mem::take(&mut modules.gaps) }
    }
}

/// Walks threads side by side: each round reads at one go what all of them need.
fn walk_batch(walks: &mut [Walk], modules: &mut Modules, cache: &mut arch::Cache, memory: &dyn TargetMemory) {
    let mut needs: Vec<(usize, u64)> = Vec::new();
    let mut advanced: Vec<(usize, u64)> = Vec::new();
    for (index, walk) in walks.iter_mut().enumerate() {
        let sp = walk.stack_pointer();
        if walk.stack.read(sp).is_err() {
            needs.push((index, sp));
        } else if let Some(address) = walk.advance(modules, cache) {
            advanced.push((index, address));
        }
    }
    let mut length = FIRST_READ;
    if needs.is_empty() {
        needs = std::mem::take(&mut advanced);
        length = NEXT_READ;
    }
    // Each round brings every walk that is left a frame further, or ends it.
    while !needs.is_empty() {
        let mut pieces: Vec<Piece> =
            needs.iter().map(|&(_, address)| stretch(modules, address, length)).collect();
        memory.read_many(&mut pieces);
        let mut next = std::mem::take(&mut advanced);
        for ((index, address), piece) in needs.into_iter().zip(pieces) {
            let Some(walk) = walks.get_mut(index) else { continue };
            let Piece { address: start, mut bytes, filled } = piece;
            bytes.truncate(filled);
            walk.stack.add(start, bytes);
            if length != FIRST_READ && walk.stack.read(address).is_err() {
                walk.give_up(address);
            } else if let Some(address) = walk.advance(modules, cache) {
                next.push((index, address));
            }
        }
        needs = next;
        length = NEXT_READ;
    }
}

/// The pages from that of `address` on, to at most the end of the mapping.
fn stretch(modules: &Modules, address: u64, length: u64) -> Piece {
    let start = image::page_start(address);
    let end = modules.mapping_end(address).unwrap_or(start.saturating_add(rustix::param::page_size() as u64));
    let length = end.saturating_sub(start).min(length + rustix::param::page_size() as u64);
    Piece::new(start, length as usize)
}
