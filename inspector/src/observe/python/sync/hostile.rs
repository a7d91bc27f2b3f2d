//! Frames whose variables lead anywhere: looking at them ends, within bounds, without a panic.

use std::{cell::Cell, collections::HashMap};

use proptest::prelude::*;

use super::{
    super::{
        code::CodeCache,
        hostile::{BASE, Echo, layouts, word},
        reader::Reader,
    },
    Sight, Source, ThreadEnd, look,
    view::View,
};

/// How many words the memory repeats after.
const WORDS: usize = 192;

/// Types that lead deeper, and `tp_basicsize` of each.
const TYPES: [(&[u8; 24], u64); 5] = [
    (b"method\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 48),
    (b"_thread.lock\0\0\0\0\0\0\0\0\0\0\0\0", 40),
    (b"_thread.RLock\0\0\0\0\0\0\0\0\0\0\0", 48),
    (b"_multiprocessing.SemLock", 56),
    (b"Program\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32),
];
/// Words of one type, whose name lies behind its flags, and of one object.
const TYPE: usize = 26;
const OBJECT: usize = 6;

/// Addresses of the words that the frames and the objects lead to: mostly of objects.
fn address() -> impl Strategy<Value = u64> {
    let objects = ((WORDS - TYPES.len() * TYPE) / OBJECT) as u64;
    let first = (TYPES.len() * TYPE) as u64;
    prop_oneof![
        8 => (0..objects).prop_map(move |index| BASE + (first + index * OBJECT as u64) * 8),
        2 => (0..WORDS as u64).prop_map(|at| BASE + at * 8),
        1 => any::<u64>(),
    ]
}

/// Puts the types and the heads of objects in their places (of 3.8 to 3.12), and leaves the rest.
fn plant(words: &mut [u64]) {
    for (index, (name, size)) in TYPES.iter().enumerate() {
        let at = index * TYPE;
        words[at + 3] = BASE + (at as u64 + 22) * 8;
        words[at + 4] = *size;
        words[at + 21] = 1 << 9;
        for (word, bytes) in words[at + 22..].iter_mut().zip(name.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap());
        }
        words[at + 25] = 0;
    }
    let objects = words[TYPES.len() * TYPE..].chunks_exact_mut(OBJECT);
    for (index, object) in objects.enumerate() {
        object[0] = 1;
        object[1] = BASE + (index % TYPES.len() * TYPE * 8) as u64;
    }
}

fn view() -> impl Strategy<Value = View> {
    let variables = proptest::collection::vec((address(), address()), 0..8);
    let stack = proptest::collection::vec(address(), 0..8);
    let library = prop_oneof![Just("/usr/lib/threading.py"), Just("queue.py"), Just("program.py")];
    (variables, stack, 0_usize..9, library, address()).prop_map(|(variables, stack, live, file, globals)| {
        View {
            function: "wait".to_owned(),
            file: file.to_owned(),
            variables,
            live: live.min(stack.len()),
            stack,
            globals,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_variables_are(
        mut words in proptest::collection::vec(prop_oneof![word(), address()], WORDS),
        views in proptest::collection::vec(view(), 0..6),
        keys in proptest::collection::vec(address(), 1..3),
        end in address(),
        which in 0_usize..7,
    ) {
        plant(&mut words);
        let memory = Echo { words, calls: Cell::new(0) };
        let layouts = layouts();
        let reader = Reader::new(&memory);
        let source = Source {
            reader: &reader,
            layout: &layouts[which],
            codes: &CodeCache::default(),
            tids: &HashMap::new(),
            ends: &[ThreadEnd { thread: end, ident: 7, lock: end }],
        };
        let sight = Sight { index: 0, ident: 7, keys: keys.clone(), views };
        for seen in look(&source, &[sight]) {
            // What is said of a wait bears its address, and names stay of a length that people read.
            prop_assert!(seen.waits_on.iter().all(|lock| keys.contains(&lock.address)));
            let paths = seen.waits_on.iter().chain(&seen.holds).filter_map(|lock| lock.object.path.as_ref());
            prop_assert!(paths.into_iter().all(|path| path.len() < 2000));
            prop_assert!(seen.holds.len() <= 32);
        }
        prop_assert!(memory.calls.get() < 100_000, "{} reads", memory.calls.get());
    }
}
