//! Operations as contract calls, the interpretation of contract events, and the notification of payments and outbound
//! transfers of outcomes until they have applied them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use alloy::primitives::{B256, U256};
use alloy::rpc::types::TransactionReceipt;
use alloy::sol_types::{SolCall, SolEvent, SolInterface};
use payferry_contracts::{ItemError, Payferry, SendItem, SettleItem, describe_reason, salt_of};
use payferry_domain::outbound::{self, FailureReason, OutboundId};
use payferry_domain::payment::Command;
use payferry_domain::{Address, Amount, Hash32, OperationId, PaymentId, RefundId, Timestamp};
use payferry_entities::operations;
use payferry_evm::client::ClientError;
use payferry_evm::wallet::{alloy_address, domain_address};
use payferry_journal::MovedAmounts;
use payferry_journal::chain::{Role, is_outbound, queue};
use tokio::time::Instant;

use super::ChainContext;
use super::checkpoint::Step;
use super::errors::{Errors, SettleError};
use super::settler::SettlerState;
use crate::inbox::PaymentInbox;

/// Failure text of an operation to a customer that is no longer cleared. Stored and compared: never change it.
pub(super) const NOT_CLEARED: &str = "the customer is not cleared to be paid at this wallet";

/// Failure text of an operation that was given up. Stored: never change it.
pub(super) const GIVEN_UP: &str = "it was given up before it could be sent again";

/// Interval after which an outcome that the payment has not applied is sent again.
const NOTIFY_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Interval after which a lasting failure is sent again.
const NOTIFY_FAILED_AGAIN_AFTER: Duration = Duration::from_mins(1);

/// Error: an operation row is invalid.
#[derive(Debug, thiserror::Error)]
#[error("operation {id} is invalid: {what}")]
pub struct BadOperation {
    /// Id of the operation (`op_…`).
    pub id: String,
    /// Reason.
    pub what: String,
}

/// Vault, token and recipient of an operation. They never change, unlike the amounts of a settlement: a settlement that
/// was confirmed again may be carried out with the amounts that were signed first.
///
/// The number alone does not identify the operation of an event: after a restore of the database from a backup, numbers
/// are assigned that the chain has already seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Settled { vault: B256, token: alloy::primitives::Address, psp: B256 },
    Sent { vault: B256, token: alloy::primitives::Address, to: alloy::primitives::Address },
}

impl Route {
    pub(super) fn of(row: &operations::Model) -> Result<Self, BadOperation> {
        let vault = salt_of(vault_id(row));
        let token = alloy_address(address_of(row, &row.token_address)?);
        if row.kind == "settle" {
            return Ok(Self::Settled { vault, token, psp: salt_of(&row.psp_id) });
        }
        Ok(Self::Sent { vault, token, to: alloy_address(recipient_of(row)?) })
    }
}

/// Success of an operation, from the contract's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Success {
    route: Route,
    carried: MovedAmounts,
}

impl Success {
    /// Amounts moved, if the event belongs to this operation.
    pub(super) fn carried_for(&self, row: &operations::Model) -> Option<MovedAmounts> {
        let is_its_amount = settles(row) || self.carried.amount == row.amount;
        (is_its_amount && Route::of(row).is_ok_and(|route| route == self.route)).then_some(self.carried)
    }
}

/// Result that the contract reports for one number in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Succeeded(Success),
    Failed(Vec<u8>),
}

impl Verdict {
    pub(super) fn is_success(&self) -> bool {
        matches!(self, Self::Succeeded(_))
    }

    /// Amounts moved, if the verdict is a success of this operation.
    pub(super) fn carried_for(&self, row: &operations::Model) -> Option<MovedAmounts> {
        if let Self::Succeeded(success) = self { success.carried_for(row) } else { None }
    }
}

/// Id that determines the vault of an operation.
pub(super) fn vault_id(row: &operations::Model) -> &str {
    match row.kind.as_str() {
        "send_psp" | "payout" | "withdrawal" => &row.psp_id,
        _ => &row.payment_id,
    }
}

