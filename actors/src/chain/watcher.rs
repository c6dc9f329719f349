//! Watcher of one chain: reads every block once, commits transfers and the cursor together, then notifies payments.
//!
//! Polling is authoritative; a wake-up only shortens the wait. All state is rebuilt from the database. An error never
//! moves the cursor. Deliberately absent: the effect of a transfer on a payment.

use std::sync::Arc;
use std::time::Duration;

use derive_more::Deref;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use payferry_domain::Address;
use payferry_evm::client::ClientError;
use payferry_evm::config::{L1Data, SpecError};
use payferry_evm::pace::{CoalescedMessage, backoff};
use payferry_evm::{Degradation, eip3009};
use payferry_journal::chain::cursor::Known;
use payferry_journal::chain::rows::{self, LoadError};
use payferry_nodes::Lease;
use payferry_runtime::observe::{ActorKind, ActorResult, Behaviour, Mailbox};
use ractor::RpcReplyPort;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::block_transfers::Reader;
use super::poll::PollError;
use super::rescan::{Rescan, RescanResult};
use super::simulate::send_max;
use super::step_size::StepSize;
use super::sweep::{SWEEP_INTERVAL, Sweep};
use super::{ChainContext, metrics};

/// Consecutive polls of a lagging node before the lag is reported.
const LAG_LOOKS_QUIET: u32 = 3;
/// Longest wait after an error of the database: payments are accepted again soon after it is back.
const BACKOFF_DATABASE_MAX: Duration = Duration::from_secs(2);
/// Wait after the chain was found to differ from its configuration.
const BACKOFF_MISCONFIGURED: Duration = Duration::from_mins(1);

/// Source of wake-ups: yields whenever the chain's head may have moved. A lost signal costs one poll interval.
pub type HeadSignals = Arc<dyn Fn() -> BoxStream<'static, ()> + Send + Sync>;

/// Wake-ups from a watch channel, such as the heads of an in-process chain.
pub fn wake_on_change<T: Send + Sync + 'static>(heads: tokio::sync::watch::Receiver<T>) -> HeadSignals {
    Arc::new(move || {
        let stream = futures::stream::unfold(heads.clone(), |mut heads| async move {
            heads.changed().await.ok()?;
            Some(((), heads))
        });
        stream.boxed()
    })
}

/// Actor of one chain: polls, commits and notifies payments.
#[derive(Clone, Debug, Default)]
pub struct Watcher;

/// Arguments of a watcher. The supervisor keeps them and spawns a replacement from a clone.
#[derive(Clone, Deref)]
pub struct WatcherArgs {
    /// The chain and the services.
    #[deref]
    pub context: ChainContext,
    /// The lease of the chain: every write needs it.
    pub lease: Lease,
    /// Wake-ups besides the poll interval.
    pub wake_ups: Option<HeadSignals>,
}

/// Messages of a watcher.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum WatcherMessage {
    /// Poll the chain.
    Poll,
    /// Notify payments again of transfers that they have not applied.
    Sweep,
    /// Result of a rescan.
    RescanResult(Box<RescanResult>),
    /// A check of large payments' transfers has ended.
    AgreementChecked,
    /// Request for the watcher's state.
    Observe(RpcReplyPort<WatcherReport>),
}

/// State of a watcher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WatcherReport {
    /// The last block read; `None` before the first.
    pub read_number: Option<u64>,
    /// Blocks read since the start.
    pub blocks_read: u64,
    /// Transfers to payments recorded since the start.
    pub transfers_recorded: u64,
    /// Of those, transfers that only a rescan found.
    pub transfers_missed: u64,
    /// Blocks orphaned since the start.
    pub blocks_orphaned: u64,
    /// Current number of blocks per step.
    pub step_blocks: u64,
    /// Consecutive errors.
    pub failures: u32,
    /// Reason why the chain cannot be read, if any.
    #[serde(rename = "trouble")]
    pub degraded_reason: Option<String>,
}

/// Interval between two reads of the L1 charge and the limits, which only requests use.
const TERMS_INTERVAL: Duration = Duration::from_secs(30);
/// Wait after a failed detection of the tokens that support transfers by signature.
const EIP3009_RETRY: Duration = Duration::from_secs(30);
/// Time limit of a read beside the blocks, which delays a poll.
const READ_PATIENCE: Duration = Duration::from_secs(2);

