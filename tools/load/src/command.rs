//! The subcommand `load`.

use std::path::PathBuf;
use std::process::ExitCode;

use futures::future::LocalBoxFuture;
use tokio_util::sync::CancellationToken;

pub use crate::args::Args;
use crate::knee::{Knee, PROBES_MAX, Probe};
use crate::output;
use crate::report::{LoadReport, LoadRequest};
use crate::run::{Plan, run as carry_out};
use crate::target::{Started, foreign};
use payferry_testkit::audit::stages::Stage;
use payferry_testkit::progress::Progress;
use payferry_testkit::rate::{Ended, RateSearch};

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
    let bar = Progress::shown();
    let runs = Runs { args: &args, config_file, stop, bar: &bar };
    if args.find_knee {
        let found = runs.search().await;
        bar.done();
        return output::notify_knee(found?, &args);
    }
    let report = async { runs.once(args.request()?, None).await }.await;
    bar.done();
    output::notify(report?, older.as_ref(), &args)
}

/// Runs of one command.
struct Runs<'a> {
    args: &'a Args,
    /// Configuration of new sandboxes.
    config_file: Option<PathBuf>,
    stop: &'a CancellationToken,
    bar: &'a Progress,
}

impl Runs<'_> {
    /// Searches for the knee. Each rate has a new sandbox, unless there is one database for all.
    async fn search(&self) -> anyhow::Result<(Knee, LoadReport)> {
        if self.args.database_url.is_none() {
            return self.find_knee(None).await;
        }
        let started = self.start(false).await?;
        let found = self.find_knee(Some(&started)).await;
        started.stop(found, |(_, report)| report, self.bar).await
    }

    /// Searches for the knee, with a run for each rate, and a second one if the first fails. Returns it with the report of the
    /// last run.
    async fn find_knee(&self, started: Option<&Started>) -> anyhow::Result<(Knee, LoadReport)> {
        let Self { args, bar, .. } = self;
        let mut search = RateSearch::new(args.rate, PROBES_MAX);
        let (mut rate, mut probes) = (args.rate, Vec::new());
        let (ended, report) = loop {
            bar.say(&format!("try {:.1} payments per second", rate.get()));
            let report = self.once(args.probe(rate)?, started).await?;
            if report.interrupted {
                break (Ended::Interrupted, report);
            }
            let p99 = |stage| report.stages.iter().find(|of| of.stage == stage).map(|of| of.from_intended.p99_ms);
            // One slow run does not decide: a rate is too high only if a second run fails, too.
            let is_second = probes.last().is_some_and(|last: &Probe| last.rate == rate);
            let is_decided = report.is_ok() || is_second;
            if is_decided {
                search.record(rate, report.is_ok());
            }
            probes.push(Probe {
                rate,
                passed: report.is_ok(),
                accepted_per_sec: report.achieved.accepted_per_sec,
                complete_per_sec: report.achieved.complete_per_sec,
                accepted_p99_ms: p99(Stage::Accepted),
                complete_p99_ms: p99(Stage::Complete),
                verdict: report.verdict(),
            });
            if report.has_defect() {
                break (Ended::Defect, report);
            }
            if is_decided {
                rate = match search.next() {
                    Ok(rate) => rate,
                    Err(ended) => break (ended, report),
                };
            }
        };
        Ok((Knee { rate: search.kept(), broken_at: search.broken(), ended, probes }, report))
    }

    /// Puts one load on the service: on a started sandbox, on the one at `--url`, or on a new one.
    async fn once(&self, request: LoadRequest, started: Option<&Started>) -> anyhow::Result<LoadReport> {
        let Self { args, stop, bar, .. } = self;
        let (asked, in_flight_max) = (args.in_flight_max as usize, request.in_flight_max);
        let moves_clock = args.url.is_none() || args.advance_clock;
        let (not_made_percent_max, payers) = (args.not_made_max, args.payers.clone());
        let mut plan = Plan { request, moves_clock, not_made_percent_max, payers };
        let mut report = match (started, &args.url, &args.key) {
            (Some(started), ..) => started.put(plan, stop, bar).await,
            (None, Some(url), Some(key)) => {
                let target = foreign(url, key, args.allow_remote)?;
                plan.request.target.clone_from(&target.url);
                carry_out(&plan, &target, stop, bar).await
            }
            _ => {
                let started = self.start(plan.request.faults.kills()).await?;
                let ran = started.put(plan, stop, bar).await;
                started.stop(ran, |report| report, bar).await
            }
        }?;
        if in_flight_max < asked && report.counted.turned_away > 0 {
            report.notes.push(format!(
                "At most {in_flight_max} initiations waited for an answer at once, not {asked}: the limits of open files and connections allow no more here."
            ));
        }
        Ok(report)
    }

    async fn start(&self, is_killed: bool) -> anyhow::Result<Started> {
        Started::start(self.args, self.config_file.clone(), is_killed, self.bar).await
    }
}
