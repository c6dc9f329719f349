//! `--against BINARY`: this binary and another one, usually an older version, get the same load in alternating rounds
//! of one run. Each row has two lines: payments per second, and CPU time of a payment. A line shows the figure of this
//! binary, the same figure of the other one, and the ratio of both in paired rounds.
//!
//! It uses only command-line flags and routes that both versions have.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use payferry_testkit::service::{ChildSandboxOptions, Service};

use super::Row;
use super::drive::{closed_loop, number};
use super::env::{Engine, Env};
use super::initiate::CONNECTIONS;
use super::lifecycle::{Fixture, Turn};
use super::psp::BenchPsp;
use super::rounds::{Spread, in_rounds};
use super::table::{Goal, TableLine};

/// Rows that can be compared.
pub(super) const ROWS: [Row; 3] = [Row::Initiate, Row::InitiatePostgres, Row::Complete];
/// Databases that are made on a server.
pub(super) const DATABASES: [&str; 2] = ["against_this", "against_other"];

/// Pairs of services. Memory layout and file position differ between starts, so one pair is not enough. The binary that
/// starts first changes with each pair.
const PAIRS: u32 = 2;
const PAIRS_QUICK: u32 = 1;
/// Rounds of each pair: of initiations, of complete payments, and in a quick run.
const ROUNDS: u32 = 8;
const ROUNDS_COMPLETE: u32 = 5;
const ROUNDS_QUICK: u32 = 2;
/// Number of turns of initiations in the time of one measurement: with 10 s, a turn takes 2 s.
const TURNS: u32 = 5;
/// Payments of a turn of complete payments, and in a quick run. All are initiated at this rate per second, faster than they
/// settle, so that the service is busy until the last is complete.
const PAYMENTS: usize = 1_500;
const PAYMENTS_QUICK: usize = 20;
const RATE: f64 = 2_000.0;
/// Time between blocks for complete payments: short, so that the wait for final blocks is a small part of a turn.
const BLOCK_TIME: Duration = Duration::from_millis(100);

/// Goals of the ratios: of payments per second, and of the CPU time of a payment.
const SQLITE_SHARE_LEAST: f64 = 0.8;
const SHARE_LEAST: f64 = 0.9;
const CPU_SHARE_MOST: f64 = 1.1;
/// The figure of the other binary.
const OTHER: &str = "the same load on the other binary, in turns; means of the middle half of the rounds";

#[derive(Default)]
struct Figures {
    /// Payments per second of each round.
    per_sec: Vec<f64>,
    /// CPU time of a payment of each round, in microseconds.
    cpu_us: Vec<f64>,
}

/// A running service under load.
enum Load {
    Initiate {
        service: Box<Service>,
        psp: BenchPsp,
        made: Vec<String>,
        failed: usize,
    },
    /// Payments until they are complete.
    Complete(Arc<Fixture>),
}

impl Load {
    async fn start(options: ChildSandboxOptions, row: Row) -> anyhow::Result<Self> {
        if row == Row::Complete {
            return Ok(Self::Complete(Fixture::start(options).await?));
        }
        let service = Service::live_sandbox(&options).await?;
        let psp = BenchPsp::of(&service, CONNECTIONS).await?;
        Ok(Self::Initiate { service: Box::new(service), psp, made: Vec::new(), failed: 0 })
    }

    fn service(&self) -> &Service {
        match self {
            Self::Initiate { service, .. } => service,
            Self::Complete(fixture) => &fixture.service,
        }
    }

    /// Puts the load on the service for one turn. Returns payments per second, CPU time of a payment in microseconds,
    /// and failures.
    async fn turn(&mut self, time: Duration, payments: usize) -> anyhow::Result<(f64, f64, Vec<String>)> {
        let cpu = self.service().cpu_secs()?;
        let (count, took, failures) = match self {
            Self::Initiate { psp, made, failed, .. } => {
                let outcome = closed_loop(CONNECTIONS, time, || psp.clone().initiate()).await;
                *failed += outcome.failed();
                made.extend(outcome.made.iter().cloned());
                (outcome.made.len(), outcome.took, outcome.failures())
            }
            Self::Complete(fixture) => {
                let Turn { made, took, failures, .. } = fixture.turn(RATE, payments).await?;
                (made, took, failures)
            }
        };
        let cpu_us = (self.service().cpu_secs()? - cpu) * 1e6 / number(count.max(1));
        Ok((number(count) / took.as_secs_f64(), cpu_us, failures))
    }

    async fn audit(&self) -> anyhow::Result<Vec<String>> {
        match self {
            Self::Initiate { service, psp, made, failed } => {
                let mut wrong = psp.audit(made, *failed).await?;
                wrong.extend(service.defects().await?);
                Ok(wrong)
            }
            Self::Complete(fixture) => fixture.audit().await,
        }
    }
}

