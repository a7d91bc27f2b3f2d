//! inspector tells, without stopping anything, why an LLM-serving fleet hangs while every health check is green.
//!
//! Data flows one way, and each room depends only on those before it and on [`model`]:
//! [`discover`] (who) → [`observe`] (facts) → [`model::Capture`] → [`resolve`] (waits) → [`graph`] (edges) →
//! [`diagnose`] (hypotheses) → [`report`]. ARCHITECTURE.md draws the house.

pub mod analyse;
mod cgroups;
pub mod cli;
pub mod commands;
pub mod diagnose;
pub mod discover;
pub mod graph;
pub mod knowledge;
pub mod model;
pub mod observe;
mod own_namespace;
mod patience;
mod proc_stat;
pub mod report;
pub mod resolve;
mod visit;
