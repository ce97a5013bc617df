//! afar: AFS for long and fat links.
fn main() {}
