//! Follower of one chain on a node that shares the database.
//!
//! The node that holds the lease of the chain reads the chain and publishes its view (`chain_views`). The other nodes have
//! payments on the chain too. Their follower reads the view, completes waits for finality, and notifies payments of outages,
//! of progress, of transfers and of outcomes, from rows. Nudges shorten the wait; polling continues regardless.
//!
//! On the node that holds the lease, the watcher and the settler do all of this, and the follower only publishes.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use payferry_domain::{Address, Amount, Hash32, PaymentId, Timestamp};
use payferry_entities::{OperationStatus, chain_views, operations, query_all, transfers};
use payferry_evm::eip3009::Eip3009Domain;
use payferry_journal::chain::{is_outbound, queue, rows};
use payferry_journal::payments;
use payferry_nodes::{LeaseName, Node, Topic};
use sea_orm::EntityTrait;
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::errors::Errors;
use super::settler_handle::{PublishedSettler, SettlerHandle};
use super::sweep::{SWEEP_INTERVAL, Sweep};
use super::watchlist::ChainView;
use super::{ChainContext, Watchlist};
use crate::outbound::OutboundTransfers;
use crate::payment::Payments;

/// Shortest interval of reads without a nudge.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Pause after a view was published: a chain may have several blocks a second.
const PUBLISH_PAUSE: Duration = Duration::from_millis(500);
/// Longest time without publishing while other nodes follow.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(5);
/// Published blocks, the newest ones. Nodes read the headers of older ones from the chain.
const BLOCKS_PUBLISHED: usize = 32;
/// Payments and outbound transfers per query of their operations.
const SUBJECTS_MAX: usize = 500;

/// The view of a chain, as published.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Published {
    head_number: u64,
    head_time: Timestamp,
    read_number: u64,
    read_hash: Hash32,
    read_time: Timestamp,
    safe: Option<u64>,
    finalized: Option<u64>,
    // JSON has no 128-bit numbers.
    #[serde_as(as = "DisplayFromStr")]
    base_fee_wei: u128,
    #[serde_as(as = "Option<DisplayFromStr>")]
    l1_fee_wei: Option<u128>,
    degraded_reason: Option<String>,
    eip3009: Vec<Eip3009Domain>,
    send_max: Vec<(Address, Amount)>,
    settler: PublishedSettler,
    /// Number, hash and time of the newest blocks that were read. The version before publishes none.
    #[serde(default)]
    blocks: Vec<(u64, Hash32, Timestamp)>,
}

/// Task of one chain. Clones share it.
#[derive(Clone)]
pub(crate) struct Follower(Arc<Inner>);

struct Inner {
    context: ChainContext,
    node: Node,
    settler: SettlerHandle,
    payments: Arc<Payments>,
    outbound: Arc<OutboundTransfers>,
    woken: Notify,
    /// Payments and outbound transfers that may have new facts, or an outcome that is not final.
    touched: Mutex<HashSet<String>>,
    /// True if this node got shards since the last sweep.
    gained: AtomicBool,
}

/// Progress of the follower. All of it can be read again.
#[derive(Default)]
struct Seen {
    published: Option<String>,
    published_at: Option<Instant>,
    /// Time of the last block that was read, as of the last view.
    read_to: Option<Timestamp>,
    outages: HashSet<(u64, Timestamp, Timestamp)>,
    swept: Sweep,
    swept_at: Option<Instant>,
    mined_page: queue::QueuePage<queue::OperationPosition>,
    failed_page: queue::QueuePage<queue::OperationPosition>,
    undone_page: queue::QueuePage<queue::OperationPosition>,
}

impl Follower {
    pub(crate) fn new(
        mut context: ChainContext,
        node: Node,
        settler: SettlerHandle,
        payments: Arc<Payments>,
        outbound: Arc<OutboundTransfers>,
    ) -> Self {
        context.client = context.client.of_chain(context.spec.chain, context.spec.chain_id);
        let (woken, touched, gained) = (Notify::new(), Mutex::default(), AtomicBool::default());
        Self(Arc::new(Inner { context, node, settler, payments, outbound, woken, touched, gained }))
    }

    /// Reads soon.
    pub(crate) fn wake(&self) {
        self.0.woken.notify_one();
    }

    /// Looks soon for facts about all payments, because this node got shards.
    pub(crate) fn gained(&self) {
        self.0.gained.store(true, Ordering::Release);
        self.wake();
    }

    /// Looks soon for facts about a payment or an outbound transfer.
    pub(crate) fn touched(&self, subject: &str) {
        self.0.touched.lock().insert(subject.to_owned());
        self.wake();
    }

