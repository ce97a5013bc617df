//! The project routines.
fn main() {}