fn address_of(row: &operations::Model, text: &str) -> Result<Address, BadOperation> {
    text.parse().map_err(|error| BadOperation { id: row.id.clone(), what: format!("{error}") })
}

fn recipient_of(row: &operations::Model) -> Result<Address, BadOperation> {
    let no_recipient = || BadOperation { id: row.id.clone(), what: "it has no recipient".to_owned() };
    address_of(row, row.recipient.as_deref().ok_or_else(no_recipient)?)
}

fn unsigned(row: &operations::Model, value: i64, what: &str) -> Result<U256, BadOperation> {
    let bad = |_| BadOperation { id: row.id.clone(), what: format!("{what} is negative") };
    u64::try_from(value).map(U256::from).map_err(bad)
}

/// Call data of a batch.
pub(super) fn batch_input(role: Role, rows: &[operations::Model]) -> Result<Vec<u8>, BadOperation> {
    match role {
        Role::Settle => {
            let items = rows.iter().map(settle_item).collect::<Result<_, _>>()?;
            Ok(Payferry::settleCall { items }.abi_encode())
        }
        Role::Send => {
            let items = rows.iter().map(send_item).collect::<Result<_, _>>()?;
            Ok(Payferry::sendCall { items }.abi_encode())
        }
    }
}

fn settle_item(row: &operations::Model) -> Result<SettleItem, BadOperation> {
    if row.psp_amount.checked_add(row.treasury_fee) != Some(row.amount) {
        return Err(BadOperation { id: row.id.clone(), what: "its shares do not add up".to_owned() });
    }
    Ok(SettleItem {
        number: unsigned(row, row.number, "its number")?,
        vaultSalt: salt_of(&row.payment_id),
        token: alloy_address(address_of(row, &row.token_address)?),
        pspSalt: salt_of(&row.psp_id),
        pspAmount: unsigned(row, row.psp_amount, "the PSP's share")?,
        treasuryFee: unsigned(row, row.treasury_fee, "the fee")?,
    })
}

fn send_item(row: &operations::Model) -> Result<SendItem, BadOperation> {
    Ok(SendItem {
        number: unsigned(row, row.number, "its number")?,
        vaultSalt: salt_of(vault_id(row)),
        token: alloy_address(address_of(row, &row.token_address)?),
        to: alloy_address(recipient_of(row)?),
        amount: unsigned(row, row.amount, "the amount")?,
    })
}

/// Number, owner and amounts of an operation that was carried out according to a log.
pub(super) fn success(log: &alloy::primitives::Log) -> Option<(i64, Success)> {
    let units = |value: U256| i64::try_from(value).ok();
    if let Ok(event) = Payferry::Settled::decode_log(log) {
        let (psp_amount, treasury_fee) = (units(event.pspAmount)?, units(event.treasuryFee)?);
        let carried = MovedAmounts { amount: psp_amount.checked_add(treasury_fee)?, psp_amount, treasury_fee };
        let route = Route::Settled { vault: event.vaultSalt, token: event.token, psp: event.pspSalt };
        return Some((units(event.number)?, Success { route, carried }));
    }
    let event = Payferry::Sent::decode_log(log).ok()?;
    let carried = MovedAmounts { amount: units(event.amount)?, psp_amount: 0, treasury_fee: 0 };
    let route = Route::Sent { vault: event.vaultSalt, token: event.token, to: event.to };
    Some((units(event.number)?, Success { route, carried }))
}

