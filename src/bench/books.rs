//! What the actors' bookkeeping costs: two services that differ in it alone, measured in turns.

use std::time::Duration;

use super::drive::{closed_loop, number};
use super::hold::turns;
use super::psp::Psp;
use super::service::{SandboxSetup, Service};
use super::table::{Goal, Line};
use super::world::World;

/// Rounds, in each of which both have a turn: what changes on the machine meanwhile meets both. Each round is a
/// measurement of its own, so that the figure is seen beside its spread.
const ROUNDS: u32 = 12;
/// The same in a quick run.
const ROUNDS_QUICK: u32 = 3;
/// In the time that a measurement takes there are so many turns.
const TURNS: u32 = 5;
const CONNECTIONS: usize = 128;
/// The most that bookkeeping may cost, percent.
const COST_GOAL_PERCENT: f64 = 3.0;

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

    fn median(&self, of: impl Fn(&Turn) -> f64) -> f64 {
        Spread::of(self.turns.iter().map(of)).median
    }
}

/// Where the middle half of several measurements of one thing lies.
#[derive(Debug, PartialEq)]
pub(super) struct Spread {
    lower: f64,
    pub(super) median: f64,
    upper: f64,
}

impl Spread {
    pub(super) fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |quarters: usize| {
            let last = sorted.len().saturating_sub(1);
            let figure = |place: usize| sorted.get(place.min(last)).copied().unwrap_or_default();
            let (place, rest) = (last * quarters / 4, last * quarters % 4);
            figure(place) + (figure(place + 1) - figure(place)) * number(rest) / 4.0
        };
        Self { lower: at(1), median: at(2), upper: at(3) }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:+.1} % (middle half of the rounds: {:+.1} to {:+.1} %)", self.median, self.lower, self.upper)
    }
}

pub(super) async fn measure(world: &World, time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let rounds = if quick { ROUNDS_QUICK } else { ROUNDS };
    // More of them where turns would be too long.
    let (rounds, turn) = turns(time / TURNS * rounds, rounds);
    let (mut on, mut off) = (Side::start(world, true).await?, Side::start(world, false).await?);
    let mut wrong = Vec::new();
    for number in 0..=rounds {
        // The first warms up.
        let counts = number > 0;
        // Who begins has the emptier caches: they take turns in that, too.
        let on_begins = number % 2 == 0;
        for is_on in [on_begins, !on_begins] {
            let (side, other) = if is_on { (&mut on, &off) } else { (&mut off, &on) };
            let held = other.service.hold().await?;
            wrong.extend(side.turn(turn, counts).await?);
            held.release().await;
        }
    }
    for side in [&on, &off] {
        wrong.extend(side.psp.audit(&side.made, 0).await?);
        wrong.extend(side.service.unsound().await?);
    }
    let pairs = || on.turns.iter().zip(&off.turns);
    let cost = Spread::of(pairs().map(|(on, off)| (1.0 - on.per_sec / off.per_sec) * 100.0));
    let cpu_cost = Spread::of(pairs().map(|(on, off)| (on.cpu_us / off.cpu_us - 1.0) * 100.0));
    // What two services that do not differ would show: each turn against the same service's turn before it.
    let noise = [&on, &off].into_iter().flat_map(|side| side.turns.windows(2));
    let noise = Spread::of(noise.map(|turns| (1.0 - turns[1].per_sec / turns[0].per_sec) * 100.0));
    let [with, without] = [&on, &off].map(|side| (side.median(|turn| turn.per_sec), side.median(|turn| turn.cpu_us)));
    let line = Line::new("bookkeeping's cost in throughput", cost.median, "%", Goal::AtMost(COST_GOAL_PERCENT))
        .unbounded("the figure is already of one service against the other, both measured here")
        .note(format!(
            "{rounds} rounds, whoever has no turn is held: {cost}; a turn against the one before it of the same service: \
             {noise}",
        ))
        .note(format!("{:.0}/s with it, {:.0}/s without: payments made and cancelled", with.0, without.0))
        .note(format!("CPU {:.0} µs a payment with it, {:.0} µs without: {cpu_cost}", with.1, without.1))
        .wrong(wrong);
    Ok(vec![line])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_half_of_measurements() {
        let spread = Spread::of([9.0, 1.0, 5.0, 3.0, 7.0].into_iter());
        assert_eq!(spread, Spread { lower: 3.0, median: 5.0, upper: 7.0 });
        assert_eq!(spread.to_string(), "+5.0 % (middle half of the rounds: +3.0 to +7.0 %)");
        let between = Spread::of([4.0, 1.0, 3.0, 2.0].into_iter());
        assert_eq!(between, Spread { lower: 1.75, median: 2.5, upper: 3.25 });
        assert_eq!(Spread::of(std::iter::empty()), Spread { lower: 0.0, median: 0.0, upper: 0.0 });
    }
}
