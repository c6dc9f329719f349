//! `payferry bench`.

use std::process::ExitCode;

use super::signals::Signals;
pub(super) use payferry_bench::command::Args;

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut signals = if args.is_bound_server() { Signals::and_end_of_stdin()? } else { Signals::new()? };
    payferry_bench::command::run(args, Box::pin(signals.next())).await
}
