//! Where things lie in the checkout.

use std::path::{Path, PathBuf};

/// The root of the checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Cargo's target directory of this checkout.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `tests/fixtures`: the programs that block on purpose.
pub fn fixtures() -> PathBuf {
    root().join("tests/fixtures")
}
