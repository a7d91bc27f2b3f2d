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
    arch,
    image::{Image, MAX_IMAGE_TABLES, Source, Tables},
    row::{self, Row},
};
use crate::{
    model::Gap,
    observe::{
        mapped_file,
        maps::{Mapping, Maps},
        memory::TargetMemory,
    },
};

/// Most bytes of unwind tables held for one process. All libraries that vLLM 0.32 or SGLang 0.5.23 install with themselves,
/// PyTorch and CUDA's included, have less than 140 MiB together.
const MAX_TABLES: u64 = 256 << 20;
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
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    /// The open file; `None`: it was read from memory.
    pub(super) file: Option<Rc<File>>,
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

/// Which file a mapping is of: device, inode and path. The first two are not enough: overlayfs shows one device for the files
/// of all its layers, and beside it the inodes of the layers' own file systems (`fs/overlayfs/inode.c`).
type FileKey = ((u64, u64), String);

fn key(mapping: &Mapping) -> FileKey {
    (mapping.file, mapping.path.clone())
}

/// The images of one process.
pub(super) struct Modules {
    pid: u32,
    memory: Rc<dyn TargetMemory>,
    memory_only: bool,
    maps: Maps,
    images: HashMap<FileKey, Result<Rc<Loaded>, String>>,
    by_mapping: HashMap<u64, Module>,
    rows: HashMap<(u64, bool), Result<Row, String>>,
    table_bytes: u64,
    most_table_bytes: u64,
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
            most_table_bytes: MAX_TABLES,
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
        let key = key(mapping);
        if let Some(image) = self.images.get(&key) {
            return image.clone();
        }
        // The parsers bound what they do; catching a panic of theirs is the last defence against a hostile file.
        let image = catch_unwind(AssertUnwindSafe(|| self.load(mapping)))
            .unwrap_or_else(|_| Err("its ELF headers cannot be parsed".into()));
        let image = image.map(Rc::new);
        self.table_bytes += image.as_ref().map_or(0, |loaded| loaded.image.table_bytes());
        self.images.insert(key.clone(), image);
        while self.table_bytes > self.most_table_bytes {
            self.drop_biggest();
        }
        self.images.get(&key).cloned().unwrap_or_else(|| Err("it was not read".into()))
    }

    /// Forgets the tables of the image that has the most of them, whether it came first or last: a library made to be
    /// big costs its own frames, not those of others.
    fn drop_biggest(&mut self) {
        let held = self.images.iter().filter_map(|(file, image)| Some((file, image.as_ref().ok()?)));
        let biggest = held.max_by_key(|(file, loaded)| (loaded.image.table_bytes(), *file));
        let Some((file, biggest)) = biggest.map(|(file, loaded)| (file.clone(), Loaded::clone(loaded)))
        else {
            self.table_bytes = 0;
            return;
        };
        let bytes = biggest.image.table_bytes();
        let mut without = biggest;
        without.image.tables = Err(format!(
            "its unwind tables of {bytes} bytes are the biggest of a process that has more than {}",
            self.most_table_bytes
        ));
        let without = Rc::new(without);
        for module in self.by_mapping.values_mut().filter(|module| key(&module.mapping) == file) {
            if let Ok((loaded, _)) = &mut module.image {
                *loaded = Rc::clone(&without);
                self.unwinder.remove_module(module.mapping.start);
            }
        }
        self.images.insert(file, Ok(without));
        self.rows.clear();
        self.table_bytes = self.table_bytes.saturating_sub(bytes);
    }

    fn load(&mut self, mapping: &Mapping) -> Result<Loaded, String> {
        if mapping.has_file() && !self.memory_only {
            match mapped_file::open(self.pid, mapping) {
                Ok(file) => {
                    let image = Image::read(&Source::File(&file), MAX_IMAGE_TABLES)?;
                    return Ok(Loaded { file: Some(Rc::new(file)), image });
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
        let image = Image::read(&Source::Memory(&*self.memory, start.start), MAX_IMAGE_TABLES)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::memory::ProcessReader;

    /// This test's own images, and code in its program and in libc.
    fn own(most_table_bytes: u64) -> (Modules, u64, u64) {
        let pid = std::process::id();
        let maps = Maps::read(pid).expect("own maps");
        let mut modules = Modules::new(pid, maps, Rc::new(ProcessReader::new(pid)), false);
        modules.most_table_bytes = most_table_bytes;
        (modules, own as *const () as u64, libc::getppid as *const () as u64)
    }

    #[test]
    fn tables_over_the_bound_cost_the_biggest_image_and_no_other() {
        let (mut modules, program, libc) = own(MAX_TABLES);
        let both = [program, libc].map(|pc| modules.row(pc, true));
        assert!(both.iter().all(Result::is_ok), "{both:?}");
        let all = modules.table_bytes();

        for order in [[program, libc], [libc, program]] {
            let (mut modules, ..) = own(all - 1);
            for pc in order {
                modules.row(pc, true).ok();
            }
            let why = modules.row(program, true).expect_err("this program is bigger than libc");
            assert!(why.contains("the biggest"), "{why}");
            assert_eq!(modules.row(libc, true), both[1]);
            assert!(modules.table_bytes() < all, "{} of {all} bytes", modules.table_bytes());
            // Its functions have their names all the same.
            let module = modules.module(program).expect("it is mapped");
            assert!(module.image.is_ok_and(|(loaded, _)| loaded.file.is_some()));
        }
    }
}
