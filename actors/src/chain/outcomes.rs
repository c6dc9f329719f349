//! Notifies payments and outbound transfers of the outcomes of their operations until they have applied them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use payferry_domain::outbound::{self, FailureReason, OutboundId};
use payferry_domain::payment::{
    Authorization, AuthorizationState, BlockRef, CollectedBlock, Command, Payment, Settlement, SettlementState,
};
use payferry_domain::{Amount, Hash32, OperationId, PaymentId, RefundId, Timestamp};
use payferry_entities::{OperationStatus, operations};
use payferry_evm::client::ClientError;
use payferry_journal::chain::is_outbound;
use payferry_journal::chain::queue::{self, OpenWork, UNDONE};
use payferry_journal::payments::{self, StoreError};
use sea_orm::DbErr;
use tokio::time::Instant;

use super::ChainContext;
use super::checkpoint::Step;
use super::collect::{end_of, is_authorization};
use super::errors::{Errors, SettleError};
use super::operations::{NOT_CLEARED, settles, span_of};
use super::settler::SettlerState;
use crate::inbox::PaymentInbox;

/// Interval after which an outcome that the payment has not applied is sent again.
const NOTIFY_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Interval after which a lasting failure is sent again.
const NOTIFY_FAILED_AGAIN_AFTER: Duration = Duration::from_mins(1);

/// Outcome of an operation, for its payment.
pub(super) enum Outcome<'a> {
    /// Mined and final for the tier.
    Completed { tx_hash: Hash32, block_hash: Hash32, block: BlockRef },
    /// Failed permanently.
    Failed { reason: &'a str },
    /// Was final, and is now orphaned.
    Orphaned,
}

/// Notifies the owner of an operation of its outcome; returns false if there is nothing to send.
pub(super) fn notify(inbox: &dyn PaymentInbox, row: &operations::Model, outcome: &Outcome<'_>) -> bool {
    if is_outbound(row) {
        let command = outbound_command(row, outcome);
        return command.map(|(id, command)| inbox.notify_outbound(id, command)).is_some();
    }
    command(row, outcome).map(|(id, command)| inbox.notify(id, command)).is_some()
}

fn outbound_command(row: &operations::Model, outcome: &Outcome<'_>) -> Option<(OutboundId, outbound::Command)> {
    let id = row.payment_id.parse().ok()?;
    let revision = u32::try_from(row.revision).ok()?;
    let command = match *outcome {
        Outcome::Completed { tx_hash, .. } => outbound::Command::Complete { revision, tx_hash },
        Outcome::Failed { reason } => {
            let cleared = reason != NOT_CLEARED;
            let why = if cleared { FailureReason::SendFailed } else { FailureReason::CustomerNotCleared };
            outbound::Command::Fail { revision, reason: why, detail: reason.to_owned() }
        }
        Outcome::Orphaned => return None,
    };
    Some((id, command))
}

/// Command for the payment; `None` if there is nothing to send.
fn command(row: &operations::Model, outcome: &Outcome<'_>) -> Option<(PaymentId, Command)> {
    let payment_id: PaymentId = row.payment_id.parse().ok()?;
    let operation: OperationId = row.id.parse().ok()?;
    let revision = u32::try_from(row.revision).ok()?;
    let command = if is_authorization(row) {
        match *outcome {
            Outcome::Completed { tx_hash, block_hash, block } => {
                let log_index = u32::try_from(row.log_index.unwrap_or_default()).ok()?;
                let block = CollectedBlock { tx_hash, block_hash, block, log_index };
                Command::CompleteAuthorization { operation, revision, block }
            }
            Outcome::Failed { reason } => {
                let (end, detail) = (end_of(reason), reason.to_owned());
                Command::FailAuthorization { operation, revision, end, detail }
            }
            Outcome::Orphaned => Command::OrphanAuthorization { operation, revision },
        }
    } else if settles(row) {
        match *outcome {
            Outcome::Completed { tx_hash, block, .. } => {
                let block_time = block.time;
                let amount = Amount::from_units(row.amount);
                Command::CompleteSettlement { operation, revision, amount, tx_hash, block_time }
            }
            Outcome::Failed { reason } => Command::FailSettlement { operation, revision, reason: reason.to_owned() },
            Outcome::Orphaned => Command::OrphanSettlement { operation, revision },
        }
    } else {
        // A refund and its operation share the ULID.
        let refund_id = RefundId::from_ulid(operation.ulid());
        match *outcome {
            Outcome::Completed { tx_hash, .. } => Command::CompleteRefund { refund_id, revision, tx_hash },
            Outcome::Failed { reason } => Command::FailRefund { refund_id, revision, reason: reason.to_owned() },
            Outcome::Orphaned => return None,
        }
    };
    Some((payment_id, command))
}

