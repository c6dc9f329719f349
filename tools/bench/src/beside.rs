//! What a payment's whole life costs beside many live ones: two services, one with many and one with few, in turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::crowd::{CONNECTIONS, REST, REST_QUICK, fill, until_live};
use super::drive::{count, number, open_loop};
use super::hold::{in_rounds, turns};
use super::life::{BLOCK_TIME, Stage};
use super::psp::Psp;
use super::spread::Spread;
use super::table::{Goal, Line};
use super::world::World;
use payferry_testkit::psp::PaymentTerms;

/// Rounds, in each of which both have a turn. Each round is a measurement of its own.
const ROUNDS: u32 = 6;
const ROUNDS_QUICK: u32 = 1;
/// In the time that a measurement takes there are so many turns.
const TURNS: u32 = 3;
/// Whole lives that begin in a second of a turn; in a quick run.
const RATE: f64 = 100.0;
const RATE_QUICK: f64 = 20.0;
/// How much more of it a payment may cost beside many.
const CPU_GOAL: f64 = 1.25;

/// A service with live payments, beside which others live whole lives.
struct Side {
    stage: Arc<Stage>,
    live: usize,
    /// CPU time that it uses in a second in which nothing is asked of it, seconds.
    idle: f64,
    /// Those that were asked for and paid so far.
    over: Vec<String>,
    turns: Vec<Turn>,
}

/// What one turn came to.
#[derive(Clone, Copy)]
struct Turn {
    cpu_secs: f64,
    took: Duration,
    lives: usize,
}

impl Side {
    async fn with(stage: Arc<Stage>, live: usize, rest: Duration) -> anyhow::Result<Self> {
        until_live(&stage.service, live).await?;
        let before = stage.cpu_secs()?;
        tokio::time::sleep(rest).await;
        let idle = (stage.cpu_secs()? - before) / rest.as_secs_f64();
        Ok(Self { stage, live, idle, over: Vec::new(), turns: Vec::new() })
    }

    /// Has so many begin, and waits until they are settled and told and have left; answers what went wrong.
    async fn turn(&mut self, rate: f64, lives: usize, counts: bool) -> anyhow::Result<Vec<String>> {
        let (cpu, since) = (self.stage.cpu_secs()?, Instant::now());
        let before = self.over.len();
        let asked = open_loop(rate, lives, |place| {
            let intent = Intent::nth(u32::try_from(before + place).unwrap_or(0), Behaviour::Exact);
            self.stage.clone().pay(intent, before + place)
        })
        .await;
        let troubles = asked.troubles();
        self.over.extend(asked.made);
        self.stage.until_settled(self.over.len()).await;
        if counts {
            self.turns.push(Turn { cpu_secs: self.stage.cpu_secs()? - cpu, took: since.elapsed(), lives });
        }
        until_live(&self.stage.service, self.live).await?;
        Ok(troubles)
    }
}

/// Microseconds of CPU time for each payment of a turn, less what a service uses that does `idle` of nothing in a second.
fn each_us(turn: &Turn, idle: f64) -> f64 {
    (turn.cpu_secs - idle * turn.took.as_secs_f64()) * 1e6 / number(turn.lives.max(1))
}

/// Beside the live ones of `crowded`, and beside few of another service; `live` are few and many.
pub(super) async fn measure(
    world: &World,
    crowded: &Arc<Stage>,
    live: [usize; 2],
    time: Duration,
    quick: bool,
) -> anyhow::Result<Line> {
    let (rounds, rate, rest) = if quick { (ROUNDS_QUICK, RATE_QUICK, REST_QUICK) } else { (ROUNDS, RATE, REST) };
    let (rounds, turn) = turns(if quick { time } else { time / TURNS * rounds }, rounds);
    let lives = count(rate, turn);
    let mut many = Side::with(crowded.clone(), live[1], rest).await?;
    let held = crowded.service.hold().await?;
    let stage = Stage::set(world, "few", BLOCK_TIME, |_| {}).await?;
    fill(&Psp::of(&stage.service, CONNECTIONS).await?, live[0]).await?;
    let mut few = Side::with(stage, live[0], rest).await?;
    held.release().await;

    let mut wrong = Vec::new();
    for (whose, counts) in in_rounds(rounds) {
        let (side, other) = whose.of(&mut many, &mut few);
        // All of the other's payments are settled and told: nothing of it is under way that could be late.
        let held = other.stage.service.hold().await?;
        wrong.extend(side.turn(rate, lives, counts).await?);
        held.release().await;
    }
    for side in [&many, &few] {
        wrong.extend(side.stage.audit(&side.over).await?);
    }

    // Of both without what the service uses even if nobody asks anything of it and few are live: that would hide what grows.
    let each = |side: &Side| side.turns.iter().map(|turn| each_us(turn, few.idle)).collect::<Vec<_>>();
    let (of_many, of_few) = (each(&many), each(&few));
    let ratios = of_many.iter().zip(&of_few).map(|(many, few)| (many / few - 1.0) * 100.0);
    let ratio = Spread::of(ratios);
    let middle = |figures: Vec<f64>| Spread::of(figures.into_iter()).mid_mean;
    Ok(Line::new(format!("CPU of a payment beside {} live", live[1]), middle(of_many), "µs", Goal::None)
        .beside(
            "beside few live ones, in turns: the middle half's mean of both, and of the ratios of each round",
            middle(of_few),
        )
        .in_pairs(1.0 + ratio.mid_mean / 100.0)
        .ratio_goal(Goal::AtMost(CPU_GOAL))
        .note(format!(
            "{rounds} rounds, whoever has no turn is held: beside {} instead of {} it costs {ratio}",
            live[1], live[0]
        ))
        .note("everything that the process uses, its chains included, but for what it uses beside few if left alone")
        .note(format!(
            "left alone it uses {:.1} ms a second beside {} and {:.1} ms beside {}",
            many.idle * 1e3,
            live[1],
            few.idle * 1e3,
            live[0],
        ))
        .note(format!(
            "whole lives, {rate:.0} a second: initiated, paid, confirmed, settled and told; {} in all",
            many.over.len() + few.over.len(),
        ))
        .wrong(wrong))
}
