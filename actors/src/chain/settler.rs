//! Settler of one chain: turns queued operations into transactions and tracks them until they are final.
//!
//! Signed bytes are stored before they are sent, so a crash at any point costs only time: the next settler sends them
//! again. The state in memory is not needed to continue. `submit` sends batches, `resolve` tracks them, and `nonces`
//! handles nonce conflicts and gaps. Deliberately absent: the effect of an outcome on a payment.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use derive_more::Deref;
use payferry_domain::Address;
use payferry_evm::client::ClientError;
use payferry_evm::pace::{BlockingError, CoalescedMessage, Pass, Severity, gather};
use payferry_evm::wallet::OperatorSigner;
use payferry_journal::chain::Role;
use payferry_journal::chain::queue::{self, OpenWork};
use payferry_nodes::Lease;
use payferry_runtime::observe::{ActorKind, ActorResult, Behaviour, Mailbox};
use ractor::RpcReplyPort;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::checkpoint::Checkpoint;
use super::collect::RefusedAuthorization;
use super::errors::{Errors, SettleError};
use super::failures::Undecided;
use super::outcomes::SentOutcomes;
use super::settler_handle::SettlerHandle;
use super::simulate::Deferred;
use super::{ChainContext, metrics};

/// Interval of reads of the gas balance: an account lasts for days, and each read is a request to an endpoint.
const GAS_BALANCE_INTERVAL: Duration = Duration::from_mins(1);

/// Actor of one chain: signs, sends and tracks transactions.
#[derive(Clone, Debug, Default)]
pub struct Settler;

/// Arguments of a settler. The supervisor keeps them and spawns a replacement from a clone.
#[derive(Clone, Deref)]
pub struct SettlerArgs {
    /// The chain and the services. Settling uses wall-clock time, even if the sandbox shifts the clock.
    #[deref]
    pub context: ChainContext,
    /// The lease of the chain: every write needs it.
    pub lease: Lease,
    /// Signer of settlements.
    pub settle_signer: OperatorSigner,
    /// Signer of outbound transfers; may be the same account.
    pub send_signer: OperatorSigner,
    /// Handle for the rest of the process.
    pub handle: SettlerHandle,
    /// [`NoCheckpoint`](super::NoCheckpoint) outside tests.
    pub checkpoint: Arc<dyn Checkpoint>,
}

impl SettlerArgs {
    /// Accounts that pay for gas, without duplicates.
    fn payers(&self) -> Vec<Address> {
        let mut payers = vec![self.settle_signer.address(), self.send_signer.address()];
        payers.dedup();
        payers
    }

    pub(super) fn signer(&self, role: Role) -> &OperatorSigner {
        match role {
            Role::Settle | Role::Collect => &self.settle_signer,
            Role::Send => &self.send_signer,
        }
    }

    /// Signer with this account.
    pub(super) fn signer_of(&self, sender: &str) -> Option<&OperatorSigner> {
        let sender: Address = sender.parse().ok()?;
        [&self.settle_signer, &self.send_signer].into_iter().find(|signer| signer.address() == sender)
    }
}

/// Messages of a settler.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SettlerMessage {
    /// The batch window is over, or more operations are due than the last batches took.
    Flush,
    /// The chain moved, or time passed: check all open transactions.
    Poll,
    /// Request for the settler's state.
    Observe(RpcReplyPort<SettlerReport>),
}

/// State of a settler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SettlerReport {
    /// Transactions not yet mined.
    pub unmined: usize,
    /// Transactions not yet final.
    pub open: usize,
    /// Batches signed since the start.
    pub batches: u64,
    /// Operations signed since the start.
    pub operations: u64,
    /// Transactions signed again with higher fees since the start.
    pub raised: u64,
    /// Consecutive passes with errors.
    pub failures: u32,
    /// Reason why settling is blocked, if it is.
    #[serde(rename = "trouble")]
    pub blocked_reason: Option<String>,
}

