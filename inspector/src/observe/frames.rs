//! Each distinct frame of a process once.

use std::collections::HashMap;

use crate::model::Frame;

/// Most distinct frames kept for one process: a bound on what a hostile target can make us hold.
const MAX_FRAMES: usize = 1 << 18;

/// Interns frames: equal frames get the same index.
#[derive(Debug, Default)]
pub struct FrameTable {
    frames: Vec<Frame>,
    index: HashMap<Frame, u32>,
}

impl FrameTable {
    /// The frame's index in [`Self::into_frames`]; `None` once the table is full.
    pub fn intern(&mut self, frame: Frame) -> Option<u32> {
        if let Some(&index) = self.index.get(&frame) {
            return Some(index);
        }
        if self.frames.len() >= MAX_FRAMES {
            return None;
        }
        let index = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.index.insert(frame, index);
        Some(index)
    }

    /// The frame at `index`.
    pub fn get(&self, index: u32) -> Option<&Frame> {
        self.frames.get(index as usize)
    }

    /// The frames, in the order of their indices.
    pub fn into_frames(self) -> Vec<Frame> {
        self.frames
    }
}
