//! One running tree: started over a database, reached through a handle, stopped in order.
//!
//! Nothing here is global: a test starts as many as it likes.

mod initiate;
mod start;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use payferry_domain::payment::{Command, Payment, Rejection};
use payferry_domain::{Chain, PaymentId};
use payferry_entities::Database;
use ractor::ActorRef;
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use crate::chain::ChainView;
use crate::chains::Chains;
use crate::clock::Clock;
use crate::journal::Journal;
use crate::observe::{ActorKind, Incident, Quarantine};
use crate::payment::{AnswerRow, Ask, CommandFailure, Message, PaymentView, Services};
use crate::psps::PspDirectory;
use crate::seal::Sealer;
use crate::supervise::RootMessage;
use crate::webhook::WebhookSender;

pub use initiate::{ChainAsked, InitiateError, InitiatePayment};
pub use start::{ChainSetup, StartError, SystemConfig};

/// Shard supervisors of one tree, unless configured otherwise.
pub const SHARDS_DEFAULT: usize = 16;
/// How long a command waits for its payment before the caller is told to try again.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the journal may take to flush when the tree stops.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long each half of the tree may take to stop, milliseconds.
const RETIRE_TIMEOUT_MS: u64 = 3_000;

/// Why a command was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommandError {
    /// There is no such payment.
    #[error("no such payment")]
    NotFound,
    /// It does not fit the payment.
    #[error(transparent)]
    Rejected(Rejection),
    /// The payment failed too often and waits for an operator.
    #[error("the payment is quarantined")]
    Quarantined,
    /// The idempotency key is taken.
    #[error("the idempotency key was used before")]
    IdempotencyKeyTaken,
    /// Try again; with an idempotency key, or after a look at the payment.
    #[error("{0}")]
    Unavailable(String),
}

/// What the tree shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct SystemView {
    /// Whether every shard has read its live payments.
    pub ready: bool,
    /// Live payment actors.
    pub payments_live: usize,
    /// Payment actors started so far.
    pub payments_spawned: u64,
    /// Restarts so far.
    pub restarts: BTreeMap<ActorKind, u64>,
    /// Payments given up until an operator looks at them.
    pub quarantined: BTreeMap<PaymentId, Quarantine>,
    /// Recent incidents, newest first.
    pub incidents: Vec<Incident>,
}

/// Handle to a running tree. Clones are the same tree.
#[derive(Clone)]
pub struct System {
    inner: Arc<Inner>,
}

struct Inner {
    services: Arc<Services>,
    sealer: Sealer,
    root: ActorRef<RootMessage>,
    /// The journal's task; ends with the tree.
    _writing: AbortOnDropHandle<()>,
}

impl System {
    /// Has a payment carry out a person's command; answers the payment afterwards.
    pub async fn command(
        &self,
        payment_id: PaymentId,
        command: Command,
        answer: Option<AnswerRow>,
    ) -> Result<Payment, CommandError> {
        let (reply, replied) = ractor::concurrency::oneshot();
        let ask = Ask { command, answer, reply: reply.into() };
        self.inner.services.router.send(payment_id, Message::Ask(Box::new(ask)));
        let away = |what: &str| CommandError::Unavailable(format!("the payment {what}"));
        match tokio::time::timeout(COMMAND_TIMEOUT, replied).await {
            Ok(Ok(Ok(payment))) => Ok(payment),
            Ok(Ok(Err(failure))) => Err(failure.into()),
            Ok(Err(_)) => Err(away("was interrupted")),
            Err(_) => Err(away("did not answer in time")),
        }
    }

    /// Shows a live payment's actor; `None` if it has none.
    pub async fn observe_payment(&self, payment_id: PaymentId) -> Option<PaymentView> {
        let actor = self.inner.services.router.live(payment_id)?;
        let (reply, replied) = ractor::concurrency::oneshot();
        actor.cast(Message::Observe(reply.into())).ok()?;
        tokio::time::timeout(COMMAND_TIMEOUT, replied).await.ok()?.ok()
    }