/// Progress of an unmined transaction.
#[derive(Default)]
pub(super) struct UnminedTx {
    /// Time of the last broadcast.
    pub(super) sent: Option<Instant>,
    /// Time since when the chain has used its nonce without any of our hashes.
    pub(super) nonce_taken: Option<Instant>,
    /// Newest attempt, and the last block read when it was first checked.
    pub(super) checked: Option<(String, u64)>,
    /// Reason why it was rejected at the last broadcast.
    pub(super) refused: Option<BlockingError>,
}

/// Internal state of a running settler. It only avoids work; none of it is needed.
pub struct SettlerState {
    pub(super) args: SettlerArgs,
    pub(super) report: SettlerReport,
    pub(super) outcomes: SentOutcomes,
    /// Operations that would fail now.
    pub(super) deferred: HashMap<String, Deferred>,
    /// Authorizations that the token would refuse now.
    pub(super) authorizations: HashMap<String, RefusedAuthorization>,
    /// Failed operations that a look at the chain did not decide, by id.
    pub(super) undecided: HashMap<String, Undecided>,
    /// Roles whose batches the contract would refuse now.
    pub(super) refused: HashMap<Role, Pass>,
    /// Unmined transactions by row id.
    pub(super) unmined: BTreeMap<i64, UnminedTx>,
    /// Time of the next read of how far authorizations are.
    pub(super) progress_due: Instant,
    /// True if transactions mined before the start were sent again.
    pub(super) sent_again: bool,
    /// True once the sender's nonce was compared with the chain's after the start.
    is_sender_compared: bool,
    /// Next page of mined transactions.
    pub(super) mined_page: queue::QueuePage<i64>,
    /// Next page of mined operations.
    pub(super) done_page: queue::QueuePage<queue::OperationPosition>,
    /// Next page of failed operations.
    pub(super) failed_page: queue::QueuePage<queue::OperationPosition>,
    /// Next page of operations whose outcome was undone.
    pub(super) undone_page: queue::QueuePage<queue::OperationPosition>,
    /// When undone outcomes were last looked for.
    pub(super) undone_at: Option<Instant>,
    polls: CoalescedMessage,
    /// The flush at the end of the batch window, which waits while the window is open.
    flushes: CoalescedMessage,
    /// Progress with open transactions, and with queued operations.
    tracking: Pass,
    sending: Pass,
    _ticker: AbortOnDropHandle<()>,
    _balance_reader: AbortOnDropHandle<()>,
}

impl Behaviour for Settler {
    const KIND: ActorKind = ActorKind::Settler;
    type Msg = SettlerMessage;
    type State = SettlerState;
    type Arguments = SettlerArgs;

