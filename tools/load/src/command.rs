//! The subcommand `load`.

use std::path::PathBuf;
use std::process::ExitCode;

use futures::future::LocalBoxFuture;
use tokio_util::sync::CancellationToken;

pub use crate::args::Args;
use crate::output;
use crate::report::{LoadReport, LoadRequest};
use crate::run::{Plan, run as carry_out};
use crate::target::{foreign, with_own_sandbox};
use payferry_testkit::progress::Progress;

/// Runs the command. `config_file` configures the new sandbox. `stop` ends the run early. Boxed: a caller in another
/// crate would otherwise compile the whole tool again.
pub fn run(
    args: Args,
    config_file: Option<PathBuf>,
    stop: &CancellationToken,
) -> LocalBoxFuture<'_, anyhow::Result<ExitCode>> {
    Box::pin(put_load(args, config_file, stop))
}

async fn put_load(args: Args, config_file: Option<PathBuf>, stop: &CancellationToken) -> anyhow::Result<ExitCode> {
    let older = output::check(&args)?;
    let request = args.request()?;
    let bar = Progress::shown();
    let report = run_once(request, &args, config_file, stop, &bar).await;
    bar.done();
    output::notify(report?, older.as_ref(), &args)
}

/// Puts one load on the service.
async fn run_once(
    request: LoadRequest,
    args: &Args,
    config_file: Option<PathBuf>,
    stop: &CancellationToken,
    bar: &Progress,
) -> anyhow::Result<LoadReport> {
    let (asked, in_flight_max) = (args.in_flight_max as usize, request.in_flight_max);
    let moves_clock = args.url.is_none() || args.advance_clock;
    let mut plan = Plan { request, moves_clock, not_made_percent_max: args.not_made_max };
    let mut report = match (&args.url, &args.key) {
        (Some(url), Some(key)) => {
            let target = foreign(url, key, args.allow_remote)?;
            plan.request.target.clone_from(&target.url);
            carry_out(&plan, &target, stop, bar).await
        }
        _ => with_own_sandbox(plan, args, config_file, stop, bar).await,
    }?;
    if in_flight_max < asked && report.counted.turned_away > 0 {
        report.notes.push(format!(
            "At most {in_flight_max} initiations waited for an answer at once, not {asked}: the limits of open files and connections allow no more here."
        ));
    }
    Ok(report)
}
