//! What the ledger's postings cost: two services that differ in them alone, settling payments in turns.

use std::sync::Arc;
use std::time::Duration;

use super::drive::{number, open_loop};
use super::hold::in_rounds;
use super::life::Stage;
use super::spread::Spread;
use super::table::{Goal, Line};
use super::world::World;
use crate::load::behaviour::{Behaviour, Intent};

/// Rounds, in each of which both have a turn. Each round is a measurement of its own.
const ROUNDS: u32 = 6;
/// Payments of one turn: all asked for at once, so that the service is busy until the last is settled and told.
const PAYMENTS: usize = 1_500;
/// In a quick run.
const QUICK: (u32, usize) = (2, 20);
/// How fast a turn's payments are asked for, a second: faster than they can be settled.
const RATE: f64 = 2_000.0;
const BLOCK_TIME: Duration = Duration::from_millis(500);
/// What postings may cost of CPU time and of throughput: 15 %.
const CPU_SHARE_MOST: f64 = 1.15;
const SHARE_LEAST: f64 = 0.85;

struct Side {
    stage: Arc<Stage>,
    turns: Vec<Turn>,
    paid: Vec<String>,
}

/// What one turn came to.
#[derive(Clone, Copy)]
struct Turn {
    per_sec: f64,
    cpu_us: f64,
}

impl Side {
    async fn start(world: &World, postings: bool) -> anyhow::Result<Self> {
        let name = if postings { "postings" } else { "no-postings" };
        let stage = Stage::set(world, name, BLOCK_TIME, |setup| setup.ledger = postings).await?;
        Ok(Self { stage, turns: Vec::new(), paid: Vec::new() })
    }

    /// Has payments settled and told; answers what went wrong.
    async fn turn(&mut self, payments: usize, counts: bool) -> anyhow::Result<Vec<String>> {
        let (cpu, since) = (self.stage.cpu_secs()?, std::time::Instant::now());
        let before = self.paid.len();
        let asked = open_loop(RATE, payments, |place| {
            let intent = Intent::nth(u32::try_from(before + place).unwrap_or(0), Behaviour::Exact);
            self.stage.clone().pay(intent, before + place)
        })
        .await;
        self.paid.extend(asked.made.iter().cloned());
        self.stage.until_settled(self.paid.len()).await;
        let settled = number(asked.made.len().max(1));
        if counts {
            let cpu_us = (self.stage.cpu_secs()? - cpu) * 1e6 / settled;
            self.turns.push(Turn { per_sec: settled / since.elapsed().as_secs_f64(), cpu_us });
        }
        Ok(asked.troubles())
    }

    fn middle(&self, of: impl Fn(&Turn) -> f64) -> f64 {
        Spread::of(self.turns.iter().map(of)).mid_mean
    }
}

pub(super) async fn measure(world: &World, quick: bool) -> anyhow::Result<Vec<Line>> {
    let (rounds, payments) = if quick { QUICK } else { (ROUNDS, PAYMENTS) };
    let (mut on, mut off) = (Side::start(world, true).await?, Side::start(world, false).await?);
    let mut wrong = Vec::new();
    for (whose, counts) in in_rounds(rounds) {
        let (side, other) = whose.of(&mut on, &mut off);
        // All of the other's payments are settled and told: nothing of it is under way that could be late.
        let held = other.stage.service.hold().await?;
        wrong.extend(side.turn(payments, counts).await?);
        held.release().await;
    }
    for side in [&on, &off] {
        wrong.extend(side.stage.audit(&side.paid).await?);
    }
    let posted = [on.stage.entries().await?, off.stage.entries().await?];
    if posted != [true, false] {
        wrong.push(format!("postings of the two services: {posted:?}"));
    }
    let pairs = || on.turns.iter().zip(&off.turns);
    let cpu_cost = Spread::of(pairs().map(|(on, off)| (on.cpu_us / off.cpu_us - 1.0) * 100.0));
    let cost = Spread::of(pairs().map(|(on, off)| (1.0 - on.per_sec / off.per_sec) * 100.0));
    let [with, without] = [&on, &off].map(|side| (side.middle(|turn| turn.per_sec), side.middle(|turn| turn.cpu_us)));
    let cpu = Line::new("CPU of a settled payment, with postings", with.1, "µs", Goal::None)
        .beside(
            "the same without them, in turns: the middle half's mean of both, and of the ratios of each round",
            without.1,
        )
        .in_pairs(1.0 + cpu_cost.mid_mean / 100.0)
        .ratio_goal(Goal::AtMost(CPU_SHARE_MOST))
        .note(format!("{rounds} rounds of {payments} payments, whoever has no turn is held: they cost {cpu_cost}"))
        .note("the chains' own work included")
        .wrong(wrong);
    let throughput = Line::new("complete payments, with postings", with.0, "/s", Goal::None)
        .beside(
            "the same without them, in turns: the middle half's mean of both, and of the ratios of each round",
            without.0,
        )
        .in_pairs(1.0 - cost.mid_mean / 100.0)
        .ratio_goal(Goal::AtLeast(SHARE_LEAST))
        .note(format!("they cost {cost}"));
    Ok(vec![cpu, throughput])
}
