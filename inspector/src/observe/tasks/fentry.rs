//! Whether the kernel lets an `fentry` program be attached: only attaching one tells.

use std::io;

use super::{bpf::TracingProgram, btf::Btf};

/// The function that probes would be attached to first: the futex system call's entry, x86-64 and arm64.
const FUNCTIONS: [&str; 2] = ["__x64_sys_futex", "__arm64_sys_futex"];

/// Attaches an empty program and takes it away again; the function that it was attached to.
///
/// # Minimum kernel version
/// 5.5; on arm64 6.4.
pub(super) fn try_attach() -> io::Result<&'static str> {
    let types = Btf::of_running_kernel()?;
    let (function, id) =
        FUNCTIONS.iter().find_map(|&name| Some((name, types.function(name)?))).ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "the kernel's types hold no futex system call")
        })?;
    let program = TracingProgram::fentry(id)?;
    drop(program.attach()?);
    Ok(function)
}
