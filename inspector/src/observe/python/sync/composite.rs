//! The library's synchronization objects that are written in Python (`Lib/threading.py`, `Lib/queue.py`,
//! `Lib/concurrent/futures/_base.py`, `Lib/multiprocessing/{synchronize,queues}.py`, `Lib/importlib/_bootstrap.py`), told
//! by the attributes that they have: subclasses are what their base is.

use std::collections::HashMap;

use super::{
    super::{attributes, strings},
    object::{Kind, Objects},
    primitive::{self, Key},
};

/// Attributes that are looked for.
const NAMES: [&str; 24] = [
    "_lock",
    "_waiters",
    "_cond",
    "_flag",
    "_value",
    "_condition",
    "_state",
    "mutex",
    "not_empty",
    "maxsize",
    "queue",
    "_semlock",
    "_ident",
    "_name",
    "_tstate_lock",
    "_handle",
    "_os_thread_handle",
    "wakeup",
    "owner",
    "_parties",
    "_count",
    "_rlock",
    "_woken_count",
    "_initial_value",
];

/// Most objects that are looked at in one reading, and how deep locks lie in others.
const MAX_COMPOSITES: usize = 1 << 15;
const NESTING: usize = 4;

/// What a library object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Condition,
    /// `multiprocessing`'s `Condition`.
    SharedCondition,
    Event,
    Semaphore,
    Barrier,
    Queue,
    Future,
    Thread,
    ModuleLock,
    /// `multiprocessing`'s `Lock`, `RLock`, `Semaphore`.
    SharedLock,
    /// `multiprocessing`'s `Queue` and `SimpleQueue`.
    SharedQueue,
}

impl Class {
    /// The module that defines the class `name`; `None`: it is a class of somebody else's.
    fn module(self, name: &str) -> Option<&'static str> {
        let (module, names): (_, &[&str]) = match self {
            Self::Condition => ("threading", &["Condition"]),
            Self::Event => ("threading", &["Event"]),
            Self::Semaphore => ("threading", &["Semaphore", "BoundedSemaphore"]),
            Self::Barrier => ("threading", &["Barrier"]),
            Self::Thread => ("threading", &["Thread", "Timer", "_MainThread"]),
            Self::Queue => ("queue", &["Queue", "LifoQueue", "PriorityQueue"]),
            Self::Future => ("concurrent.futures", &["Future"]),
            Self::ModuleLock => ("importlib", &["_ModuleLock"]),
            Self::SharedCondition => ("multiprocessing", &["Condition"]),
            Self::SharedLock => ("multiprocessing", &["Lock", "RLock", "Semaphore", "BoundedSemaphore"]),
            Self::SharedQueue => ("multiprocessing", &["Queue", "JoinableQueue", "SimpleQueue"]),
        };
        names.contains(&name).then_some(module)
    }
}

/// The attributes of one object, by their place in [`NAMES`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts([Option<u64>; NAMES.len()]);

impl Parts {
    pub(super) fn get(&self, name: &str) -> Option<u64> {
        self.0.get(NAMES.iter().position(|&known| known == name)?).copied().flatten()
    }

    fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.get(name).is_some())
    }

    pub(super) fn class(&self) -> Option<Class> {
        Some(match self {
            parts if parts.has(&["_lock", "_waiters"]) => Class::Condition,
            parts if parts.has(&["_lock", "_woken_count"]) => Class::SharedCondition,
            parts if parts.has(&["_cond", "_flag"]) => Class::Event,
            parts if parts.has(&["_cond", "_value"]) => Class::Semaphore,
            parts if parts.has(&["_cond", "_parties"]) => Class::Barrier,
            parts if parts.has(&["mutex", "not_empty", "queue"]) => Class::Queue,
            parts if parts.has(&["_condition", "_state"]) => Class::Future,
            parts if parts.has(&["_name", "_ident"]) => Class::Thread,
            parts if parts.has(&["wakeup", "owner"]) => Class::ModuleLock,
            parts if parts.has(&["_semlock"]) => Class::SharedLock,
            parts if parts.has(&["_rlock"]) => Class::SharedQueue,
            _ => return None,
        })
    }

    /// It is a thread that ends with `lock`.
    pub(super) fn ends_with(&self, lock: u64) -> bool {
        ["_tstate_lock", "_os_thread_handle", "_handle"].iter().any(|name| self.get(name) == Some(lock))
    }

    /// The object that one waits on to get in: of a condition its lock, of a thread what ends with it.
    fn inner(&self) -> Option<u64> {
        match self.class()? {
            Class::Condition | Class::SharedCondition => self.get("_lock"),
            Class::Queue => self.get("mutex"),
            Class::SharedLock => self.get("_semlock"),
            Class::ModuleLock => self.get("wakeup"),
            Class::Thread => self
                .get("_tstate_lock")
                .or_else(|| self.get("_os_thread_handle"))
                .or_else(|| self.get("_handle")),
            _ => None,
        }
    }
}

