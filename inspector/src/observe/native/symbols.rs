//! Names for code addresses: one batched look-up a module.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use blazesym::symbolize::{Input, Symbolized, Symbolizer, source};
use object::{Object as _, ObjectSymbol as _};

use super::{
    demangle::demangle,
    modules::{Loaded, Module, Modules},
    thread::RawFrame,
};
use crate::{
    model::{Frame, FrameKind},
    observe::{mapped_file, memory::TargetMemory},
};

/// What gdb calls the frame between a signal handler and the code that the signal interrupted.
const SIGNAL_TRAMPOLINE: &str = "<signal handler called>";
/// Longest vDSO read; it has two to six pages.
const MAX_VDSO: u64 = 1 << 16;

/// The frames with their functions and modules.
pub(super) fn name(
    frames: &[RawFrame],
    symbolizer: &Symbolizer,
    modules: &mut Modules,
    memory: &dyn TargetMemory,
) -> HashMap<RawFrame, Frame> {
    let mut named = HashMap::new();
    let mut by_module: BTreeMap<u64, (Module, Vec<RawFrame>)> = BTreeMap::new();
    for &frame in frames {
        match modules.module(frame.code_address()) {
            Ok(module) => by_module.entry(module.mapping.start).or_insert((module, Vec::new())).1.push(frame),
            Err(_) => {
                named.insert(frame, to_frame(frame, None, None));
            }
        }
    }
    for (module, frames) in by_module.into_values() {
        let functions = match &module.image {
            Ok((loaded, bias)) => {
                let svmas: Vec<u64> =
                    frames.iter().map(|frame| frame.code_address().wrapping_sub(*bias)).collect();
                // The symbolizer reads a file that others control; a panic of its costs the names, not the stacks.
                catch_unwind(AssertUnwindSafe(|| functions(symbolizer, loaded, &module, &svmas, memory)))
                    .unwrap_or_default()
            }
            Err(_) => Vec::new(),
        };
        for (index, &frame) in frames.iter().enumerate() {
            let function = functions.get(index).cloned().flatten();
            named.insert(frame, to_frame(frame, function, Some(module.mapping.path.clone())));
        }
    }
    named
}

/// A symbolizer of ELF symbol tables, which remembers the files it was asked about.
pub(super) fn symbolizer() -> Symbolizer {
    Symbolizer::builder()
        .enable_auto_reload(false)
        .enable_code_info(false)
        .enable_inlined_fns(false)
        .enable_demangling(false)
        .build()
}

fn to_frame(frame: RawFrame, function: Option<String>, module: Option<String>) -> Frame {
    let function = match function {
        _ if frame.signal => SIGNAL_TRAMPOLINE.to_owned(),
        Some(name) => name,
        None => format!("{:#x}", frame.pc),
    };
    Frame { kind: FrameKind::Native, function, file: None, line: None, module, address: Some(frame.pc) }
}

/// The function at each of `svmas`, addresses as the image states them.
fn functions(
    symbolizer: &Symbolizer,
    loaded: &Rc<Loaded>,
    module: &Module,
    svmas: &[u64],
    memory: &dyn TargetMemory,
) -> Vec<Option<String>> {
    let Some(file) = &loaded.file else {
        return if module.mapping.has_file() { Vec::new() } else { vdso_functions(module, svmas, memory) };
    };
    in_file(symbolizer, file, svmas)
}

/// Names from a file's symbol tables alone: the debug information of a file like libtorch's takes seconds.
pub(super) fn in_file(symbolizer: &Symbolizer, file: &File, svmas: &[u64]) -> Vec<Option<String>> {
    let mut elf = source::Elf::new(mapped_file::path_of(file));
    elf.debug_syms = false;
    let symbols = symbolizer.symbolize(&elf.into(), Input::VirtOffset(svmas)).unwrap_or_default();
    symbols
        .into_iter()
        .map(|symbol| match symbol {
            Symbolized::Sym(symbol) => Some(demangle(&symbol.name)),
            Symbolized::Unknown(_) => None,
        })
        .collect()
}

/// The vDSO is no file: its symbols are read from the target's memory.
fn vdso_functions(module: &Module, svmas: &[u64], memory: &dyn TargetMemory) -> Vec<Option<String>> {
    let size = (module.mapping.end - module.mapping.start).min(MAX_VDSO);
    let mut bytes = vec![0; size as usize];
    if memory.read(module.mapping.start, &mut bytes).is_err() {
        return Vec::new();
    }
    let Ok(image) = object::File::parse(bytes.as_slice()) else { return Vec::new() };
    let name_at = |svma: u64| {
        let holds = |start: u64, size: u64| svma.checked_sub(start).is_some_and(|distance| distance < size);
        let symbol = image.dynamic_symbols().find(|symbol| holds(symbol.address(), symbol.size()))?;
        Some(demangle(symbol.name().ok()?))
    };
    svmas.iter().map(|&svma| name_at(svma)).collect()
}
