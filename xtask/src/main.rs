//! Build, test, demo and benchmark commands.
fn main() {}
