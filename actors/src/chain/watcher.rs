//! The watcher of one chain: reads every block once, records transfers and the cursor in one commit, tells payments.
//!
//! Polling is the truth and a wake-up only shortens the wait. Everything it knows is rebuilt from the database; an
//! error never moves the cursor. Deliberately absent: what a transfer means to a payment.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use payferry_entities::Database;
use payferry_evm::Trouble;
use payferry_evm::client::ChainClient;
use payferry_evm::config::{ChainSpec, SpecError};
use payferry_evm::pace::{AbortOnDrop, Looks, backoff};
use payferry_journal::Journal;
use payferry_journal::chain::cursor::Known;
use payferry_journal::chain::rows;
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, Behaviour, Books, Mailbox};
use ractor::{ActorCell, ActorProcessingErr, RpcReplyPort, SpawnErr};
use serde::Serialize;
use tokio::time::Instant;

use super::metrics;
use super::poll::{Poll, PollError};
use super::reader::Reader;
use super::second_look::{LookedAgain, SecondLook};
use super::sweep::{SWEEP_INTERVAL, Sweep};
use super::watchlist::Watchlist;
use crate::inbox::PaymentInbox;

/// Looks in a row at a node that lags before it is called trouble.
const LAG_LOOKS_QUIET: u32 = 3;
/// The wait after the chain was found to be another one than configured.
const BACKOFF_MISCONFIGURED: Duration = Duration::from_mins(1);

/// Something that says "look now": yields whenever the chain's head may have moved. Losing a signal costs a poll interval.
pub type WakeUps = Arc<dyn Fn() -> BoxStream<'static, ()> + Send + Sync>;

/// Wake-ups from a watch channel, such as an in-process chain's heads.
pub fn wake_on_change<T: Send + Sync + 'static>(heads: tokio::sync::watch::Receiver<T>) -> WakeUps {
    Arc::new(move || {
        let stream = futures::stream::unfold(heads.clone(), |mut heads| async move {
            heads.changed().await.ok()?;
            Some(((), heads))
        });
        stream.boxed()
    })
}

/// The actor.
#[derive(Debug, Default)]
pub struct Watcher;

/// What a watcher needs. Kept by the supervisor, which spawns the next one with a clone.
#[derive(Clone)]
pub struct WatcherArgs {
    /// The chain.
    pub spec: Arc<ChainSpec>,
    /// Its endpoints.
    pub client: ChainClient,
    /// For reading.
    pub database: Database,
    /// For writing.
    pub journal: Journal,
    /// Shared with the rest of the process.
    pub watchlist: Watchlist,
    /// Where payments are told.
    pub inbox: Arc<dyn PaymentInbox>,
    /// The service's clock.
    pub clock: Clock,
    /// Wake-ups besides the poll interval.
    pub wake_ups: Option<WakeUps>,
}

impl std::fmt::Debug for WatcherArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatcherArgs").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// What a watcher is told.
#[derive(Debug)]
pub enum WatcherMessage {
    /// Look at the chain.
    Poll,
    /// Tell transfers again that no payment has taken in.
    Sweep,
    /// Blocks were read a second time.
    LookedAgain(Box<LookedAgain>),
    /// Show how things stand.
    Observe(RpcReplyPort<WatcherReport>),
}

/// How a watcher stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WatcherReport {
    /// The last block read; `None` before the first.
    pub read_number: Option<u64>,
    /// Blocks read since it started.
    pub blocks_read: u64,
    /// Transfers to payments recorded since it started.
    pub transfers_recorded: u64,
    /// Of those, the ones that only a second look found.
    pub transfers_missed: u64,
    /// Blocks taken back since it started.
    pub blocks_orphaned: u64,
    /// Blocks asked for in one step at the moment.
    pub step_blocks: u64,
    /// Errors in a row.
    pub failures: u32,
    /// Why it cannot read, if it cannot.
    pub trouble: Option<String>,
}

/// What a running watcher knows; all of it can be rebuilt.
pub struct WatcherState {
    pub(super) args: WatcherArgs,
    pub(super) reader: Reader,
    pub(super) known: Known,
    pub(super) second: SecondLook,
    pub(super) report: WatcherReport,
    /// Blocks asked for in one step.
    pub(super) step_blocks: u64,
    checked: bool,
    /// Whether the last look found no block for longer than an outage.
    stood_still: bool,
    not_before: Instant,
    polls: Looks,
    pub(super) swept: Sweep,
    _ticker: AbortOnDrop,
}

