//! See CONTRIBUTING.md.
fn main() {}
