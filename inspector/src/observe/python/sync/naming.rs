//! How a program names an object: by an attribute, a variable or a global of the frames that use it.

use std::{
    cell::Cell,
    collections::{BTreeSet, HashMap, HashSet},
};

use super::{
    super::{attributes, dicts, strings},
    composite::Composites,
    object::{Kind, Objects},
    view::View,
};

/// Most instances whose attributes are gone through, and most attributes of one.
const MAX_INSTANCES: usize = 1 << 13;
const MAX_ATTRIBUTES: usize = 512;

/// Most modules whose globals are gone through.
const MAX_MODULES: usize = 16;

/// Most comparisons of a value with an object to be named: threads, frames, variables and attributes multiply, and the
/// program decides of each how many there are. Objects that are not reached keep no name.
const MAX_COMPARISONS: usize = 1 << 22;

/// An object to be named.
pub(super) struct Target<'v> {
    /// As the program knows it, as far as the frames tell.
    pub(super) object: u64,
    /// The lock in C inside.
    pub(super) lock: u64,
    /// The frames that may name it, innermost first.
    pub(super) views: &'v [View],
}

/// An object with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) object: u64,
    pub(super) path: String,
}

/// Attributes of instances: name and value.
type Attributes = HashMap<u64, Vec<(u64, u64)>>;

/// Where an object was found; strings still as addresses.
enum Found<'v> {
    /// `variable.attribute…` of a type.
    Attribute {
        variable: u64,
        attributes: Vec<u64>,
        of: u64,
    },
    Variable {
        name: u64,
        view: &'v View,
        bound: bool,
    },
    Global {
        name: u64,
    },
}

/// Names each of `targets`, where its frames do.
pub(super) fn name(
    objects: &mut Objects<'_>,
    composites: &mut Composites,
    names: &HashMap<u64, String>,
    targets: &[Target<'_>],
) -> Vec<Option<Named>> {
    let own = instances(objects, targets.iter().flat_map(|target| target.views));
    let mut known = read(objects, &own);
    load_shared_locks(objects, composites, targets, &known);
    let wanted = Wanted::of(objects, targets);
    let mut hits = wanted.among(objects, composites, &known);
    let left = Cell::new(MAX_COMPARISONS);
    let mut found: Vec<Option<(u64, Found<'_>)>> = targets
        .iter()
        .map(|target| {
            let same = |value: u64| spend(&left) && is_same(objects, composites, target, value);
            target.views.iter().find_map(|view| {
                by_attribute(objects, &hits, view, names, &same).or_else(|| by_variable(objects, view, &same))
            })
        })
        .collect();
    by_globals(objects, targets, &mut found);
    // One step farther: attributes of what the attributes refer to.
    let open = targets.iter().zip(&found).filter(|(_, found)| found.is_none());
    let near = instances(objects, open.flat_map(|(target, _)| target.views));
    let values = near.iter().filter_map(|instance| known.get(instance)).flatten().map(|&(_, value)| value);
    let values = strings::distinct(values);
    objects.load(values.iter().copied());
    let far: Vec<u64> = values
        .into_iter()
        .filter(|&value| is_instance(objects, value) && !known.contains_key(&value))
        .collect();
    hits.extend(wanted.among(objects, composites, &read(objects, &far)));
    known.retain(|_, attributes| {
        attributes.retain(|(_, value)| hits.contains_key(value));
        !attributes.is_empty()
    });
    for (target, found) in targets.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
        let same = |value: u64| spend(&left) && is_same(objects, composites, target, value);
        *found = target.views.iter().find_map(|view| by_two_attributes(objects, &known, &hits, view, &same));
    }
    spell(objects, names, found)
}

/// Whether one more comparison is allowed.
fn spend(left: &Cell<usize>) -> bool {
    let rest = left.get().checked_sub(1);
    left.set(rest.unwrap_or(0));
    rest.is_some()
}

/// Everything that is looked for, so that attributes that lead to none of it are passed over once, not for each target.
struct Wanted {
    objects: HashSet<u64>,
    /// The semaphores inside.
    locks: HashSet<u64>,
}

impl Wanted {
    fn of(objects: &Objects<'_>, targets: &[Target<'_>]) -> Self {
        let shared = targets.iter().filter(|target| objects.kind(target.object) == Kind::SemLock);
        let locks = shared.map(|target| target.lock).collect();
        Self { objects: targets.iter().map(|target| target.object).collect(), locks }
    }

    fn has(&self, objects: &Objects<'_>, composites: &Composites, value: u64) -> bool {
        self.objects.contains(&value)
            || !self.locks.is_empty()
                && composites.get(value).is_some()
                && composites.primitive(objects, value).is_some_and(|(lock, _)| self.locks.contains(&lock))
    }

    /// The attributes that are one of them.
    fn among(&self, objects: &Objects<'_>, composites: &Composites, known: &Attributes) -> Attributes {
        let hit = |pair: &&(u64, u64)| self.has(objects, composites, pair.1);
        let hits = known.iter().map(|(&of, pairs)| (of, pairs.iter().filter(hit).copied().collect()));
        hits.filter(|(_, pairs): &(u64, Vec<_>)| !pairs.is_empty()).collect()
    }
}

