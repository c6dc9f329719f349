//! Row `complete`: complete payments per second: initiated, paid by a real transfer, confirmed, settled, webhooks
//! received.
//!
//! A search finds the highest rate that the service sustains: payments complete as fast as they arrive. One service gets
//! all rates, and each rate begins when the payments of the one before are complete. So the whole search takes at most
//! the probes times the time of one rate and the patience of [`Fixture::until_settled`].

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use payferry_testkit::rate::{Ended, Rate, RateSearch};
use tokio::time::Instant;

use super::bare::Pipeline;
use super::drive::{count, number};
use super::env::Env;
use super::lifecycle::{Fixture, RATE_QUICK};
use super::table::{Goal, TableLine};

/// Goal in complete payments per second.
const GOAL: f64 = 300.0;
/// Rate of the first probe: a tenth above the goal.
const FIRST_RATE: f64 = 330.0;
const PROBES_MAX: usize = 8;
const PROBES_MAX_QUICK: usize = 2;
/// Load before the measured time, until payments complete as fast as new ones arrive.
const RAMP: Duration = Duration::from_secs(10);
/// Shortest measured time of a rate, and its parts.
const TIME_LEAST: Duration = Duration::from_secs(30);
const PART: Duration = Duration::from_secs(10);
/// Smallest share of the offered payments that must complete in each part. A mean could hide that nothing was settled
/// for some seconds.
const PART_SHARE_LEAST: f64 = 0.9;
/// Largest growth of the backlog in the measured time: the arrivals of this time. It is two blocks, because payments
/// become final with a block.
const BACKLOG_GROWTH_MAX: Duration = Duration::from_secs(1);
/// Largest number of open payments: the arrivals of this time. Beyond it, the load initiates no more, so that an
/// overloaded service completes the backlog before the next rate.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// Load of each rate.
struct Plan {
    first_rate: f64,
    probes_max: usize,
    ramp: Duration,
    time: Duration,
    /// A quick run is too short for a steady state: everything counts, from the first initiation to the last webhook.
    counts_all: bool,
}

impl Plan {
    fn of(time: Duration, quick: bool) -> Self {
        if quick {
            let (first_rate, probes_max, ramp) = (RATE_QUICK, PROBES_MAX_QUICK, Duration::ZERO);
            return Self { first_rate, probes_max, ramp, time, counts_all: true };
        }
        let time = time.max(TIME_LEAST);
        Self { first_rate: FIRST_RATE, probes_max: PROBES_MAX, ramp: RAMP, time, counts_all: false }
    }
}

/// Result of one rate.
#[derive(Debug, Clone)]
struct Probe {
    rate: f64,
    made: usize,
    /// Failed requests, in words.
    failures: Vec<String>,
    /// Length of each part of the measured time, payments that are offered in it, and those that completed in it.
    part: Duration,
    offered: f64,
    completed: Vec<usize>,
    cpu_us: f64,
}

impl Probe {
    /// Offers payments at this rate, and waits until all of them are complete.
    async fn run(fixture: &Arc<Fixture>, rate: f64, plan: &Plan) -> anyhow::Result<Self> {
        let (cpu, since) = (fixture.service.cpu_secs()?, Instant::now());
        let payments = count(rate, plan.ramp + plan.time);
        let open_max = u64::try_from(count(rate, OPEN_MAX)).unwrap_or(u64::MAX);
        let outcome = fixture.pay_at(rate, payments, open_max).await;
        fixture.until_settled().await;
        let all = since.elapsed();
        let made = outcome.made.len();
        let cpu_us = (fixture.service.cpu_secs()? - cpu) * 1e6 / number(made.max(1));

        let parts = if plan.counts_all { 1 } else { (plan.time.as_secs() / PART.as_secs()).max(1) };
        let parts = u32::try_from(parts).unwrap_or(1);
        let part = if plan.counts_all { all } else { plan.time / parts };
        let offered = if plan.counts_all { number(payments) } else { rate * part.as_secs_f64() };
        let from = since + plan.ramp;
        let ends: Vec<Instant> =
            fixture.session.state.read().records.iter().filter_map(|record| record.completed).collect();
        let completed_in = |place: u32| {
            let begin = from + part * place;
            ends.iter().filter(|at| (begin..begin + part).contains(*at)).count()
        };
        let completed = (0..parts).map(completed_in).collect();
        Ok(Self { rate, made, failures: outcome.failures(), part, offered, completed, cpu_us })
    }

    /// Returns the complete payments per second of the measured time.
    fn per_sec(&self) -> f64 {
        self.per_part() / self.part.as_secs_f64()
    }

    fn per_part(&self) -> f64 {
        number(self.completed.iter().sum()) / number(self.completed.len().max(1))
    }

    fn slowest_per_sec(&self) -> f64 {
        number(self.completed.iter().copied().min().unwrap_or_default()) / self.part.as_secs_f64()
    }

    /// Returns why the service does not sustain this rate.
    fn fault(&self) -> Option<String> {
        if let Some(first) = self.failures.first() {
            return Some(first.clone());
        }
        let slowest = self.slowest_per_sec() * self.part.as_secs_f64();
        if slowest < self.offered * PART_SHARE_LEAST {
            let (secs, per_sec) = (self.part.as_secs_f64(), self.slowest_per_sec());
            return Some(format!("{per_sec:.0}/s complete in the slowest {secs:.0} s"));
        }
        let growth = (self.offered - self.per_part()) * number(self.completed.len());
        (growth > self.rate * BACKLOG_GROWTH_MAX.as_secs_f64()).then(|| format!("the backlog grew by {growth:.0}"))
    }
}

