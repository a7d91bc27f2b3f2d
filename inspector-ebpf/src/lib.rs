#![no_std]
//! Records that both sides share.
