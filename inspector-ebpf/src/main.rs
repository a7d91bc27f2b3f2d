//! The eBPF programs, one file a probe.
#![no_std]
#![no_main]
// The target has atomic additions, but none of the other operations that the library's atomic types want.
#![feature(core_intrinsics)]
#![allow(internal_features, reason = "no stable form adds atomically on this target")]

mod programs;

/// Never reached: the programs hold no panic, and the kernel's verifier would refuse an endless loop.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// `bpf_get_task_stack` and its kin are for GPL-compatible programs; the kernel knows this string (`license.h`).
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
