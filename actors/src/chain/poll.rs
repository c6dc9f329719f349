//! One poll of a chain: reads new blocks, reverts orphaned ones, and notifies payments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use payferry_domain::{Hash32, Timestamp};
use payferry_entities::transfers;

use payferry_domain::FinalityProgress;
use payferry_evm::client::{BlockHeader, ClientError, Heads};
use payferry_evm::config::SpecError;
use payferry_evm::{Degradation, Prefix};
use payferry_journal::chain::cursor::{Gap, Link, Next, Unlinked, gaps};
use payferry_journal::chain::rows;
use payferry_journal::payments::StoreError;
use payferry_journal::{ChainBatch, JournalError, JournalWrite};

use super::block_transfers::{self, link_of};
use super::deposits;
use super::finality_waits::finalities;
use super::watcher::WatcherState;
use super::watchlist::ChainView;
use super::{ChainContext, metrics};

/// Headers compared per request while searching for the fork point of a reorganisation.
const ANCESTOR_HEADERS: usize = 32;

/// Age of the last block, in milliseconds, after which all endpoints are asked for a newer one.
const STANDSTILL_MS: i64 = 10_000;

/// Error of a poll. The cursor has not moved.
#[derive(Debug, thiserror::Error)]
pub(super) enum PollError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the endpoint's responses contradict each other: {0}")]
    Inconsistent(&'static str),
    #[error("journal: {0}")]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PollError {
    /// Kind of the error.
    pub(super) fn degradation(&self) -> Degradation {
        match self {
            Self::Spec(SpecError::Unreachable { source, .. }) | Self::Client(source) => Degradation::of_call(source),
            Self::Spec(SpecError::ChainId { .. }) => Degradation::WrongChain,
            Self::Spec(SpecError::NoCode { .. } | SpecError::ContractVersion { .. } | SpecError::Decimals { .. }) => {
                Degradation::Misconfigured
            }
            Self::Inconsistent(_) => Degradation::Inconsistent,
            Self::Journal(_) | Self::Store(_) => Degradation::Database,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Client(ClientError::RateLimited { retry_after }) => *retry_after,
            _ => None,
        }
    }

    /// True if the node is merely behind the cursor.
    pub(super) fn is_lag(&self) -> bool {
        matches!(self, Self::Client(ClientError::UnknownBlock))
    }

    pub(super) fn wants_reload(&self) -> bool {
        matches!(self, Self::Journal(JournalError::Conflict | JournalError::Unknown(_)))
    }
}

impl WatcherState {
    /// Polls once; returns true if there is more to do now.
    pub(super) async fn poll(&mut self) -> Result<bool, PollError> {
        let ChainContext { spec, client, .. } = &self.args.context;
        let tip = self.known.tip();
        let cursor = tip.map(|tip| tip.number);
        // A stalled endpoint looks like a chain without new blocks, so after a while the others are asked as well.
        let quiet_ms = tip.map_or(0, |tip| self.args.clock.now::<Timestamp>().millis_since(tip.time));
        let floor = cursor.map_or(0, |cursor| cursor + u64::from(quiet_ms > STANDSTILL_MS));
        let heads = client.heads(spec.has_safe, spec.has_finalized, cursor, floor).await?;
        let latest = (heads.latest.number, heads.latest.hash);
        match self.known.next(latest, heads.at_cursor.map(|header| header.hash)) {
            Next::Reorganised => {
                self.unwind().await?;
                Ok(true)
            }
            Next::Behind => Err(PollError::Client(ClientError::UnknownBlock)),
            Next::UpToDate => {
                if let Some(view) = self.view(&heads) {
                    self.publish(view);
                }
                self.args.finalise_waiting();
                Ok(false)
            }
            Next::Read { to } => {
                let from = cursor.map_or_else(|| spec.start_block.unwrap_or(to).min(to), |cursor| cursor + 1);
                let to = to.min(from + self.step.blocks() - 1);
                let error = match self.read(from, to, &heads).await {
                    Ok(None) => {
                        self.step.succeeded();
                        return Ok(to < heads.latest.number);
                    }
                    // The first blocks were read. If the error lasts, the next poll reads nothing and fails.
                    Ok(Some(error)) => {
                        metrics::poll_failed(self.args.spec.chain, error.degradation());
                        tracing::debug!(chain = %self.args.spec.chain, from, to, %error, "blocks were read in part");
                        self.step.failed(to - from + 1, &error);
                        return Ok(true);
                    }
                    Err(error) => error,
                };
                self.step.failed(to - from + 1, &error);
                match error {
                    PollError::Client(ClientError::RangeTooLarge(_)) if to > from => Ok(true),
                    // The branch was orphaned between the two requests; the next poll finds the fork.
                    PollError::Inconsistent(_) if self.was_left().await? => Ok(true),
                    error => Err(error),
                }
            }
        }
    }