/// The library objects that were looked at.
#[derive(Default)]
pub(super) struct Composites {
    known: HashMap<u64, Parts>,
}

impl Composites {
    /// Reads the attributes of those of `addresses` that are instances, and of what they are made of.
    pub(super) fn load(&mut self, objects: &mut Objects<'_>, addresses: impl IntoIterator<Item = u64>) {
        let mut next = strings::distinct(addresses);
        for _level in 0..NESTING {
            objects.load(next.iter().copied());
            next.retain(|&address| {
                objects.kind(address) == Kind::Instance && !self.known.contains_key(&address)
            });
            next.truncate(MAX_COMPOSITES.saturating_sub(self.known.len()));
            if next.is_empty() {
                return;
            }
            let found = attributes::attributes(objects.reader, objects.layout, &next, NAMES);
            let parts: Vec<Parts> = found.into_iter().map(Parts).collect();
            let sync = |parts: &&Parts| parts.class().is_some();
            let inside: Vec<u64> = parts.iter().filter(sync).flat_map(|parts| parts.0).flatten().collect();
            self.known.extend(next.drain(..).zip(parts));
            next = strings::distinct(inside);
        }
        objects.load(next);
    }

    pub(super) fn get(&self, address: u64) -> Option<&Parts> {
        self.known.get(&address)
    }

    pub(super) fn class(&self, address: u64) -> Option<Class> {
        self.get(address)?.class()
    }

    /// The lock in C that an object is, or that one waits on to get into it.
    pub(super) fn primitive(&self, objects: &Objects<'_>, address: u64) -> Option<(u64, Key)> {
        let mut at = address;
        for _level in 0..NESTING {
            if let Some(key) = primitive::key(objects, at) {
                return Some((at, key));
            }
            at = self.get(at)?.inner()?;
        }
        None
    }

    /// The type's name as people know it: with its module, where the class is the library's own.
    pub(super) fn type_name(&self, objects: &Objects<'_>, address: u64) -> String {
        let Some(type_) = objects.type_of(address) else { return "object".to_owned() };
        let module = match type_.kind {
            Kind::Lock => return "threading.Lock".to_owned(),
            Kind::RLock => return "threading.RLock".to_owned(),
            Kind::ThreadHandle => return "threading.Thread".to_owned(),
            Kind::SimpleQueue => return "queue.SimpleQueue".to_owned(),
            Kind::SemLock => return "multiprocessing.SemLock".to_owned(),
            Kind::Instance => self.class(address).and_then(|class| class.module(&type_.name)),
            _ => None,
        };
        module.map_or_else(|| type_.name.clone(), |module| format!("{module}.{}", type_.name))
    }

    /// How many a `BoundedSemaphore` lets in; of any other semaphore that is not kept.
    pub(super) fn bound(&self, objects: &Objects<'_>, address: u64) -> Option<u64> {
        objects.int(self.get(address)?.get("_initial_value")?)
    }

    /// The object's state in a few words, for people.
    pub(super) fn state(&self, objects: &Objects<'_>, address: u64) -> Option<String> {
        let parts = self.get(address)?;
        let int = |name: &str| objects.int(parts.get(name)?);
        Some(match parts.class()? {
            Class::Event => {
                let set = int("_flag")? != 0;
                (if set { "set" } else { "not set" }).to_owned()
            }
            Class::Semaphore => format!("value {}", int("_value")?),
            Class::Barrier => format!("{} of {} there", int("_count")?, int("_parties")?),
            Class::Queue => {
                let items = parts.get("queue").filter(|&items| objects.kind(items) == Kind::Sized)?;
                // `ob_size` follows the head.
                let items = objects.word(items, 0)?;
                match int("maxsize") {
                    Some(most) if most > 0 => format!("{items} of {most} items"),
                    _ => format!("{items} items"),
                }
            }
            _ => return None,
        })
    }
}