    /// Publishes or follows, until it is dropped.
    pub(crate) async fn run(self) {
        let Inner { context, woken, node, .. } = &*self.0;
        let chain = context.spec.chain;
        let (mut seen, mut moved) = (Seen::default(), context.watchlist.moved(chain));
        let interval = context.spec.poll_interval.max(INTERVAL_MIN);
        loop {
            let held = node.leases().get(LeaseName::Chain(chain));
            let turned = match &held {
                Some(lease) => self.publish(lease.epoch(), &mut seen).await,
                None => self.follow(&mut seen).await,
            };
            if let Err(error) = turned {
                tracing::warn!(%chain, error, "the shared state of a chain cannot be read or published");
            }
            if seen.published_at.is_some_and(|at| at.elapsed() < PUBLISH_PAUSE) {
                tokio::time::sleep(PUBLISH_PAUSE).await;
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = woken.notified() => {}
                // The watcher of this node has moved it.
                Ok(()) = moved.changed(), if held.is_some() => {}
            }
        }
    }

    /// Publishes the view of this node's watcher, if other nodes need it. An older epoch does not replace a newer one.
    async fn publish(&self, epoch: i64, seen: &mut Seen) -> Result<(), String> {
        let Inner { context, node, settler, .. } = &*self.0;
        let chain = context.spec.chain;
        // The settler repeats what waits.
        self.notify_touched().await?;
        let Some(view) = context.watchlist.view(chain).filter(|_| node.courier().has_receivers()) else {
            return Ok(());
        };
        let published = serde_json::to_string(&Published::of(&view, &context.watchlist, settler)).map_err(text)?;
        let is_old = seen.published_at.is_none_or(|at| at.elapsed() >= PUBLISH_INTERVAL);
        if seen.published.as_ref() == Some(&published) && !is_old {
            return Ok(());
        }
        let sql = "INSERT INTO chain_views (chain, epoch, view) VALUES ($1, $2, $3) \
             ON CONFLICT (chain) DO UPDATE SET epoch = excluded.epoch, view = excluded.view \
             WHERE chain_views.epoch <= excluded.epoch RETURNING chain";
        let values = [chain.as_str().into(), epoch.into(), published.clone().into()];
        query_all(context.database.writer(), sql, values).await.map_err(text)?;
        node.courier().nudge(Topic::Moved, chain.as_str());
        (seen.published, seen.published_at) = (Some(published), Some(Instant::now()));
        Ok(())
    }

    /// Does for the payments of this node what the chain's watcher and settler do for those of theirs.
    async fn follow(&self, seen: &mut Seen) -> Result<(), String> {
        let Inner { context, settler, .. } = &*self.0;
        let ChainContext { spec, database, inbox, .. } = context;
        let row = chain_views::Entity::find_by_id(spec.chain.as_str()).one(database.writer()).await.map_err(text)?;
        let Some(row) = row else { return Ok(()) };
        if seen.published.as_ref() != Some(&row.view) {
            let published: Published = serde_json::from_str(&row.view).map_err(text)?;
            let read_to = published.read_time;
            // Outages come first, so that no deadline passes that an outage extends. One has ended if the time has advanced by
            // more than its length.
            let advanced_ms = seen.read_to.map_or(i64::MAX, |earlier| read_to.millis_since(earlier));
            if advanced_ms > spec.outage_secs.saturating_mul(1_000) {
                for gap in rows::load_outages(database, spec.chain).await.map_err(text)? {
                    // After a reorganisation, another outage may end with the same block number.
                    if seen.outages.insert((gap.block, gap.from, gap.to)) {
                        inbox.chain_stalled(spec.chain, gap.block, gap.from, gap.to);
                    }
                }
            }
            seen.read_to = Some(read_to);
            published.show(context, settler);
            inbox.chain_progressed(spec.chain, read_to);
            seen.published = Some(row.view);
        }
        context.finalise_waiting();
        if context.has_to_confirm() {
            context.confirm().await;
        }
        let waiting = self.notify_touched().await?;
        self.0.touched.lock().extend(waiting);
        let gained = self.0.gained.swap(false, Ordering::AcqRel);
        if gained || seen.swept_at.is_none_or(|at| at.elapsed() >= SWEEP_INTERVAL) {
            seen.swept_at = Some(Instant::now());
            self.sweep(seen).await?;
        }
        Ok(())
    }

    /// Looks for facts about all payments of this node: nudges may have been lost.
    async fn sweep(&self, seen: &mut Seen) -> Result<(), String> {
        let Inner { context, payments, .. } = &*self.0;
        let is_mine = |row: &transfers::Model| row.payment_id.parse().is_ok_and(|id| payments.holds(id));
        context.sweep(&mut seen.swept, false, is_mine).await.map_err(text)?;
        let ChainContext { spec, database, .. } = context;
        let mined = queue::with_status(database, spec.chain, OperationStatus::Mined, &mut seen.mined_page);
        let mined = mined.await.map_err(text)?;
        let failed = queue::with_status(database, spec.chain, OperationStatus::Failed, &mut seen.failed_page);
        let failed = failed.await.map_err(text)?;
        let undone = queue::undone(database, spec.chain, &mut seen.undone_page).await.map_err(text)?;
        let waiting = self.notify_outcomes([mined, failed, undone].concat()).await?;
        self.0.touched.lock().extend(waiting);
        Ok(())
    }

