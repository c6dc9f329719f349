//! The `payferry` command.

use std::process::ExitCode;

/// Allocation is a large part of a payment's cost, in the service and in SQLite. The `override` feature of mimalloc
/// also replaces SQLite's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    payferry::cli::main()
}
