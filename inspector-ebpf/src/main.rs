//! The eBPF programs, one file a probe.
#![no_std]
#![no_main]
