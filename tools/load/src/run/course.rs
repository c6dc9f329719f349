//! Course of a run: the values of each second, and the progress bar.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::payments::RunContext;
use crate::own::OwnSandbox;
use payferry_testkit::audit::heat::Heat;
use payferry_testkit::audit::stages::Stage;
use payferry_testkit::audit::tally::{Counted, Second};
use payferry_testkit::progress::Progress;
use payferry_testkit::usage::Usage;

const SECOND: Duration = Duration::from_secs(1);
/// Interval of the progress bar.
const SHOWN_EVERY: Duration = Duration::from_millis(250);

/// Records the course until it is stopped.
#[derive(Debug)]
pub(super) struct Course {
    over: CancellationToken,
    recording: AbortOnDropHandle<()>,
}

/// Starts to record the course. Seconds count from `first`.
pub(super) fn record(
    context: &Arc<RunContext>,
    first: Instant,
    own: Option<Arc<OwnSandbox>>,
    bar: &Progress,
) -> Course {
    let over = CancellationToken::new();
    let recorder = Recorder {
        context: Arc::clone(context),
        first,
        counted: context.state().tally.counted(),
        errors: context.state().tally.error_count(),
        usage: usage(own.as_ref()),
        own,
        at: first,
    };
    let recording = AbortOnDropHandle::new(tokio::spawn(recorder.run(over.clone(), bar.clone())));
    Course { over, recording }
}

impl Course {
    /// Stops it, with the current second.
    pub(super) async fn end(self) {
        self.over.cancel();
        let _ = self.recording.await;
    }
}

/// Reads the usage of the service and of the load tester.
fn usage(own: Option<&Arc<OwnSandbox>>) -> [Option<Usage>; 2] {
    [own.and_then(|own| Usage::of_all(&own.pids())), Usage::own()]
}

struct Recorder {
    context: Arc<RunContext>,
    first: Instant,
    own: Option<Arc<OwnSandbox>>,
    counted: Counted,
    errors: u64,
    /// Usage of the service and of the load tester.
    usage: [Option<Usage>; 2],
    at: Instant,
}

impl Recorder {
    async fn run(mut self, over: CancellationToken, bar: Progress) {
        tokio::time::sleep_until(self.first).await;
        self.usage = usage(self.own.as_ref());
        let mut ticks = tokio::time::interval_at(self.first + SHOWN_EVERY, SHOWN_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let ended = tokio::select! {
                _ = ticks.tick() => false,
                () = over.cancelled() => true,
            };
            self.show(&bar);
            // Half a tick early is in time, because ticks are a little late.
            if ended || self.at.elapsed() + SHOWN_EVERY / 2 >= SECOND {
                self.second();
            }
            if ended {
                return;
            }
        }
    }

    fn show(&self, bar: &Progress) {
        let Counted { due, accepted, complete, webhooks, .. } = self.context.state().tally.counted();
        let in_flight = self.context.in_flight.now();
        let line =
            format!("{due} due, {in_flight} in flight, {accepted} accepted, {complete} complete, {webhooks} webhooks");
        bar.show(complete, line);
    }

    fn second(&mut self) {
        let tally = &self.context.state().tally;
        let (now, counted, errors) = (Instant::now(), tally.counted(), tally.error_count());
        let period = now - self.at;
        let [accepted, complete] =
            [Stage::Accepted, Stage::Complete].map(|stage| self.context.state().stages.take_latest(stage));
        let usage = usage(self.own.as_ref());
        let cores = |which: usize| Some(usage[which]?.cores_since(&self.usage[which]?, period));
        let percentile = |latencies: &payferry_testkit::audit::stages::Latencies, percent| {
            if latencies.count() == 0 { 0.0 } else { latencies.percentile_ms(percent) }
        };
        tally.second(Second {
            at_secs: (now - self.first).as_secs_f64(),
            period_secs: period.as_secs_f64(),
            counted: counted.since(&self.counted),
            in_flight: self.context.in_flight.now(),
            open: self.context.state().open(),
            errors: errors.saturating_sub(self.errors),
            accepted_p50_ms: percentile(&accepted, 50.0),
            accepted_p99_ms: percentile(&accepted, 99.0),
            complete_p50_ms: percentile(&complete, 50.0),
            complete_p99_ms: percentile(&complete, 99.0),
            accepted_heat: Heat::of(&accepted),
            complete_heat: Heat::of(&complete),
            service_cores: cores(0),
            service_bytes: usage[0].map(|usage| usage.resident_bytes),
            own_cores: cores(1),
        });
        (self.at, self.counted, self.errors, self.usage) = (now, counted, errors, usage);
    }
}
