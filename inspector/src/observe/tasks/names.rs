//! Names for kernel addresses: the kernel itself is asked, through a program that prints them.

use std::{
    collections::HashMap,
    fmt,
    os::fd::{AsFd as _, OwnedFd},
};

use aya::{
    maps::{Array, Map, MapData, MapError},
    programs::{Program, RawTracePoint},
};
use bytemuck::Zeroable;
use inspector_ebpf::{SYMBOLS, Symbol};

use super::{TasksError, bpf, error::load_error};

/// Most addresses that are named at once: a kernel has fewer places where threads wait.
const MOST: usize = 1 << 14;

/// A [`Symbol`] as the map's value: aya takes arrays of bytes, not types of other crates.
type SymbolBytes = [u8; size_of::<Symbol>()];

/// The program and its map.
pub(super) struct KernelNames {
    program: OwnedFd,
    symbols: Array<MapData, SymbolBytes>,
}

impl KernelNames {
    /// Loads the program, which fills `map`.
    ///
    /// # Minimum kernel version
    /// 5.13.
    pub(super) fn load(program: Option<&mut Program>, map: Option<Map>) -> Result<Self, TasksError> {
        let map = map.ok_or_else(|| TasksError::Object("has no map NAMES".into()))?;
        let symbols = Array::try_from(map).map_err(|why| TasksError::Object(why.to_string()))?;
        let program = program.ok_or_else(|| TasksError::Object("has no program names".into()))?;
        let program: &mut RawTracePoint = program.try_into().map_err(|why| load_error(&why))?;
        program.load().map_err(|why| load_error(&why))?;
        let fd = program.fd().map_err(|why| load_error(&why))?;
        let program = fd.as_fd().try_clone_to_owned().map_err(|why| TasksError::Names(why.to_string()))?;
        Ok(Self { program, symbols })
    }

    /// The functions that hold `addresses`; those that the kernel knows none for are missing.
    pub(super) fn of(&mut self, addresses: &[u64]) -> Result<HashMap<u64, String>, TasksError> {
        let addresses = addresses.get(..MOST).unwrap_or(addresses);
        let mut found = HashMap::new();
        for batch in addresses.chunks(SYMBOLS) {
            self.name(batch, &mut found).map_err(|why| TasksError::Names(why.to_string()))?;
        }
        Ok(found)
    }

    fn name(&mut self, addresses: &[u64], found: &mut HashMap<u64, String>) -> Result<(), MapError> {
        self.fill(addresses)?;
        bpf::run(self.program.as_fd())?;
        for (index, &address) in (0..).zip(addresses) {
            let symbol: Symbol = bytemuck::must_cast(self.symbols.get(&index, 0)?);
            if let Some(name) = symbol.name() {
                found.insert(address, name.to_owned());
            }
        }
        Ok(())
    }

    fn fill(&mut self, addresses: &[u64]) -> Result<(), MapError> {
        // An address of 0 ends the list.
        let end = (addresses.len() < SYMBOLS).then_some(0);
        for (index, address) in (0..).zip(addresses.iter().copied().chain(end)) {
            let symbol = Symbol { address, ..Symbol::zeroed() };
            let value: SymbolBytes = bytemuck::must_cast(symbol);
            self.symbols.set(index, value, 0)?;
        }
        Ok(())
    }
}

impl fmt::Debug for KernelNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelNames").field("program", &self.program).finish_non_exhaustive()
    }
}
