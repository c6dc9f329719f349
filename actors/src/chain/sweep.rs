//! Repeats notifications of transfers that payments have not applied, in case a message was lost.
//!
//! Deliberately absent: the reason why a payment does not apply a transfer. One blocked payment does not delay others.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use payferry_domain::payment::Command;
use payferry_entities::transfers;
use payferry_journal::chain::rows::{self, LoadError};
use payferry_journal::payments::{self, StoreError, TransferPosition};

use super::ChainContext;

/// Interval of sweeps. A transfer is notified again if two consecutive sweeps find it unapplied.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of unapplied transfers per sweep. If there are more, two sweeps read each page of this size.
const SWEEP_ROWS_MAX: u64 = 2_000;

/// Progress of the sweeps.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Position before the page; `None` at the beginning.
    after: Option<TransferPosition>,
    /// Rows found by the previous sweep: block, transaction, log index and revision.
    found: HashSet<(String, String, i64, i64)>,
    /// True if the previous sweep read this page, and the page is one of several.
    is_second: bool,
}

impl Sweep {
    /// Selects the rows of the page to notify: all of them, or those that the previous sweep also found, so that
    /// transfers in progress are left alone. Advances to the next page if this one is finished.
    fn take(&mut self, rows: Vec<transfers::Model>, is_full: bool, all: bool) -> Vec<transfers::Model> {
        let key = |row: &transfers::Model| (row.block_hash.clone(), row.tx_hash.clone(), row.log_index, row.revision);
        let found: HashSet<_> = rows.iter().map(key).collect();
        let last = rows.last().map(TransferPosition::of);
        let due = rows.into_iter().filter(|row| all || self.found.contains(&key(row))).collect();
        let is_only = self.after.is_none() && !is_full;
        *self = if is_only {
            Self { found, ..Self::default() }
        } else if all || self.is_second {
            Self { after: last.filter(|_| is_full), ..Self::default() }
        } else {
            Self { after: self.after.take(), found, is_second: true }
        };
        due
    }
}

impl ChainContext {
    /// Notifies payments of those of their unapplied transfers that are wanted; with `all`, without waiting for a second
    /// sweep.
    pub(super) async fn sweep(
        &self,
        swept: &mut Sweep,
        all: bool,
        is_wanted: impl Fn(&transfers::Model) -> bool,
    ) -> Result<(), StoreError> {
        let Self { spec, database, .. } = self;
        let found = payments::unapplied_on(database, spec.chain, swept.after.as_ref(), SWEEP_ROWS_MAX).await?;
        let is_full = found.len() as u64 >= SWEEP_ROWS_MAX;
        let mut due = swept.take(found, is_full, all);
        due.retain(is_wanted);
        if !due.is_empty() {
            tracing::info!(chain = %spec.chain, transfers = due.len(), "notifying payments of transfers again");
            self.notify_observed(&due).await;
        }
        Ok(())
    }

    /// Notifies the payments of these transfer rows.
    pub(super) async fn notify_observed(&self, rows: &[transfers::Model]) {
        let ChainContext { spec, database, watchlist, inbox, .. } = self;
        let times = rows::first_block_times(database, spec.chain, rows).await.unwrap_or_else(|error| {
            tracing::warn!(chain = %spec.chain, %error, "first block times could not be read");
            HashMap::new()
        });
        for row in rows {
            let first = times.get(&(row.tx_hash.clone(), row.payment_id.clone())).copied();
            match rows::observed(spec.chain, |address| spec.token_at(address), row, first) {
                Ok((payment_id, fact)) => {
                    watchlist.waits(fact.key.chain).drop_outdated(fact.key, fact.revision);
                    inbox.notify(payment_id, Command::ObserveTransfer(fact));
                }
                Err(error) => {
                    tracing::error!(chain = %spec.chain, %error, "unreadable transfer row; its payment is not notified");
                }
            }
        }
    }

    /// Notifies again of the recorded outages; each is applied once.
    pub(super) async fn notify_outages(&self) -> Result<(), LoadError> {
        let ChainContext { spec, database, inbox, .. } = self;
        for gap in rows::load_outages(database, spec.chain).await? {
            inbox.chain_stalled(spec.chain, gap.block, gap.from, gap.to);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(blocks: std::ops::Range<i64>) -> Vec<transfers::Model> {
        let row = |block_number: i64| transfers::Model {
            chain: "base".to_owned(),
            tx_hash: format!("0x{block_number}"),
            log_index: 0,
            payment_id: String::new(),
            token_address: String::new(),
            from_address: String::new(),
            to_address: String::new(),
            amount: 1,
            block_number,
            block_hash: String::new(),
            block_time: 0,
            presence: "present".to_owned(),
            revision: 1,
            applied_revision: 0,
            applied_version: 0,
            created_at: 0,
        };
        blocks.map(row).collect()
    }

    fn blocks(rows: &[transfers::Model]) -> Vec<i64> {
        rows.iter().map(|row| row.block_number).collect()
    }

    #[test]
    fn transfers_found_by_two_consecutive_sweeps_are_due() {
        let mut sweep = Sweep::default();
        assert!(sweep.take(rows(1..4), false, false).is_empty());
        assert_eq!(blocks(&sweep.take(rows(2..6), false, false)), [2, 3]);
        assert_eq!(blocks(&sweep.take(rows(5..7), false, false)), [5]);
        assert_eq!(blocks(&sweep.take(rows(8..9), false, true)), [8], "at the start");
        let mut again = rows(8..9);
        again[0].revision = 2;
        assert!(sweep.take(again, false, false).is_empty(), "a new revision");
    }

    #[test]
    fn each_page_is_read_twice_before_the_next() {
        let mut sweep = Sweep::default();
        let place = |block: i64| rows(block..block + 1).first().map(TransferPosition::of);
        assert!(sweep.take(rows(1..4), true, false).is_empty());
        assert_eq!(sweep.after, None);
        assert_eq!(blocks(&sweep.take(rows(2..5), true, false)), [2, 3]);
        assert_eq!(sweep.after, place(4));
        assert!(sweep.take(rows(5..7), false, false).is_empty());
        assert_eq!(sweep.after, place(4));
        assert_eq!(blocks(&sweep.take(rows(5..7), false, false)), [5, 6]);
        assert_eq!(sweep.after, None, "from the start");
        assert_eq!(blocks(&sweep.take(rows(1..4), true, true)), [1, 2, 3]);
        assert_eq!(sweep.after, place(3));
    }
}
