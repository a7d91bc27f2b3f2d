//! Which object each blocked thread waits on, and who holds it by its own word.

use std::collections::HashMap;

use super::{
    Sight, Source, ThreadEnd,
    composite::{Class, Composites},
    naming::{self, Target},
    object::{Kind, Objects},
    primitive, self_of,
    view::View,
};
use crate::model::{LockHolder, PythonLock, PythonObject};

/// A wait that led to a lock.
struct Lead {
    /// Which of the sights.
    sight: usize,
    /// The address that the wait shows.
    key: u64,
    /// The lock in C.
    lock: u64,
    /// The outermost library object around it, or itself.
    object: u64,
    /// How many of the innermost frames are the library's.
    library: usize,
    /// The thread to be joined.
    joined: Option<u64>,
}

/// What each of `sights` waits on, in their order.
pub(super) fn read(
    source: &Source<'_>,
    objects: &mut Objects<'_>,
    composites: &mut Composites,
    names: &HashMap<u64, String>,
    sights: &[Sight],
) -> Vec<Option<PythonLock>> {
    let waiters = || sights.iter().filter(|sight| !sight.keys.is_empty());
    let library: Vec<u64> = waiters()
        .flat_map(|sight| sight.views.iter().take_while(|view| is_library(view)))
        .filter_map(|view| self_of(objects, names, view))
        .collect();
    composites.load(objects, library);
    objects.load(source.ends.iter().map(|end| end.lock));
    let ends = ends(source, objects, composites);
    let leads: Vec<Lead> = sights
        .iter()
        .enumerate()
        .filter(|(_, sight)| !sight.keys.is_empty())
        .filter_map(|(index, sight)| lead(&ends, objects, composites, names, index, sight))
        .collect();
    let no_views: &[View] = &[];
    let targets: Vec<Target<'_>> = leads
        .iter()
        .map(|lead| Target {
            object: lead.object,
            lock: lead.lock,
            views: sights
                .get(lead.sight)
                .and_then(|sight| sight.views.get(lead.library..sight.views.len().min(super::INNER)))
                .unwrap_or(no_views),
        })
        .collect();
    let named = naming::name(objects, composites, names, &targets);
    let mut found: Vec<Option<PythonLock>> = sights.iter().map(|_| None).collect();
    for (lead, named) in leads.iter().zip(named) {
        let object = named.as_ref().map_or(lead.object, |named| named.object);
        let lock = PythonLock {
            address: lead.key,
            object: PythonObject {
                type_name: composites.type_name(objects, object),
                address: object,
                path: named.map(|named| named.path),
                state: composites.state(objects, object),
            },
            holder: holder(source, objects, composites, lead),
        };
        if let Some(slot) = found.get_mut(lead.sight) {
            *slot = Some(lock);
        }
    }
    found
}

/// What ends with threads, by each address that a wait for it shows: the lock in C and the thread.
type Ends = HashMap<u64, (u64, ThreadEnd)>;

fn ends(source: &Source<'_>, objects: &Objects<'_>, composites: &Composites) -> Ends {
    let mut ends = Ends::new();
    for &end in source.ends {
        let Some((lock, key)) = composites.primitive(objects, end.lock) else { continue };
        for address in (0..key.span).filter_map(|offset| key.address.checked_add(offset)) {
            ends.entry(address).or_insert((lock, end));
        }
    }
    ends
}

/// The lock whose address the wait of a thread shows.
fn lead(
    ends: &Ends,
    objects: &Objects<'_>,
    composites: &Composites,
    names: &HashMap<u64, String>,
    index: usize,
    sight: &Sight,
) -> Option<Lead> {
    let matching = |address: u64| {
        let (lock, key) = composites.primitive(objects, address)?;
        let key = sight.keys.iter().copied().find(|&address| key.matches(address))?;
        Some((lock, key))
    };
    let of_view = |view: &View| {
        let values = view.variables.iter().map(|pair| pair.1).chain(view.stack.iter().copied());
        values.map(|value| objects.behind(objects.behind(value))).find_map(matching)
    };
    let ended = sight.keys.iter().find_map(|&key| Some((key, *ends.get(&key)?)));
    let by_end = || ended.map(|(key, (lock, _))| (lock, key));
    let (lock, key) = sight.views.iter().find_map(of_view).or_else(by_end)?;
    let library = sight.views.iter().take_while(|view| is_library(view)).count();
    let mut outer = sight.views.iter().take(library).filter_map(|view| self_of(objects, names, view));
    let outer = outer.rfind(|&object| composites.class(object).is_some());
    let is_end = |object: u64| composites.get(object).is_some_and(|parts| parts.ends_with(lock));
    let joined = ended.map(|(_, (_, end))| (end.thread, end.ident)).or_else(|| {
        let thread = outer.filter(|&object| is_end(object))?;
        Some((thread, objects.int(composites.get(thread)?.get("_ident")?)?))
    });
    Some(Lead {
        sight: index,
        key,
        lock,
        object: outer.or(joined.map(|(thread, _)| thread)).unwrap_or(lock),
        library,
        joined: joined.map(|(_, ident)| ident),
    })
}

fn holder(
    source: &Source<'_>,
    objects: &Objects<'_>,
    composites: &Composites,
    lead: &Lead,
) -> Option<LockHolder> {
    let tid = |ident: u64| source.tids.get(&ident).copied();
    if let Some(ident) = lead.joined {
        let word = "_ident of the joined Thread".to_owned();
        return Some(LockHolder { ident, tid: tid(ident), count: None, exclusive: true, word });
    }
    if composites.class(lead.object) == Some(Class::ModuleLock) {
        let ident = objects.int(composites.get(lead.object)?.get("owner")?)?;
        let word = "owner of the module's lock".to_owned();
        return Some(LockHolder { ident, tid: tid(ident), count: Some(1), exclusive: true, word });
    }
    let held = primitive::held(objects, lead.lock)?;
    let word = match objects.kind(lead.lock) {
        // A semaphore has many holders, of whom it names the latest.
        Kind::SemLock if primitive::max_value(objects, lead.lock) != Some(1) => return None,
        Kind::SemLock => "last_tid of the SemLock",
        _ => "owner word of the RLock",
    };
    Some(LockHolder {
        ident: held.ident,
        tid: tid(held.ident),
        count: Some(held.count),
        exclusive: held.exclusive,
        word: word.to_owned(),
    })
}

/// The frame is one of `threading`'s.
pub(super) fn is_of_threading(view: &View) -> bool {
    view.file == "threading.py" || view.file.ends_with("/threading.py")
}

/// The frame runs a method of a library object that waits for something, not code that the library was handed.
fn is_library(view: &View) -> bool {
    let file = view.file.as_str();
    let is = |tail: &str| file.strip_suffix(tail).is_some_and(|head| head.is_empty() || head.ends_with('/'));
    let calls_out = matches!(view.function.as_str(), "run" | "_bootstrap" | "_bootstrap_inner");
    is_of_threading(view) && !calls_out
        || is("queue.py")
        || is("concurrent/futures/_base.py")
        || is("multiprocessing/synchronize.py")
        || is("multiprocessing/queues.py")
        || file.ends_with("importlib._bootstrap>")
}