impl std::fmt::Debug for WatcherState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatcherState").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Watcher {
    /// Starts it, under whoever restarts it.
    pub async fn start(
        books: &Books,
        args: WatcherArgs,
        supervisor: Option<ActorCell>,
    ) -> Result<Mailbox<WatcherMessage>, SpawnErr> {
        books.spawn(args.spec.chain.as_str(), Self, args, supervisor).await
    }
}

impl Behaviour for Watcher {
    const KIND: ActorKind = ActorKind::Watcher;
    type Msg = WatcherMessage;
    type State = WatcherState;
    type Arguments = WatcherArgs;

    async fn pre_start(
        &self,
        myself: &Mailbox<WatcherMessage>,
        mut args: WatcherArgs,
    ) -> Result<WatcherState, ActorProcessingErr> {
        args.client = args.client.of_chain(args.spec.chain, args.spec.chain_id);
        let (known, second_look_from) = rows::load_known(&args.database, args.spec.chain).await?;
        let polls = Looks::default();
        let ticker = AbortOnDrop(tokio::spawn(tick(myself.clone(), args.clone(), polls.clone())));
        let state = WatcherState {
            reader: Reader::new(&args.spec),
            step_blocks: args.spec.range_blocks_max.max(1),
            known,
            second: SecondLook::at(second_look_from),
            stood_still: false,
            report: WatcherReport::default(),
            checked: false,
            not_before: Instant::now(),
            polls,
            swept: Sweep::default(),
            _ticker: ticker,
            args,
        };
        state.tell_gaps_again();
        Ok(state)
    }

    async fn post_start(
        &self,
        myself: &Mailbox<WatcherMessage>,
        state: &mut WatcherState,
    ) -> Result<(), ActorProcessingErr> {
        // What the watcher before this one recorded and may not have told.
        if let Err(error) = Box::pin(state.sweep(true)).await {
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
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WatcherMessage::Poll => {
                state.polls.begun();
                if Instant::now() < state.not_before {
                    return Ok(());
                }
                if Box::pin(state.step()).await {
                    state.queue_poll(myself);
                }
                state.look_again(myself);
            }
            WatcherMessage::LookedAgain(looked) => {
                Box::pin(state.looked_again(*looked)).await;
                state.look_again(myself);
            }
            WatcherMessage::Sweep => {
                if let Err(error) = Box::pin(state.sweep(false)).await {
                    tracing::warn!(chain = %state.args.spec.chain, %error, "unapplied transfers could not be read");
                }
            }
            WatcherMessage::Observe(reply) => {
                let mut report = state.report.clone();
                report.read_number = state.known.tip().map(|tip| tip.number);
                report.step_blocks = state.step_blocks;
                let _ = reply.send(report);
            }
        }
        Ok(())
    }
}

/// Turns intervals, new heads and payments' wishes into polls, at most one of which waits in the mailbox.
async fn tick(watcher: Mailbox<WatcherMessage>, args: WatcherArgs, polls: Looks) {
    let mut wake_ups = args.wake_ups.as_ref().map(|wake_ups| wake_ups());
    let mut sweeps = tokio::time::interval_at(Instant::now() + SWEEP_INTERVAL, SWEEP_INTERVAL);
    loop {
        let sent = tokio::select! {
            () = tokio::time::sleep(args.spec.poll_interval) => polls.ask(&watcher, WatcherMessage::Poll),
            () = args.watchlist.woken(args.spec.chain) => polls.ask(&watcher, WatcherMessage::Poll),
            next = next_wake_up(wake_ups.as_mut()) => {
                if next.is_none() {
                    wake_ups = None;
                }
                polls.ask(&watcher, WatcherMessage::Poll)
            }
            _ = sweeps.tick() => watcher.cast(WatcherMessage::Sweep).is_ok(),
        };
        if !sent {
            return;
        }
    }
}

async fn next_wake_up(wake_ups: Option<&mut BoxStream<'static, ()>>) -> Option<()> {
    match wake_ups {
        Some(wake_ups) => wake_ups.next().await,
        None => futures::future::pending().await,
    }
}

impl WatcherState {
    fn queue_poll(&self, myself: &Mailbox<WatcherMessage>) {
        // An actor that is stopping polls no more; whoever comes next begins by itself.
        let _ = self.polls.ask(myself, WatcherMessage::Poll);
    }

