//! Which connections a thread works on: the descriptors of the sockets and connections in the variables of its innermost
//! frames, and in the attributes of their `self`. The kernel knows only the process that a socket belongs to.

use std::collections::HashMap;

use super::{
    INNER, Sight,
    object::{Kind, Objects},
    self_of,
    waits::is_of_threading,
};
use crate::observe::python::{attributes, strings};

/// Most objects whose attributes are gone through, most attributes of one, and most of all.
const MAX_SELVES: usize = 4096;
const MAX_ATTRIBUTES: usize = 64;
const MAX_VALUES: usize = 1 << 14;

/// Most descriptors of one thread, and the largest that is plausible (`fs.nr_open`).
const MAX_DESCRIPTORS: usize = 16;
const MAX_FD: u64 = 1 << 30;

/// The descriptors of each of `sights`, in their order.
pub(super) fn read(
    objects: &mut Objects<'_>,
    names: &HashMap<u64, String>,
    sights: &[Sight],
) -> Vec<Vec<i32>> {
    let mut values: Vec<(usize, u64)> = Vec::new();
    let mut selves: Vec<(usize, u64)> = Vec::new();
    for (index, sight) in sights.iter().enumerate() {
        for view in sight.views.iter().take(INNER).filter(|view| !is_of_threading(view)) {
            values.extend(view.variables.iter().map(|&(_, value)| (index, objects.behind(value))));
            let own = self_of(objects, names, view).filter(|&own| objects.kind(own) == Kind::Instance);
            selves.extend(own.map(|own| (index, own)));
        }
    }
    let mut distinct = strings::distinct(selves.iter().map(|&(_, own)| own));
    distinct.truncate(MAX_SELVES);
    let read = attributes::all(objects.reader, objects.layout, &distinct, MAX_ATTRIBUTES);
    let attributes: HashMap<u64, Vec<(u64, u64)>> = distinct.into_iter().zip(read).collect();
    let of_self = |&(index, own): &(usize, u64)| {
        attributes.get(&own).into_iter().flatten().map(move |&(_, value)| (index, value))
    };
    values.extend(selves.iter().flat_map(of_self).take(MAX_VALUES));
    objects.load(values.iter().map(|&(_, value)| value));
    let connections = connections(objects, values.iter().map(|&(_, value)| value));
    let mut found: Vec<Vec<i32>> = sights.iter().map(|_| Vec::new()).collect();
    for (index, value) in values {
        let fd = match objects.kind(value) {
            // `sock_fd` follows the head (Modules/socketmodule.h).
            Kind::Socket => objects.half(value, 0).map(u64::from),
            _ => connections.get(&value).copied(),
        };
        let fd = fd.filter(|&fd| fd <= MAX_FD).and_then(|fd| i32::try_from(fd).ok());
        if let (Some(fd), Some(own)) = (fd, found.get_mut(index))
            && own.len() < MAX_DESCRIPTORS
            && !own.contains(&fd)
        {
            own.push(fd);
        }
    }
    found
}

/// The descriptors of the `multiprocessing.connection.Connection` objects among `values`.
fn connections(objects: &mut Objects<'_>, values: impl Iterator<Item = u64>) -> HashMap<u64, u64> {
    let is_connection = |&value: &u64| {
        objects.kind(value) == Kind::Instance
            && objects.type_of(value).is_some_and(|type_| type_.name == "Connection")
    };
    let all = strings::distinct(values.filter(is_connection));
    let handles = attributes::attributes(objects.reader, objects.layout, &all, ["_handle"]);
    objects.load(handles.iter().filter_map(|[handle]| *handle));
    let fd = |(value, [handle]): (u64, [Option<u64>; 1])| Some((value, objects.int(handle?)?));
    all.into_iter().zip(handles).filter_map(fd).collect()
}
