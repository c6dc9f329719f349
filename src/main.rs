//! The `payferry` command.

use std::process::ExitCode;

/// Allocation is a large part of a payment's cost, in the service and in SQLite. The `override` feature of mimalloc
/// also replaces SQLite's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Commit of the sources: the variable at build time, or that of the checkout. It is read here and not in the library, so
/// that a new commit compiles only this file.
const COMMIT: &str = match option_env!("PAYFERRY_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => git_version::git_version!(
        args = ["--always", "--abbrev=40", "--exclude=*", "--dirty=-modified"],
        fallback = "unknown"
    ),
};

fn main() -> ExitCode {
    payferry::cli::main(COMMIT)
}
