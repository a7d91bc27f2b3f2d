//! One frame of a stack.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose frame it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    /// Python code.
    Python,
    /// Machine code of the target.
    Native,
    /// The kernel's.
    Kernel,
}

/// A place in code. A process keeps each distinct frame once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Frame {
    /// Whose frame it is.
    pub kind: FrameKind,
    /// Function: the qualified name in Python (3.11+; the plain name before), the demangled symbol in native code, the
    /// kernel's symbol; `0x…` where no symbol covers the address.
    pub function: String,
    /// Source file (`co_filename`), Python frames only: native code is named by symbol tables alone.
    pub file: Option<String>,
    /// Line in `file`.
    pub line: Option<u32>,
    /// The mapped file that holds the code (`/usr/lib/libpython3.11.so.1.0`, `[vdso]`), native frames only.
    pub module: Option<String>,
    /// Code address in the target: the saved pc of the frame (not the adjusted one), native and kernel frames only.
    pub address: Option<u64>,
}

impl Frame {
    /// It belongs to a library through which programs wait (`threading`, `queue`, pyzmq, libc…): the frame below it says
    /// more.
    pub fn is_plumbing(&self) -> bool {
        if self.kind != FrameKind::Python {
            let module = self.module.as_deref().unwrap_or_default();
            let name = module.rsplit('/').next().unwrap_or_default();
            return [
                "libc.so",
                "libc-2.",
                "libpthread",
                "ld-linux",
                "ld-musl",
                "libstdc++",
                "libgcc_s",
                "[vdso]",
            ]
            .iter()
            .any(|start| name.starts_with(start));
        }
        let file = self.file.as_deref().unwrap_or_default();
        ["/threading.py", "/queue.py", "/socket.py", "/selectors.py", "/subprocess.py"]
            .iter()
            .any(|name| file.ends_with(name))
            || file.contains("/zmq/")
            || file.contains("/concurrent/futures/")
    }
}

/// Why a native stack walk ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StackEnd {
    /// No walk was made (running thread, tier, no registers): `native` is empty.
    #[default]
    NotWalked,
    /// The outermost frame was reached (`_start`, `clone3`: undefined return address).
    Complete,
    /// The walk had to stop early: the reason, as one clause ("no unwind information for 0x… in libfoo.so").
    Stopped(String),
    /// The frame limit was reached.
    Limit,
}
