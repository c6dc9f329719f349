//! Rescan: reads blocks a second time, some distance behind the head, to find logs that were omitted the first time.
//!
//! It runs beside the first read and never delays it; its position is stored with the cursor. Blocks are compared with
//! the hashes recorded by the first read, so an endpoint on another branch cannot add anything.

use std::collections::HashMap;
use std::time::Duration;

use payferry_entities::transfers;
use payferry_evm::client::ClientError;
use payferry_evm::pace::backoff;
use payferry_journal::chain::cursor::Link;
use payferry_journal::payments::StoreError;
use payferry_journal::{ChainBatch, JournalWrite};
use payferry_runtime::observe::Mailbox;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::block_transfers;
use super::deposits;
use super::poll::PollError;
use super::watcher::{WatcherMessage, WatcherState};
use super::{ChainContext, metrics};

/// Minimum number of blocks per request; fewer are left to accumulate.
const RANGE_MIN_BLOCKS: u64 = 16;
/// Consecutive failures before a warning is logged.
const FAILURES_QUIET: u32 = 3;

/// Progress of the rescan.
#[derive(Debug)]
pub(super) struct Rescan {
    /// The first block that is not rescanned.
    pub(super) from: u64,
    under_way: Option<AbortOnDropHandle<()>>,
    not_before: Instant,
    failures: u32,
    step_blocks: u64,
}

/// Result of a rescan.
#[derive(Debug)]
pub struct RescanResult {
    links: Vec<Link>,
    outcome: Result<Vec<transfers::Model>, PollError>,
}

impl Rescan {
    pub(super) fn at(from: u64) -> Self {
        Self { from, under_way: None, not_before: Instant::now(), failures: 0, step_blocks: u64::MAX }
    }

    /// Range of blocks to rescan, of those up to `last` that were read.
    fn due(&self, last: u64, read: u64, range_min: u64, range_max: u64) -> Option<(u64, u64)> {
        let to = last.min(read);
        let step = range_max.min(self.step_blocks).max(1);
        ((to + 1).saturating_sub(self.from) >= range_min).then(|| (self.from, to.min(self.from + step - 1)))
    }
}

impl WatcherState {
    /// Starts a rescan if enough blocks are due and none is in progress.
    pub(super) fn start_rescan(&mut self, myself: &Mailbox<WatcherMessage>) {
        let ChainContext { spec, watchlist, .. } = &self.args.context;
        if spec.second_look_blocks == 0 || self.second.under_way.is_some() || Instant::now() < self.second.not_before {
            return;
        }
        let (Some(tip), Some(head)) = (self.known.tip(), watchlist.view(spec.chain).map(|view| view.head_number))
        else {
            return;
        };
        let Some(last) = head.checked_sub(spec.second_look_blocks) else { return };
        let range_min = RANGE_MIN_BLOCKS.min(spec.second_look_blocks);
        let Some((from, to)) = self.second.due(last, tip.number, range_min, spec.range_blocks_max) else { return };
        let links: Vec<Link> = (from..=to).map_while(|number| self.known.link(number)).collect();
        if links.is_empty() {
            tracing::warn!(chain = %spec.chain, from, to, "blocks that are not remembered cannot be rescanned");
            self.second.from = self.known.links().next().map_or(tip.number, |link| link.number).max(from + 1);
            return;
        }
        let (args, reader, myself) = (self.args.clone(), self.reader.clone(), myself.clone());
        // Another endpoint may be on another branch, or failing, for a longer time.
        let elsewhere = self.second.failures.is_multiple_of(2);
        let task = tokio::spawn(async move {
            let looking = async {
                // Every PSP whose vault received money in these blocks exists by now.
                args.lookup().read_psp_vaults().await.map_err(StoreError::from)?;
                block_transfers::missing(args.lookup(), &reader, &links, elsewhere).await
            };
            let outcome = Box::pin(looking).await;
            let _ = myself.cast(WatcherMessage::RescanResult(Box::new(RescanResult { links, outcome })));
        });
        self.second.under_way = Some(AbortOnDropHandle::new(task));
    }

    /// Applies the result of a rescan.
    pub(super) async fn apply_rescan(&mut self, looked: RescanResult) {
        self.second.under_way = None;
        let RescanResult { links, outcome } = looked;
        let outcome = match outcome {
            Ok(missed) => self.record_missed(&links, missed).await,
            Err(error) => Err(error),
        };
        let Err(error) = outcome else {
            self.second.failures = 0;
            self.second.step_blocks = self.second.step_blocks.saturating_mul(2);
            return;
        };
        self.second.step_blocks = (links.len() as u64).div_ceil(2);
        if let PollError::Client(ClientError::RangeTooLarge(_)) = &error
            && links.len() > 1
        {
            return;
        }
        let wait = error.retry_after().unwrap_or(Duration::ZERO).max(backoff(self.second.failures));
        self.second.not_before = Instant::now() + wait;
        self.second.failures = self.second.failures.saturating_add(1);
        if self.second.failures == FAILURES_QUIET {
            tracing::warn!(chain = %self.args.spec.chain, %error, "blocks cannot be rescanned");
        }
        if error.wants_reload() {
            self.reload().await;
        }
    }

    async fn record_missed(&mut self, links: &[Link], missed: Vec<transfers::Model>) -> Result<(), PollError> {
        let ChainContext { spec, journal, .. } = &self.args.context;
        let (Some(tip), Some(first), Some(last)) = (self.known.tip(), links.first(), links.last()) else {
            return Ok(());
        };
        // Orphaned in the meantime: the new blocks are read anyway.
        let stands = |link: &Link| self.known.hash(link.number) == Some(link.hash);
        if first.number != self.second.from || !links.iter().all(stands) {
            return Ok(());
        }
        let from = last.number + 1;
        let (transfers, deposits) = deposits::split(missed);
        let batch = ChainBatch { transfers, deposits, ..self.batch(&tip, from) };
        let receipt = journal.submit(JournalWrite::ChainBatch(self.args.lease.clone(), Box::new(batch))).await?;
        self.second.from = from;
        metrics::RESCAN_NUMBER.set_count(&metrics::of(spec.chain), last.number);
        if !receipt.transfers.is_empty() {
            let mut blocks: HashMap<i64, usize> = HashMap::new();
            for row in &receipt.transfers {
                *blocks.entry(row.block_number).or_default() += 1;
            }
            for (number, count) in blocks {
                tracing::error!(chain = %spec.chain, block.number = number, transfers = count,
                    "an endpoint of {} omitted transfers to payments; a rescan found them", spec.chain);
            }
            metrics::LOGS_MISSED.add(&metrics::of(spec.chain), receipt.transfers.len() as u64);
            self.report.transfers_recorded += receipt.transfers.len() as u64;
            self.report.transfers_missed += receipt.transfers.len() as u64;
            self.args.notify_observed(&receipt.transfers).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_due_when_long_enough_and_already_read() {
        let mut look = Rescan::at(10);
        assert_eq!(look.due(24, 100, 16, 50), None, "fifteen blocks");
        assert_eq!(look.due(25, 100, 16, 50), Some((10, 25)));
        assert_eq!(look.due(99, 30, 16, 50), Some((10, 30)), "no further than the first read");
        assert_eq!(look.due(99, 99, 16, 50), Some((10, 59)));
        look.step_blocks = 5;
        assert_eq!(look.due(99, 99, 16, 50), Some((10, 14)));
        assert_eq!(look.due(3, 99, 16, 50), None);
    }
}
