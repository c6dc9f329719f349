//! Webhooks delivered a second to a receiver on this machine: a backlog, drained after a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::drive::number;
use super::psp::Psp;
use super::service::Service;
use super::table::{Goal, Line};
use super::world::World;
use crate::load::receiver::{Heard, Receiver};

const GOAL: f64 = 3_000.0;
/// Payments made and cancelled for the backlog; each announces what a cancellation does.
const PAYMENTS: usize = 10_000;
const PAYMENTS_QUICK: usize = 300;
/// Connections that make the backlog.
const CONNECTIONS: usize = 128;
/// How long the backlog may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// What was refused is due again by then: it would only be waited for.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(6);
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Received {
    /// By event id: how often it came.
    events: HashMap<String, usize>,
    forged: usize,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Received {
    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Webhook(arrived) => {
                self.first.get_or_insert(arrived.at);
                self.last = Some(arrived.at);
                *self.events.entry(arrived.webhook_id).or_default() += 1;
            }
            Heard::Refused(..) => self.forged += 1,
        }
    }
}

pub(super) async fn measure(world: &World, quick: bool) -> anyhow::Result<Vec<Line>> {
    let payments = if quick { PAYMENTS_QUICK } else { PAYMENTS };
    let received = Arc::new(Mutex::new(Received::default()));
    let hearing = received.clone();
    // It refuses everything until it knows the secret.
    let receiver = Receiver::start(move |heard| hearing.lock().hear(heard)).await?;
    let setup = world.setup("webhooks")?;
    let service = Service::sandbox(&setup).await?;
    let psp = Psp::of(&service, CONNECTIONS).await?;
    let secret = psp.set_webhook(receiver.url()).await?;
    let since = Instant::now();
    let left = std::sync::atomic::AtomicUsize::new(payments);
    let worker = || async {
        use std::sync::atomic::Ordering::Relaxed;
        while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            let id = psp.clone().initiate().await.map_err(anyhow::Error::msg)?;
            psp.clone().cancel(id).await.map_err(anyhow::Error::msg)?;
        }
        anyhow::Ok(())
    };
    futures::future::try_join_all((0..CONNECTIONS).map(|_| worker())).await?;
    let queueing = since.elapsed();
    let events = psp.feed().await?;
    // A new process knows nothing of the receiver's refusals, and goes at the backlog at once.
    service.kill();
    tokio::time::sleep(RETRY_DELAY_MAX).await;
    receiver.verify_with(&secret);
    let service = Service::sandbox(&setup).await?;
    let cpu = service.cpu_secs()?;
    let since = Instant::now();
    while received.lock().events.len() < events.len() && since.elapsed() < PATIENCE {
        tokio::time::sleep(POLL).await;
    }
    let cpu = service.cpu_secs()? - cpu;
    let Received { events: came, forged, first, last } = std::mem::take(&mut *received.lock());
    ensure!(!came.is_empty(), "no webhook arrived");
    let took = last.zip(first).map(|(last, first)| last - first).unwrap_or_default();
    let (distinct, repeated) = (came.len(), came.values().sum::<usize>() - came.len());
    let missing = events.iter().filter(|id| !came.contains_key(*id)).count();
    let strange = distinct - (events.len() - missing);
    let wrong = [
        (missing, "events were not delivered"),
        (strange, "webhooks are of no event in the feed"),
        (forged, "webhooks had no valid signature"),
    ];
    let wrong = wrong.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let line = Line::new("webhooks delivered", number(distinct) / took.as_secs_f64(), "/s", Goal::AtLeast(GOAL))
        .note(format!(
            "a backlog of {} after a restart, in {:.2} s; {repeated} came twice",
            events.len(),
            took.as_secs_f64()
        ))
        .note(format!(
            "CPU {:.0} µs a delivery; {:.1} s to make the backlog",
            cpu * 1e6 / number(distinct),
            queueing.as_secs_f64()
        ))
        .wrong(wrong.collect());
    Ok(vec![line])
}
