//! The settler of one chain: turns queued operations into transactions and sees them through to finality.
//!
//! Signed bytes are stored before they are sent, so that a crash at any point costs time only: the next settler sends
//! them again. Nothing it keeps in memory is needed to go on. How a batch goes out is in `submit`, what becomes of it in
//! `resolve`, and what of a nonce that it does not get past in `nonces`. Deliberately absent: what an outcome means to a
//! payment.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use payferry_domain::{Address, Timestamp};
use payferry_entities::Database;
use payferry_evm::client::ChainClient;
use payferry_evm::config::ChainSpec;
use payferry_evm::pace::{AbortOnDrop, HeldUp, Looks, Pass, gather};
use payferry_evm::wallet::OperatorSigner;
use payferry_journal::Journal;
use payferry_journal::chain::Role;
use payferry_journal::chain::queue;
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, Behaviour, Books, Mailbox};
use ractor::{ActorCell, ActorProcessingErr, RpcReplyPort, SpawnErr};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::checkpoint::{Checkpoint, NoCheckpoint};
use super::errors::{Errors, SettleError};
use super::gas_money;
use super::metrics;
use super::watchlist::Watchlist;
use crate::inbox::PaymentInbox;

/// Reaches a chain's settler, whichever incarnation of it runs. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct SettlerHandle {
    inner: Arc<HandleInner>,
}

#[derive(Debug, Default)]
struct HandleInner {
    nudged: Notify,
    settle_paused: AtomicBool,
    send_paused: AtomicBool,
    submitted: AtomicU64,
    trouble: RwLock<Option<(Timestamp, String)>>,
    gas_balance_wei: RwLock<Option<u128>>,
}

impl SettlerHandle {
    /// For a settler that is to be spawned.
    pub fn new() -> Self {
        Self::default()
    }

    /// Operations were queued. They go out within the batch window; without the nudge at the next look.
    pub fn nudge(&self) {
        self.inner.nudged.notify_one();
    }

    /// Holds back new transactions of a role, or lets them go again. What is on its way is seen through.
    pub fn set_paused(&self, role: Role, paused: bool) {
        self.flag(role).store(paused, Ordering::Release);
        self.nudge();
    }

    /// Whether new transactions of the role are held back.
    pub fn is_paused(&self, role: Role) -> bool {
        self.flag(role).load(Ordering::Acquire)
    }

    /// Transactions signed by all incarnations of the settler.
    pub fn submitted_total(&self) -> u64 {
        self.inner.submitted.load(Ordering::Relaxed)
    }

    /// Why settling is held up at the moment, if so: by the last pass of any incarnation.
    pub fn trouble(&self) -> Option<String> {
        self.inner.trouble.read().as_ref().map(|(_, why)| why.clone())
    }

    /// Since when it is, by the wall clock, whatever the reason was at first.
    pub fn trouble_since(&self) -> Option<Timestamp> {
        self.inner.trouble.read().as_ref().map(|(since, _)| *since)
    }

    /// What the account that signs holds of the chain's own coin, wei: of two accounts the poorer one. As it was when that was
    /// last read; `None` until it was.
    pub fn gas_balance_wei(&self) -> Option<u128> {
        *self.inner.gas_balance_wei.read()
    }

    pub(super) fn weighed(&self, gas_balance_wei: u128) {
        *self.inner.gas_balance_wei.write() = Some(gas_balance_wei);
    }

    fn tell_trouble(&self, trouble: Option<&str>, now: Timestamp) {
        let mut told = self.inner.trouble.write();
        let since = told.as_ref().map_or(now, |(since, _)| *since);
        *told = trouble.map(|why| (since, why.to_owned()));
    }

    pub(super) fn count_submitted(&self) {
        self.inner.submitted.fetch_add(1, Ordering::Relaxed);
    }

    fn flag(&self, role: Role) -> &AtomicBool {
        match role {
            Role::Settle => &self.inner.settle_paused,
            Role::Send => &self.inner.send_paused,
        }
    }
}

/// The actor.
#[derive(Debug, Default)]
pub struct Settler;

/// What a settler needs. Kept by the supervisor, which spawns the next one with a clone.
#[derive(Clone)]
pub struct SettlerArgs {
    /// The chain.
    pub spec: Arc<ChainSpec>,
    /// Its endpoints.
    pub client: ChainClient,
    /// For reading.
    pub database: Database,
    /// For writing.
    pub journal: Journal,
    /// How the chain stands, by its watcher.
    pub watchlist: Watchlist,
    /// Where payments are told.
    pub inbox: Arc<dyn PaymentInbox>,
    /// The service's clock. Settling goes by wall-clock time, whatever the sandbox does to it.
    pub clock: Clock,
    /// Who settles.
    pub settle_signer: OperatorSigner,
    /// Who sends; may be the same account.
    pub send_signer: OperatorSigner,
    /// Where the rest of the process reaches it.
    pub handle: SettlerHandle,
    /// [`NoCheckpoint`] outside tests.
    pub checkpoint: Arc<dyn Checkpoint>,
}