    fn message_name(message: &Self::Msg) -> &'static str {
        message.into()
    }

    async fn pre_start(&self, myself: &Mailbox<SettlerMessage>, mut args: SettlerArgs) -> ActorResult<SettlerState> {
        let (chain, chain_id) = (args.spec.chain, args.spec.chain_id);
        args.context.client = args.context.client.of_chain(chain, chain_id);
        let (polls, flushes) = (CoalescedMessage::default(), CoalescedMessage::default());
        // Keep showing the error of the previous settler, so that its end is reported as well.
        let report = SettlerReport { blocked_reason: args.handle.blocked_reason(), ..SettlerReport::default() };
        args.handle.forget_queue_delays();
        let ticker = AbortOnDropHandle::new(tokio::spawn(tick(
            myself.clone(),
            args.clone(),
            [&polls, &flushes].map(Clone::clone),
        )));
        let balance_reader = AbortOnDropHandle::new(tokio::spawn(read_gas_balance(args.clone())));
        Ok(SettlerState {
            args,
            report,
            outcomes: SentOutcomes::default(),
            deferred: HashMap::new(),
            authorizations: HashMap::new(),
            undecided: HashMap::new(),
            refused: HashMap::new(),
            unmined: BTreeMap::new(),
            progress_due: Instant::now(),
            sent_again: false,
            is_sender_compared: false,
            mined_page: queue::QueuePage::default(),
            done_page: queue::QueuePage::default(),
            failed_page: queue::QueuePage::default(),
            undone_page: queue::QueuePage::default(),
            undone_at: None,
            polls,
            flushes,
            tracking: Pass::default(),
            sending: Pass::default(),
            _ticker: ticker,
            _balance_reader: balance_reader,
        })
    }

    async fn post_start(&self, myself: &Mailbox<SettlerMessage>, _state: &mut SettlerState) -> ActorResult {
        let _ = myself.cast(SettlerMessage::Poll);
        Ok(())
    }

    async fn handle(
        &self,
        myself: &Mailbox<SettlerMessage>,
        message: SettlerMessage,
        state: &mut SettlerState,
    ) -> ActorResult {
        match message {
            SettlerMessage::Flush => {
                state.flushes.received();
                if state.sending.is_due() {
                    let mut errors = Errors::default();
                    if Box::pin(state.submit(&mut errors)).await? {
                        // A poll that waits comes first: it records what is mined.
                        state.flushes.send(myself, SettlerMessage::Flush);
                    }
                    state.sending.conclude(errors.into_blocking_errors());
                    state.report_blocked();
                } else {
                    state.args.handle.forget_queue_delays();
                }
            }
            SettlerMessage::Poll => {
                state.polls.received();
                if state.tracking.is_due() {
                    let mut errors = Errors::default();
                    let outcome = Box::pin(state.poll_settler(myself, &mut errors)).await;
                    errors.take(outcome)?;
                    state.tracking.conclude(errors.into_blocking_errors());
                    state.report_blocked();
                }
            }
            SettlerMessage::Observe(reply) => {
                let _ = reply.send(state.report.clone());
            }
        }
        Ok(())
    }

    /// Another node may settle on the chain from now on, and reports what blocks it.
    async fn post_stop(&self, state: &mut SettlerState) -> ActorResult {
        metrics::BLOCKED.set_count(&metrics::of(state.args.spec.chain), 0);
        state.args.handle.forget_queue_delays();
        Ok(())
    }
}

/// Opens the batch window at a nudge, and turns progress of the watcher and time into polls, with at most one of each in the
/// mailbox.
async fn tick(settler: Mailbox<SettlerMessage>, args: SettlerArgs, [polls, flushes]: [CoalescedMessage; 2]) {
    let mut moved = args.watchlist.moved(args.spec.chain);
    let interval = args.spec.poll_interval.max(Duration::from_millis(50));
    loop {
        let poll_settler = || polls.send(&settler, SettlerMessage::Poll);
        let sent = tokio::select! {
            () = args.handle.nudged() => {
                flushes.send_after(args.spec.batch_window, &settler, SettlerMessage::Flush);
                true
            }
            Ok(()) = moved.changed() => poll_settler(),
            () = tokio::time::sleep(interval) => poll_settler(),
        };
        if !sent {
            return;
        }
    }
}

/// Reads the gas balance of the accounts periodically, until it is dropped. Keeps the last value on read errors. A settler
/// that cannot pay reports it by itself ([`SettlerHandle::blocked_reason`]).
async fn read_gas_balance(args: SettlerArgs) {
    let chain = args.spec.chain;
    loop {
        match lowest_balance(&args).await {
            Ok(wei) => {
                args.handle.set_gas_balance(wei);
                metrics::gas_balance(chain, wei);
            }
            // The watcher reports failing endpoints.
            Err(error) => tracing::debug!(%chain, %error, "the gas balance of the signer on {chain} could not be read"),
        }
        tokio::time::sleep(GAS_BALANCE_INTERVAL).await;
    }
}