/// Internal state of a running watcher. All of it can be rebuilt.
pub struct WatcherState {
    pub(super) args: WatcherArgs,
    pub(super) reader: Reader,
    pub(super) known: Known,
    pub(super) second: Rescan,
    pub(super) report: WatcherReport,
    pub(super) step: StepSize,
    /// The running check of large payments' transfers, if any.
    pub(super) agreement: Option<AbortOnDropHandle<()>>,
    checked: bool,
    /// True if the last poll found no new block for longer than an outage.
    stood_still: bool,
    not_before: Instant,
    /// L1 charge of a settlement when it was read last.
    pub(super) l1_fee_wei: Option<u128>,
    terms_due: Instant,
    /// Time of the next detection of the tokens that support transfers by signature; `None` once it is known.
    eip3009_due: Option<Instant>,
    polls: CoalescedMessage,
    pub(super) swept: Sweep,
    _ticker: AbortOnDropHandle<()>,
}

impl Behaviour for Watcher {
    const KIND: ActorKind = ActorKind::Watcher;
    type Msg = WatcherMessage;
    type State = WatcherState;
    type Arguments = WatcherArgs;

    fn message_name(message: &Self::Msg) -> &'static str {
        message.into()
    }

    async fn pre_start(&self, myself: &Mailbox<WatcherMessage>, mut args: WatcherArgs) -> ActorResult<WatcherState> {
        let (chain, chain_id) = (args.spec.chain, args.spec.chain_id);
        args.context.client = args.context.client.of_chain(chain, chain_id);
        let (known, second_look_from) = rows::load_known(&args.database, args.spec.chain).await?;
        let polls = CoalescedMessage::default();
        let ticker = AbortOnDropHandle::new(tokio::spawn(tick(myself.clone(), args.clone(), polls.clone())));
        let state = WatcherState {
            reader: Reader::new(&args.spec),
            step: StepSize::new(args.spec.range_blocks_max),
            agreement: None,
            known,
            second: Rescan::at(second_look_from),
            stood_still: false,
            report: WatcherReport::default(),
            checked: false,
            not_before: Instant::now(),
            l1_fee_wei: (args.spec.l1_data == L1Data::None).then_some(0),
            terms_due: Instant::now(),
            eip3009_due: Some(Instant::now()),
            polls,
            swept: Sweep::default(),
            _ticker: ticker,
            args,
        };
        state.args.notify_outages().await?;
        Ok(state)
    }

    async fn post_start(&self, myself: &Mailbox<WatcherMessage>, state: &mut WatcherState) -> ActorResult {
        state.read_psp_vaults().await;
        // Transfers that the previous watcher recorded and may not have notified.
        if let Err(error) = Box::pin(state.args.context.sweep(&mut state.swept, true, |_| true)).await {
            tracing::warn!(chain = %state.args.spec.chain, %error, "unapplied transfers could not be read");
        }
        state.queue_poll(myself);
        Ok(())
    }

    async fn handle(
        &self,
        myself: &Mailbox<WatcherMessage>,
        message: WatcherMessage,
        state: &mut WatcherState,
    ) -> ActorResult {
        match message {
            WatcherMessage::Poll => {
                state.polls.received();
                if Instant::now() < state.not_before {
                    return Ok(());
                }
                if Box::pin(state.step()).await {
                    state.queue_poll(myself);
                }
                state.start_rescan(myself);
                state.start_agreement(myself);
            }
            WatcherMessage::AgreementChecked => {
                state.agreement = None;
                state.start_agreement(myself);
            }
            WatcherMessage::RescanResult(looked) => {
                Box::pin(state.apply_rescan(*looked)).await;
                state.start_rescan(myself);
            }
            WatcherMessage::Sweep => {
                state.read_psp_vaults().await;
                if let Err(error) = Box::pin(state.args.context.sweep(&mut state.swept, false, |_| true)).await {
                    tracing::warn!(chain = %state.args.spec.chain, %error, "unapplied transfers could not be read");
                }
            }
            WatcherMessage::Observe(reply) => {
                let mut report = state.report.clone();
                report.read_number = state.known.tip().map(|tip| tip.number);
                report.step_blocks = state.step.blocks();
                let _ = reply.send(report);
            }
        }
        Ok(())
    }
}

