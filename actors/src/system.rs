//! One running tree: started over a database, reached through a handle, stopped in order.
//!
//! Nothing here is global: a test starts as many as it likes.

mod inbox;
mod initiate;
mod order;
mod refresh;
mod sendings;
mod show;
mod start;
mod wallets;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use payferry_domain::payment::{Command, ObservedTransfer, Payment, Rejection};
use payferry_domain::sending::Rejection as SendingRejection;
use payferry_domain::{Chain, PaymentId};
use payferry_entities::Database;
use payferry_journal::payments;
use payferry_journal::psps::PspDirectory;
use payferry_journal::{Hindrance, Journal};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, Mailbox};
use payferry_runtime::seal::Sealer;
use payferry_runtime::supervise::RootMessage;
use tokio_util::task::AbortOnDropHandle;

use crate::chain::ChainView;
use crate::chains::Chains;
use crate::compliance::identity::ComplianceDesk;
use crate::ledger::check::{Findings, LedgerView};
use crate::observe::{Ferried, Quarantine, TreeBooks};
use crate::pauses::Pauses;
use crate::payment::{Ask, Beside, Message, PaymentServices};
use crate::reconcile::watch::{VaultFindings, VaultsView};
use crate::sending;
use crate::sending::{DeskMessage, SendingServices};
use crate::services::Services;

use inbox::Inbox;
use payferry_webhook::WebhookSender;

pub use initiate::{ChainAsked, InitiateError, InitiatePayment};
pub use order::{OrderAnswer, OrderError, OrderSending};
pub use sendings::SendingView;
pub use show::{OBSERVE_TIMEOUT, PaymentView, SystemView};
pub use start::{ChainSetup, StartError, SystemConfig};

/// Shard supervisors of one tree, unless configured otherwise.
pub const SHARDS_DEFAULT: usize = 16;
/// How long a command waits for its payment before the caller is told that nobody knows what becomes of it: it stays with
/// the payment, which may yet carry it out.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the journal may take to flush when the tree stops.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long each half of the tree may take to stop, milliseconds.
const RETIRE_TIMEOUT_MS: u64 = 3_000;

/// Why a payment did not carry out a command.
pub type CommandError = payferry_domain::CommandError<Rejection>;
/// Why a payout or withdrawal did not carry out a command.
pub type SendingCommandError = payferry_domain::CommandError<SendingRejection>;

/// Handle to a running tree. Clones are the same tree.
#[derive(Clone)]
pub struct System {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Arc<Parts>,
    inbox: Arc<Inbox>,
    sealer: Sealer,
    root: Mailbox<RootMessage>,
    /// The journal's task; ends with the tree.
    _writing: AbortOnDropHandle<()>,
    /// Shows gauges.
    _refreshing: AbortOnDropHandle<()>,
    /// Keeps the list of wallets.
    _keeping: AbortOnDropHandle<()>,
    /// Follows what is paused.
    _following: AbortOnDropHandle<()>,
}

/// The parts of the tree. They outlive their actors' restarts.
struct Parts {
    services: Arc<Services>,
    payments: Arc<PaymentServices>,
    sendings: Arc<SendingServices>,
    /// Set once it runs, and again when it was restarted.
    desk: RwLock<Option<ComplianceDesk>>,
    /// What the auditor of the ledger found.
    ledger: Findings,
    /// What the auditor of the vaults found.
    vaults: VaultFindings,
}

impl System {
    fn services(&self) -> &Arc<Services> {
        &self.inner.parts.services
    }

    fn payments(&self) -> &Arc<PaymentServices> {
        &self.inner.parts.payments
    }

    fn sendings(&self) -> &Arc<SendingServices> {
        &self.inner.parts.sendings
    }