/// Verdicts of the contract's events in a receipt, by operation number. A later event of the same number replaces an
/// earlier one: a failed number can be in the batch again, a successful one cannot succeed again.
pub(super) fn verdicts(contract: Address, receipt: &TransactionReceipt) -> HashMap<i64, Verdict> {
    let mut found: HashMap<i64, Verdict> = HashMap::new();
    for log in receipt.inner.logs().iter().filter(|log| domain_address(log.address()) == contract) {
        let failed = |number: U256, reason: Vec<u8>| Some((i64::try_from(number).ok()?, Verdict::Failed(reason)));
        let verdict = match log.topic0() {
            Some(&Payferry::Settled::SIGNATURE_HASH | &Payferry::Sent::SIGNATURE_HASH) => {
                success(&log.inner).map(|(number, success)| (number, Verdict::Succeeded(success)))
            }
            Some(&Payferry::SettleFailed::SIGNATURE_HASH) => Payferry::SettleFailed::decode_log(&log.inner)
                .ok()
                .and_then(|event| failed(event.number, event.reason.to_vec())),
            Some(&Payferry::SendFailed::SIGNATURE_HASH) => Payferry::SendFailed::decode_log(&log.inner)
                .ok()
                .and_then(|event| failed(event.number, event.reason.to_vec())),
            _ => None,
        };
        let Some((number, verdict)) = verdict else { continue };
        if found.get(&number).is_none_or(|known| !known.is_success()) {
            found.insert(number, verdict);
        }
    }
    found
}

/// True if a retry may succeed: the item ran out of gas.
pub(super) fn is_transient(reason: &[u8]) -> bool {
    reason.is_empty()
}

/// True if the contract itself reports that this number has already succeeded.
pub(super) fn is_done_before(reason: &[u8], number: i64) -> bool {
    let said = Payferry::PayferryErrors::abi_decode(reason);
    matches!(said, Ok(ItemError::AlreadyDone(done)) if i64::try_from(done.number).is_ok_and(|done| done == number))
}

/// Reason of a failed item, for operators.
pub(super) fn failure_text(reason: &[u8]) -> String {
    describe_reason(reason)
}

/// Outcome of an operation, for its payment.
pub(super) enum Outcome<'a> {
    /// Mined and final for the tier.
    Completed { tx_hash: Hash32, block_time: Timestamp },
    /// Failed permanently.
    Failed { reason: &'a str },
    /// Was final, and is now orphaned.
    Orphaned,
}

/// True if the operation settles a payment, to the PSP or to the recipient of a transfer. All other operations move one
/// fixed amount.
fn settles(row: &operations::Model) -> bool {
    matches!(row.kind.as_str(), "settle" | "deliver")
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
    let command = if settles(row) {
        match *outcome {
            Outcome::Completed { tx_hash, block_time } => {
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

impl SettlerState {
    /// Notifies payments of operations that are mined and final for their tier, repeatedly until they have applied the
    /// outcome.
    pub(super) async fn complete(&mut self, errors: &mut Errors) -> Result<(), SettleError> {
        if self.args.handle.take_repeat_request() {
            self.outcomes = SentOutcomes::default();
        }
        self.outcomes.expire();
        self.notify_failed_again().await?;
        let ChainContext { spec, database, watchlist, .. } = &self.args.context;
        let Some(view) = watchlist.view(spec.chain) else { return Ok(()) };
        let reach = view.reach();
        let mined = queue::with_status(database, spec.chain, "mined", &mut self.done_page).await?;
        let due: Vec<&operations::Model> = mined.iter().filter(|row| !self.outcomes.contains(row)).collect();
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
            notified.push(row);
        }
        for row in &notified {
            self.outcomes.add(row, NOTIFY_AGAIN_AFTER);
        }
        if notified.is_empty() { Ok(()) } else { self.reached(Step::Notified) }
    }

    /// Sends lasting failures again, so that a crash loses none. A payment that already has the failure ignores it.
    async fn notify_failed_again(&mut self) -> Result<(), SettleError> {
        let ChainContext { spec, database, .. } = &self.args.context;
        let failed = queue::with_status(database, spec.chain, "failed", &mut self.failed_page).await?;
        for row in failed.iter().filter(|row| !self.outcomes.contains(row)).collect::<Vec<_>>() {
            self.notify_failed(row);
        }
        Ok(())
    }

    pub(super) fn notify_failed(&mut self, row: &operations::Model) {
        self.outcomes.add(row, NOTIFY_FAILED_AGAIN_AFTER);
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

#[cfg(test)]
mod tests;