    async fn was_left(&self) -> Result<bool, PollError> {
        let Some(tip) = self.known.tip() else { return Ok(false) };
        let now = self.args.client.headers([tip.number]).await?;
        Ok(now.first().is_some_and(|header| header.hash != tip.hash))
    }

    /// Reads and commits the blocks from `from` to `to`, or the first of them: then it returns the error of the others.
    async fn read(&mut self, from: u64, to: u64, heads: &Heads) -> Result<Option<PollError>, PollError> {
        let ChainContext { spec, client, .. } = &self.args.context;
        let headers = if from == heads.latest.number {
            Prefix { items: vec![heads.latest], error: None }
        } else {
            client.headers_prefix(from..=to).await?
        };
        let (headers, mut error) = (headers.items, headers.error.map(PollError::from));
        let mut links: Vec<Link> = headers.iter().map(link_of).collect();
        match self.known.check(&links) {
            Ok(()) if links.first().is_some_and(|first| first.number == from) => {}
            Ok(()) | Err(Unlinked::First) => return Err(PollError::Inconsistent("a block belongs to another branch")),
            Err(Unlinked::Within) => return Err(PollError::Inconsistent("the blocks belong to several branches")),
        }
        // Comes first, because payers and merchants wait for it. It needs only the block's header: other contents of
        // the block are applied later in any case, and a repeated notification has no effect.
        if let Some(reach) = self.reach_with(&links, heads) {
            self.args.finalise(reach);
        }
        let recent_from = heads.latest.number.saturating_sub(spec.recent_blocks.saturating_sub(1));
        let args = &self.args;
        let found = self.reader.transfers(client, &args.watchlist, &headers, recent_from).await?;
        links.truncate(found.items.len());
        error = found.error.or(error);
        let received = block_transfers::received(args.lookup(), &found.items.concat()).await?;
        let made = block_transfers::made(args.lookup(), received).await;
        if let Some((failed, reason)) = made.failed {
            links.retain(|link| link.number < failed);
            if links.is_empty() {
                return Err(reason);
            }
            error = Some(reason);
        }
        let gaps = gaps(self.known.tip().iter().chain(&links), self.args.spec.outage_secs);
        let changed = self.commit(&links, made.rows, &gaps, heads).await?;
        let Some(view) = self.view(heads) else { return Ok(error) };
        // Covers the blocks caught up with. A payment with a final transfer reads its other recorded transfers from the
        // database.
        self.args.finalise(view.reach());
        self.args.notify_observed(&changed).await;
        // Publishing comes after notifying: a reader that sees the block as read finds its transfers notified.
        self.publish(view);
        self.notify_progress(&links, gaps);
        self.args.finalise_waiting();
        Ok(error)
    }

    /// Finality reached once this block, the head, is read; `None` while the watcher catches up.
    fn reach_with(&self, links: &[Link], heads: &Heads) -> Option<FinalityProgress> {
        let [last] = links else { return None };
        if last.hash != heads.latest.hash {
            return None;
        }
        let spec = &self.args.spec;
        let of_branch = |header: &&BlockHeader| header.number != last.number || header.hash == last.hash;
        let tag = |header: Option<&BlockHeader>, is_known| self.tag(header.filter(of_branch), is_known, heads);
        Some(FinalityProgress {
            read: last.number,
            safe: tag(heads.safe.as_ref(), spec.has_safe),
            finalized: tag(heads.finalized.as_ref(), spec.has_finalized),
        })
    }

