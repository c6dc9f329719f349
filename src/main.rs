//! The `payferry` command.

use std::process::ExitCode;

/// Payments allocate often, in the service itself and in SQLite, whose allocator the `override` feature of mimalloc
/// also replaces.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    payferry::cli::main()
}