/// Compares this binary with `other` in one row.
pub(super) async fn measure(
    env: &Env,
    engine: &Engine,
    row: Row,
    other: &Path,
    (time, quick): (Duration, bool),
) -> anyhow::Result<Vec<TableLine>> {
    let (pairs, payments) = if quick { (PAIRS_QUICK, PAYMENTS_QUICK) } else { (PAIRS, PAYMENTS) };
    let rounds = match row {
        _ if quick => ROUNDS_QUICK,
        Row::Complete => ROUNDS_COMPLETE,
        _ => ROUNDS,
    };
    let (mut figures, mut wrong) = ([Figures::default(), Figures::default()], Vec::new());
    for pair in 0..pairs {
        let options = async |which: usize| {
            let program = [None, Some(other.to_owned())][which].clone();
            let database_url = engine.database(DATABASES[which]).await?;
            let mut options = ChildSandboxOptions { program, database_url, ..env.options("against")? };
            if row == Row::Complete {
                options.block_time = Some(BLOCK_TIME);
            }
            anyhow::Ok(options)
        };
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut loads = [None, None];
        for which in order {
            loads[which] = Some(Load::start(options(which).await?, row).await?);
        }
        for (side, counts) in in_rounds(rounds) {
            let which = side.of(order[0], order[1]);
            let Some(load) = &mut loads[which] else { continue };
            let (per_sec, cpu_us, failures) = load.turn(time / TURNS, payments).await?;
            wrong.extend(of(which, failures));
            if counts {
                figures[which].per_sec.push(per_sec);
                figures[which].cpu_us.push(cpu_us);
            }
        }
        for (which, load) in loads.iter().enumerate() {
            let Some(load) = load else { continue };
            wrong.extend(of(which, load.audit().await?));
        }
    }
    let [per_sec, cpu] = lines(engine, row, &figures, pairs);
    Ok(vec![per_sec.wrong(wrong), cpu])
}

/// Names the binary in its failures.
fn of(which: usize, failures: Vec<String>) -> impl Iterator<Item = String> {
    let whose = ["this binary", "the other binary"][which];
    failures.into_iter().map(move |failure| format!("of {whose}: {failure}"))
}

/// Returns the lines of a row: payments per second, and CPU time of a payment.
fn lines(engine: &Engine, row: Row, [this, other]: &[Figures; 2], pairs: u32) -> [TableLine; 2] {
    let engine_name = engine.name();
    let initiated =
        (format!("payments initiated, {engine_name}"), format!("CPU of a payment initiated, {engine_name}"));
    let ((what, cpu), least) = match row {
        Row::Complete => (("complete payments".to_owned(), "CPU of a complete payment".to_owned()), SHARE_LEAST),
        _ if engine.is_postgres() => (initiated, SHARE_LEAST),
        _ => (initiated, SQLITE_SHARE_LEAST),
    };
    let line = |what: String, unit, [new, old]: [&Vec<f64>; 2], goal| {
        let ratio = Spread::of(new.iter().zip(old).map(|(new, old)| new / old));
        let middle = |figures: &[f64]| Spread::of(figures.iter().copied()).mid_mean;
        TableLine::new(what, middle(new), unit, Goal::None)
            .beside(OTHER, middle(old))
            .in_pairs(ratio.mid_mean)
            .ratio_goal(goal)
            .note(format!("{} paired rounds with {pairs} pairs of services: {}", new.len(), ratio.change()))
    };
    [
        line(what, "/s", [&this.per_sec, &other.per_sec], Goal::AtLeast(least)),
        line(cpu, "µs", [&this.cpu_us, &other.cpu_us], Goal::AtMost(CPU_SHARE_MOST)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_mean_of_the_middle_half_of_the_paired_rounds() {
        let figures = |per_sec: [f64; 4], cpu_us| Figures { per_sec: per_sec.to_vec(), cpu_us: vec![cpu_us; 4] };
        // Each round has another speed; the ratio of the second one is an outlier.
        let (this, other) = (figures([90.0, 10.0, 450.0, 47.0], 50.0), figures([100.0, 100.0, 500.0, 50.0], 100.0));
        let [line, cpu] = lines(&Engine::Sqlite, Row::Initiate, &[this, other], 2);
        assert!(line.ratio.is_some_and(|ratio| (ratio - 0.9).abs() < 1e-9), "{line:?}");
        assert!(line.holds && line.ratio_goal == Goal::AtLeast(0.8), "{line:?}");
        assert!(line.notes[0].starts_with("4 paired rounds with 2 pairs of services: -10.0 %"), "{line:?}");
        assert!(cpu.ratio.is_some_and(|ratio| (ratio - 0.5).abs() < 1e-9), "{cpu:?}");
        assert!(cpu.holds && cpu.ratio_goal == Goal::AtMost(1.1) && cpu.what == "CPU of a payment initiated, SQLite");
    }
}