/// Measures the highest sustained rate, and its bound.
pub(super) async fn measure(env: &Env, time: Duration, quick: bool) -> anyhow::Result<Vec<TableLine>> {
    let fixture = Fixture::start(env.options("complete")?).await?;
    let plan = Plan::of(time, quick);
    let first = Rate::per_second(plan.first_rate).context("the first rate is no rate")?;
    let mut search = RateSearch::new(first, plan.probes_max);
    let (mut best, mut tried): (Option<Probe>, Vec<String>) = (None, Vec::new());
    let ended = loop {
        let rate = match search.next() {
            Ok(rate) => rate,
            Err(ended) => break ended,
        };
        let probe = Probe::run(&fixture, rate.get(), &plan).await?;
        let fault = probe.fault();
        search.record(rate, fault.is_none());
        let result = fault.as_ref().map_or_else(|| "sustained".to_owned(), |fault| format!("not sustained, {fault}"));
        tried.push(format!("{:.0}/s {result}", rate.get()));
        if fault.is_none() {
            // Higher than every sustained rate before.
            best = Some(probe);
        }
        if fixture.session.state.open() > 0 {
            // The audit says which payments are not complete.
            break Ended::Defect;
        }
    };
    let wrong = fixture.audit().await?;
    let counted = fixture.session.state.tally.counted();

    let fixture = Arc::into_inner(fixture).context("the service is still in use")?;
    let Fixture { service, options, session: _session, receiver } = fixture;
    service.kill();
    let bare = Pipeline::read(&Env::database_url(&options)?).await?.run(env, &receiver).await?;
    Ok(vec![
        line(best.as_ref())
            .beside("a bare pipeline in one task: the same rows, signatures and webhooks, no actors", bare.per_sec())
            .note(format!("{}; the search ended because {}", tried.join("; "), ended.words()))
            .note(format!("{} payments in all, and {} webhooks, were checked", counted.accepted, counted.webhooks))
            .note(bare.note())
            .wrong(wrong),
    ])
}

fn line(best: Option<&Probe>) -> TableLine {
    let line = TableLine::new("complete payments", best.map_or(0.0, Probe::per_sec), "/s", Goal::AtLeast(GOAL));
    let Some(best) = best else { return line.unless(vec!["no rate was sustained".to_owned()]) };
    let (part, parts) = (best.part.as_secs_f64(), number(best.completed.len()));
    let (rate, slowest, cpu_us) = (best.rate, best.slowest_per_sec(), best.cpu_us);
    line.note(format!(
        "sustained at {rate:.0}/s on three chains: {} of {:.0} complete in {:.0} s, {slowest:.0}/s in the slowest {part:.0} s",
        best.completed.iter().sum::<usize>(),
        best.offered * parts,
        part * parts,
    ))
    .note(format!("CPU {cpu_us:.0} µs a payment, including the chains; {} payments at this rate", best.made))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(completed: &[usize]) -> Probe {
        let (rate, part) = (100.0, Duration::from_secs(10));
        Probe {
            rate,
            made: 4_000,
            failures: vec![],
            part,
            offered: 1_000.0,
            completed: completed.to_vec(),
            cpu_us: 1.0,
        }
    }

    #[test]
    fn a_rate_is_sustained_if_payments_complete_as_fast_as_they_arrive() {
        for (completed, fault) in [
            ([1_000, 1_000, 1_000], None),
            ([950, 1_050, 950], None),
            // Nothing was settled for some seconds.
            ([1_200, 890, 910], Some("89/s complete in the slowest 10 s")),
            ([966, 967, 966], Some("the backlog grew by 101")),
            ([0, 0, 0], Some("0/s complete in the slowest 10 s")),
        ] {
            assert_eq!(probe(&completed).fault().as_deref(), fault, "{completed:?}");
        }
        let refused = Probe { failures: vec!["3 requests failed: 503".to_owned()], ..probe(&[1_000; 3]) };
        assert_eq!(refused.fault().as_deref(), Some("3 requests failed: 503"));
    }

    #[test]
    fn a_line_shows_what_completed_and_lacks_a_rate_that_is_not_sustained() {
        let sustained = line(Some(&probe(&[990, 1_000, 980])));
        assert!((sustained.figure - 99.0).abs() < 1e-9 && sustained.lacks.is_empty(), "{sustained:?}");
        let said = "sustained at 100/s on three chains: 2970 of 3000 complete in 30 s, 98/s in the slowest 10 s";
        assert_eq!(sustained.notes[0], said);
        assert_eq!(line(None).lacks, ["no rate was sustained"]);
    }

    #[test]
    fn a_measured_time_has_parts_of_ten_seconds() {
        for (secs, time) in [(1, 30), (30, 30), (60, 60)] {
            assert_eq!(Plan::of(Duration::from_secs(secs), false).time, Duration::from_secs(time));
        }
        assert_eq!(Plan::of(Duration::from_secs(1), true).time, Duration::from_secs(1));
    }
}
