//! What the actors' bookkeeping costs: two services that differ in it alone, measured in turns.

use std::time::Duration;

use super::drive::{closed_loop, number};
use super::psp::Psp;
use super::service::{SandboxSetup, Service};
use super::table::{Goal, Line};
use super::world::World;

/// Turns of each: what changes on the machine meanwhile meets both.
const TURNS: u32 = 4;
const CONNECTIONS: usize = 128;
/// The most that bookkeeping may cost, percent.
const COST_GOAL_PERCENT: f64 = 3.0;

struct Side {
    service: Service,
    psp: Psp,
    payments: usize,
    secs: f64,
    cpu_secs: f64,
    made: Vec<String>,
}

impl Side {
    async fn start(world: &World, bookkeeping: bool) -> anyhow::Result<Self> {
        let setup = SandboxSetup { bookkeeping, ..world.setup("books")? };
        let service = Service::sandbox(&setup).await?;
        let psp = Psp::of(&service, CONNECTIONS).await?;
        Ok(Self { service, psp, payments: 0, secs: 0.0, cpu_secs: 0.0, made: Vec::new() })
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
            self.payments += outcome.made.len();
            self.secs += outcome.took.as_secs_f64();
            self.cpu_secs += self.service.cpu_secs()? - before;
        }
        self.made.extend(outcome.made.iter().cloned());
        Ok(outcome.troubles())
    }

    fn per_sec(&self) -> f64 {
        number(self.payments) / self.secs
    }

    fn cpu_us(&self) -> f64 {
        self.cpu_secs * 1e6 / number(self.payments.max(1))
    }
}

pub(super) async fn measure(world: &World, time: Duration) -> anyhow::Result<Vec<Line>> {
    let (mut on, mut off) = (Side::start(world, true).await?, Side::start(world, false).await?);
    let turn = time / 2;
    let mut wrong = Vec::new();
    for number in 0..=TURNS {
        // The first warms up.
        let counts = number > 0;
        // Who begins has the emptier caches: they take turns in that, too.
        let order = if number % 2 == 0 { [&mut on, &mut off] } else { [&mut off, &mut on] };
        for side in order {
            wrong.extend(side.turn(turn, counts).await?);
        }
    }
    for side in [&on, &off] {
        wrong.extend(side.psp.audit(&side.made, 0).await?);
    }
    let cost = (1.0 - on.per_sec() / off.per_sec()) * 100.0;
    let cpu_cost = (on.cpu_us() / off.cpu_us() - 1.0) * 100.0;
    let line = Line::new("bookkeeping's cost in throughput", cost, "%", Goal::AtMost(COST_GOAL_PERCENT))
        .note(format!("{:.0}/s with it, {:.0}/s without: payments made and cancelled", on.per_sec(), off.per_sec()))
        .note(format!("CPU {:.0} µs a payment with it, {:.0} µs without: {cpu_cost:+.1} %", on.cpu_us(), off.cpu_us()))
        .wrong(wrong);
    Ok(vec![line])
}
