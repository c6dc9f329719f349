//! Operations as contract calls, the interpretation of contract events, and the notification of payments and outbound
//! transfers of outcomes until they have applied them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use alloy::primitives::{Address as Account, B256, U256};
use alloy::rpc::types::{Log, TransactionReceipt};
use alloy::sol_types::{SolCall, SolEvent, SolInterface};
use payferry_contracts::{
    ItemError, OperationKind, Payferry, SendItem, SettleItem, describe_reason, payment_salt, psp_salt, vault_address,
};
use payferry_domain::outbound::{self, FailureReason, OutboundId};
use payferry_domain::payment::{BlockRef, CollectedBlock, Command};
use payferry_domain::{Address, Amount, Hash32, OperationId, PaymentId, PspId, RefundId, Timestamp};
use payferry_entities::{OperationStatus, operations};
use payferry_evm::client::ClientError;
use payferry_evm::wallet::{alloy_address, domain_address};
use payferry_journal::MovedAmounts;
use payferry_journal::chain::{Role, is_outbound, queue};
use tokio::time::Instant;

use super::ChainContext;
use super::checkpoint::Step;
use super::collect::{Signatures, collect_input, deposited, end_of, is_authorization, nonce_of, payer_of};
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

/// Id of an operation in the contract, which carries each out at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OperationKey {
    pub(super) kind: u8,
    pub(super) id: u128,
}

impl OperationKey {
    fn settlement(id: u128) -> Self {
        Self { kind: OperationKind::Settlement.number(), id }
    }

    /// Key of a row's operation; `None` if its id is malformed.
    pub(super) fn of(row: &operations::Model) -> Option<Self> {
        let kind = match row.kind.as_str() {
            "settle" => OperationKind::Settlement,
            "send" | "send_psp" => OperationKind::Refund,
            "withdrawal" => OperationKind::Withdrawal,
            _ => OperationKind::Payout,
        };
        Some(Self { kind: kind.number(), id: row.id.parse::<OperationId>().ok()?.ulid().0 })
    }

    /// Id of the row that has this operation.
    pub(super) fn row_id(self) -> String {
        OperationId::from_ulid(self.id.into()).to_string()
    }
}

/// Key of an item of a batch in the contract's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ItemKey {
    /// A settlement or an outbound transfer.
    Operation(OperationKey),
    /// An authorization: the payment and the nonce.
    Authorization(u128, B256),
}

impl ItemKey {
    /// Key of a row's item; `None` if the row is malformed.
    pub(super) fn of(row: &operations::Model) -> Option<Self> {
        if is_authorization(row) {
            return Some(Self::Authorization(payment_ulid(row).ok()?, nonce_of(row).ok()?));
        }
        OperationKey::of(row).map(Self::Operation)
    }
}

/// Vault, token and recipient of an operation. They never change, unlike the amounts of a settlement: a settlement that
/// was confirmed again may be carried out with the amounts that were signed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    vault: Account,
    token: Account,
    /// Vault of the PSP for a settlement.
    to: Account,
}

impl Route {
    fn of(row: &operations::Model, contract: Address) -> Result<Self, BadOperation> {
        let (vault, contract) = (vault_of(row, contract)?, alloy_address(contract));
        let token = alloy_address(address_of(row, &row.token_address)?);
        let to = if row.kind == "settle" {
            vault_address(contract, psp_salt(psp_ulid(row)?))
        } else {
            alloy_address(recipient_of(row)?)
        };
        Ok(Self { vault, token, to })
    }
}

/// Success of an operation, from the contract's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Success {
    key: ItemKey,
    route: Moved,
    carried: MovedAmounts,
}

/// From where to where a successful operation moved its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    Along(Route),
    /// The nonce commits to the rest.
    FromPayer {
        payer: Account,
        token: Account,
    },
}

impl Moved {
    fn of(row: &operations::Model, contract: Address) -> Result<Self, BadOperation> {
        if is_authorization(row) {
            let token = alloy_address(address_of(row, &row.token_address)?);
            return Ok(Self::FromPayer { payer: payer_of(row)?, token });
        }
        Route::of(row, contract).map(Self::Along)
    }
}