/// Turns intervals, new heads and wake-ups by payments into polls, at most one of which waits in the mailbox.
async fn tick(watcher: Mailbox<WatcherMessage>, args: WatcherArgs, polls: CoalescedMessage) {
    let mut wake_ups = args.wake_ups.as_ref().map(|wake_ups| wake_ups());
    let mut sweeps = tokio::time::interval_at(Instant::now() + SWEEP_INTERVAL, SWEEP_INTERVAL);
    loop {
        let sent = tokio::select! {
            () = tokio::time::sleep(args.spec.poll_interval) => polls.send(&watcher, WatcherMessage::Poll),
            () = args.watchlist.woken(args.spec.chain) => polls.send(&watcher, WatcherMessage::Poll),
            next = next_wake_up(wake_ups.as_mut()) => {
                if next.is_none() {
                    wake_ups = None;
                }
                polls.send(&watcher, WatcherMessage::Poll)
            }
            _ = sweeps.tick() => watcher.cast(WatcherMessage::Sweep).is_ok(),
        };
        if !sent {
            return;
        }
    }
}

/// The result of a read within [`READ_PATIENCE`].
async fn in_time<T>(read: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    tokio::time::timeout(READ_PATIENCE, read).await.unwrap_or(Err(ClientError::Timeout))
}

async fn next_wake_up(wake_ups: Option<&mut BoxStream<'static, ()>>) -> Option<()> {
    match wake_ups {
        Some(wake_ups) => wake_ups.next().await,
        None => futures::future::pending().await,
    }
}

impl WatcherState {
    fn queue_poll(&self, myself: &Mailbox<WatcherMessage>) {
        // A stopping actor ignores the poll; its replacement starts with one.
        let _ = self.polls.send(myself, WatcherMessage::Poll);
    }

    /// Polls once; returns true if there is more to read now.
    async fn step(&mut self) -> bool {
        let outcome = match self.check().await {
            Ok(()) => {
                // Before the first view of the chain: from then on, it is offered to payers with all ways to pay.
                self.detect_eip3009().await;
                self.poll().await
            }
            Err(error) => Err(PollError::Spec(error)),
        };
        match outcome {
            Ok(more) => {
                self.report.failures = 0;
                self.note(None);
                self.note_standstill();
                self.read_terms().await;
                more
            }
            Err(error) => {
                Box::pin(self.fail(error)).await;
                false
            }
        }
    }

    async fn check(&mut self) -> Result<(), SpecError> {
        if !self.checked {
            self.args.spec.check(&self.args.client).await?;
            self.checked = true;
        }
        Ok(())
    }

    /// Reads the vaults of PSPs again. After an error, those read before stay.
    async fn read_psp_vaults(&self) {
        if let Err(error) = self.args.lookup().read_psp_vaults().await {
            tracing::warn!(chain = %self.args.spec.chain, %error, "the PSPs could not be read");
        }
    }

    /// Reads at intervals what requests are checked against: the L1 charge of a settlement, for the choice of a chain, and
    /// the largest outbound transfer of each token. After an error of one of them, its last value stays.
    async fn read_terms(&mut self) {
        if Instant::now() < self.terms_due {
            return;
        }
        let ChainContext { spec, client, watchlist, .. } = &self.args.context;
        let l1_fee = client.l1_fee_per_settlement_wei(spec.l1_data, spec.contract, spec.batch_items_max);
        let (l1_fee, send_max) = tokio::join!(in_time(l1_fee), in_time(send_max(spec, client)));
        let unread =
            |what, error| tracing::warn!(chain = %spec.chain, %error, "{what} of {} cannot be read", spec.chain);
        match l1_fee {
            Ok(wei) => self.l1_fee_wei = Some(wei),
            Err(error) => unread("the L1 data fee", error),
        }
        match send_max {
            Ok(send_max) => watchlist.set_send_max(spec.chain, send_max),
            Err(error) => unread("the limits", error),
        }
        self.terms_due = Instant::now() + TERMS_INTERVAL;
    }

