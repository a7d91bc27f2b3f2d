//! Names for kernel addresses, from the kernel's own table: a few are asked for, and reading `/proc/kallsyms` for them
//! would print all of its hundred thousand.

use core::ffi::c_void;

use aya_ebpf::{helpers::generated::bpf_snprintf, macros::map, maps::Array};
use inspector_ebpf::{SYMBOLS, Symbol};

/// The symbol without an offset. The helper wants the format in memory that nobody can change.
static FORMAT: [u8; 4] = *b"%ps\0";

/// What to name; inspector fills it in, and runs the program.
#[map]
static NAMES: Array<Symbol> = Array::with_max_entries(SYMBOLS as u32, 0);

/// Attached to nothing: `BPF_PROG_TEST_RUN` runs it (kernel 5.10). Minimum kernel: 5.13 (`bpf_snprintf`).
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/names")]
extern "C" fn names(_: *const c_void) -> i32 {
    for index in 0..SYMBOLS as u32 {
        let Some(symbol) = NAMES.get_ptr_mut(index) else { break };
        // SAFETY: the map's value, which is ours alone while the program runs; the sizes are those of what is pointed to.
        unsafe {
            let mut address = (*symbol).address;
            if address == 0 {
                break;
            }
            let name = &raw mut (*symbol).name;
            bpf_snprintf(
                name.cast(),
                size_of_val(&*name) as u32,
                FORMAT.as_ptr().cast(),
                &raw mut address,
                size_of::<u64>() as u32,
            );
        }
    }
    0
}
