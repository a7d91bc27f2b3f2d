//! What blocked threads wait on and what their frames hold, as Python objects.
//!
//! A futex wait shows an address. The lock that it belongs to is among the variables and on the evaluation stacks of the
//! innermost frames; around it stand the library's objects whose methods those frames run ([`composite`]); the frames
//! outside of them say how the program names the outermost ([`naming`]). A `with` block keeps what it will leave on the
//! stack of its frame ([`live`]): who stands in one holds the lock, although a `threading.Lock` records no owner.
//!
//! Everything that is said of a wait is checked against its address: what does not fit is left out.

mod composite;
mod descriptors;
mod holds;
#[cfg(test)]
mod hostile;
mod live;
mod naming;
mod object;
mod primitive;
mod view;
mod waits;

use std::collections::HashMap;

use composite::Composites;
use object::Objects;
use view::{Depth, View};

use super::{code::CodeCache, layout::Layout, reader::Reader, stack::RawFrame, strings};
use crate::{
    model::{PythonLock, Registers, Syscall},
    observe::helper::protocol::ThreadRequest,
};

/// Most bytes and pieces that are read for all this of one process. What it leads to is the program's choice, and stacks are
/// worth more.
pub(super) const BUDGET: usize = 32 << 20;
pub(super) const MAX_PIECES: usize = 1 << 18;

/// Innermost frames of a blocked thread whose variables are read: the library's, and those that called it.
const INNER: usize = 8;

/// Most frames of one thread, and of all threads of a process, whose `with` blocks are looked at.
const FRAMES: usize = 64;
const ALL_FRAMES: usize = 1 << 15;

/// Farthest that the `wait_entry` of a parked thread lies above its stack pointer (Python/parking_lot.c).
const STACK_REACH: u64 = 16 * 1024;

/// What is read from, and by what.
pub(super) struct Source<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) layout: &'a Layout,
    pub(super) codes: &'a CodeCache,
    /// Host tids by ident.
    pub(super) tids: &'a HashMap<u64, u32>,
    /// What ends with a thread: its lock or handle, and its ident.
    pub(super) ends: &'a [ThreadEnd],
}

/// What others wait for when they join a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadEnd {
    /// The `threading.Thread`.
    pub(super) thread: u64,
    /// Its ident.
    pub(super) ident: u64,
    /// `_tstate_lock` until 3.12, the handle after.
    pub(super) lock: u64,
}

/// One thread to look at.
pub(super) struct Asked<'a> {
    pub(super) ident: u64,
    /// What the kernel said of it; `None`: it was not matched with a thread.
    pub(super) request: Option<&'a ThreadRequest>,
    /// Innermost first.
    pub(super) frames: &'a [RawFrame],
}

/// What was seen of one thread.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) waits_on: Option<PythonLock>,
    pub(super) holds: Vec<PythonLock>,
    pub(super) descriptors: Vec<i32>,
}

/// One thread with its frames.
struct Sight {
    /// Its place among those asked for.
    index: usize,
    ident: u64,
    /// Addresses that a lock of its wait may have; none: it waits on no futex.
    keys: Vec<u64>,
    /// Innermost first. Of those behind [`INNER`] only what their stack holds.
    views: Vec<View>,
}

/// Looks at each of `asked`, in their order.
pub(super) fn read(source: &Source<'_>, asked: &[Asked<'_>]) -> Vec<Seen> {
    let mut seen: Vec<Seen> = asked.iter().map(|_| Seen::default()).collect();
    let keys = keys(source, asked);
    let sights = sights(source, asked, keys);
    for (sight, found) in sights.iter().zip(look(source, &sights)) {
        if let Some(seen) = seen.get_mut(sight.index) {
            *seen = found;
        }
    }
    seen
}

