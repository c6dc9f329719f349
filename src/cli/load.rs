//! `payferry load`.

use std::path::PathBuf;
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::signals::Signals;
pub(super) use payferry_load::command::Args;

pub(super) async fn run(args: Args, config_file: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let stop = CancellationToken::new();
    let mut signals = Signals::new()?;
    let interrupted = stop.clone();
    let _signals = AbortOnDropHandle::new(tokio::spawn(async move {
        signals.next().await;
        interrupted.cancel();
        signals.end_at_next();
    }));
    payferry_load::command::run(args, config_file, &stop).await
}