    /// Detects once which tokens support transfers by signature. After an error, it is repeated later.
    async fn detect_eip3009(&mut self) {
        if self.eip3009_due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        let ChainContext { spec, client, watchlist, .. } = &self.args.context;
        let chain = spec.chain;
        let addresses: Vec<Address> = spec.tokens.iter().map(|(_, address)| *address).collect();
        let detecting = eip3009::detect(client, spec.chain_id, &addresses);
        match in_time(detecting).await {
            Ok(found) => {
                for ((token, _), support) in spec.tokens.iter().zip(&found) {
                    match support {
                        Ok(domain) => tracing::info!(%chain, %token, %domain, "{token} supports EIP-3009"),
                        Err(gap) => tracing::info!(%chain, %token, %gap, "{token} does not support EIP-3009"),
                    }
                }
                watchlist.set_eip3009(chain, found.into_iter().flatten().collect());
                self.eip3009_due = None;
            }
            Err(error) => {
                tracing::warn!(%chain, %error, "the tokens' support of EIP-3009 is not known yet");
                self.eip3009_due = Some(Instant::now() + EIP3009_RETRY);
            }
        }
    }

    async fn fail(&mut self, error: PollError) {
        let wait = match &error {
            PollError::Spec(spec) if !spec.is_transient() => BACKOFF_MISCONFIGURED,
            // The endpoints are not the cause, so they need no pause.
            PollError::Journal(_) | PollError::Store(_) => backoff(self.report.failures).min(BACKOFF_DATABASE_MAX),
            _ => error.retry_after().unwrap_or_default().max(backoff(self.report.failures)),
        };
        self.not_before = Instant::now() + wait;
        self.report.failures = self.report.failures.saturating_add(1);
        metrics::poll_failed(self.args.spec.chain, error.degradation());
        if error.wants_reload() {
            self.reload().await;
        }
        // Nodes behind one address are often a block apart, so a short lag is not reported.
        if !error.is_lag() || self.report.failures > LAG_LOOKS_QUIET {
            self.note(Some((error.degradation(), error.to_string())));
        }
        self.note_standstill();
    }

    /// Reloads the cursor from the database: another writer moved it, or the outcome of a commit is unknown.
    pub(super) async fn reload(&mut self) {
        if let Err(load) = self.try_reload().await {
            tracing::warn!(chain = %self.args.spec.chain, error = %load, "the cursor could not be read");
        }
    }

    async fn try_reload(&mut self) -> Result<(), LoadError> {
        (self.known, self.second.from) = rows::load_known(&self.args.database, self.args.spec.chain).await?;
        // Outages that were committed but not notified. Transfers follow in the next sweeps.
        self.args.notify_outages().await
    }

    /// Logs, once per change, why the chain cannot be read, or that it can be read again.
    fn note(&mut self, degraded: Option<(Degradation, String)>) {
        let chain = self.args.spec.chain;
        metrics::record_degradation(chain, degraded.as_ref().map(|(kind, _)| *kind));
        let (kind, reason) = degraded.unzip();
        if self.report.degraded_reason != reason {
            if let (Some(kind), Some(reason)) = (kind, &reason) {
                tracing::warn!(%chain, kind = kind.as_str(), %reason, "chain {chain} cannot be read: {reason}");
            } else {
                tracing::info!(%chain, "chain {chain} can be read again");
            }
            self.report.degraded_reason.clone_from(&reason);
        }
        self.args.watchlist.set_degraded_reason(chain, reason);
    }

    /// Logs, once per change, that there are no new blocks, whatever the reason.
    fn note_standstill(&mut self) {
        let chain = self.args.spec.chain;
        let Some(view) = self.args.watchlist.view(chain) else { return };
        let now = self.args.clock.now();
        metrics::head_age(&view, now);
        let stands_still = view.is_stale(now);
        if stands_still && !self.stood_still {
            tracing::warn!(%chain, head.number = view.head_number, head.age_ms = view.head_age_ms(now),
                "chain {chain} has no new blocks; it is not offered for payments, and no deadline passes on it");
        } else if !stands_still && self.stood_still {
            tracing::info!(%chain, head.number = view.head_number, "chain {chain} has new blocks again");
        }
        self.stood_still = stands_still;
    }
}
