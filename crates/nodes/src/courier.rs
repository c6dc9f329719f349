//! Nudges between nodes, by PostgreSQL's notifications.
//!
//! A nudge carries an id, never a fact: its receiver reads the database. A lost nudge costs one polling interval. Nudges are
//! collected for a moment and sent together, on a connection of their own and never inside a write's transaction, because
//! notifications serialise the commits of the whole server. A node that runs alone sends and receives none.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use payferry_domain::NodeId;
use payferry_entities::Database;
use sqlx::postgres::PgListener;
use strum::IntoStaticStr;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::heartbeat::Member;
use crate::{metrics, statements};

/// Channel of the notifications.
const CHANNEL: &str = "payferry_nudges";
/// Time for which nudges are collected. What they are about is then done together, with fewer commits.
const COLLECTED_FOR: Duration = Duration::from_millis(10);
/// Longest payload; the server refuses 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_900;
/// Nudges that wait to be sent. Further ones are dropped.
const WAITING_MAX: usize = 50_000;
/// Interval in which this node sends at least one notification, so that its listener knows that it works.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Time without an own notification after which the listener connects again.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Pause before the listener connects again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Subject of a nudge.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::EnumIter,
    strum::EnumString,
    IntoStaticStr,
    strum::Display,
)]
#[strum(serialize_all = "snake_case")]
pub enum Topic {
    /// A payment or an outbound transfer has a new state; its id.
    Touched,
    /// There are new facts of a chain about a payment or an outbound transfer; its id.
    Noted,
    /// A payment has a new state; its id. For pages that are open on other nodes.
    Changed,
    /// The feed of a PSP grew; its id.
    Published,
    /// The settings of a PSP's webhooks changed, or old deliveries are queued again; its id.
    Webhooks,
    /// Operations are queued on a chain.
    Queued,
    /// The view of a chain changed.
    Moved,
    /// Leases were handed over.
    Leases,
}

/// A nudge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nudge {
    /// Topic.
    pub topic: Topic,
    /// An id or a name; see [`Topic`].
    pub subject: String,
}

/// Message for the receiver of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A nudge of another node.
    Nudge(Nudge),
    /// The listener connected again: nudges may be lost.
    Missed,
}

type Receiver = Box<dyn Fn(Received) + Send + Sync>;

/// Sends and receives nudges. Clones share it. The default one does nothing.
#[derive(Clone, Default)]
pub struct Courier(Option<Arc<Shared>>);

struct Shared {
    me: NodeId,
    waiting: Mutex<BTreeSet<Nudge>>,
    filled: Notify,
    receiver: OnceLock<Receiver>,
    leases_moved: watch::Sender<()>,
    members: watch::Receiver<Vec<Member>>,
    tasks: OnceLock<[AbortOnDropHandle<()>; 2]>,
}

impl Courier {
    pub(crate) fn start(me: NodeId, database: Database, members: watch::Receiver<Vec<Member>>) -> Self {
        let shared = Arc::new(Shared {
            me,
            waiting: Mutex::default(),
            filled: Notify::new(),
            receiver: OnceLock::new(),
            leases_moved: watch::Sender::new(()),
            members,
            tasks: OnceLock::new(),
        });
        let sending = tokio::spawn(send(Arc::downgrade(&shared), database.clone()));
        let listening = tokio::spawn(listen(Arc::downgrade(&shared), database));
        let _ = shared.tasks.set([sending, listening].map(AbortOnDropHandle::new));
        Self(Some(shared))
    }

    /// True if nudges reach other nodes: there are any.
    pub fn has_receivers(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.members.borrow().len() > 1)
    }

    /// Sends a nudge soon.
    pub fn nudge(&self, topic: Topic, subject: impl Into<String>) {
        if !self.has_receivers() {
            return;
        }
        let Some(shared) = &self.0 else { return };
        let mut waiting = shared.waiting.lock();
        if waiting.len() < WAITING_MAX {
            waiting.insert(Nudge { topic, subject: subject.into() });
        }
        drop(waiting);
        shared.filled.notify_one();
    }

    /// Registers the receiver of nudges, which must not block. Only the first call has an effect.
    pub fn receive(&self, receiver: impl Fn(Received) + Send + Sync + 'static) {
        if let Some(shared) = &self.0 {
            let _ = shared.receiver.set(Box::new(receiver));
        }
    }

    /// Notified when another node has handed leases over.
    pub(crate) fn leases_moved(&self) -> watch::Receiver<()> {
        self.0.as_ref().map_or_else(|| watch::Sender::new(()).subscribe(), |shared| shared.leases_moved.subscribe())
    }
}