/// Outcomes that were sent, by operation: the revision, and the time after which it is sent again. The payment or outbound
/// transfer marks the operation when it has applied the outcome.
#[derive(Debug, Default)]
pub(super) struct SentOutcomes(HashMap<String, (i64, Instant)>);

impl SentOutcomes {
    /// Forgets the outcomes that are to be sent again.
    fn expire(&mut self) {
        let now = Instant::now();
        self.0.retain(|_, (_, again_at)| now < *again_at);
    }

    fn contains(&self, row: &operations::Model) -> bool {
        self.0.get(&row.id).is_some_and(|(revision, _)| *revision == row.revision)
    }

    fn add(&mut self, row: &operations::Model, again_after: Duration) {
        self.0.insert(row.id.clone(), (row.revision, Instant::now() + again_after));
    }
}

/// True if the payment believes that the operation has succeeded.
fn is_done(payment: &Payment, row: &operations::Model) -> bool {
    let Ok(operation) = row.id.parse::<OperationId>() else { return false };
    let is_settled =
        |settlement: &Settlement| settlement.operation == operation && settlement.state == SettlementState::Settled;
    let is_collected = |authorization: &Authorization| {
        authorization.operation == operation && authorization.state == AuthorizationState::Final
    };
    payment.settlement.as_deref().is_some_and(is_settled) || payment.authorization.as_deref().is_some_and(is_collected)
}

impl ChainContext {
    /// Notifies payments and outbound transfers of those of these mined operations that are final for their tier; returns
    /// them.
    pub(super) async fn notify_completed<'r>(
        &self,
        due: &[&'r operations::Model],
        errors: &mut Errors,
    ) -> Result<Vec<&'r operations::Model>, SettleError> {
        let Self { spec, database, watchlist, .. } = self;
        let Some(view) = watchlist.view(spec.chain).filter(|_| !due.is_empty()) else { return Ok(Vec::new()) };
        let reach = view.reach();
        let tiers = queue::tiers(database, due).await?;
        let ids: Vec<i64> = due.iter().filter_map(|row| row.chain_tx_id).collect();
        let txs = queue::txs_by_id(database, &ids).await?;
        let mut blocks: HashMap<u64, Option<(Hash32, Timestamp)>> = HashMap::new();
        let (mut notified, mut facts) = (Vec::new(), Vec::new());
        for &row in due {
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
                        let header = match self.client.headers([number]).await {
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
            let block = match (block, tx) {
                // The canonical block differs from the recorded one: `resolve` must handle it first.
                (Some((hash, _)), Some(tx)) if tx.block_hash != Some(hash.to_string()) => None,
                (block, _) => block,
            };
            let hash = row.tx_hash.as_deref().and_then(|hash| hash.parse().ok());
            let (Some((block_hash, time)), Some(tx_hash)) = (block, hash) else { continue };
            let block = BlockRef { number, time };
            let outcome = Outcome::Completed { tx_hash, block_hash, block };
            if is_outbound(row) {
                notify(&*self.inbox, row, &outcome);
            } else {
                facts.extend(command(row, &outcome));
            }
            notified.push(row);
        }
        self.inbox.notify_together(facts);
        for row in &notified {
            let sent_at = row
                .chain_tx_id
                .and_then(|id| txs.get(&id))
                .map(|tx| Duration::from_millis(tx.created_at.unsigned_abs()));
            let begun_at = sent_at.map_or_else(SystemTime::now, |sent_at| UNIX_EPOCH + sent_at);
            let mut span = span_of("settler.confirm", row, begun_at);
            span.set("tx.hash", || row.tx_hash.clone().unwrap_or_default());
            span.set("block.number", || row.block_number.unwrap_or_default());
        }
        Ok(notified)
    }