    /// Write that moves the cursor, to which the blocks are added.
    pub(super) fn batch(&self, cursor: &Link, second_look_from: u64) -> ChainBatch {
        let chain = self.args.spec.chain;
        ChainBatch {
            chain,
            cursor_before: self.known.tip().map(|tip| tip.hash.to_string()),
            cursor: rows::cursor_row(chain, cursor, second_look_from, self.args.lease.epoch(), self.args.clock.now()),
            orphaned_blocks: Vec::new(),
            headers: Vec::new(),
            headers_keep_from: 0,
            transfers: Vec::new(),
            deposits: Vec::new(),
            outages: Vec::new(),
        }
    }

    /// Writes the blocks and moves the cursor; returns the rows that changed.
    async fn commit(
        &mut self,
        links: &[Link],
        received: Vec<transfers::Model>,
        gaps: &[Gap],
        heads: &Heads,
    ) -> Result<Vec<transfers::Model>, PollError> {
        let ChainContext { spec, journal, .. } = &self.args.context;
        let Some(last) = links.last() else { return Ok(Vec::new()) };
        let first = links.first().map_or(last.number, |first| first.number);
        let second_look_from = match self.known.tip() {
            // Without rescans there is nothing to keep for them.
            _ if spec.second_look_blocks == 0 => last.number + 1,
            None => first,
            Some(_) => self.second.from,
        };
        let keep_from = self.finalized(heads).unwrap_or(0).min(last.number).min(second_look_from);
        let kept = links.iter().filter(|link| link.number >= keep_from);
        let (transfers, deposits) = deposits::split(received);
        let batch = ChainBatch {
            headers: kept.map(|link| rows::header_row(spec.chain, link)).collect(),
            headers_keep_from: rows::row_number(keep_from),
            transfers,
            deposits,
            outages: gaps.iter().map(|gap| rows::outage_row(spec.chain, gap)).collect(),
            ..self.batch(last, second_look_from)
        };
        let receipt = journal.submit(JournalWrite::ChainBatch(self.args.lease.clone(), Box::new(batch))).await?;
        metrics::TRANSFERS.add(&metrics::of(spec.chain), receipt.transfers.len() as u64);
        self.known.extend(links, keep_from);
        self.second.from = second_look_from;
        metrics::BLOCKS_READ.add(&metrics::of(spec.chain), links.len() as u64);
        self.report.blocks_read += links.len() as u64;
        self.report.transfers_recorded += receipt.transfers.len() as u64;
        Ok(receipt.transfers)
    }

    /// Reverts orphaned blocks down to the last common one.
    async fn unwind(&mut self) -> Result<(), PollError> {
        let ChainContext { spec, journal, .. } = &self.args.context;
        let fork = self.find_fork().await?;
        let mut known = self.known.clone();
        let Some(tip) = known.tip() else { return Ok(()) };
        let (cursor, gone) = if let Some(number) = fork {
            let gone = known.cut_above(number);
            (known.tip().unwrap_or(tip), gone)
        } else {
            // Deeper than the finalized block: all remembered blocks are orphaned.
            tracing::error!(chain = %spec.chain, "a reorganisation is deeper than all remembered blocks");
            let lowest = known.links().next().map_or(0, |link| link.number);
            let gone = known.links().map(|link| link.hash).collect();
            let below = self.args.client.headers([lowest.saturating_sub(1)]).await?;
            let cursor = below.first().map(link_of).ok_or(ClientError::UnknownBlock)?;
            known = payferry_journal::chain::cursor::Known::from_links([cursor]);
            (cursor, gone)
        };
        let depth = gone.len();
        let second_look_from = self.second.from.min(cursor.number + 1);
        let batch = ChainBatch {
            orphaned_blocks: gone.iter().map(Hash32::to_string).collect(),
            headers: if fork.is_none() { vec![rows::header_row(spec.chain, &cursor)] } else { Vec::new() },
            ..self.batch(&cursor, second_look_from)
        };
        let receipt = journal.submit(JournalWrite::ChainBatch(self.args.lease.clone(), Box::new(batch))).await?;
        tracing::warn!(chain = %spec.chain, depth, common.number = cursor.number,
            transfers = receipt.transfers.len(), "chain {} was reorganised", spec.chain);
        let chain = metrics::of(spec.chain);
        metrics::REORGS.add(&chain, 1);
        #[allow(clippy::cast_precision_loss, reason = "depths are far below 2^52")]
        metrics::REORG_DEPTH.record(&chain, depth as f64);
        self.known = known;
        self.second.from = second_look_from;
        self.report.blocks_orphaned += depth as u64;
        self.args.notify_observed(&receipt.transfers).await;
        Ok(())
    }

