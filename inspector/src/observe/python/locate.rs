//! Finding `_PyRuntime` and the version of Python in a process.

use super::{
    PythonError, bytes::u64_at, debug_offsets, elf_file, elf_image::Image, layout::Layout, reader::Reader,
    tables,
};
use crate::observe::maps::{Mapping, Maps};

/// Most images of one process that are searched for the runtime.
const MAX_IMAGES: usize = 16;

/// Most bytes of writable memory that are searched for the cookie of the debug offsets.
const MAX_SCAN: u64 = 64 << 20;

/// A runtime that was found.
#[derive(Debug)]
pub(super) struct Found {
    /// Address of `_PyRuntime`.
    pub(super) runtime: u64,
    /// `PY_VERSION_HEX`, where the runtime tells it.
    pub(super) version: Option<u32>,
    /// The layouts that it can have, the likeliest first: one, except where nothing but the layout tells the version.
    pub(super) layouts: Vec<Layout>,
}

/// Finds the runtime of process `pid`.
pub(super) fn find(reader: &Reader<'_>, pid: u32, maps: &Maps) -> Result<Found, PythonError> {
    let images = images(pid, maps);
    for region in &images {
        let Some(image) = Image::open(reader, region.start) else { continue };
        let Some(symbol) = image.symbol("_PyRuntime") else { continue };
        let version = image
            .symbol("Py_Version")
            .and_then(|symbol| reader.pointer(symbol.address))
            .and_then(|word| u32::try_from(word).ok());
        return found(reader, pid, symbol.address, version, region);
    }
    for region in &images {
        let Some(definition) = elf_file::find(pid, region, "_PyRuntime", ".PyRuntime") else { continue };
        let runtime = region.start.wrapping_sub(definition.first).wrapping_add(definition.address);
        return found(reader, pid, runtime, None, region);
    }
    for region in &images {
        if let Some(runtime) = scan(reader, maps, region) {
            return found(reader, pid, runtime, None, region);
        }
    }
    if images.iter().any(named_python) {
        let why = "no symbol _PyRuntime, section .PyRuntime or debug offsets in it".to_owned();
        return Err(PythonError::NotRecognised { pid, why });
    }
    Err(PythonError::NotPython(pid))
}

/// `python3`, `python3.11`, `libpython3.11.so.1.0`.
fn named_python(region: &Mapping) -> bool {
    let name = region.file_name();
    name.starts_with("libpython") || name.starts_with("python")
}

/// First mappings of the files that can hold the runtime: libpython, the program, then what else bears the name.
fn images(pid: u32, maps: &Maps) -> Vec<Mapping> {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let program = program.as_deref().and_then(std::path::Path::to_str).unwrap_or_default();
    let program = program.strip_suffix(" (deleted)").unwrap_or(program);
    let rank = |region: &Mapping| -> Option<u8> {
        let name = region.file_name();
        if name.starts_with("libpython") {
            Some(0)
        } else if region.path == program {
            Some(1)
        } else if name.starts_with("python") {
            Some(2)
        } else {
            // An extension module's name tells that it is one; such a file has no runtime.
            (name.contains("python") && !name.contains(".cpython-")).then_some(3)
        }
    };
    let mut images: Vec<(u8, Mapping)> = maps
        .iter()
        .filter(|region| region.offset == 0 && region.readable && region.path.starts_with('/'))
        .filter_map(|region| Some((rank(region)?, region.clone())))
        .collect();
    images.sort_by_key(|(rank, region)| (*rank, region.start));
    images.dedup_by(|(_, later), (_, earlier)| later.path == earlier.path);
    images.into_iter().map(|(_, region)| region).take(MAX_IMAGES).collect()
}

fn found(
    reader: &Reader<'_>,
    pid: u32,
    runtime: u64,
    version: Option<u32>,
    region: &Mapping,
) -> Result<Found, PythonError> {
    let unknown = |why: String| PythonError::NotRecognised { pid, why };
    let head = reader.prefixes([(runtime, debug_offsets::LENGTH)]).pop().unwrap_or_default();
    if debug_offsets::is_table(&head) {
        let table = debug_offsets::parse(&head)
            .ok_or_else(|| unknown("its debug offsets are of an unknown release or not sound".to_owned()))?;
        return Ok(Found { runtime, version: Some(table.version), layouts: vec![table.layout] });
    }
    if let Some(version) = version {
        let release = ((version >> 24) as u8, (version >> 16) as u8);
        let layout = tables::of(release)
            .ok_or_else(|| unknown(format!("no layout of version {}.{}", release.0, release.1)))?;
        return Ok(Found { runtime, version: Some(version), layouts: vec![layout] });
    }
    // Before 3.11 nothing in memory is named after the version. The file's name mostly tells it; what is read with
    // that layout has to prove it.
    let mut layouts: Vec<Layout> =
        [(3, 10), (3, 9), (3, 8), (3, 11), (3, 12)].into_iter().filter_map(tables::of).collect();
    layouts.sort_by_key(|layout| !names_release(region.file_name(), layout.release));
    Ok(Found { runtime, version: None, layouts })
}

/// Whether a file name such as `libpython3.9.so.1.0` or `python3.9` names the release.
fn names_release(name: &str, (major, minor): (u8, u8)) -> bool {
    let release = format!("python{major}.{minor}");
    name.find(&release)
        .is_some_and(|at| !name[at + release.len()..].starts_with(|letter: char| letter.is_ascii_digit()))
}

/// Searches the writable mappings that belong to the image for the cookie of the debug offsets (from 3.13).
fn scan(reader: &Reader<'_>, maps: &Maps, image: &Mapping) -> Option<u64> {
    let mut left = MAX_SCAN;
    for region in maps.iter().filter(|region| region.writable && region.path == image.path) {
        let length = (region.end - region.start).min(left);
        left -= length;
        let Some(bytes) = reader.one(region.start, usize::try_from(length).ok()?) else { continue };
        let cookie = u64::from_le_bytes(*debug_offsets::COOKIE);
        let hit = (0..bytes.len()).step_by(8).find(|&at| u64_at(&bytes, at) == Some(cookie));
        if let Some(at) = hit {
            return Some(region.start + at as u64);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_told_by_whole_numbers() {
        assert!(names_release("libpython3.9.so.1.0", (3, 9)));
        assert!(names_release("python3.10", (3, 10)));
        assert!(!names_release("python3.10", (3, 1)));
        assert!(!names_release("python3", (3, 8)));
    }
}