/// What the frames of `sights` say, in their order.
fn look(source: &Source<'_>, sights: &[Sight]) -> Vec<Seen> {
    let mut objects = Objects::new(source.reader, &source.layout.object);
    let mut composites = Composites::default();
    let values = sights
        .iter()
        .flat_map(|sight| &sight.views)
        .flat_map(|view| view.variables.iter().map(|pair| pair.1).chain(view.stack.iter().copied()));
    let values = strings::distinct(values);
    objects.load(values.iter().copied());
    objects.load_behind(&values);
    let names = sights.iter().flat_map(|sight| &sight.views).flat_map(|view| &view.variables);
    let names = strings::strings(source.reader, &source.layout.object, names.map(|pair| pair.0));
    let waits = waits::read(source, &mut objects, &mut composites, &names, sights);
    let holds = holds::read(source, &mut objects, &mut composites, &names, sights);
    let descriptors = descriptors::read(&mut objects, &names, sights);
    waits
        .into_iter()
        .zip(holds)
        .zip(descriptors)
        .map(|((waits_on, holds), descriptors)| Seen { waits_on, holds, descriptors })
        .collect()
}

/// For each thread, the addresses that the lock of its futex wait may have: the word's, and from 3.13 on what the word of a
/// parked thread has before it.
fn keys(source: &Source<'_>, asked: &[Asked<'_>]) -> Vec<Vec<u64>> {
    let words: Vec<Option<u64>> =
        asked.iter().map(|asked| futex_word(asked.request?.syscall.as_ref()?)).collect();
    let parked = |(asked, word): (&Asked<'_>, &Option<u64>)| {
        let Registers { sp, .. } = asked.request?.registers?;
        word.filter(|word| source.layout.release >= (3, 13) && word.wrapping_sub(sp) < STACK_REACH)
    };
    let parked: Vec<Option<u64>> = asked.iter().zip(&words).map(parked).collect();
    let before =
        source.reader.many(parked.iter().map(|word| (word.map_or(0, |word| word.wrapping_sub(8)), 8)));
    let address =
        |bytes: Option<Vec<u8>>| super::bytes::u64_at(&bytes?, 0).filter(|&address| address >= 4096);
    words
        .into_iter()
        .zip(before)
        .map(|(word, before)| word.into_iter().chain(address(before)).collect())
        .collect()
}

fn futex_word(syscall: &Syscall) -> Option<u64> {
    matches!(syscall.name(std::env::consts::ARCH), Some("futex" | "futex_wait")).then(|| syscall.arguments[0])
}

fn sights(source: &Source<'_>, asked: &[Asked<'_>], keys: Vec<Vec<u64>>) -> Vec<Sight> {
    let mut left = ALL_FRAMES;
    let mut counts = vec![0; asked.len()];
    // The innermost frames of all threads go before the others of any.
    for most in [INNER, FRAMES] {
        for (asked, count) in asked.iter().zip(&mut counts) {
            let more = asked.frames.len().min(most).saturating_sub(*count).min(left);
            *count += more;
            left -= more;
        }
    }
    let mut frames: Vec<(RawFrame, Depth)> = Vec::new();
    for (asked, &count) in asked.iter().zip(&counts) {
        let blocked = asked.request.is_some_and(|request| request.syscall.is_some());
        for (index, &frame) in asked.frames.iter().enumerate().take(count) {
            let depth = if index < INNER && blocked { Depth::All } else { Depth::Live };
            frames.push((frame, depth));
        }
    }
    let mut views = view::read(source.reader, source.layout, source.codes, &frames).into_iter();
    asked
        .iter()
        .zip(keys)
        .zip(counts)
        .enumerate()
        .map(|(index, ((asked, keys), count))| Sight {
            index,
            ident: asked.ident,
            keys,
            views: views.by_ref().take(count).flatten().collect(),
        })
        .collect()
}

/// The value of a frame's variable `self`.
fn self_of(objects: &Objects<'_>, names: &HashMap<u64, String>, view: &View) -> Option<u64> {
    let (_, value) =
        view.variables.iter().find(|(name, _)| names.get(name).is_some_and(|name| name == "self"))?;
    Some(objects.behind(*value))
}
