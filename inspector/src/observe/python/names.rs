//! What the module `threading` knows of threads: `threading._active` maps idents to `Thread` objects.

use std::collections::HashMap;

use super::{
    attributes, bytes::u32_at, dicts, layout::ObjectLayout, reader::Reader, strings, sync::ThreadEnd,
};

/// What is read of a thread. What ends with it is `_tstate_lock` until 3.12, `_handle` in 3.13, `_os_thread_handle` after.
const ATTRIBUTES: [&str; 5] = ["_name", "_daemonic", "_tstate_lock", "_handle", "_os_thread_handle"];

/// Most threads whose names are read.
const MAX_THREADS: usize = 1 << 15;

/// One `threading.Thread`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) name: Option<String>,
    pub(super) daemon: Option<bool>,
    /// What others wait for when they join it.
    pub(super) end: Option<ThreadEnd>,
}

/// The threads by ident; empty where `threading` is not imported.
pub(super) fn threads(reader: &Reader<'_>, layout: &ObjectLayout, modules: u64) -> HashMap<u64, Known> {
    active(reader, layout, modules).map_or_else(HashMap::new, |active| known(reader, layout, &active))
}

/// The entries of `threading._active`: ident and object.
fn active(reader: &Reader<'_>, layout: &ObjectLayout, modules: u64) -> Option<Vec<(u64, u64)>> {
    let namespace = namespace(reader, layout, modules, "threading")?;
    let active = dicts::get(reader, layout, namespace, "_active")?;
    let entries = dicts::entries(reader, layout, active)?;
    // An int below `sys.hash_info.modulus` (2^61 - 1) is its own hash, and a thread's ident is an address.
    let entries = entries.iter().filter(|entry| entry.value != 0).map(|entry| (entry.hash, entry.value));
    Some(entries.take(MAX_THREADS).collect())
}

/// The dictionary of a module: `md_dict` follows the object's head (Include/internal/pycore_moduleobject.h).
fn namespace(reader: &Reader<'_>, layout: &ObjectLayout, modules: u64, name: &str) -> Option<u64> {
    let module = dicts::get(reader, layout, modules, name)?;
    reader.pointer(module.wrapping_add(layout.header as u64))
}

fn known(reader: &Reader<'_>, layout: &ObjectLayout, active: &[(u64, u64)]) -> HashMap<u64, Known> {
    let objects: Vec<u64> = active.iter().map(|&(_, object)| object).collect();
    let attributes = attributes::attributes(reader, layout, &objects, ATTRIBUTES);
    let texts = strings::strings(reader, layout, attributes.iter().filter_map(|[name, ..]| *name));
    let flags: HashMap<u64, bool> = {
        let flags = strings::distinct(attributes.iter().filter_map(|[_, daemon, ..]| *daemon));
        // `bool` is an int: True and False have the one digit 1 and 0.
        let digits = reader.many(flags.iter().map(|&flag| (flag.wrapping_add(layout.int_digits as u64), 4)));
        let flag = |(flag, digit): (u64, Option<Vec<u8>>)| Some((flag, u32_at(&digit?, 0)? == 1));
        flags.into_iter().zip(digits).filter_map(flag).collect()
    };
    active
        .iter()
        .zip(attributes)
        .map(|(&(ident, thread), [name, daemon, lock, handle, os_handle])| {
            let name = name.and_then(|name| texts.get(&name).cloned());
            let daemon = daemon.and_then(|daemon| flags.get(&daemon).copied());
            let end = lock.or(handle).or(os_handle).map(|lock| ThreadEnd { thread, ident, lock });
            (ident, Known { name, daemon, end })
        })
        .collect()
}

/// `sys.hexversion`, where it can be read: one digit of an int.
pub(super) fn hexversion(reader: &Reader<'_>, layout: &ObjectLayout, modules: u64) -> Option<u32> {
    let namespace = namespace(reader, layout, modules, "sys")?;
    let number = dicts::get(reader, layout, namespace, "hexversion")?;
    u32_at(&reader.one(number.wrapping_add(layout.int_digits as u64), 4)?, 0)
}