    /// The newest remembered block that is still canonical.
    async fn find_fork(&self) -> Result<Option<u64>, PollError> {
        let mut theirs: BTreeMap<u64, Hash32> = BTreeMap::new();
        let numbers: Vec<u64> = self.known.links().rev().map(|link| link.number).collect();
        for numbers in numbers.chunks(ANCESTOR_HEADERS) {
            let headers = self.args.client.known_headers(numbers.iter().copied()).await?;
            theirs.extend(headers.iter().map(|header: &BlockHeader| (header.number, header.hash)));
            if let Some(number) = self.known.fork_point(&theirs) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Number of the finalized block on the branch that was read.
    fn finalized(&self, heads: &Heads) -> Option<u64> {
        let spec = &self.args.spec;
        self.tag(heads.finalized.as_ref(), spec.has_finalized, heads)
    }

    fn tag(&self, header: Option<&BlockHeader>, is_known: bool, heads: &Heads) -> Option<u64> {
        if !is_known {
            return heads.latest.number.checked_sub(self.args.spec.fallback_depth_blocks);
        }
        let header = header?;
        let same = self.known.hash(header.number).is_none_or(|hash| hash == header.hash);
        same.then_some(header.number)
    }

    /// View of the chain; `None` before its first block is read.
    fn view(&self, heads: &Heads) -> Option<ChainView> {
        let spec = &self.args.spec;
        let tip = self.known.tip()?;
        let finalized = self.finalized(heads);
        let recent = self.known.links().filter(|link| link.number >= finalized.unwrap_or(0).min(tip.number));
        let blocks = recent.map(|link| (link.number, (link.hash, link.time))).collect();
        Some(ChainView {
            chain: spec.chain,
            head_number: heads.latest.number,
            head_time: heads.latest.time,
            read_number: tip.number,
            read_hash: tip.hash,
            read_time: tip.time,
            safe: self.tag(heads.safe.as_ref(), spec.has_safe, heads),
            finalized,
            base_fee_wei: heads.latest.base_fee_wei,
            l1_fee_wei: self.l1_fee_wei,
            degraded_reason: None,
            outage: Duration::from_secs(spec.outage_secs.unsigned_abs()),
            blocks: Arc::new(blocks),
        })
    }

    /// Publishes the view of the chain.
    fn publish(&self, view: ChainView) {
        let ChainContext { watchlist, clock, .. } = &self.args.context;
        metrics::record_view(&view, clock.now());
        watchlist.set_view(view);
    }

    /// Notifies of outages first, so that no deadline passes that an outage extends.
    fn notify_progress(&self, links: &[Link], gaps: Vec<Gap>) {
        let ChainContext { spec, inbox, .. } = &self.args.context;
        for gap in gaps {
            inbox.chain_stalled(spec.chain, gap.block, gap.from, gap.to);
        }
        let newest = links.iter().map(|link| link.time).max().unwrap_or(Timestamp(0));
        inbox.chain_progressed(spec.chain, newest);
    }
}

impl ChainContext {
    /// Notifies payments with transfers that have become final, as far as the chain's progress is known.
    pub(super) fn finalise_waiting(&self) {
        if let Some(reach) = self.watchlist.reach(self.spec.chain) {
            self.finalise(reach);
        }
    }

    fn finalise(&self, reach: FinalityProgress) {
        let reached = self.watchlist.waits(self.spec.chain).take_reached(reach, self.agree_from());
        self.inbox.notify_together(finalities(reached));
    }
}
