//! What the helpers read of one process, put together over several rounds.

use std::collections::HashMap;

use super::{frames::FrameTable, helper::protocol::Stage, pool::Outcome};
use crate::model::{
    Fd, Frame, Gap, NamedTid, NativeStack, PythonRuntime, PythonThread, SavedMemory, SharedMapping,
};

/// One process as the helpers read it.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Its open descriptors, as of the first round.
    pub(super) fds: Vec<Fd>,
    /// Its Python runtime, as of the first round.
    pub(super) runtime: Option<PythonRuntime>,
    /// Its threads by the host's tid, each as of the latest round that read it.
    pub(super) threads: HashMap<u32, ThreadReading>,
    /// Its shared mappings, and whom words in them name, as of the first round.
    pub(super) shared_memory: Option<Vec<SharedMapping>>,
    pub(super) named_tids: Vec<NamedTid>,
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
    /// Takes in one round. `first`: the round that read every thread, whose runtime is the process's. `still`: whether a
    /// thread held still while it was read.
    pub(super) fn absorb(&mut self, outcome: Outcome, first: bool, still: impl Fn(u32) -> bool) {
        if first {
            self.gaps.extend(outcome.gaps);
        }
        for (stage, reply) in outcome.stages {
            let renumber = self.renumber(reply.frames);
            if first {
                self.gaps.extend(reply.gaps);
                self.fds.extend(reply.fds);
                if stage == Stage::Sharing {
                    self.shared_memory = reply.shared_memory;
                    self.named_tids = reply.named_tids;
                }
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
                    Stage::Descriptors | Stage::Sharing => {}
                    Stage::Arguments => known.memory = thread.memory,
                    Stage::Python => {
                        let Some(mut python) = thread.python else {
                            known.python = None;
                            continue;
                        };
                        renumber_python(&mut python, &renumber);
                        if let Some(before) = known.python.take() {
                            // Of a thread that never holds still, a whole stack says more than a later piece of one.
                            if !still(thread.tid) && before.is_whole() && !python.is_whole() {
                                (python.frames, python.partial) = (before.frames, before.partial);
                            }
                            // Only the first round reads names.
                            python.name = python.name.or(before.name);
                            python.daemon = python.daemon.or(before.daemon);
                        }
                        known.python = Some(python);
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

    /// Whether the thread has a Python stack that was not read whole.
    pub(super) fn is_in_pieces(&self, tid: u32) -> bool {
        let python = self.threads.get(&tid).and_then(|thread| thread.python.as_ref());
        python.is_some_and(|python| !python.is_whole())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{FrameKind, PythonFrame},
        observe::helper::protocol::{Reply, ThreadReply},
    };

    fn outcome(partial: Option<&str>, name: Option<&str>) -> Outcome {
        let python = PythonThread {
            name: name.map(str::to_owned),
            frames: vec![PythonFrame { frame: 0, entry: true }],
            partial: partial.map(str::to_owned),
            ..PythonThread::default()
        };
        let thread = ThreadReply { tid: 1, python: Some(python), ..ThreadReply::default() };
        let function = if partial.is_some() { "torn" } else { "whole" };
        let frame = Frame {
            kind: FrameKind::Python,
            function: function.into(),
            file: None,
            line: None,
            module: None,
            address: None,
        };
        let reply = Reply { threads: vec![thread], frames: vec![frame], ..Reply::default() };
        Outcome { pid: 1, stages: vec![(Stage::Python, reply)], gaps: Vec::new() }
    }

    fn functions(reading: &Reading) -> Vec<&str> {
        let frames = &reading.threads[&1].python.as_ref().unwrap().frames;
        frames.iter().map(|frame| reading.frames.get(frame.frame).unwrap().function.as_str()).collect()
    }

    #[test]
    fn a_whole_stack_outlives_a_later_piece_of_one_unless_the_thread_came_to_rest() {
        let mut reading = Reading::default();
        reading.absorb(outcome(Some("moved"), Some("MainThread")), true, |_| false);
        assert_eq!(functions(&reading), ["torn"]);
        reading.absorb(outcome(None, None), false, |_| false);
        assert_eq!(functions(&reading), ["whole"]);
        reading.absorb(outcome(Some("moved"), None), false, |_| false);
        assert_eq!(functions(&reading), ["whole"]);
        let python = reading.threads[&1].python.as_ref().unwrap();
        assert!(python.is_whole());
        assert_eq!(python.name.as_deref(), Some("MainThread"));
        reading.absorb(outcome(Some("its innermost frame could not be found"), None), false, |_| true);
        assert_eq!(functions(&reading), ["torn"]);
    }
}
