//! The images of a process that its stacks lead into, each opened and parsed once, when the first address hits it.

use std::{
    collections::HashMap,
    fs::File,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
};

use framehop::{ExplicitModuleSectionInfo, Unwinder as _};

use super::{
    arch, file,
    image::{Image, Source, Tables},
    maps::{Mapping, Maps},
    row::{self, Row},
};
use crate::{model::Gap, observe::memory::TargetMemory};

/// Most bytes of unwind tables held for one process.
const MAX_TABLES: u64 = 1 << 30;
/// Most addresses whose rows are remembered.
const MAX_ROWS: usize = 1 << 16;

/// Shared bytes, as framehop wants them.
#[derive(Clone, Debug)]
pub(super) struct Bytes(Arc<[u8]>);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// One image: its file, where one could be opened, and what was read of it.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The open file; `None`: it was read from memory.
    pub(super) file: Option<File>,
    /// The image.
    pub(super) image: Image,
}

/// A mapping of code and the image that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Module {
    /// The mapping.
    pub(super) mapping: Mapping,
    /// The image and what must be added to its own addresses to get the target's; or why there is none.
    pub(super) image: Result<(Rc<Loaded>, u64), String>,
}

/// The images of one process.
pub(super) struct Modules {
    pid: u32,
    memory: Rc<dyn TargetMemory>,
    memory_only: bool,
    maps: Maps,
    images: HashMap<(u64, u64), Result<Rc<Loaded>, String>>,
    by_mapping: HashMap<u64, Module>,
    rows: HashMap<(u64, bool), Result<Row, String>>,
    table_bytes: u64,
    /// framehop, with every module that was hit so far.
    pub(super) unwinder: arch::Unwinder,
    /// What could not be opened.
    pub(super) gaps: Vec<Gap>,
}

impl Modules {
    /// The images of process `pid`; nothing is opened yet. `memory_only`: nothing ever is.
    pub(super) fn new(pid: u32, maps: Maps, memory: Rc<dyn TargetMemory>, memory_only: bool) -> Self {
        Self {
            pid,
            memory,
            memory_only,
            maps,
            images: HashMap::new(),
            by_mapping: HashMap::new(),
            rows: HashMap::new(),
            table_bytes: 0,
            unwinder: arch::Unwinder::new(),
            gaps: Vec::new(),
        }
    }

    /// Bytes of unwind tables held.
    pub(super) fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// Something is mapped at `address`.
    pub(super) fn covers(&self, address: u64) -> bool {
        self.maps.at(address).is_some()
    }

    /// First address after the mapping that holds `address`.
    pub(super) fn mapping_end(&self, address: u64) -> Option<u64> {
        Some(self.maps.at(address)?.end)
    }

    /// How to unwind the frame at `pc`, which is where it goes on (`exact`), or where its callee returns to.
    pub(super) fn row(&mut self, pc: u64, exact: bool) -> Result<Row, String> {
        if let Some(row) = self.rows.get(&(pc, exact)) {
            return row.clone();
        }
        if self.rows.len() >= MAX_ROWS {
            self.rows.clear();
        }
        let row = self.find_row(pc, exact);
        self.rows.insert((pc, exact), row.clone());
        row
    }

    fn find_row(&mut self, pc: u64, exact: bool) -> Result<Row, String> {
        // A call may be the last instruction of its function: the return address then belongs to the next one.
        let address = if exact { pc } else { pc.wrapping_sub(1) };
        let module = self.module(address)?;
        let name = module.mapping.name();
        let (loaded, bias) = module.image.as_ref().map_err(|why| format!("cannot read {name}: {why}"))?;
        let image = &loaded.image;
        let relative = address.wrapping_sub(bias.wrapping_add(image.base_svma));
        if u32::try_from(relative).is_err() {
            return Err(format!("{address:#x} lies outside of {name}"));
        }
        let found = match &image.tables {
            Ok(tables) => row::look_up(tables, address.wrapping_sub(*bias)),
            Err(why) => Err(row::NoRow { uncovered: true, why: why.clone() }),
        };
        match found {
            Err(row::NoRow { uncovered: true, .. }) if self.is_signal_trampoline(pc) => Ok(Row::Signal),
            Err(row::NoRow { why, .. }) => Err(format!("{why} for {address:#x} in {name}")),
            Ok(row) => Ok(row),
        }
    }