    /// Looks for transfers and outcomes of operations of touched payments and outbound transfers. Returns those that wait for an
    /// outcome. If the database cannot be read, all of them stay touched.
    async fn notify_touched(&self) -> Result<Vec<String>, String> {
        let touched: Vec<String> = std::mem::take(&mut *self.0.touched.lock()).into_iter().collect();
        let notified = self.notify_facts(&touched).await;
        if notified.is_err() {
            self.0.touched.lock().extend(touched);
        }
        notified
    }

    /// Looks for transfers and outcomes of operations of these payments and outbound transfers. Returns those that wait for an
    /// outcome.
    async fn notify_facts(&self, touched: &[String]) -> Result<Vec<String>, String> {
        let ChainContext { spec, database, .. } = &self.0.context;
        let mut waiting = Vec::new();
        for subjects in touched.chunks(SUBJECTS_MAX) {
            let ids: Vec<PaymentId> = subjects.iter().filter_map(|subject| subject.parse().ok()).collect();
            let mut transfers = payments::unapplied_of(database, &ids).await.map_err(text)?;
            transfers.retain(|row| row.chain == spec.chain.as_str());
            self.0.context.notify_observed(&transfers).await;
            let rows = queue::of_subjects(database, spec.chain, subjects).await.map_err(text)?;
            waiting.extend(self.notify_outcomes(rows).await?);
        }
        Ok(waiting)
    }

    /// Notifies the payments and outbound transfers of this node of the outcomes of these operations. Returns those whose outcome is
    /// not final, or whose block could not be read.
    async fn notify_outcomes(&self, mut rows: Vec<operations::Model>) -> Result<Vec<String>, String> {
        let Inner { context, payments, outbound, .. } = &*self.0;
        rows.retain(|row| {
            if is_outbound(row) {
                row.payment_id.parse().is_ok_and(|id| outbound.holds(id))
            } else {
                row.payment_id.parse().is_ok_and(|id| payments.holds(id))
            }
        });
        let with = |status: OperationStatus| rows.iter().filter(move |row| row.status == status);
        with(OperationStatus::Failed).for_each(|row| context.notify_failure(row));
        let mined: Vec<&operations::Model> = with(OperationStatus::Mined).collect();
        let mut errors = Errors::default();
        let notified = context.notify_completed(&mined, &mut errors).await.map_err(text)?;
        let notified: HashSet<&str> = notified.iter().map(|row| row.id.as_str()).collect();
        let waiting = mined.iter().filter(|row| !notified.contains(row.id.as_str())).map(|row| row.payment_id.clone());
        let waiting = waiting.collect();
        context.notify_undone(&rows).await.map_err(text)?;
        Ok(waiting)
    }
}

impl Published {
    fn of(view: &ChainView, watchlist: &Watchlist, settler: &SettlerHandle) -> Self {
        let (degraded_reason, eip3009, send_max) = watchlist.terms(view.chain);
        Self {
            head_number: view.head_number,
            head_time: view.head_time,
            read_number: view.read_number,
            read_hash: view.read_hash,
            read_time: view.read_time,
            safe: view.safe,
            finalized: view.finalized,
            base_fee_wei: view.base_fee_wei,
            l1_fee_wei: view.l1_fee_wei,
            degraded_reason,
            eip3009,
            send_max,
            settler: settler.published(),
            blocks: view
                .blocks
                .iter()
                .rev()
                .take(BLOCKS_PUBLISHED)
                .map(|(number, (hash, time))| (*number, *hash, *time))
                .collect(),
        }
    }

    /// Shows the view on this node.
    fn show(self, context: &ChainContext, settler: &SettlerHandle) {
        let ChainContext { spec, watchlist, .. } = context;
        watchlist.set_view(ChainView {
            chain: spec.chain,
            head_number: self.head_number,
            head_time: self.head_time,
            read_number: self.read_number,
            read_hash: self.read_hash,
            read_time: self.read_time,
            safe: self.safe,
            finalized: self.finalized,
            base_fee_wei: self.base_fee_wei,
            l1_fee_wei: self.l1_fee_wei,
            degraded_reason: self.degraded_reason.clone(),
            outage: Duration::from_secs(spec.outage_secs.unsigned_abs()),
            blocks: Arc::new(self.blocks.into_iter().map(|(number, hash, time)| (number, (hash, time))).collect()),
        });
        watchlist.set_degraded_reason(spec.chain, self.degraded_reason);
        watchlist.set_eip3009(spec.chain, self.eip3009);
        watchlist.set_send_max(spec.chain, self.send_max.into_iter().collect());
        settler.show(self.settler);
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
