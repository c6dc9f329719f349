//! Row `cpu`: CPU time of a payment's lifecycle beside many live payments, compared with few. Two services get the load
//! in alternating rounds.

use std::sync::Arc;
use std::time::Duration;

use super::drive::{count, number};
use super::env::Env;
use super::lifecycle::{Fixture, Turn};
use super::many_live::{CONNECTIONS, REST, REST_QUICK, fill, until_live};
use super::psp::BenchPsp;
use super::rounds::{Spread, in_rounds};
use super::table::{Goal, TableLine};

/// Rounds; each is one measurement of both services.
const ROUNDS: u32 = 6;
const ROUNDS_QUICK: u32 = 1;
/// Number of turns in the time of one measurement.
const TURNS: u32 = 3;
/// Payments per second of a turn.
const RATE: f64 = 100.0;
const RATE_QUICK: f64 = 20.0;
/// Largest allowed ratio of the CPU times.
const CPU_GOAL: f64 = 1.1;

/// A service with live payments, and the load beside them.
struct Side {
    fixture: Arc<Fixture>,
    live: usize,
    /// CPU time per second without load, in seconds.
    idle: f64,
    /// Payments that were initiated and paid so far.
    paid: usize,
    turns: Vec<Turn>,
}

impl Side {
    async fn with(fixture: Arc<Fixture>, live: usize, rest: Duration) -> anyhow::Result<Self> {
        until_live(&fixture.service, live).await?;
        let before = fixture.service.cpu_secs()?;
        tokio::time::sleep(rest).await;
        let idle = (fixture.service.cpu_secs()? - before) / rest.as_secs_f64();
        Ok(Self { fixture, live, idle, paid: 0, turns: Vec::new() })
    }

    /// Initiates and pays payments, and waits until they are settled, their webhooks arrived and their actors stopped.
    /// Returns what went wrong.
    async fn turn(&mut self, rate: f64, payments: usize, counts: bool) -> anyhow::Result<Vec<String>> {
        let turn = self.fixture.turn(rate, payments).await?;
        let failures = turn.failures.clone();
        self.paid += turn.made;
        if counts {
            self.turns.push(turn);
        }
        until_live(&self.fixture.service, self.live).await?;
        Ok(failures)
    }
}

/// Returns the CPU time of each payment of a turn in microseconds, without the CPU time of an idle service.
fn each_us(turn: &Turn, idle: f64) -> f64 {
    (turn.cpu_secs - idle * turn.took.as_secs_f64()) * 1e6 / number(turn.made.max(1))
}

/// Measures beside the live payments of `many_at_once`, and beside those of a second service. `live` are their numbers,
/// few and many.
pub(super) async fn measure(
    env: &Env,
    many_at_once: &Arc<Fixture>,
    live: [usize; 2],
    time: Duration,
    quick: bool,
) -> anyhow::Result<TableLine> {
    let (rounds, rate, rest) = if quick { (ROUNDS_QUICK, RATE_QUICK, REST_QUICK) } else { (ROUNDS, RATE, REST) };
    let payments = count(rate, if quick { time } else { time / TURNS });
    let mut many = Side::with(many_at_once.clone(), live[1], rest).await?;
    let fixture = Fixture::start(env.options("few")?).await?;
    fill(&BenchPsp::of(&fixture.service, CONNECTIONS).await?, live[0]).await?;
    let mut few = Side::with(fixture, live[0], rest).await?;

    let mut wrong = Vec::new();
    for (side, counts) in in_rounds(rounds) {
        wrong.extend(side.of(&mut many, &mut few).turn(rate, payments, counts).await?);
    }
    for side in [&many, &few] {
        wrong.extend(side.fixture.audit().await?);
    }

    // The idle CPU time of the service with few live payments is subtracted from both: with its own, growth would be
    // hidden.
    let each = |side: &Side| side.turns.iter().map(|turn| each_us(turn, few.idle)).collect::<Vec<_>>();
    let (of_many, of_few) = (each(&many), each(&few));
    let ratios = of_many.iter().zip(&of_few).map(|(many, few)| many / few);
    let ratio = Spread::of(ratios);
    let middle = |figures: Vec<f64>| Spread::of(figures.into_iter()).mid_mean;
    let [some, all] = live;
    Ok(TableLine::new(format!("CPU of a payment beside {all} live"), middle(of_many), "µs", Goal::None)
        .beside("beside few live ones, in turns; means of the middle half of the rounds", middle(of_few))
        .in_pairs(ratio.mid_mean)
        .ratio_goal(Goal::AtMost(CPU_GOAL))
        .note(format!("{rounds} alternating rounds: beside {all} instead of {some} it costs {}", ratio.change()))
        .note("CPU time of the whole process including its chains, without the CPU time of the idle process beside few")
        .note(format!(
            "idle CPU time: {:.1} ms a second beside {all} and {:.1} ms beside {some}",
            many.idle * 1e3,
            few.idle * 1e3,
        ))
        .note(format!(
            "complete payments, {rate:.0} a second: initiated, paid, confirmed, settled, webhooks received; {} in all",
            many.paid + few.paid,
        ))
        .wrong(wrong))
}