impl SettlerArgs {
    /// The default checkpoint: none.
    pub fn no_checkpoint() -> Arc<dyn Checkpoint> {
        Arc::new(NoCheckpoint)
    }

    /// Whoever pays for gas, each once.
    pub(super) fn payers(&self) -> Vec<Address> {
        let mut payers = vec![self.settle_signer.address(), self.send_signer.address()];
        payers.dedup();
        payers
    }

    pub(super) fn signer(&self, role: Role) -> &OperatorSigner {
        match role {
            Role::Settle => &self.settle_signer,
            Role::Send => &self.send_signer,
        }
    }

    /// Who signed as this account.
    pub(super) fn signer_of(&self, sender: &str) -> Option<&OperatorSigner> {
        let sender: Address = sender.parse().ok()?;
        [&self.settle_signer, &self.send_signer].into_iter().find(|signer| signer.address() == sender)
    }
}

impl std::fmt::Debug for SettlerArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SettlerArgs").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// What a settler is told.
#[derive(Debug)]
pub enum SettlerMessage {
    /// Operations were queued: wait for more, then send.
    Nudge,
    /// The wait is over.
    Flush,
    /// The chain moved, or time passed: see what became of everything.
    Look,
    /// Show how things stand.
    Observe(RpcReplyPort<SettlerReport>),
}

/// How a settler stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SettlerReport {
    /// Transactions not mined yet.
    pub unmined: usize,
    /// Transactions not final yet.
    pub open: usize,
    /// Batches signed since it started.
    pub batches: u64,
    /// Operations signed since it started.
    pub operations: u64,
    /// Transactions signed again with higher fees since it started.
    pub raised: u64,
    /// Passes with errors in a row.
    pub failures: u32,
    /// Why it cannot go on, if it cannot.
    pub trouble: Option<String>,
}

/// What a running settler remembers, to do less; none of it is needed.
pub struct SettlerState {
    pub(super) args: SettlerArgs,
    pub(super) report: SettlerReport,
    /// What was told, at which revision, and when.
    pub(super) told: HashMap<String, (i64, Instant)>,
    /// Failures that were told, at which revision, and when.
    pub(super) failed_told: HashMap<String, (i64, Instant)>,
    /// Operations whose vault does not hold enough yet: looks so far, and when to look again.
    pub(super) short: HashMap<String, (u32, Instant)>,
    /// When each transaction was sent last.
    pub(super) sent: HashMap<i64, Instant>,
    /// Since when the chain has used a nonce without any of our hashes.
    pub(super) usurped: HashMap<i64, Instant>,
    /// The newest attempt at each transaction that is not mined, and the last block read when it was first looked at.
    pub(super) passed: HashMap<i64, (String, u64)>,
    /// How far down operations that are done on-chain were searched for.
    pub(super) searched: HashMap<String, u64>,
    /// Whether what was mined before it began was sent again.
    pub(super) sent_again: bool,
    /// Where the next look at mined transactions goes on.
    pub(super) mined_page: queue::Page,
    /// Where the next look at mined operations goes on.
    pub(super) done_page: queue::Page,
    /// Where the next look at failed operations goes on.
    pub(super) failed_page: queue::Page,
    /// Why transactions that are not mined were not taken when they were sent last.
    pub(super) refused: BTreeMap<i64, HeldUp>,
    window_open: bool,
    looks: Looks,
    /// How it gets on with what is under way, and with what is queued.
    looking: Pass,
    sending: Pass,
    _ticker: AbortOnDrop,
    _weigher: AbortOnDrop,
}

impl std::fmt::Debug for SettlerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SettlerState").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Settler {
    /// Starts it, under whoever restarts it.
    pub async fn start(
        books: &Books,
        args: SettlerArgs,
        supervisor: Option<ActorCell>,
    ) -> Result<Mailbox<SettlerMessage>, SpawnErr> {
        books.spawn(args.spec.chain.as_str(), Self, args, supervisor).await
    }
}

impl Behaviour for Settler {
    const KIND: ActorKind = ActorKind::Settler;
    type Msg = SettlerMessage;
    type State = SettlerState;
    type Arguments = SettlerArgs;

    async fn pre_start(
        &self,
        myself: &Mailbox<SettlerMessage>,
        mut args: SettlerArgs,
    ) -> Result<SettlerState, ActorProcessingErr> {
        args.client = args.client.of_chain(args.spec.chain, args.spec.chain_id);
        let looks = Looks::default();
        // What the one before it said is shown still: whoever finds that it is over has to know of it.
        let report = SettlerReport { trouble: args.handle.trouble(), ..SettlerReport::default() };
        let ticker = AbortOnDrop(tokio::spawn(tick(myself.clone(), args.clone(), looks.clone())));
        let weigher = AbortOnDrop(tokio::spawn(gas_money::weigh(args.clone())));
        Ok(SettlerState {
            args,
            report,
            told: HashMap::new(),
            failed_told: HashMap::new(),
            short: HashMap::new(),
            sent: HashMap::new(),
            usurped: HashMap::new(),
            passed: HashMap::new(),
            searched: HashMap::new(),
            sent_again: false,
            mined_page: queue::Page::default(),
            done_page: queue::Page::default(),
            failed_page: queue::Page::default(),
            refused: BTreeMap::new(),
            window_open: false,
            looks,
            looking: Pass::default(),
            sending: Pass::default(),
            _ticker: ticker,
            _weigher: weigher,
        })
    }