impl Success {
    /// Amounts moved, if the event belongs to this operation of the contract. Its id alone proves nothing: another
    /// holder of a role's key can use up any id.
    pub(super) fn carried_for(&self, row: &operations::Model, contract: Address) -> Option<MovedAmounts> {
        let is_its_amount = settles(row) || self.carried.amount == row.amount;
        let is_its_own =
            ItemKey::of(row) == Some(self.key) && Moved::of(row, contract).is_ok_and(|route| route == self.route);
        (is_its_amount && is_its_own).then_some(self.carried)
    }
}

/// Result that the contract reports for one operation in one transaction.
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
    pub(super) fn carried_for(&self, row: &operations::Model, contract: Address) -> Option<MovedAmounts> {
        if let Self::Succeeded(success) = self { success.carried_for(row, contract) } else { None }
    }
}

/// Address of the vault that an operation moves funds out of.
pub(super) fn vault_of(row: &operations::Model, contract: Address) -> Result<Account, BadOperation> {
    Ok(vault_address(alloy_address(contract), vault_salt(row)?))
}

fn vault_salt(row: &operations::Model) -> Result<B256, BadOperation> {
    if matches!(row.kind.as_str(), "send_psp" | "payout" | "withdrawal") {
        return Ok(psp_salt(psp_ulid(row)?));
    }
    Ok(payment_salt(payment_ulid(row)?, psp_ulid(row)?, max_fee(row)?))
}

pub(super) fn bad(row: &operations::Model, what: &str) -> BadOperation {
    BadOperation { id: row.id.clone(), what: what.to_owned() }
}

pub(super) fn payment_ulid(row: &operations::Model) -> Result<u128, BadOperation> {
    let id: PaymentId = row.payment_id.parse().map_err(|_| bad(row, "its payment's id is malformed"))?;
    Ok(id.ulid().0)
}

pub(super) fn psp_ulid(row: &operations::Model) -> Result<u128, BadOperation> {
    let id: PspId = row.psp_id.parse().map_err(|_| bad(row, "its PSP's id is malformed"))?;
    Ok(id.ulid().0)
}

pub(super) fn max_fee(row: &operations::Model) -> Result<u16, BadOperation> {
    u16::try_from(row.max_fee_bps).map_err(|_| bad(row, "its maximum fee is out of range"))
}

pub(super) fn address_of(row: &operations::Model, text: &str) -> Result<Address, BadOperation> {
    text.parse().map_err(|error| bad(row, &format!("{error}")))
}

fn recipient_of(row: &operations::Model) -> Result<Address, BadOperation> {
    address_of(row, row.recipient.as_deref().ok_or_else(|| bad(row, "it has no recipient"))?)
}

pub(super) fn unsigned(row: &operations::Model, value: i64, what: &str) -> Result<u128, BadOperation> {
    u128::try_from(value).map_err(|_| bad(row, &format!("{what} is negative")))
}

/// Call data of a batch. `item_gas` is the gas limit of each item.
pub(super) fn batch_input(
    role: Role,
    rows: &[operations::Model],
    signatures: &Signatures,
    item_gas: u64,
) -> Result<Vec<u8>, BadOperation> {
    match role {
        Role::Collect => collect_input(rows, signatures, item_gas),
        Role::Settle => {
            let items = rows.iter().map(settle_item).collect::<Result<_, _>>()?;
            Ok(Payferry::settleCall { items, itemGas: item_gas }.abi_encode())
        }
        Role::Send => {
            let items = rows.iter().map(send_item).collect::<Result<_, _>>()?;
            Ok(Payferry::sendCall { items, itemGas: item_gas }.abi_encode())
        }
    }
}

/// Call data of one operation, as the contract calls itself.
pub(super) fn item_input(role: Role, row: &operations::Model) -> Result<Vec<u8>, BadOperation> {
    Ok(match role {
        Role::Send => Payferry::sendItemCall { item: send_item(row)? }.abi_encode(),
        Role::Settle | Role::Collect => Payferry::settleItemCall { item: settle_item(row)? }.abi_encode(),
    })
}

/// Key of a row's operation.
pub(super) fn key_of(row: &operations::Model) -> Result<OperationKey, BadOperation> {
    OperationKey::of(row).ok_or_else(|| bad(row, "its id is malformed"))
}

