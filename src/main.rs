//! The `payferry` command.
fn main() {}