    async fn post_start(
        &self,
        myself: &Mailbox<SettlerMessage>,
        _state: &mut SettlerState,
    ) -> Result<(), ActorProcessingErr> {
        let _ = myself.cast(SettlerMessage::Look);
        Ok(())
    }

    async fn handle(
        &self,
        myself: &Mailbox<SettlerMessage>,
        message: SettlerMessage,
        state: &mut SettlerState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SettlerMessage::Nudge => state.open_window(myself),
            SettlerMessage::Flush => {
                state.window_open = false;
                if state.sending.is_due() {
                    let mut errors = Errors::default();
                    let outcome = Box::pin(state.submit(&mut errors)).await;
                    errors.take(outcome)?;
                    state.sending.conclude(errors.into_held_up());
                    state.report_trouble();
                }
            }
            SettlerMessage::Look => {
                state.looks.begun();
                if state.looking.is_due() {
                    let mut errors = Errors::default();
                    let outcome = Box::pin(state.look(myself, &mut errors)).await;
                    errors.take(outcome)?;
                    state.looking.conclude(errors.into_held_up());
                    state.report_trouble();
                }
            }
            SettlerMessage::Observe(reply) => {
                let _ = reply.send(state.report.clone());
            }
        }
        Ok(())
    }
}

/// Turns nudges, the watcher's progress and time into messages, at most one look of which waits in the mailbox.
async fn tick(settler: Mailbox<SettlerMessage>, args: SettlerArgs, looks: Looks) {
    let mut moved = args.watchlist.moved(args.spec.chain);
    let interval = args.spec.poll_interval.max(Duration::from_millis(50));
    loop {
        let look = || looks.ask(&settler, SettlerMessage::Look);
        let sent = tokio::select! {
            () = args.handle.inner.nudged.notified() => settler.cast(SettlerMessage::Nudge).is_ok(),
            Ok(()) = moved.changed() => look(),
            () = tokio::time::sleep(interval) => look(),
        };
        if !sent {
            return;
        }
    }
}

impl SettlerState {
    fn open_window(&mut self, myself: &Mailbox<SettlerMessage>) {
        if !self.window_open {
            self.window_open = true;
            myself.send_after(self.args.spec.batch_window, || SettlerMessage::Flush);
        }
    }

    /// Sees what became of everything that is under way, and whether there is something to send.
    async fn look(&mut self, myself: &Mailbox<SettlerMessage>, errors: &mut Errors) -> Result<(), SettleError> {
        // What holds up one of them (a fee above the ceiling, say) does not hold up the others.
        let resolved = self.resolve(errors).await;
        errors.take(resolved)?;
        let completed = self.complete(errors).await;
        errors.take(completed)?;
        metrics::queued(self.args.spec.chain, queue::queued_len(&self.args.database, self.args.spec.chain).await?);
        if !self.window_open {
            if self.has_queued().await? {
                self.open_window(myself);
            } else {
                // Nothing is left that could be held up.
                self.sending.went_well();
            }
        }
        Ok(())
    }

    async fn has_queued(&self) -> Result<bool, SettleError> {
        let now = self.args.clock.real_now();
        for role in Role::ALL {
            let found = queue::queued(&self.args.database, self.args.spec.chain, role, now, 1).await?;
            if !found.is_empty() && !self.args.handle.is_paused(role) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Asks the checkpoint.
    pub(super) fn reached(&self, step: super::checkpoint::Step) -> Result<(), SettleError> {
        Ok(self.args.checkpoint.reached(step)?)
    }

    /// Says what holds settling up, if anything does, once per change: the gravest of all that does.
    fn report_trouble(&mut self) {
        let chain = self.args.spec.chain;
        // Sent again and again, but somebody has to know: no gas, most often.
        let refused = self.refused.values();
        let all = self.looking.held_up().into_iter().chain(self.sending.held_up()).chain(refused);
        let trouble = gather(all.cloned()).map(|held_up| held_up.why);
        self.report.failures = self.looking.failures().max(self.sending.failures());
        metrics::settler_trouble(chain, trouble.is_some());
        if self.report.trouble != trouble {
            if let Some(reason) = &trouble {
                tracing::warn!(%chain, %reason, "settling on {chain} is held up");
            } else {
                tracing::info!(%chain, "settling on {chain} goes on");
            }
            self.args.handle.tell_trouble(trouble.as_deref(), self.args.clock.real_now());
            self.report.trouble = trouble;
        }
    }
}
