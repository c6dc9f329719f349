//! What the actors' bookkeeping costs: two services that differ in it alone, measured in turns.

use std::time::Duration;

use super::drive::{closed_loop, number};
use super::hold::{in_rounds, turns};
use super::psp::Psp;
use super::service::{SandboxSetup, Service};
use super::spread::Spread;
use super::table::{Goal, Line};
use super::world::World;

/// Pairs of services, one that keeps books and one that does not: a process keeps for its life what it got at its start
/// (its place in memory, its file's on the disk), so that one pair alone would show that, too. Who is started first
/// changes with each pair.
const PAIRS: u32 = 4;
/// Rounds of a pair, in each of which both have a turn: what changes on the machine meanwhile meets both. Each round is a
/// measurement of its own, so that the figure is seen beside its spread. Many short ones: what comes every few seconds, such
/// as a log that begins anew, is in a few of them then, which the middle half leaves out, and not in half of them.
const ROUNDS: u32 = 12;
/// The same in a quick run.
const QUICK: (u32, u32) = (2, 2);
/// In the time that a measurement takes there are so many turns.
const TURNS: u32 = 15;
const CONNECTIONS: usize = 128;
/// The share of the throughput without books that is wanted with them: 3 % is the most that they may cost.
const SHARE_LEAST: f64 = 0.97;

struct Side {
    service: Service,
    psp: Psp,
    turns: Vec<Turn>,
    made: Vec<String>,
}

/// What one turn came to.
#[derive(Clone, Copy)]
struct Turn {
    per_sec: f64,
    cpu_us: f64,
}

impl Side {
    async fn start(world: &World, bookkeeping: bool) -> anyhow::Result<Self> {
        let setup = SandboxSetup { bookkeeping, ..world.setup("books")? };
        let service = Service::sandbox(&setup).await?;
        let psp = Psp::of(&service, CONNECTIONS).await?;
        Ok(Self { service, psp, turns: Vec::new(), made: Vec::new() })
    }

    /// Makes and cancels payments, so that their actors have something to handle.
    async fn turn(&mut self, time: Duration, counts: bool) -> anyhow::Result<Vec<String>> {
        let before = self.service.cpu_secs()?;
        let ask = || {
            let psp = self.psp.clone();
            async move { psp.clone().cancel(psp.initiate().await?).await }
        };
        let outcome = closed_loop(CONNECTIONS, time, ask).await;
        if counts {
            let cpu_us = (self.service.cpu_secs()? - before) * 1e6 / number(outcome.made.len().max(1));
            self.turns.push(Turn { per_sec: outcome.per_sec(), cpu_us });
        }
        self.made.extend(outcome.made.iter().cloned());
        Ok(outcome.troubles())
    }
}

/// One pair, whose turns are measured.
struct Pair {
    on: Side,
    off: Side,
}

impl Pair {
    async fn start(world: &World, on_first: bool) -> anyhow::Result<Self> {
        if on_first {
            let on = Side::start(world, true).await?;
            return Ok(Self { on, off: Side::start(world, false).await? });
        }
        let off = Side::start(world, false).await?;
        Ok(Self { on: Side::start(world, true).await?, off })
    }

    /// Has both take so many turns; answers what went wrong.
    async fn take_turns(&mut self, rounds: u32, turn: Duration) -> anyhow::Result<Vec<String>> {
        let Self { on, off } = self;
        let mut wrong = Vec::new();
        for (whose, counts) in in_rounds(rounds) {
            let (side, other) = whose.of(&mut *on, &mut *off);
            let held = other.service.hold().await?;
            wrong.extend(side.turn(turn, counts).await?);
            held.release().await;
        }
        for side in [on, off] {
            wrong.extend(side.psp.audit(&side.made, 0).await?);
            wrong.extend(side.service.unsound().await?);
        }
        Ok(wrong)
    }
}

pub(super) async fn measure(world: &World, time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let (pairs, rounds) = if quick { QUICK } else { (PAIRS, ROUNDS) };
    // More of them where turns would be too long.
    let (rounds, turn) = turns(time / TURNS * rounds, rounds);
    let (mut on, mut off): (Vec<Turn>, Vec<Turn>) = Default::default();
    let (mut wrong, mut noise) = (Vec::new(), Vec::new());
    for number in 0..pairs {
        let mut pair = Pair::start(world, number % 2 == 0).await?;
        wrong.extend(pair.take_turns(rounds, turn).await?);
        // What two services that do not differ would show: each turn against the same service's turn before it.
        let turns = [&pair.on, &pair.off].into_iter().flat_map(|side| side.turns.windows(2));
        noise.extend(turns.map(|turns| cost(turns[1].per_sec, turns[0].per_sec)));
        on.extend(pair.on.turns);
        off.extend(pair.off.turns);
    }
    let paired = || on.iter().zip(&off);
    let throughput = Spread::of(paired().map(|(on, off)| cost(on.per_sec, off.per_sec)));
    let cpu = Spread::of(paired().map(|(on, off)| -cost(on.cpu_us, off.cpu_us)));
    let [with, without] = [&on, &off].map(|turns| {
        (
            Spread::of(turns.iter().map(|turn| turn.per_sec)).mid_mean,
            Spread::of(turns.iter().map(|turn| turn.cpu_us)).mid_mean,
        )
    });
    let line = Line::new("payments made and cancelled, with bookkeeping", with.0, "/s", Goal::None)
        .beside("the same without it, in turns: the middle half's mean of both, and of the ratios of each round", without.0)
        .in_pairs(1.0 - throughput.mid_mean / 100.0)
        .ratio_goal(Goal::AtLeast(SHARE_LEAST))
        .note(format!(
            "{pairs} pairs of services, {rounds} rounds each, whoever has no turn is held: it costs {throughput}; a turn against \
             the one before it of the same service: {}",
            Spread::of(noise.into_iter()),
        ))
        .note(format!("CPU {:.0} µs a payment with it, {:.0} µs without: {cpu}", with.1, without.1))
        .wrong(wrong);
    Ok(vec![line])
}

/// By how much less `with` is than `without`, percent.
fn cost(with: f64, without: f64) -> f64 {
    (1.0 - with / without) * 100.0
}