    /// The code at `pc` is a signal trampoline without unwind information, as musl's is.
    fn is_signal_trampoline(&self, pc: u64) -> bool {
        let expected = arch::SIGNAL_FRAME.code;
        let mut code = [0; 16];
        let Some(code) = code.get_mut(..expected.len()) else { return false };
        self.memory.read(pc, code).is_ok() && code == expected
    }

    /// The module that holds the code at `address`, opened if it was not yet.
    pub(super) fn module(&mut self, address: u64) -> Result<Module, String> {
        let mapping = self.maps.at(address).ok_or_else(|| format!("nothing is mapped at {address:#x}"))?;
        if let Some(module) = self.by_mapping.get(&mapping.start) {
            return Ok(module.clone());
        }
        if !mapping.executable {
            return Err(format!("{address:#x} in {} is not code", mapping.name()));
        }
        let mapping = mapping.clone();
        if !mapping.has_file() && mapping.path != "[vdso]" {
            return Err(format!("no unwind information for {address:#x} in {}", mapping.name()));
        }
        let image = self.image(&mapping).and_then(|loaded| {
            let bias = loaded.image.bias(&mapping).ok_or("its program headers do not cover the mapping")?;
            Ok((loaded, bias))
        });
        if let Ok((loaded, bias)) = &image
            && let Ok(tables) = &loaded.image.tables
        {
            self.unwinder.add_module(for_framehop(&mapping, &loaded.image, tables, *bias));
        }
        let module = Module { mapping, image };
        self.by_mapping.insert(module.mapping.start, module.clone());
        Ok(module)
    }

    fn image(&mut self, mapping: &Mapping) -> Result<Rc<Loaded>, String> {
        if let Some(image) = self.images.get(&mapping.file) {
            return image.clone();
        }
        // The parsers bound what they do; catching a panic of theirs is the last defence against a hostile file.
        let image = catch_unwind(AssertUnwindSafe(|| self.load(mapping)))
            .unwrap_or_else(|_| Err("its ELF headers cannot be parsed".into()));
        if let Ok(Loaded { image: Image { tables: Ok(tables), .. }, .. }) = &image {
            self.table_bytes += (tables.index.len() + tables.frames.len()) as u64;
        }
        let image = image.map(Rc::new);
        self.images.insert(mapping.file, image.clone());
        image
    }

    fn load(&mut self, mapping: &Mapping) -> Result<Loaded, String> {
        let room = MAX_TABLES.saturating_sub(self.table_bytes);
        if mapping.has_file() && !self.memory_only {
            match file::open(self.pid, mapping) {
                Ok(file) => {
                    let image = Image::read(&Source::File(&file), room)?;
                    return Ok(Loaded { file: Some(file), image });
                }
                Err(error) => self.gaps.push(Gap::process(
                    "native",
                    self.pid,
                    format!("cannot open {} ({error}): its functions are shown as addresses", mapping.path),
                )),
            }
        }
        let start = self.maps.iter().find(|other| other.file == mapping.file && other.path == mapping.path);
        let start = start.filter(|first| first.offset == 0).ok_or("its first page is not mapped")?;
        let image = Image::read(&Source::Memory(&*self.memory, start.start), room)?;
        Ok(Loaded { file: None, image })
    }
}

fn for_framehop(mapping: &Mapping, image: &Image, tables: &Tables, bias: u64) -> framehop::Module<Bytes> {
    let range = |start: u64, bytes: &Arc<[u8]>| start..start.saturating_add(bytes.len() as u64);
    let sections = ExplicitModuleSectionInfo {
        base_svma: image.base_svma,
        eh_frame_svma: Some(range(tables.frames_svma, &tables.frames)),
        eh_frame: Some(Bytes(Arc::clone(&tables.frames))),
        eh_frame_hdr_svma: Some(range(tables.index_svma, &tables.index)),
        eh_frame_hdr: Some(Bytes(Arc::clone(&tables.index))),
        text_svma: None,
        text: None,
        stubs_svma: None,
        stub_helper_svma: None,
        got_svma: None,
        unwind_info: None,
        debug_frame: None,
        text_segment_svma: None,
        text_segment: None,
    };
    let base = bias.wrapping_add(image.base_svma);
    framehop::Module::new(mapping.path.clone(), mapping.start..mapping.end, base, sections)
}
