//! The `payferry` command.

use std::process::ExitCode;

/// Much of what a payment costs is memory taken and given back: by the service itself, and by SQLite, whose allocations
/// its `override` feature takes over, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    payferry::cli::main()
}