fn settle_item(row: &operations::Model) -> Result<SettleItem, BadOperation> {
    if row.psp_amount.checked_add(row.treasury_fee) != Some(row.amount) {
        return Err(bad(row, "its shares do not add up"));
    }
    Ok(SettleItem {
        id: key_of(row)?.id,
        paymentId: payment_ulid(row)?,
        pspId: psp_ulid(row)?,
        maxFeeBps: max_fee(row)?,
        token: alloy_address(address_of(row, &row.token_address)?),
        amount: unsigned(row, row.amount, "the amount")?,
        fee: unsigned(row, row.treasury_fee, "the fee")?,
    })
}

fn send_item(row: &operations::Model) -> Result<SendItem, BadOperation> {
    let OperationKey { kind, id } = key_of(row)?;
    Ok(SendItem {
        kind,
        id,
        vaultSalt: vault_salt(row)?,
        token: alloy_address(address_of(row, &row.token_address)?),
        to: alloy_address(recipient_of(row)?),
        amount: unsigned(row, row.amount, "the amount")?,
    })
}

/// Operation that was carried out according to a log.
pub(super) fn success(log: &Log) -> Option<(ItemKey, Success)> {
    let units = |value: U256| i64::try_from(value).ok();
    let log_index = log.log_index.and_then(|index| i64::try_from(index).ok());
    let log = &log.inner;
    if let Ok(event) = Payferry::Settled::decode_log(log) {
        let (psp_amount, treasury_fee) = (units(event.pspAmount)?, units(event.treasuryFee)?);
        let amount = psp_amount.checked_add(treasury_fee)?;
        let carried = MovedAmounts { amount, psp_amount, treasury_fee, log_index: None };
        let route = Moved::Along(Route { vault: event.vault, token: event.token, to: event.pspVault });
        let key = ItemKey::Operation(OperationKey::settlement(event.id));
        return Some((key, Success { key, route, carried }));
    }
    if let Ok(event) = Payferry::Collected::decode_log(log) {
        let (psp_amount, treasury_fee) = (units(event.pspAmount)?, units(event.treasuryFee)?);
        let carried =
            MovedAmounts { amount: psp_amount.checked_add(treasury_fee)?, psp_amount, treasury_fee, log_index };
        let route = Moved::FromPayer { payer: event.payer, token: event.token };
        let key = ItemKey::Authorization(event.paymentId, event.nonce);
        return Some((key, Success { key, route, carried }));
    }
    let event = Payferry::Sent::decode_log(log).ok()?;
    let carried = MovedAmounts { amount: units(event.amount)?, ..MovedAmounts::default() };
    let route = Moved::Along(Route { vault: event.vault, token: event.token, to: event.to });
    let key = ItemKey::Operation(OperationKey { kind: event.kind, id: event.id });
    Some((key, Success { key, route, carried }))
}

/// Verdicts of the contract about the items of one transaction.
pub(super) struct Verdicts<'a> {
    receipt: &'a TransactionReceipt,
    by_item: HashMap<ItemKey, Verdict>,
}

impl Verdicts<'_> {
    /// Amounts moved, if the transaction executed this operation.
    pub(super) fn carried_for(&self, row: &operations::Model, contract: Address) -> Option<MovedAmounts> {
        if row.kind == "deposit" && self.receipt.status() {
            return deposited(row, contract, self.receipt);
        }
        self.by_item.get(&ItemKey::of(row)?).and_then(|verdict| verdict.carried_for(row, contract))
    }

    /// Reason of the contract for the failure of this operation; empty if there is none.
    pub(super) fn reason(&self, row: &operations::Model) -> &[u8] {
        match ItemKey::of(row).and_then(|key| self.by_item.get(&key)) {
            Some(Verdict::Failed(reason)) => reason,
            _ => &[],
        }
    }

    /// Items that succeeded.
    pub(super) fn succeeded(&self) -> impl Iterator<Item = ItemKey> {
        self.by_item.iter().filter(|(_, verdict)| verdict.is_success()).map(|(key, _)| *key)
    }
}

