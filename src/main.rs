//! The `payferry` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    payferry::cli::main()
}