    /// Has a payment carry out a person's command; answers the payment afterwards.
    pub async fn command(
        &self,
        payment_id: PaymentId,
        command: Command,
        beside: impl Into<Beside>,
    ) -> Result<Payment, CommandError> {
        let (reply, replied) = ractor::concurrency::oneshot();
        let ask = Ask { command, beside: beside.into(), reply: reply.into() };
        self.payments().router.send(payment_id, Message::Ask(Box::new(ask)));
        // It may have been taken in, and may yet be written.
        let unknown = |what: &str| CommandError::Unknown(format!("the payment {what}"));
        match tokio::time::timeout(COMMAND_TIMEOUT, replied).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(unknown("was interrupted")),
            Err(_) => Err(unknown("did not answer in time")),
        }
    }

    /// What is known of transfers that a payment has set aside for want of room, what is worth most first; at most so many.
    pub async fn set_aside(&self, payment_id: PaymentId, limit: u64) -> Result<Vec<ObservedTransfer>, CommandError> {
        let Services { database, chains, .. } = &**self.services();
        let unavailable = |error: &dyn std::fmt::Display| CommandError::Unavailable(error.to_string());
        let rows = payments::set_aside_of(database, payment_id, chains.names(), limit)
            .await
            .map_err(|error| unavailable(&error))?;
        chains.facts(database, &rows).await.map_err(|error| unavailable(&error))
    }

    fn books(&self) -> &TreeBooks {
        &self.services().books
    }

    /// Makes the actor of a payment, or of a payout or withdrawal, panic with its next message: to see, in the sandbox and in
    /// tests, that nothing is lost.
    pub fn inject_panic(&self, of: impl Into<Ferried>) {
        match of.into() {
            Ferried::Payment(id) => self.payments().router.send(id, Message::Panic),
            Ferried::Sending(id) => self.sendings().live.to_desk(DeskMessage::Wake(id, sending::Message::Panic)),
        }
    }

    /// Has every shard look for live payments without an actor, as it does by itself every five minutes.
    pub fn sweep_payments(&self) {
        self.payments().router.sweep();
    }

    /// Kills all permanent actors of a kind in the middle of whatever they do: to see, in tests, that nothing is lost.
    pub fn inject_crash(&self, kind: ActorKind) {
        let _ = self.inner.root.cast(RootMessage::Kill(kind));
    }

    /// Why a payment, payout or withdrawal is not run any more, if it is not.
    pub fn quarantine_of(&self, of: impl Into<Ferried>) -> Option<Quarantine> {
        self.books().quarantine_of(of)
    }

    /// Lets a quarantined payment, payout or withdrawal run again, and take in what came meanwhile; answers whether it was
    /// quarantined.
    pub fn release(&self, of: impl Into<Ferried>) -> bool {
        let of = of.into();
        let released = self.books().release(of);
        match of {
            Ferried::Payment(id) if released => self.payments().router.send(id, Message::CatchUp),
            // The settler and the screening tell it what it missed.
            Ferried::Sending(id) if released => {
                self.sendings().live.to_desk(DeskMessage::Wake(id, sending::Message::Resume));
            }
            _ => {}
        }
        released
    }

    /// Lets a quarantined payment run again without telling it what came meanwhile: to see, in tests, that it is not lost.
    pub fn inject_release(&self, payment_id: PaymentId) -> bool {
        let released = self.books().release(payment_id.into());
        if released {
            self.payments().router.send(payment_id, Message::Resume);
        }
        released
    }

    /// Whether every shard runs and has read its live payments; one that was restarted has to do so again.
    pub fn is_ready(&self) -> bool {
        self.payments().is_rehydrated()
    }

    /// Whether the database takes what is written, as far as is known.
    pub fn is_writing(&self) -> bool {
        self.services().journal.is_writing()
    }

    /// Why it does not, and since when.
    pub fn hindrance(&self) -> Option<Hindrance> {
        self.services().journal.hindrance()
    }

    /// How a chain stood when it was last looked at; `None` if it does not run here or was not looked at yet.
    pub fn chain_view(&self, chain: Chain) -> Option<ChainView> {
        self.services().chains.view(chain)
    }

    /// The chains that run here.
    pub fn chains(&self) -> &Chains {
        &self.services().chains
    }

    /// The webhook sender. It may have just been restarted: hold it for one call.
    pub fn webhooks(&self) -> WebhookSender {
        self.services().webhooks.read().clone().expect("set before the tree is handed out")
    }

    /// The compliance desk. It may have just been restarted: hold it for one call.
    pub fn desk(&self) -> ComplianceDesk {
        self.inner.parts.desk.read().clone().expect("set before the tree is handed out")
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.services().database
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.services().journal
    }

    /// The service's time.
    pub fn clock(&self) -> &Clock {
        &self.services().clock
    }

    /// Seals secrets.
    pub fn sealer(&self) -> &Sealer {
        &self.inner.sealer
    }

    /// The PSPs' policies.
    pub fn psps(&self) -> &PspDirectory {
        &self.services().psps
    }

    /// Whether the ledger adds up, as far as its auditor has come.
    pub fn ledger(&self) -> LedgerView {
        self.inner.parts.ledger.view()
    }

    /// Whether vaults hold what the ledger says, as far as their auditor has come.
    pub fn vaults(&self) -> VaultsView {
        self.inner.parts.vaults.view()
    }

    /// What the operator holds back.
    pub fn pauses(&self) -> &Pauses {
        &self.services().pauses
    }

    /// Goes by the pauses as they are in the database now: after a change made here. Other nodes follow within a second.
    pub async fn refresh_pauses(&self) -> Result<(), sea_orm::DbErr> {
        self.services().pauses.refresh(&self.services().chains).await
    }

    /// Stops the tree in order: nothing new comes in, what is queued is handled, and the journal is flushed. Bounded in
    /// time; whatever is cut short is resumed at the next start.
    pub async fn stop(self) {
        let outer = vec![
            ActorKind::Watcher,
            ActorKind::Settler,
            ActorKind::WebhookSender,
            ActorKind::Screening,
            ActorKind::ComplianceDesk,
            ActorKind::Auditor,
        ];
        for kinds in [outer, vec![ActorKind::Shard, ActorKind::SendingDesk]] {
            let retired =
                ractor::call_t!(self.inner.root, |reply| RootMessage::Retire(kinds, reply), RETIRE_TIMEOUT_MS);
            if let Err(error) = retired {
                tracing::error!(%error, "some actors did not stop in time");
            }
        }
        if tokio::time::timeout(FLUSH_TIMEOUT, self.services().journal.close()).await.is_err() {
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

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("payments_live", &self.payments().router.live_len()).finish_non_exhaustive()
    }
}
