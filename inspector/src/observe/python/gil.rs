//! `struct _gil_runtime_state` (Include/internal/pycore_gil.h): the same from 3.8 to 3.15, except that free-threaded
//! builds put `int enabled` before it.

use super::{
    bytes::{u32_at, u64_at},
    reader::Reader,
};
use crate::{
    model::{GilSample, PythonRuntime},
    observe::memory::TargetMemory,
};

/// How often a GIL is read until two readings agree.
const MAX_TRIES: usize = 8;

/// Offsets in `struct _gil_runtime_state`.
#[derive(Clone, Copy, Debug)]
pub(super) struct GilLayout {
    /// `enabled` (free-threaded builds only).
    enabled: Option<usize>,
    last_holder: usize,
    locked: usize,
    switch_number: usize,
    cond: usize,
}

/// `sizeof(pthread_cond_t)` on 64-bit glibc (bits/pthreadtypes-arch.h).
const COND_SIZE: u64 = 48;

impl GilLayout {
    /// The layout of a build.
    pub(super) const fn of(free_threaded: bool) -> Self {
        let shift = if free_threaded { 8 } else { 0 };
        Self {
            enabled: if free_threaded { Some(0) } else { None },
            last_holder: 8 + shift,
            locked: 16 + shift,
            switch_number: 24 + shift,
            cond: 32 + shift,
        }
    }

    /// First byte of the condition variable that waiters wait on, and the first byte after it.
    pub(super) fn cond(&self, gil: u64) -> (u64, u64) {
        let start = gil.wrapping_add(self.cond as u64);
        (start, start.wrapping_add(COND_SIZE))
    }
}

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// There is a GIL: always, but in a free-threaded build that has switched it off.
    pub(super) enabled: bool,
    pub(super) locked: bool,
    /// `last_holder`: a thread state.
    pub(super) holder: u64,
    pub(super) switch_number: u64,
}

/// Reads each GIL until two readings in a row agree.
pub(super) fn settle(reader: &Reader<'_>, layout: GilLayout, gils: &[u64]) -> Vec<Option<Reading>> {
    let mut last: Vec<Option<Reading>> = vec![None; gils.len()];
    let mut settled: Vec<Option<Reading>> = vec![None; gils.len()];
    for _try in 0..MAX_TRIES {
        let open: Vec<usize> = (0..gils.len()).filter(|&index| settled.get(index) == Some(&None)).collect();
        if open.is_empty() {
            break;
        }
        let bytes = reader.many(open.iter().filter_map(|&index| Some((*gils.get(index)?, layout.cond))));
        for (index, bytes) in open.into_iter().zip(bytes) {
            let (Some(last), Some(settled)) = (last.get_mut(index), settled.get_mut(index)) else { continue };
            let reading = bytes.and_then(|bytes| parse(layout, &bytes));
            if reading.is_some() && reading == *last {
                *settled = reading;
            }
            *last = reading;
        }
    }
    settled
}

fn parse(layout: GilLayout, bytes: &[u8]) -> Option<Reading> {
    Some(Reading {
        enabled: layout.enabled.map_or(Some(true), |offset| Some(u32_at(bytes, offset)? != 0))?,
        // -1: not initialized yet.
        locked: u32_at(bytes, layout.locked)? == 1,
        holder: u64_at(bytes, layout.last_holder)?,
        switch_number: u64_at(bytes, layout.switch_number)?,
    })
}

/// See [`super::sample_gils`].
pub(super) fn sample_all(memory: &dyn TargetMemory, runtime: &PythonRuntime) -> Vec<Option<GilSample>> {
    let addresses: Vec<u64> = runtime.gils().map(|gil| gil.address).collect();
    let reader = Reader::new(memory);
    settle(&reader, GilLayout::of(runtime.free_threaded), &addresses)
        .into_iter()
        .map(|reading| Some(sample(reading?, |address| runtime.host_tid(address))))
        .collect()
}

/// The reading in the model's terms.
pub(super) fn sample(reading: Reading, host_tid: impl Fn(u64) -> Option<u32>) -> GilSample {
    GilSample {
        at_ns: 0,
        locked: reading.locked,
        holder: reading.locked.then(|| host_tid(reading.holder)).flatten(),
        switch_number: reading.switch_number,
    }
}
