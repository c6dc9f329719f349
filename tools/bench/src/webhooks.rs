//! Webhooks delivered a second to a receiver on this machine: a backlog, drained after a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::http::Method;
use parking_lot::Mutex;
use payferry_actors::webhook::IN_FLIGHT_MAX;
use payferry_actors::webhook::signature::{self, Secret};
use tokio::time::Instant;
use url::Url;

use super::drive::number;
use super::psp::{Announced, Psp};
use super::service::{CALL_DEADLINE, Service};
use super::table::{Goal, Line};
use super::world::World;
use payferry_testkit::client::{Client, request};
use payferry_testkit::receiver::{Delivery, Receiver};

const GOAL: f64 = 3_000.0;
/// Payments made and cancelled for the backlog; each announces what a cancellation does.
const PAYMENTS: usize = 10_000;
const PAYMENTS_QUICK: usize = 300;
/// Connections that make the backlog.
const CONNECTIONS: usize = 128;
/// Connections of the bare client: as many as the service may have deliveries under way to one receiver. With fewer the bound
/// would be of that number, and not of what the receiver can take.
const CONNECTIONS_BARE: usize = IN_FLIGHT_MAX;
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
    fn hear(&mut self, heard: Delivery) {
        match heard {
            Delivery::Webhook(arrived) => {
                self.first.get_or_insert(arrived.at);
                self.last = Some(arrived.at);
                *self.events.entry(arrived.webhook_id).or_default() += 1;
            }
            Delivery::Refused(..) => self.forged += 1,
        }
    }

    /// From the first to the last.
    fn took(&self) -> Duration {
        self.last.zip(self.first).map(|(last, first)| last - first).unwrap_or_default()
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
    let mut unsound = service.unsound().await?;
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
    let heard = std::mem::take(&mut *received.lock());
    let took = heard.took();
    let Received { events: came, forged, .. } = heard;
    ensure!(!came.is_empty(), "no webhook arrived");
    let (distinct, repeated) = (came.len(), came.values().sum::<usize>() - came.len());
    let missing = events.iter().filter(|event| !came.contains_key(&event.event_id)).count();
    let strange = distinct - (events.len() - missing);
    let wrong = [
        (missing, "events were not delivered"),
        (strange, "webhooks are of no event in the feed"),
        (forged, "webhooks had no valid signature"),
    ];
    let wrong = wrong.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    unsound.extend(service.unsound().await?);
    service.kill();
    let opened = post_bare(&receiver, &secret, &events).await?;
    let bare = std::mem::take(&mut *received.lock());
    ensure!(bare.forged == 0 && bare.events.len() == events.len(), "the bound delivered {}", bare.events.len());
    let line = Line::new("webhooks delivered", number(distinct) / took.as_secs_f64(), "/s", Goal::AtLeast(GOAL))
        .beside(
            "the same bodies, signed beforehand, from a bare client to the same receiver: no database, no log, no guard",
            number(bare.events.len()) / bare.took().as_secs_f64(),
        )
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
        .note(format!(
            "the service and its bound have up to {CONNECTIONS_BARE} under way; the bound opened {opened} connections",
        ))
        .wrong(wrong.chain(unsound).collect());
    Ok(vec![line])
}

/// Posts the events' bodies as fast as they are answered; says over how many connections.
async fn post_bare(receiver: &Receiver, secret: &str, events: &[Announced]) -> anyhow::Result<u64> {
    let (url, secret) = (Url::parse(receiver.url())?, Secret::parse(secret).context("an unreadable secret")?);
    let client = Client::new(receiver.url(), CONNECTIONS_BARE, CALL_DEADLINE)?;
    let mut signed = Vec::with_capacity(events.len());
    for Announced { event_id, body } in events {
        let at = chrono::Utc::now().timestamp();
        let mut post = request(Method::POST, url.path(), body.to_string().into());
        for (name, value) in [
            (signature::HEADER_ID, event_id.clone()),
            (signature::HEADER_TIMESTAMP, at.to_string()),
            (signature::HEADER_SIGNATURE, secret.sign(event_id, at, body)),
        ] {
            post.headers_mut().insert(name, value.parse()?);
        }
        signed.push(post);
    }
    let signed = Mutex::new(signed);
    let worker = || async {
        loop {
            let Some(next) = signed.lock().pop() else { return anyhow::Ok(()) };
            let answer = client.call(next).await?;
            ensure!(answer.status.is_success(), "the receiver answered {}", answer.status);
        }
    };
    futures::future::try_join_all((0..CONNECTIONS_BARE).map(|_| worker())).await?;
    Ok(client.opened())
}
