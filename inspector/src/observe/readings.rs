//! What the helpers read of one process, put together over several rounds.

use std::collections::HashMap;

use super::{frames::FrameTable, helper::protocol::Stage, pool::Outcome};
use crate::model::{Fd, Frame, Gap, NativeStack, PythonRuntime, PythonThread, SavedMemory};

/// One process as the helpers read it.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Its open descriptors, as of the first round.
    pub(super) fds: Vec<Fd>,
    /// Its Python runtime, as of the first round.
    pub(super) runtime: Option<PythonRuntime>,
    /// Its threads by the host's tid, each as of the latest round that read it.
    pub(super) threads: HashMap<u32, ThreadReading>,
    /// Distinct frames.
    pub(super) frames: FrameTable,
    /// What could not be read.
    pub(super) gaps: Vec<Gap>,
}

/// One thread as the helpers read it.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadReading {
    pub(super) python: Option<PythonThread>,
    pub(super) native: NativeStack,
    pub(super) memory: Vec<SavedMemory>,
}

impl Reading {
    /// Takes in one round. `first`: the round that read every thread, whose runtime is the process's.
    pub(super) fn absorb(&mut self, outcome: Outcome, first: bool) {
        if first {
            self.gaps.extend(outcome.gaps);
        }
        for (stage, reply) in outcome.stages {
            let renumber = self.renumber(reply.frames);
            if first {
                self.gaps.extend(reply.gaps);
                self.fds.extend(reply.fds);
                if let Some(mut runtime) = reply.python {
                    for thread in &mut runtime.unmatched {
                        renumber_python(thread, &renumber);
                    }
                    self.runtime = Some(runtime);
                }
            }
            for thread in reply.threads {
                let known = self.threads.entry(thread.tid).or_default();
                match stage {
                    Stage::Descriptors => {}
                    Stage::Arguments => known.memory = thread.memory,
                    Stage::Python => {
                        let named = known.python.take();
                        known.python = thread.python.map(|mut python| {
                            renumber_python(&mut python, &renumber);
                            // Only the first round reads names.
                            if let Some(named) = named {
                                python.name = python.name.or(named.name);
                                python.daemon = python.daemon.or(named.daemon);
                            }
                            python
                        });
                    }
                    Stage::Native => {
                        if let Some(mut native) = thread.native {
                            native.frames = native
                                .frames
                                .iter()
                                .filter_map(|frame| renumber.get(frame).copied())
                                .collect();
                            known.native = native;
                        }
                    }
                }
            }
        }
    }

    /// Whether the thread had a Python stack.
    pub(super) fn runs_python(&self, tid: u32) -> bool {
        self.threads.get(&tid).is_some_and(|thread| thread.python.is_some())
    }

    /// Interns a reply's frames: from its indices to the process's.
    fn renumber(&mut self, frames: Vec<Frame>) -> HashMap<u32, u32> {
        (0..).zip(frames).filter_map(|(theirs, frame)| Some((theirs, self.frames.intern(frame)?))).collect()
    }
}

fn renumber_python(thread: &mut PythonThread, renumber: &HashMap<u32, u32>) {
    thread.frames.retain_mut(|frame| match renumber.get(&frame.frame) {
        Some(&ours) => {
            frame.frame = ours;
            true
        }
        None => false,
    });
}
