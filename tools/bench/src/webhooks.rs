//! Row `webhooks`: webhooks delivered per second to a receiver on this machine: a backlog, drained after a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use parking_lot::Mutex;
use payferry_testkit::client::Client;
use payferry_testkit::receiver::{Receiver, WebhookRequest};
use payferry_testkit::service::{CALL_DEADLINE, Service};
use payferry_testkit::signature::signed_request;
use tokio::time::Instant;
use url::Url;

use super::drive::{number, repeat};
use super::env::Env;
use super::psp::{BenchPsp, FeedEvent, counted};
use super::table::{Goal, TableLine};

const GOAL: f64 = 3_000.0;
/// Payments that are initiated and cancelled for the backlog. Each has the webhooks of a cancellation.
const PAYMENTS: usize = 10_000;
const PAYMENTS_QUICK: usize = 300;
const CONNECTIONS: usize = 128;
/// Connections of the bound: the largest number of deliveries in progress that the service allows for one receiver.
/// With fewer, the connections would limit the bound, and not the receiver.
pub(super) const CONNECTIONS_BOUND: usize = 256;
/// Longest time until the backlog is delivered.
const PATIENCE: Duration = Duration::from_mins(2);
/// Longest delay of a retry: after it, every webhook that was refused is due again.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(6);
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Received {
    /// Number of deliveries by event id.
    events: HashMap<String, usize>,
    forged: usize,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Received {
    fn receive(&mut self, request: WebhookRequest) {
        if request.event().is_err() {
            self.forged += 1;
            return;
        }
        self.first.get_or_insert(request.at);
        self.last = Some(request.at);
        *self.events.entry(request.webhook_id).or_default() += 1;
    }

    /// Returns the time from the first delivery to the last.
    fn took(&self) -> Duration {
        self.last.zip(self.first).map(|(last, first)| last - first).unwrap_or_default()
    }
}

pub(super) async fn measure(env: &Env, quick: bool) -> anyhow::Result<Vec<TableLine>> {
    let payments = if quick { PAYMENTS_QUICK } else { PAYMENTS };
    let received = Arc::new(Mutex::new(Received::default()));
    let receiving = received.clone();
    // It refuses every webhook until it knows the secret.
    let receiver = Receiver::accepting(move |request| receiving.lock().receive(request)).await?;
    let options = env.options("webhooks")?;
    let service = Service::live_sandbox(&options).await?;
    let psp = BenchPsp::of(&service, CONNECTIONS).await?;
    let secret = psp.set_webhook(receiver.url()).await?;
    let since = Instant::now();
    let cancelled = || async { psp.clone().cancel(psp.clone().initiate_patiently().await?).await };
    repeat(CONNECTIONS, payments, cancelled).await?;
    let queueing = since.elapsed();
    let events = psp.feed().await?;
    let mut wrong = service.defects().await?;
    // A new process does not know that the receiver refused, and delivers the backlog at once.
    service.kill();
    tokio::time::sleep(RETRY_DELAY_MAX).await;
    receiver.verify_with(&secret);
    let service = Service::live_sandbox(&options).await?;
    let cpu = service.cpu_secs()?;
    let since = Instant::now();
    while received.lock().events.len() < events.len() && since.elapsed() < PATIENCE {
        tokio::time::sleep(POLL).await;
    }
    let cpu = service.cpu_secs()? - cpu;
    let delivered = std::mem::take(&mut *received.lock());
    let took = delivered.took();
    let Received { events: arrived, forged, .. } = delivered;
    ensure!(!arrived.is_empty(), "no webhook arrived");
    let (distinct, repeated) = (arrived.len(), arrived.values().sum::<usize>() - arrived.len());
    let missing = events.iter().filter(|event| !arrived.contains_key(&event.event_id)).count();
    let unknown = distinct - (events.len() - missing);
    wrong.extend(counted([
        (missing, "events were not delivered"),
        (unknown, "webhooks are of no event in the feed"),
        (forged, "webhooks had no valid signature"),
    ]));
    wrong.extend(service.defects().await?);
    service.kill();
    let opened = post_bare(&receiver, &secret, &events).await?;
    let bare = std::mem::take(&mut *received.lock());
    ensure!(bare.forged == 0 && bare.events.len() == events.len(), "the bound delivered {}", bare.events.len());
    let (backlog, secs) = (events.len(), took.as_secs_f64());
    let (cpu_us, queued_secs) = (cpu * 1e6 / number(distinct), queueing.as_secs_f64());
    let line = TableLine::new("webhooks delivered", number(distinct) / secs, "/s", Goal::AtLeast(GOAL))
        .beside(
            "the same bodies, signed beforehand, from a bare client to the same receiver: no database, no delivery log",
            number(bare.events.len()) / bare.took().as_secs_f64(),
        )
        .note(format!("a backlog of {backlog} after a restart, in {secs:.2} s; {repeated} arrived twice"))
        .note(format!("CPU {cpu_us:.0} µs a delivery; {queued_secs:.1} s to make the backlog"))
        .note(format!(
            "the service and its bound have up to {CONNECTIONS_BOUND} in progress; the bound opened {opened} connections",
        ))
        .wrong(wrong);
    Ok(vec![line])
}

/// Posts the bodies of the events as fast as the receiver responds. Returns the number of connections.
async fn post_bare(receiver: &Receiver, secret: &str, events: &[FeedEvent]) -> anyhow::Result<u64> {
    let url = Url::parse(receiver.url())?;
    let client = Client::new(receiver.url(), CONNECTIONS_BOUND, CALL_DEADLINE)?;
    let sign = |FeedEvent { event_id, body }: &FeedEvent| {
        signed_request(secret, url.path(), event_id, chrono::Utc::now().timestamp(), body)
    };
    let signed = events.iter().map(sign).collect::<anyhow::Result<Vec<_>>>()?;
    let signed = Mutex::new(signed);
    let post = || async {
        let next = signed.lock().pop().ok_or_else(|| "nothing left to post".to_owned())?;
        let response = client.call(next).await.map_err(|error| error.to_string())?;
        if response.status.is_success() { Ok(String::new()) } else { Err(format!("status {}", response.status)) }
    };
    repeat(CONNECTIONS_BOUND, events.len(), post).await?;
    Ok(client.opened())
}