async fn lowest_balance(args: &SettlerArgs) -> Result<u128, ClientError> {
    let mut lowest = u128::MAX;
    for payer in args.payers() {
        let held = args.client.balance_wei(payer).await?;
        lowest = lowest.min(u128::try_from(held).unwrap_or(u128::MAX));
    }
    Ok(lowest)
}

impl SettlerState {
    /// Checks all open transactions, and opens a batch window if operations are queued.
    async fn poll_settler(&mut self, myself: &Mailbox<SettlerMessage>, errors: &mut Errors) -> Result<(), SettleError> {
        // An error of one part (such as a fee above the ceiling) does not block the others.
        let compared = self.compare_sender().await;
        errors.take(compared)?;
        let mut open = self.open_work().await?;
        let resolved = self.resolve(&open, errors).await;
        errors.take(resolved)?;
        if open.has_txs() {
            open = self.open_work().await?;
        }
        let completed = self.complete(&open, errors).await;
        errors.take(completed)?;
        metrics::QUEUED.set_count(&metrics::of(self.args.spec.chain), open.queued);
        if !self.flushes.is_waiting() {
            if open.queued > 0 && self.has_queued().await? {
                self.flushes.send_after(self.args.spec.batch_window, myself, SettlerMessage::Flush);
            } else {
                // Nothing queued is left that could be blocked.
                self.sending.succeeded();
                self.deferred.clear();
                self.refused.clear();
            }
        }
        Ok(())
    }

    async fn open_work(&self) -> Result<OpenWork, SettleError> {
        let ChainContext { spec, database, watchlist, .. } = &self.args.context;
        let finalized = watchlist.view(spec.chain).map_or(0, |view| view.finalized.unwrap_or(0).min(view.read_number));
        Ok(OpenWork::count(database, spec.chain, finalized).await?)
    }

    async fn compare_sender(&mut self) -> Result<(), SettleError> {
        if !self.is_sender_compared {
            let nonces = self.next_nonces(self.args.send_signer.address()).await?;
            self.is_unreconciled(nonces).await?;
            self.is_sender_compared = true;
        }
        Ok(())
    }

    async fn has_queued(&self) -> Result<bool, SettleError> {
        let now = self.args.clock.real_now();
        for role in Role::ALL {
            let found = queue::queued(&self.args.database, self.args.spec.chain, role, &[], now, 1).await?;
            if !found.is_empty() && !self.args.handle.is_paused(role) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs the checkpoint.
    pub(super) fn reached(&self, step: super::checkpoint::Step) -> Result<(), SettleError> {
        Ok(self.args.checkpoint.reached(step)?)
    }

    /// Reports, once per change, the most severe error that blocks settling, if any.
    fn report_blocked(&mut self) {
        let chain = self.args.spec.chain;
        // Rejected broadcasts are repeated, but the operator must know: most often the account has no gas.
        let refused = self.unmined.values().filter_map(|tx| tx.refused.as_ref());
        let roles = self.refused.values().filter_map(Pass::blocking_error);
        let all = self.tracking.blocking_error().into_iter().chain(self.sending.blocking_error()).chain(refused);
        let waiting = |deferred: &Deferred| BlockingError { severity: Severity::Item, why: deferred.why.clone() };
        let all = all.chain(roles).cloned().chain(self.deferred.values().map(waiting));
        let blocked_reason = gather(all).map(|blocking_error| blocking_error.why);
        self.report.failures = self.tracking.failures().max(self.sending.failures());
        metrics::BLOCKED.set_count(&metrics::of(chain), u64::from(blocked_reason.is_some()));
        if self.report.blocked_reason != blocked_reason {
            if let Some(reason) = &blocked_reason {
                tracing::warn!(%chain, %reason, "settling on {chain} is blocked: {reason}");
            } else {
                tracing::info!(%chain, "settling on {chain} continues");
            }
            self.args.handle.set_blocked_reason(blocked_reason.as_deref(), self.args.clock.real_now());
            self.report.blocked_reason = blocked_reason;
        }
    }
}
