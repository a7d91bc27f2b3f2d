//! One output format a file. Pure: a report in, text out.

pub mod assemble;
pub mod color;
pub mod doctor;
pub mod escape;
pub mod folded;
pub mod graph;
pub mod json;
pub mod page;
#[cfg(test)]
mod sample;
pub mod schema;
pub mod text;
