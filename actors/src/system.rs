//! Handle to one running tree: started on a database, and stopped in order.
//!
//! There is no global state: a test can start several trees.

mod account_signature;
mod authorize;
mod initiate;
mod leases;
mod order;
mod refresh;
mod show;
mod start;
mod wallets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use payferry_domain::payment::{Command, ObservedTransfer, Payment, Rejection};
use payferry_domain::{Address, Asset, Chain, CommandError, OperationId, PaymentId};
use payferry_entities::{Database, OperationStatus};
use payferry_evm::client::EndpointProblem;
use payferry_journal::Journal;
use payferry_journal::audit::NewAuditEntry;
use payferry_journal::payments;
use payferry_journal::psps::PspDirectory;
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, Mailbox};
use payferry_runtime::seal::Sealer;
use payferry_runtime::supervise::RootMessage;
use tokio_util::task::AbortOnDropHandle;

use crate::admission::Admission;
use crate::aggregate::{Aggregate, Aggregates, Message, Request, Services, SupervisorMessage};
use crate::chain::{ChainView, Follower};
use crate::chains::Chains;
use crate::compliance::PlainAccounts;
use crate::compliance::identity::ComplianceService;
use crate::ledger::check::{Findings, LedgerView};
use crate::observe::{ActorSubject, Quarantinable, TreeMetrics};
use crate::outbound::OutboundTransfers;
use crate::pauses::Pauses;
use crate::payment::{Inbox, Payments, ResultRows};
use crate::reconcile::watch::{VaultFindings, VaultsView};

use payferry_nodes::Node;
use payferry_webhook::WebhookSender;

use leases::Leased;

pub use account_signature::{AccountSignatureError, message_hash};
pub use authorize::{AuthorizeError, SignedTerms, VerifiedAuthorization};
pub use initiate::{ChainChoiceRequest, InitiatePayment};
pub use order::{OrderAnswer, OutboundOrder};
pub use payferry_domain::{InitiateError, OrderError};
pub use show::{ActorView, OBSERVE_TIMEOUT, OutboundView, PaymentView, SystemView};
pub use start::{ChainSetup, StartError, SystemConfig};

/// Maximum wait for a command before the caller gets the error that its outcome is unknown. The payment keeps the
/// command and may still run it.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for the journal to flush when the tree stops.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time for recording the end of this node. Without the record, other nodes take over after the TTL.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time for each half of the tree to stop, in milliseconds.
const RETIRE_TIMEOUT_MS: u64 = 3_000;

/// Handle to a running tree. Clones share the tree.
#[derive(Clone, derive_more::Debug)]
#[debug("System {{ payments_live: {}, .. }}", self.payments().live_len())]
pub struct System {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Arc<Parts>,
    leased: Leased,
    inbox: Arc<Inbox>,
    sealer: Sealer,
    root: Mailbox<RootMessage>,
    /// Stores the supervision log.
    _logging: AbortOnDropHandle<()>,
    /// Task of the journal; ends with the tree.
    _writing: AbortOnDropHandle<()>,
    /// Measures the delays that decide about admission.
    _sampling: AbortOnDropHandle<()>,
    /// Updates gauges.
    _refreshing: AbortOnDropHandle<()>,
    /// Maintains the list of wallets.
    _keeping: AbortOnDropHandle<()>,
    /// Follows changes of pauses.
    _following: AbortOnDropHandle<()>,
    /// Followers of the chains, if this node shares the database.
    followers: Mutex<BTreeMap<Chain, RunningFollower>>,
}

/// A follower and its task.
type RunningFollower = (Follower, Arc<AbortOnDropHandle<()>>);

/// The parts of the tree. They outlive their actors' restarts.
struct Parts {
    services: Arc<Services>,
    payments: Arc<Payments>,
    outbound: Arc<OutboundTransfers>,
    /// Set at the start of the actor and at each restart.
    compliance: RwLock<Option<ComplianceService>>,
    /// Findings of the ledger auditor.
    ledger: Findings,
    /// Findings of the vault auditor.
    vaults: VaultFindings,
    accounts: PlainAccounts,
    admission: Arc<Admission>,
}

/// A chain did not say what kind of account an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} did not say if the sender is a plain account")]
pub struct ChainAway(pub Chain);

impl System {
    fn services(&self) -> &Arc<Services> {
        &self.inner.parts.services
    }

    fn payments(&self) -> &Arc<Payments> {
        &self.inner.parts.payments
    }

    fn outbound(&self) -> &Arc<OutboundTransfers> {
        &self.inner.parts.outbound
    }

    /// Runs a request on a payment; returns the payment afterwards.
    pub async fn command(
        &self,
        payment_id: PaymentId,
        command: Command,
        result_rows: impl Into<ResultRows>,
    ) -> Result<Payment, CommandError<Rejection>> {
        run(self.payments(), payment_id, command, result_rows.into(), "the payment").await
    }