/// Verdicts of the contract's events in a receipt, by operation. A later event of the same operation replaces an earlier
/// one: a failed operation can be in the batch again, a successful one cannot succeed again.
pub(super) fn verdicts(contract: Address, receipt: &TransactionReceipt) -> Verdicts<'_> {
    let mut found: HashMap<ItemKey, Verdict> = HashMap::new();
    for log in receipt.inner.logs().iter().filter(|log| domain_address(log.address()) == contract) {
        let Some((key, verdict)) = verdict_of(log) else { continue };
        if found.get(&key).is_none_or(|known| !known.is_success()) {
            found.insert(key, verdict);
        }
    }
    Verdicts { receipt, by_item: found }
}

fn verdict_of(log: &Log) -> Option<(ItemKey, Verdict)> {
    if let Ok(event) = Payferry::SettleFailed::decode_log(&log.inner) {
        let key = ItemKey::Operation(OperationKey::settlement(event.id));
        return Some((key, Verdict::Failed(event.reason.to_vec())));
    }
    if let Ok(event) = Payferry::CollectFailed::decode_log(&log.inner) {
        let key = ItemKey::Authorization(event.paymentId, event.nonce);
        return Some((key, Verdict::Failed(event.reason.to_vec())));
    }
    if let Ok(event) = Payferry::SendFailed::decode_log(&log.inner) {
        let key = ItemKey::Operation(OperationKey { kind: event.kind, id: event.id });
        return Some((key, Verdict::Failed(event.reason.to_vec())));
    }
    success(log).map(|(key, success)| (key, Verdict::Succeeded(success)))
}

/// True if a retry may succeed: the item ran out of gas.
pub(super) fn is_transient(reason: &[u8]) -> bool {
    reason.is_empty()
}

/// True if the token's limit left too little. It never fails an operation.
pub(super) fn is_limit(reason: &[u8]) -> bool {
    matches!(ItemError::abi_decode(reason), Ok(ItemError::LimitExceeded(_)))
}

/// True if the contract itself reports that this operation has already succeeded.
pub(super) fn is_done_before(reason: &[u8], key: OperationKey) -> bool {
    let said = Payferry::PayferryErrors::abi_decode(reason);
    matches!(said, Ok(ItemError::AlreadyDone(done)) if OperationKey { kind: done.kind, id: done.id } == key)
}

/// Reason of a failed item, for operators.
pub(super) fn failure_text(reason: &[u8]) -> String {
    describe_reason(reason)
}

/// Outcome of an operation, for its payment.
pub(super) enum Outcome<'a> {
    /// Mined and final for the tier.
    Completed { tx_hash: Hash32, block_hash: Hash32, block: BlockRef },
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

impl SettlerState {
    /// Notifies payments of operations that are mined and final for their tier, repeatedly until they have applied the
    /// outcome.
    pub(super) async fn complete(&mut self, errors: &mut Errors) -> Result<(), SettleError> {
        if self.args.handle.take_repeat_request() {
            self.outcomes = SentOutcomes::default();
        }
        self.outcomes.expire();
        self.notify_failed_again().await?;
        let ended = self.end_authorizations(errors).await;
        errors.take(ended)?;
        let ChainContext { spec, database, watchlist, .. } = &self.args.context;
        let Some(view) = watchlist.view(spec.chain) else { return Ok(()) };
        let reach = view.reach();
        let mined = queue::with_status(database, spec.chain, OperationStatus::Mined, &mut self.done_page).await?;
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
            let block = match (block, tx) {
                // The canonical block differs from the recorded one: `resolve` must handle it first.
                (Some((hash, _)), Some(tx)) if tx.block_hash != Some(hash.to_string()) => None,
                (block, _) => block,
            };
            let hash = row.tx_hash.as_deref().and_then(|hash| hash.parse().ok());
            let (Some((block_hash, time)), Some(tx_hash)) = (block, hash) else { continue };
            let block = BlockRef { number, time };
            notify(&*self.args.inbox, row, &Outcome::Completed { tx_hash, block_hash, block });
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
        let failed = queue::with_status(database, spec.chain, OperationStatus::Failed, &mut self.failed_page).await?;
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
        let had = |row: &&operations::Model| before.iter().any(|was| was.id == row.id && was.status.is_done());
        for row in changed.iter().filter(had) {
            notify(&*self.args.inbox, row, &Outcome::Orphaned);
        }
    }
}

#[cfg(test)]
mod tests;
