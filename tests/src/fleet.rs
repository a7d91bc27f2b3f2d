//! The demo fleet.