    /// Runs a request on a payment; a refund above a limit is accepted and waits for the operator's approval. `rows`
    /// makes the rows of each attempt.
    pub async fn command_or_hold(
        &self,
        payment_id: PaymentId,
        command: Command,
        rows: impl Fn() -> ResultRows,
    ) -> Result<Payment, CommandError<Rejection>> {
        let held = command.held();
        match (self.command(payment_id, command, rows()).await, held) {
            (Err(CommandError::AboveDailyLimit | CommandError::AboveSendLimit(_)), Some(held)) => {
                self.command(payment_id, held, rows()).await
            }
            (outcome, _) => outcome,
        }
    }

    /// True if an address is a plain account on this chain: one with a key, not a contract. `None` if the chain does not
    /// say so in time.
    pub async fn is_plain(&self, chain: Chain, address: Address) -> Option<bool> {
        self.inner.parts.accounts.is_plain(chain, address).await
    }

    /// How far the settler is with a queued authorization: queued, submitted or collected.
    pub fn authorization_progress(&self, chain: Chain, operation: OperationId) -> &'static str {
        self.chains()
            .settler(chain)
            .map_or(OperationStatus::Queued.as_str(), |settler| settler.authorization_progress(operation))
    }

    /// The only sender of a payment's funds in this token (`None`: the due one), if a refund goes to it and the chain
    /// says that it is a plain account. `to` is `None` if the refund goes to the sender anyway.
    pub async fn plain_recipient(
        &self,
        payment: &Payment,
        asset: Option<Asset>,
        to: Option<Address>,
    ) -> Result<Option<Address>, ChainAway> {
        let sender = payment.sole_sender(asset).filter(|sender| to.is_none_or(|to| to == *sender));
        let Some(sender) = sender else { return Ok(None) };
        let chain = asset.map_or(payment.terms.chain, |asset| asset.chain);
        let is_plain = self.is_plain(chain, sender).await.ok_or(ChainAway(chain))?;
        Ok(is_plain.then_some(sender))
    }

    /// Up to `limit` transfers that a payment has set aside because its list is full, highest amount first.
    pub async fn set_aside(
        &self,
        payment_id: PaymentId,
        limit: u64,
    ) -> Result<Vec<ObservedTransfer>, CommandError<Rejection>> {
        let Services { database, chains, .. } = &**self.services();
        let unavailable = |error: &dyn std::fmt::Display| CommandError::Unavailable(error.to_string());
        let rows = payments::set_aside_of(database, payment_id, chains.running().map(|spec| spec.chain), limit)
            .await
            .map_err(|error| unavailable(&error))?;
        chains.facts(database, &rows).await.map_err(|error| unavailable(&error))
    }

    fn registry(&self) -> &TreeMetrics {
        &self.services().registry
    }

    /// Makes the actor of a payment, payout or withdrawal panic on its next message, for tests and the sandbox.
    #[cfg(feature = "faults")]
    pub fn inject_panic(&self, of: impl Into<ActorSubject>) {
        match of.into() {
            ActorSubject::Payment(id) => self.payments().send(id, Message::Panic),
            ActorSubject::OutboundTransfer(id) => self.outbound().send(id, Message::Panic),
        }
    }

    /// Asks every shard to look for live payments without an actor, which it also does every five minutes.
    pub fn sweep_payments(&self) {
        self.payments().each_supervisor(|| SupervisorMessage::Sweep(None));
    }

    /// Has every shard look for actors that may leave, which it also does every 30 s.
    pub fn rest_payments(&self) {
        self.payments().each_supervisor(|| SupervisorMessage::Rest);
    }

    /// Kills all permanent actors of a kind in the middle of their work, for tests.
    #[cfg(feature = "faults")]
    pub fn inject_crash(&self, kind: ActorKind) {
        let _ = self.inner.root.cast(RootMessage::Kill(kind));
    }

    /// Releases a quarantined payment, payout or withdrawal, which then applies what it missed, or a customer; returns true
    /// if it was quarantined. `audited`: entries of the operator that are written with it.
    pub async fn release(
        &self,
        of: impl Into<Quarantinable>,
        audited: Vec<NewAuditEntry>,
    ) -> Result<bool, sea_orm::DbErr> {
        let of = of.into();
        if !self.registry().release(of, audited, self.clock().now()).await? {
            return Ok(false);
        }
        match of {
            Quarantinable::Actor(ActorSubject::Payment(id)) => self.payments().send(id, Message::CatchUp),
            Quarantinable::Actor(ActorSubject::OutboundTransfer(id)) => self.outbound().send(id, Message::CatchUp),
            // Its checks are repeated until they are applied.
            Quarantinable::Customer(_) => {}
        }
        self.chains().repeat_outcomes();
        Ok(true)
    }

    /// Releases a quarantined payment without applying what it missed, for tests.
    #[cfg(feature = "faults")]
    pub async fn inject_release(&self, payment_id: PaymentId) -> Result<bool, sea_orm::DbErr> {
        let released = self.registry().release(payment_id.into(), Vec::new(), self.clock().now()).await?;
        if released {
            self.payments().send(payment_id, Message::Resume);
        }
        Ok(released)
    }

    /// True if every shard is running and has read its live payments. A restarted shard must read them again.
    pub fn is_ready(&self) -> bool {
        self.payments().is_started()
    }

    /// View of a chain at its last poll; `None` if it is not configured or was not polled yet.
    pub fn chain_view(&self, chain: Chain) -> Option<ChainView> {
        self.services().chains.view(chain)
    }

    /// The configured chains.
    pub fn chains(&self) -> &Chains {
        &self.services().chains
    }

    /// Problems of endpoints, by chain. The only endpoint of a chain is left out: its problem is the chain's.
    pub fn endpoint_problems(&self) -> Vec<(Chain, EndpointProblem)> {
        let several = self.inner.leased.clients.iter().filter(|(_, client)| client.endpoints_len() > 1);
        several.flat_map(|(spec, client)| client.problems().into_iter().map(|problem| (spec.chain, problem))).collect()
    }

    /// The webhook sender. Use the handle for one call only, because the actor may be restarted.
    pub fn webhooks(&self) -> WebhookSender {
        self.services().webhooks.read().clone().expect("set before the tree is handed out")
    }

    /// The compliance service. Use the handle for one call only, because the actor may be restarted.
    pub fn compliance(&self) -> ComplianceService {
        self.inner.parts.compliance.read().clone().expect("set before the tree is handed out")
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.services().database
    }

    /// This node.
    pub fn node(&self) -> &Node {
        &self.services().node
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.services().journal
    }

    /// The service's clock.
    pub fn clock(&self) -> &Clock {
        &self.services().clock
    }

    /// Encrypts secrets.
    pub fn sealer(&self) -> &Sealer {
        &self.inner.sealer
    }

    /// The PSPs' policies.
    pub fn psps(&self) -> &PspDirectory {
        &self.services().psps
    }

    /// State of the ledger, as far as its auditor has checked it.
    pub fn ledger(&self) -> LedgerView {
        self.inner.parts.ledger.view()
    }

    /// State of the vaults compared with the ledger, as far as their auditor has checked them.
    pub fn vaults(&self) -> VaultsView {
        self.inner.parts.vaults.view()
    }

    /// Pauses set by the operator.
    pub fn pauses(&self) -> &Pauses {
        &self.services().pauses
    }

    /// Reloads the pauses from the database, after a change made here. Other nodes follow within a second.
    pub async fn refresh_pauses(&self) -> Result<(), sea_orm::DbErr> {
        self.services().pauses.refresh(&self.services().chains).await
    }

    /// Stops the tree in order: accepts nothing new, handles queued messages, and flushes the journal. The time is
    /// limited; interrupted work is resumed at the next start.
    pub async fn stop(self) {
        let outer = vec![
            ActorKind::Watcher,
            ActorKind::Settler,
            ActorKind::WebhookSender,
            ActorKind::Screening,
            ActorKind::ComplianceService,
            ActorKind::Announcer,
            ActorKind::Auditor,
        ];
        for kinds in [outer, vec![ActorKind::Shard, ActorKind::OutboundSupervisor]] {
            let retired =
                ractor::call_t!(self.inner.root, |reply| RootMessage::Retire(kinds, reply), RETIRE_TIMEOUT_MS);
            if let Err(error) = retired {
                tracing::error!(%error, "some actors did not stop in time");
            }
        }
        if tokio::time::timeout(FLUSH_TIMEOUT, self.services().journal.close()).await.is_err() {
            tracing::error!("the journal could not be flushed in time; uncommitted writes were not acknowledged");
        }
        match tokio::time::timeout(LEAVE_TIMEOUT, self.node().leave()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the end of this node could not be recorded"),
            Err(_) => tracing::warn!("the end of this node could not be recorded in time"),
        }
        self.inner.root.stop(None);
    }
}

/// Runs a request on an aggregate, which `name` describes; returns the aggregate afterwards.
async fn run<A: Aggregate>(
    aggregates: &Aggregates<A>,
    id: A::Id,
    command: A::Command,
    rows: A::Rows,
    name: &str,
) -> Result<A, CommandError<A::Rejection>> {
    let (reply, replied) = ractor::concurrency::oneshot();
    aggregates.send(id, Message::Take(Box::new(Request { command, rows, reply: Some(reply.into()) })));
    // The command may have been received, and may still be written.
    let unknown = |what: &str| CommandError::Unknown(format!("{name} {what}"));
    match tokio::time::timeout(COMMAND_TIMEOUT, replied).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(unknown("was interrupted")),
        Err(_) => Err(unknown("did not respond in time")),
    }
}

impl Drop for Inner {
    /// Ends a tree without handles at once, like a crash: it would otherwise continue without its journal.
    fn drop(&mut self) {
        self.root.kill();
    }
}