    /// One look at the chain; answers whether there is more to read at once.
    async fn step(&mut self) -> bool {
        let outcome = match self.check().await {
            Ok(()) => Poll::new(self).run().await,
            Err(error) => Err(PollError::Spec(error)),
        };
        match outcome {
            Ok(more) => {
                self.report.failures = 0;
                self.note(None);
                self.note_standstill();
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

    async fn fail(&mut self, error: PollError) {
        let wait = match &error {
            PollError::Spec(spec) if !spec.is_transient() => BACKOFF_MISCONFIGURED,
            _ => error.retry_after().unwrap_or_default().max(backoff(self.report.failures)),
        };
        self.not_before = Instant::now() + wait;
        self.report.failures = self.report.failures.saturating_add(1);
        metrics::look_failed(self.args.spec.chain, error.trouble());
        if error.wants_reload() {
            self.reload().await;
        }
        // Nodes behind one address are often a block apart: only what lasts is worth a word.
        if !error.is_lag() || self.report.failures > LAG_LOOKS_QUIET {
            self.note(Some((error.trouble(), error.to_string())));
        }
        self.note_standstill();
    }

    /// Somebody else moved the cursor, or nobody knows whether it moved: the database says.
    pub(super) async fn reload(&mut self) {
        match rows::load_known(&self.args.database, self.args.spec.chain).await {
            Ok((known, second_look_from)) => {
                self.known = known;
                self.second.from = second_look_from;
                // What was committed after all and not told; transfers are told by the next sweeps.
                self.tell_gaps_again();
            }
            Err(load) => {
                tracing::warn!(chain = %self.args.spec.chain, error = %load, "the cursor could not be read");
            }
        }
    }

    /// Says once per change why the chain cannot be read, or that it can again.
    fn note(&mut self, trouble: Option<(Trouble, String)>) {
        let chain = self.args.spec.chain;
        metrics::trouble(chain, trouble.as_ref().map(|(kind, _)| *kind));
        let (kind, trouble) = trouble.unzip();
        if self.report.trouble != trouble {
            if let (Some(kind), Some(reason)) = (kind, &trouble) {
                tracing::warn!(%chain, kind = kind.as_str(), %reason, "chain {chain} cannot be read: {reason}");
            } else {
                tracing::info!(%chain, "chain {chain} can be read again");
            }
            self.report.trouble.clone_from(&trouble);
        }
        self.args.watchlist.set_trouble(chain, trouble);
    }

    /// Says once per change that there are no new blocks, whatever the reason.
    fn note_standstill(&mut self) {
        let chain = self.args.spec.chain;
        let Some(view) = self.args.watchlist.view(chain) else { return };
        let now = self.args.clock.now();
        metrics::head_age(&view, now);
        let stands_still = view.is_stale(now);
        if stands_still && !self.stood_still {
            tracing::warn!(%chain, head.number = view.head_number, head.age_ms = view.head_age_ms(now),
                "chain {chain} shows no new block; it is offered to nobody, and no deadline passes on it");
        } else if !stands_still && self.stood_still {
            tracing::info!(%chain, head.number = view.head_number, "chain {chain} shows new blocks again");
        }
        self.stood_still = stands_still;
    }

    /// Tells the payments concerned what is in these rows.
    pub(super) async fn tell_observed(&self, rows: &[payferry_entities::transfers::Model]) {
        let WatcherArgs { spec, database, watchlist, inbox, .. } = &self.args;
        let times = rows::first_block_times(database, spec.chain, rows).await.unwrap_or_else(|error| {
            tracing::warn!(chain = %spec.chain, %error, "first block times could not be read");
            HashMap::new()
        });
        for row in rows {
            let first = times.get(&(row.tx_hash.clone(), row.payment_id.clone())).copied();
            match rows::observed(spec.chain, |address| spec.token_at(address), row, first) {
                Ok((payment_id, fact)) => {
                    watchlist.drop_outdated(fact.key, fact.revision);
                    inbox.tell(payment_id, payferry_domain::payment::Command::ObserveTransfer(fact));
                }
                Err(error) => tracing::error!(chain = %spec.chain, %error, "a transfer row cannot be told"),
            }
        }
    }

    /// Outages that the watcher before this one recorded and may not have told; each is applied once.
    fn tell_gaps_again(&self) {
        let WatcherArgs { spec, inbox, .. } = &self.args;
        for gap in payferry_journal::chain::cursor::gaps(self.known.links(), spec.outage_secs) {
            inbox.chain_stood_still(spec.chain, gap.block, gap.from, gap.to);
        }
    }
}