impl Shared {
    /// Keeps nudges for the next attempt. A repeated nudge is harmless.
    fn keep(&self, nudges: BTreeSet<Nudge>) {
        let mut waiting = self.waiting.lock();
        let room = WAITING_MAX.saturating_sub(waiting.len());
        waiting.extend(nudges.into_iter().take(room));
    }

    fn received(&self, received: Received) {
        if let Received::Nudge(Nudge { topic: Topic::Leases, .. }) | Received::Missed = received {
            self.leases_moved.send_replace(());
        }
        if let Some(receiver) = self.receiver.get() {
            receiver(received);
        }
    }
}

async fn send(shared: Weak<Shared>, database: Database) {
    let mut connection = database.unreplicated();
    loop {
        let Some(courier) = shared.upgrade() else { return };
        let _ = tokio::time::timeout(TICK_INTERVAL, courier.filled.notified()).await;
        tokio::time::sleep(COLLECTED_FOR).await;
        let nudges = std::mem::take(&mut *courier.waiting.lock());
        for nudge in &nudges {
            metrics::NUDGES.add(&[("topic", nudge.topic.into())], 1);
        }
        let mut is_sent = true;
        for payload in payloads(courier.me, &nudges) {
            let sent =
                statements::run(&connection, "SELECT 1 FROM pg_notify($1, $2)", [CHANNEL.into(), payload.into()]);
            if let Err(error) = sent.await {
                tracing::warn!(%error, "nudges could not be sent; other nodes find the changes by polling");
                // Another server may have become the primary.
                connection = database.unreplicated();
                is_sent = false;
                break;
            }
        }
        if !is_sent {
            courier.keep(nudges);
        }
    }
}

/// Payloads with these nudges: the sender's id in the first line, then one nudge per line. At least one.
fn payloads(me: NodeId, nudges: &BTreeSet<Nudge>) -> Vec<String> {
    let mut payloads = vec![me.to_string()];
    for Nudge { topic, subject } in nudges {
        let line = format!("\n{topic} {subject}");
        if payloads.last().is_some_and(|last| last.len() + line.len() > PAYLOAD_BYTES_MAX) {
            payloads.push(me.to_string());
        }
        if let Some(last) = payloads.last_mut() {
            last.push_str(&line);
        }
    }
    payloads
}

/// The sender and the nudges of a payload. Nudges of another version are ignored.
fn parsed(payload: &str) -> (&str, Vec<Nudge>) {
    let mut lines = payload.lines();
    let sender = lines.next().unwrap_or_default();
    let nudge = |line: &str| {
        let (topic, subject) = line.split_once(' ')?;
        Some(Nudge { topic: topic.parse().ok()?, subject: subject.to_owned() })
    };
    (sender, lines.filter_map(nudge).collect())
}

async fn listen(shared: Weak<Shared>, database: Database) {
    let Some(mut pool) = database.listener_pool() else { return };
    loop {
        if let Err(error) = listen_on(&shared, &pool).await {
            tracing::debug!(%error, "the listener of nudges connects again");
        }
        if shared.strong_count() == 0 {
            return;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
        pool = database.listener_pool().unwrap_or(pool);
    }
}

async fn listen_on(shared: &Weak<Shared>, pool: &sqlx::PgPool) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    let Some(courier) = shared.upgrade() else { return Ok(()) };
    courier.received(Received::Missed);
    let me = courier.me.to_string();
    drop(courier);
    let mut heard = Instant::now();
    loop {
        let Ok(received) = tokio::time::timeout_at(heard + SILENCE_MAX, listener.try_recv()).await else {
            return Ok(());
        };
        // The listener has lost its connection and made a new one.
        let Some(notification) = received? else { return Ok(()) };
        let Some(courier) = shared.upgrade() else { return Ok(()) };
        let (sender, nudges) = parsed(notification.payload());
        if sender == me {
            heard = Instant::now();
        } else {
            for nudge in nudges {
                courier.received(Received::Nudge(nudge));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_hold_every_nudge_and_are_short_enough() {
        let me = NodeId::generate();
        assert_eq!(payloads(me, &BTreeSet::new()), [me.to_string()], "a tick");
        let subject = |number: usize| format!("pay_{number:026}");
        let nudges: BTreeSet<Nudge> =
            (0..1_000).map(|number| Nudge { topic: Topic::Touched, subject: subject(number) }).collect();
        let sent = payloads(me, &nudges);
        assert!(sent.len() > 1 && sent.iter().all(|payload| payload.len() <= PAYLOAD_BYTES_MAX));
        let received: BTreeSet<Nudge> = sent.iter().flat_map(|payload| parsed(payload).1).collect();
        assert_eq!(received, nudges);
        assert_eq!(parsed("node_1\nfuture x\nmoved base").1.len(), 1, "a topic of another version is ignored");
    }
}
