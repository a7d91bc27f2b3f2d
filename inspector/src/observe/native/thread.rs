//! The walk up one thread's stack. It never reads memory itself: it says what it needs, so that the needs of all
//! threads are met by one batched read.

use std::panic::{AssertUnwindSafe, catch_unwind};

use framehop::FrameAddress;

use super::{
    arch, expression,
    modules::Modules,
    row::Row,
    stack::{Missing, Stack},
};
use crate::model::{Registers, StackEnd};

/// Below this is no stack (`vm.mmap_min_addr`), and from the next value on no user address (five-level paging).
const LOWEST_STACK: u64 = 4096;
const HIGHEST_STACK: u64 = 1 << 57;

/// A frame before it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RawFrame {
    /// Where it goes on: the instruction pointer, or the return address of its callee.
    pub(super) pc: u64,
    /// `pc` is the very instruction that was interrupted, not a return address.
    pub(super) exact: bool,
    /// It is the trampoline that a signal handler returns to.
    pub(super) signal: bool,
}

impl RawFrame {
    /// An address inside of the instruction that the frame is at.
    pub(super) fn code_address(&self) -> u64 {
        if self.exact || self.signal { self.pc } else { self.pc.wrapping_sub(1) }
    }
}

/// A walk in progress.
#[derive(Debug)]
pub(super) struct Walk {
    /// The host's tid.
    pub(super) tid: u32,
    /// Frames so far, innermost first.
    pub(super) frames: Vec<RawFrame>,
    /// How it ended; `None`: it needs memory to go on.
    pub(super) end: Option<StackEnd>,
    /// What was read of the stack.
    pub(super) stack: Stack,
    registers: Registers,
    exact: bool,
    limit: usize,
}

/// What a step came to.
enum Step {
    Caller(Registers, bool),
    End(StackEnd),
    Needs(Missing),
}

fn stopped(why: impl Into<String>) -> Step {
    Step::End(StackEnd::Stopped(why.into()))
}

impl Walk {
    /// A walk of thread `tid` from its registers, of at most `limit` frames.
    pub(super) fn new(tid: u32, registers: Registers, limit: usize) -> Self {
        let frames = vec![RawFrame { pc: registers.pc, exact: true, signal: false }];
        Self { tid, frames, end: None, stack: Stack::default(), registers, exact: true, limit }
    }

    /// Where the walk begins to read.
    pub(super) fn stack_pointer(&self) -> u64 {
        self.registers.sp
    }

    /// Goes as far as the memory read so far allows; `Some(address)` must be read next.
    pub(super) fn advance(&mut self, modules: &mut Modules, cache: &mut arch::Cache) -> Option<u64> {
        while self.end.is_none() {
            if self.frames.len() >= self.limit {
                self.end = Some(StackEnd::Limit);
                break;
            }
            // The unwinder bounds what it does; catching a panic of its is the last defence against hostile tables.
            let step = catch_unwind(AssertUnwindSafe(|| self.step(modules, cache)))
                .unwrap_or_else(|_| stopped(format!("the unwinder failed at {:#x}", self.registers.pc)));
            match step {
                Step::Caller(registers, exact) => {
                    self.registers = registers;
                    self.exact = exact;
                    self.frames.push(RawFrame { pc: registers.pc, exact, signal: false });
                }
                Step::End(end) => self.end = Some(end),
                Step::Needs(Missing(address)) => return Some(address),
            }
        }
        None
    }

    /// The memory at `address` cannot be read.
    pub(super) fn give_up(&mut self, address: u64) {
        let Registers { pc, fp, .. } = self.registers;
        // Without a capture of all registers (tier `memory`) the frame pointer is 0.
        let why = if address < LOWEST_STACK {
            format!("the frame at {pc:#x} needs the frame pointer, which is {fp:#x}")
        } else {
            format!("the stack at {address:#x} cannot be read")
        };
        self.end = Some(StackEnd::Stopped(why));
    }

    fn step(&mut self, modules: &mut Modules, cache: &mut arch::Cache) -> Step {
        let Registers { pc, sp, .. } = self.registers;
        if !(LOWEST_STACK..HIGHEST_STACK).contains(&sp) {
            return stopped(format!("the stack pointer {sp:#x} is no user address"));
        }
        let row = match modules.row(pc, self.exact) {
            Ok(row) => row,
            Err(why) => return stopped(why),
        };
        let signal = row == Row::Signal;
        let caller = match row {
            Row::Outermost => return Step::End(StackEnd::Complete),
            Row::Plain => self.plain(modules, cache),
            Row::Computed(row) => {
                match expression::step(&row, self.registers, |address| self.stack.read(address)) {
                    Ok(registers) => Step::Caller(registers, false),
                    Err(expression::Failure::Memory(missing)) => Step::Needs(missing),
                    Err(expression::Failure::Rule(why)) => stopped(format!("{why} at {pc:#x}")),
                }
            }
            Row::Signal => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.signal = true;
                }
                match arch::SIGNAL_FRAME.restore(sp, |address| self.stack.read(address)) {
                    Ok(registers) => Step::Caller(registers, true),
                    Err(missing) => Step::Needs(missing),
                }
            }
        };
        match caller {
            Step::Caller(Registers { pc: 0, .. }, _) => Step::End(StackEnd::Complete),
            // A signal may have come on another stack. On arm64 a leaf may have no frame of its own.
            Step::Caller(registers, _)
                if !signal
                    && (registers.sp < sp || registers.sp == sp && !(self.exact && registers.pc != pc)) =>
            {
                stopped(format!("the stack pointer does not increase beyond {sp:#x} at {pc:#x}"))
            }
            caller => caller,
        }
    }

    fn plain(&self, modules: &Modules, cache: &mut arch::Cache) -> Step {
        let Registers { pc, .. } = self.registers;
        let address = if self.exact {
            FrameAddress::from_instruction_pointer(pc)
        } else if let Some(address) = FrameAddress::from_return_address(pc) {
            address
        } else {
            return Step::End(StackEnd::Complete);
        };
        let mut missing = None;
        let caller = arch::step(&modules.unwinder, cache, address, self.registers, |address| {
            self.stack.read(address).map_err(|needed| {
                missing.get_or_insert(needed);
            })
        });
        match (missing, caller) {
            (Some(missing), _) => Step::Needs(missing),
            (None, Ok(Some(registers))) => Step::Caller(registers, false),
            (None, Ok(None)) => Step::End(StackEnd::Complete),
            (None, Err(error)) => stopped(format!("{error} at {pc:#x}")),
        }
    }
}