    /// Notifies the payments that believe in an outcome which a reorganisation has undone. The notification that came with the
    /// change may have been lost.
    pub(super) async fn notify_undone(&self, rows: &[operations::Model]) -> Result<(), DbErr> {
        let is_undone =
            |row: &&operations::Model| UNDONE.contains(&row.status) && row.revision > 1 && !is_outbound(row);
        for row in rows.iter().filter(is_undone) {
            let Ok(id) = row.payment_id.parse() else { continue };
            match payments::load(&self.database, id).await {
                Ok(Some(payment)) if is_done(&payment, row) => {
                    notify(&*self.inbox, row, &Outcome::Orphaned);
                }
                // The actor of an unreadable payment reports it.
                Ok(_) | Err(StoreError::Unreadable { .. }) => {}
                Err(StoreError::Database(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Notifies a payment or outbound transfer of a lasting failure.
    pub(super) fn notify_failure(&self, row: &operations::Model) {
        let reason = row.failure.as_deref().unwrap_or("no reason was given");
        notify(&*self.inbox, row, &Outcome::Failed { reason });
    }
}

impl SettlerState {
    /// Notifies payments of operations that are mined and final for their tier, repeatedly until they have applied the
    /// outcome.
    pub(super) async fn complete(&mut self, open: &OpenWork, errors: &mut Errors) -> Result<(), SettleError> {
        if self.args.handle.take_repeat_request() {
            self.outcomes = SentOutcomes::default();
            self.undone_at = None;
        }
        self.outcomes.expire();
        self.notify_undone_again().await?;
        if open.failed > 0 {
            self.notify_failed_again().await?;
        } else {
            self.failed_page = queue::QueuePage::default();
        }
        if open.queued > 0 {
            let ended = self.end_authorizations(errors).await;
            errors.take(ended)?;
        } else {
            self.authorizations.clear();
        }
        if open.mined == 0 {
            self.done_page = queue::QueuePage::default();
            return Ok(());
        }
        let ChainContext { spec, database, .. } = &self.args.context;
        let mined = queue::with_status(database, spec.chain, OperationStatus::Mined, &mut self.done_page).await?;
        let due: Vec<&operations::Model> = mined.iter().filter(|row| !self.outcomes.contains(row)).collect();
        let notified = self.args.notify_completed(&due, errors).await?;
        for row in &notified {
            self.outcomes.add(row, NOTIFY_AGAIN_AFTER);
        }
        if notified.is_empty() { Ok(()) } else { self.reached(Step::Notified) }
    }

    /// Sends lasting failures again, so that a crash loses none. A payment that already has the failure ignores it.
    async fn notify_failed_again(&mut self) -> Result<(), SettleError> {
        let ChainContext { spec, database, .. } = &self.args.context;
        let failed = queue::with_status(database, spec.chain, OperationStatus::Failed, &mut self.failed_page).await?;
        for row in failed.iter().filter(|row| !self.outcomes.contains(row)).collect::<Vec<_>>() {
            self.notify_failed(row);
        }
        Ok(())
    }

    /// Sends undone outcomes again, so that a crash loses none.
    async fn notify_undone_again(&mut self) -> Result<(), SettleError> {
        if self.undone_at.is_some_and(|at| at.elapsed() < NOTIFY_AGAIN_AFTER) {
            return Ok(());
        }
        let ChainContext { spec, database, .. } = &self.args.context;
        let undone = queue::undone(database, spec.chain, &mut self.undone_page).await?;
        self.args.notify_undone(&undone).await?;
        self.undone_at = Some(Instant::now());
        Ok(())
    }

    pub(super) fn notify_failed(&mut self, row: &operations::Model) {
        self.outcomes.add(row, NOTIFY_FAILED_AGAIN_AFTER);
        self.args.notify_failure(row);
    }

    /// Notifies payments that may have been notified of a success that is now orphaned. `before` are the previous rows,
    /// `changed` the current ones.
    pub(super) fn notify_orphaned(&self, before: &[&operations::Model], changed: &[operations::Model]) {
        let had = |row: &&operations::Model| before.iter().any(|was| was.id == row.id && was.status.is_done());
        for row in changed.iter().filter(had) {
            notify(&*self.args.inbox, row, &Outcome::Orphaned);
        }
    }
}