/// What `value` refers to is what is looked for. A `multiprocessing` lock and the semaphore inside are the same.
fn is_same(objects: &Objects<'_>, composites: &Composites, target: &Target<'_>, value: u64) -> bool {
    value == target.object
        || objects.kind(target.object) == Kind::SemLock
            && composites.get(value).is_some()
            && composites.primitive(objects, value).is_some_and(|(lock, _)| lock == target.lock)
}

fn is_instance(objects: &Objects<'_>, address: u64) -> bool {
    objects.kind(address) == Kind::Instance
}

/// Instances among the variables of `views`.
fn instances<'v>(objects: &Objects<'_>, views: impl Iterator<Item = &'v View>) -> Vec<u64> {
    let values = views.flat_map(|view| &view.variables).map(|&(_, value)| objects.behind(value));
    strings::distinct(values.filter(|&value| is_instance(objects, value)))
}

fn read(objects: &Objects<'_>, instances: &[u64]) -> Attributes {
    let instances = instances.get(..MAX_INSTANCES).unwrap_or(instances);
    let read = attributes::all(objects.reader, objects.layout, instances, MAX_ATTRIBUTES);
    instances.iter().copied().zip(read).collect()
}

fn load_shared_locks(
    objects: &mut Objects<'_>,
    composites: &mut Composites,
    targets: &[Target<'_>],
    known: &Attributes,
) {
    let shared = targets.iter().filter(|target| objects.kind(target.object) == Kind::SemLock);
    let variables: Vec<u64> =
        shared.flat_map(|target| target.views).flat_map(|view| &view.variables).map(|pair| pair.1).collect();
    if variables.is_empty() {
        return;
    }
    let values = variables.iter().filter_map(|value| known.get(&objects.behind(*value)));
    let mut values: Vec<u64> = values.flatten().map(|&(_, value)| value).collect();
    values.extend(variables.iter().map(|&value| objects.behind(value)));
    objects.load(values.iter().copied());
    let is_lock = |value: &u64| {
        let name = objects.type_of(*value).map(|type_| type_.name.as_str());
        matches!(name, Some("Lock" | "RLock" | "Semaphore" | "BoundedSemaphore"))
    };
    values.retain(is_lock);
    composites.load(objects, values);
}

fn by_attribute<'v>(
    objects: &Objects<'_>,
    hits: &Attributes,
    view: &'v View,
    names: &HashMap<u64, String>,
    same: &dyn Fn(u64) -> bool,
) -> Option<(u64, Found<'v>)> {
    // `self` says more than another variable.
    let is_self = |name: u64| names.get(&name).is_some_and(|name| name == "self");
    let (mut variables, others): (Vec<_>, Vec<_>) = view.variables.iter().partition(|pair| is_self(pair.0));
    let own = variables.len();
    variables.extend(others);
    let of_variable = |&(variable, value): &(u64, u64)| {
        let of = objects.behind(value);
        let (name, value) = hits.get(&of)?.iter().find(|(_, value)| same(*value))?;
        Some((*value, Found::Attribute { variable, attributes: vec![*name], of }))
    };
    variables.iter().take(own).find_map(of_variable).or_else(|| {
        // A plain variable that is the object is nearer than another's attribute.
        let direct = view.variables.iter().any(|&(_, value)| same(objects.behind(value)));
        (!direct).then(|| variables.iter().skip(own).find_map(of_variable)).flatten()
    })
}