    /// Makes a payment's actor panic with its next message: to see, in the sandbox and in tests, that nothing is lost.
    pub fn inject_panic(&self, payment_id: PaymentId) {
        self.inner.services.router.send(payment_id, Message::Panic);
    }

    /// Kills all permanent actors of a kind in the middle of whatever they do: to see, in tests, that nothing is lost.
    pub fn inject_crash(&self, kind: ActorKind) {
        let _ = self.inner.root.cast(RootMessage::Kill(kind));
    }

    /// Lets a quarantined payment run again; answers whether it was quarantined.
    pub fn release(&self, payment_id: PaymentId) -> bool {
        let services = &self.inner.services;
        let released = services.log.release(payment_id);
        if released {
            services.router.send(payment_id, Message::Resume);
        }
        released
    }

    /// What the tree shows of itself.
    pub fn observe(&self) -> SystemView {
        let services = &self.inner.services;
        SystemView {
            ready: self.is_ready(),
            payments_live: services.router.live_len(),
            payments_spawned: services.router.spawned(),
            restarts: services.log.restarts(),
            quarantined: services.log.quarantine(),
            incidents: services.log.recent(),
        }
    }

    /// Whether every shard has read its live payments.
    pub fn is_ready(&self) -> bool {
        self.inner.services.rehydrated.load(Ordering::Acquire) >= self.inner.services.router.shards_len()
    }

    /// Whether the database takes what is written, as far as is known.
    pub fn is_writing(&self) -> bool {
        self.inner.services.journal.is_writing()
    }

    /// How a chain stood when it was last looked at; `None` if it does not run here or was not looked at yet.
    pub fn chain_view(&self, chain: Chain) -> Option<ChainView> {
        self.inner.services.chains.view(chain)
    }

    /// The chains that run here.
    pub fn chains(&self) -> &Chains {
        &self.inner.services.chains
    }

    /// The webhook sender. It may have just been restarted: hold it for one call.
    pub fn webhooks(&self) -> WebhookSender {
        self.inner.services.webhooks.read().clone().expect("set before the tree is handed out")
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.inner.services.database
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.inner.services.journal
    }

    /// The service's time.
    pub fn clock(&self) -> &Clock {
        &self.inner.services.clock
    }

    /// Seals secrets.
    pub fn sealer(&self) -> &Sealer {
        &self.inner.sealer
    }

    /// The PSPs' policies.
    pub fn psps(&self) -> &PspDirectory {
        &self.inner.services.psps
    }

    /// Stops the tree in order: nothing new comes in, what is queued is handled, and the journal is flushed. Bounded in
    /// time; whatever is cut short is resumed at the next start.
    pub async fn stop(self) {
        let outer = vec![ActorKind::Watcher, ActorKind::Settler, ActorKind::WebhookSender, ActorKind::Screening];
        for kinds in [outer, vec![ActorKind::Shard]] {
            let retired =
                ractor::call_t!(self.inner.root, |reply| RootMessage::Retire(kinds, reply), RETIRE_TIMEOUT_MS);
            if let Err(error) = retired {
                tracing::error!(%error, "some actors did not stop in time");
            }
        }
        if tokio::time::timeout(FLUSH_TIMEOUT, self.inner.services.journal.close()).await.is_err() {
            tracing::error!(
                "the journal could not be flushed in time; what was not committed was not acknowledged either"
            );
        }
        self.inner.root.stop(None);
    }
}

impl Drop for Inner {
    /// A tree that nobody holds ends at once, as by a crash: it would go on without its journal.
    fn drop(&mut self) {
        self.root.kill();
    }
}

impl From<CommandFailure> for CommandError {
    fn from(failure: CommandFailure) -> Self {
        match failure {
            CommandFailure::Rejected(rejection) => Self::Rejected(rejection),
            CommandFailure::IdempotencyKeyTaken => Self::IdempotencyKeyTaken,
            CommandFailure::Unknown => Self::NotFound,
            CommandFailure::Quarantined => Self::Quarantined,
            CommandFailure::Unavailable(reason) => Self::Unavailable(reason),
        }
    }
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("payments_live", &self.inner.services.router.live_len()).finish_non_exhaustive()
    }
}
