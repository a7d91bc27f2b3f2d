//! Which locks threads hold by a `with` block.

use std::collections::HashMap;

use super::{
    Sight, Source,
    composite::{Class, Composites},
    object::{Kind, Objects},
    primitive, self_of,
    view::View,
};
use crate::model::{PythonLock, PythonObject};

/// Most locks that are listed of one thread.
const MAX_HELD: usize = 32;

/// What each of `sights` holds, in their order.
pub(super) fn read(
    source: &Source<'_>,
    objects: &mut Objects<'_>,
    composites: &mut Composites,
    names: &HashMap<u64, String>,
    sights: &[Sight],
) -> Vec<Vec<PythonLock>> {
    let pairs = source.layout.release >= (3, 14);
    let entered: Vec<Vec<u64>> = sights
        .iter()
        .map(|sight| sight.views.iter().flat_map(|view| entered(objects, view, pairs)).collect())
        .collect();
    composites.load(objects, entered.iter().flatten().copied());
    sights
        .iter()
        .zip(entered)
        .map(|(sight, entered)| held(objects, composites, names, sight, entered))
        .collect()
}

/// What the `with` blocks of a frame will leave. On the stack below an open block stand iterators, and for each `with`
/// its `__exit__`: bound to its object, or, from 3.14 on, beside it.
fn entered(objects: &Objects<'_>, view: &View, pairs: bool) -> Vec<u64> {
    let live = view.stack.get(..view.live).unwrap_or_default();
    let bound = live.iter().filter(|&&value| objects.kind(value) == Kind::Bound);
    let bound = bound.map(|&value| objects.behind(value));
    let beside = live.windows(2).filter_map(|pair| {
        let &[function, object] = pair else { return None };
        (pairs && objects.kind(function) == Kind::Function).then_some(object)
    });
    bound.chain(beside).collect()
}

fn held(
    objects: &Objects<'_>,
    composites: &Composites,
    names: &HashMap<u64, String>,
    sight: &Sight,
    entered: Vec<u64>,
) -> Vec<PythonLock> {
    // Who waits for a condition has let go of its lock, `with` block or not.
    let waits = |view: &&View| view.function == "wait";
    let released = sight.views.iter().filter(waits).filter_map(|view| {
        let condition = self_of(objects, names, view)?;
        let class = composites.class(condition)?;
        matches!(class, Class::Condition | Class::SharedCondition)
            .then(|| composites.primitive(objects, condition))
            .flatten()
    });
    let released: Vec<u64> = released.map(|(lock, _)| lock).collect();
    let mut held: Vec<PythonLock> = Vec::new();
    for object in entered {
        let Some(lock) = lock(objects, composites, sight.ident, object, &released) else { continue };
        if held.len() < MAX_HELD && !held.contains(&lock) {
            held.push(lock);
        }
    }
    held
}

fn lock(
    objects: &Objects<'_>,
    composites: &Composites,
    ident: u64,
    object: u64,
    released: &[u64],
) -> Option<PythonLock> {
    let described = |address: u64| PythonLock {
        address,
        object: PythonObject {
            type_name: composites.type_name(objects, object),
            address: object,
            path: None,
            state: composites.state(objects, object),
        },
        holder: None,
    };
    if composites.class(object) == Some(Class::Semaphore) {
        // One that several can hold is not held by who happens to be seen.
        let is_lock = composites.bound(objects, object) == Some(1);
        return is_lock.then(|| described(object));
    }
    let (lock, key) = composites.primitive(objects, object)?;
    // A lock that names its holder names this thread, or the block was left meanwhile.
    let names_another = match objects.kind(lock) {
        Kind::RLock | Kind::SemLock => primitive::held(objects, lock).is_none_or(|held| held.ident != ident),
        _ => false,
    };
    let is_lock = match objects.kind(lock) {
        Kind::Lock | Kind::RLock => true,
        Kind::SemLock => primitive::max_value(objects, lock) == Some(1),
        _ => false,
    };
    (is_lock && !names_another && !released.contains(&lock)).then(|| described(key.address))
}