fn by_variable<'v>(
    objects: &Objects<'_>,
    view: &'v View,
    same: &dyn Fn(u64) -> bool,
) -> Option<(u64, Found<'v>)> {
    view.variables.iter().find_map(|&(name, value)| {
        let object = objects.behind(objects.behind(value));
        // A variable that is one of its methods.
        let bound = objects.kind(value) == Kind::Bound || objects.kind(objects.behind(value)) == Kind::Bound;
        same(object).then_some((object, Found::Variable { name, view, bound }))
    })
}

/// `leads`: attributes that refer to an instance of `hits`.
fn by_two_attributes<'v>(
    objects: &Objects<'_>,
    leads: &Attributes,
    hits: &Attributes,
    view: &'v View,
    same: &dyn Fn(u64) -> bool,
) -> Option<(u64, Found<'v>)> {
    view.variables.iter().find_map(|&(variable, value)| {
        leads.get(&objects.behind(value))?.iter().find_map(|&(first, of)| {
            let (second, value) = hits.get(&of)?.iter().find(|(_, value)| same(*value))?;
            Some((*value, Found::Attribute { variable, attributes: vec![first, *second], of }))
        })
    })
}

fn by_globals<'v>(objects: &Objects<'_>, targets: &[Target<'v>], found: &mut [Option<(u64, Found<'v>)>]) {
    let open = targets.iter().zip(found.iter()).filter(|(_, found)| found.is_none());
    let modules: BTreeSet<u64> =
        open.clone().flat_map(|(target, _)| target.views).map(|view| view.globals).collect();
    let wanted: HashSet<u64> = open.map(|(target, _)| target.object).collect();
    // Of each module, the first name of every object that is looked for.
    let read = |&module: &u64| {
        let mut names: HashMap<u64, u64> = HashMap::new();
        for entry in dicts::entries(objects.reader, objects.layout, module)? {
            if wanted.contains(&entry.value) {
                names.entry(entry.value).or_insert(entry.key);
            }
        }
        Some((module, names))
    };
    let modules: HashMap<u64, HashMap<u64, u64>> =
        modules.iter().filter(|&&module| module != 0).take(MAX_MODULES).filter_map(read).collect();
    for (target, found) in targets.iter().zip(found).filter(|(_, found)| found.is_none()) {
        let globals = |view: &View| modules.get(&view.globals)?.get(&target.object).copied();
        *found = target.views.iter().find_map(globals).map(|name| (target.object, Found::Global { name }));
    }
}

/// Turns what was found into words.
fn spell(
    objects: &Objects<'_>,
    names: &HashMap<u64, String>,
    found: Vec<Option<(u64, Found<'_>)>>,
) -> Vec<Option<Named>> {
    let wanted = found.iter().flatten().flat_map(|(_, found)| match found {
        Found::Attribute { attributes, .. } => attributes.clone(),
        Found::Global { name } => vec![*name],
        Found::Variable { .. } => Vec::new(),
    });
    let read = strings::strings(objects.reader, objects.layout, wanted);
    let text = |address: u64| names.get(&address).or_else(|| read.get(&address)).map(|text| clip(text));
    let spell = |(object, found): (u64, Found<'_>)| {
        let path = match found {
            Found::Attribute { variable, attributes, of } => {
                let mut path = text(variable)?;
                for attribute in attributes {
                    path = format!("{path}.{}", text(attribute)?);
                }
                format!("{path} of {}", clip(&objects.type_of(of)?.name))
            }
            Found::Variable { name, view, bound } => {
                let of = if bound { ".__self__" } else { "" };
                format!("local {}{of} in {}()", text(name)?, clip(&view.function))
            }
            Found::Global { name } => format!("global {}", text(name)?),
        };
        Some(Named { object, path })
    };
    found.into_iter().map(|found| spell(found?)).collect()
}

/// A name of a length that people read.
fn clip(text: &str) -> String {
    const WIDEST: usize = 80;
    text.chars().take(WIDEST).collect()
}
