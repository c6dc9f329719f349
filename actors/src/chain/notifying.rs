//! Notifies payments of the outcomes of their operations until they have applied them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use payferry_domain::{Hash32, Timestamp};
use payferry_entities::operations;
use payferry_evm::client::ClientError;
use payferry_journal::chain::queue;
use tokio::time::Instant;

use super::checkpoint::Step;
use super::errors::{Errors, SettleError};
use super::operations::{Outcome, notify};
use super::settler::{SettlerArgs, SettlerState};

/// Interval after which an outcome that the payment has not applied is sent again.
const NOTIFY_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Interval after which a lasting failure is sent again.
const TELL_FAILED_AGAIN_AFTER: Duration = Duration::from_mins(1);

impl SettlerState {
    /// Notifies payments of operations that are mined and final for their tier, repeatedly until they have applied the
    /// outcome.
    pub(super) async fn complete(&mut self, errors: &mut Errors) -> Result<(), SettleError> {
        self.retell_failed().await?;
        let SettlerArgs { spec, database, watchlist, .. } = &self.args;
        let Some(view) = watchlist.view(spec.chain) else { return Ok(()) };
        let reach = view.reach();
        let mined = queue::with_status(database, spec.chain, "mined", &mut self.done_page).await?;
        let now = Instant::now();
        self.notified.retain(|_, (_, at)| now.duration_since(*at) < NOTIFY_AGAIN_AFTER);
        let untold =
            |row: &&operations::Model| self.notified.get(&row.id).is_none_or(|(revision, _)| *revision != row.revision);
        let due: Vec<&operations::Model> = mined.iter().filter(untold).collect();
        if due.is_empty() {
            return Ok(());
        }
        let tiers = queue::tiers(database, &due).await?;
        let ids: Vec<i64> = due.iter().filter_map(|row| row.chain_tx_id).collect();
        let txs = queue::txs_by_id(database, &ids).await?;
        let mut blocks: HashMap<u64, Option<(Hash32, Timestamp)>> = HashMap::new();
        let mut notified = Vec::new();
        for row in due {
            let Some(number) = row.block_number.and_then(|number| u64::try_from(number).ok()) else { continue };
            if !tiers.get(&row.id).is_some_and(|tier| reach.reached(number, *tier)) {
                continue;
            }
            let tx = row.chain_tx_id.and_then(|id| txs.get(&id)).filter(|tx| tx.tx_hash == row.tx_hash);
            let block = match view.block(number) {
                Some(block) => Some(block),
                // Older than the remembered blocks.
                None => match blocks.entry(number) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(unknown) => {
                        let header = match self.args.client.headers([number]).await {
                            Ok(headers) => headers.first().map(|header| (header.hash, header.time)),
                            Err(error @ (ClientError::UnknownBlock | ClientError::Malformed(_))) => {
                                let what = format!("block {number}");
                                errors.add(SettleError::Item { what, why: error.to_string() })?;
                                None
                            }
                            Err(error) => {
                                errors.add(error.into())?;
                                break;
                            }
                        };
                        *unknown.insert(header)
                    }
                },
            };
            let time = match (block, tx) {
                // The canonical block differs from the recorded one: `resolve` must handle it first.
                (Some((hash, _)), Some(tx)) if tx.block_hash != Some(hash.to_string()) => None,
                (block, _) => block.map(|(_, time)| time),
            };
            let hash = row.tx_hash.as_deref().and_then(|hash| hash.parse().ok());
            let (Some(block_time), Some(tx_hash)) = (time, hash) else { continue };
            notify(&*self.args.inbox, row, &Outcome::Completed { tx_hash, block_time });
            notified.push((row.id.clone(), (row.revision, now)));
        }
        let any = !notified.is_empty();
        self.notified.extend(notified);
        if any { self.reached(Step::Notified) } else { Ok(()) }
    }

    /// Sends lasting failures again, so that a crash loses none. A payment that already has the failure ignores it.
    async fn retell_failed(&mut self) -> Result<(), SettleError> {
        let SettlerArgs { spec, database, .. } = &self.args;
        let failed = queue::with_status(database, spec.chain, "failed", &mut self.failed_page).await?;
        let now = Instant::now();
        self.failed_told.retain(|_, (_, at)| now.duration_since(*at) < TELL_FAILED_AGAIN_AFTER);
        for row in failed {
            if self.failed_told.get(&row.id).is_none_or(|(revision, _)| *revision != row.revision) {
                self.notify_failed(&row);
            }
        }
        Ok(())
    }

    pub(super) fn notify_failed(&mut self, row: &operations::Model) {
        self.failed_told.insert(row.id.clone(), (row.revision, Instant::now()));
        let reason = row.failure.as_deref().unwrap_or("no reason was given");
        notify(&*self.args.inbox, row, &Outcome::Failed { reason });
    }

    /// Notifies payments that may have been notified of a success that is now orphaned. `before` are the previous rows,
    /// `changed` the current ones.
    pub(super) fn notify_orphaned(&self, before: &[&operations::Model], changed: &[operations::Model]) {
        let had = |row: &&operations::Model| {
            before.iter().any(|was| was.id == row.id && matches!(was.status.as_str(), "mined" | "succeeded"))
        };
        for row in changed.iter().filter(had) {
            notify(&*self.args.inbox, row, &Outcome::Orphaned);
        }
    }
}
