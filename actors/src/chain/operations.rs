//! Operations as contract calls, and the interpretation of contract events.

use std::collections::HashMap;
use std::time::SystemTime;

use alloy::primitives::{Address as Account, B256, U256};
use alloy::rpc::types::{Log, TransactionReceipt};
use alloy::sol_types::{SolCall, SolEvent, SolInterface};
use payferry_contracts::{
    ItemError, OperationKind, Payferry, SendItem, SettleItem, describe_reason, payment_salt, psp_salt, vault_address,
};
use payferry_domain::{Address, OperationId, PaymentId, PspId};
use payferry_entities::operations;
use payferry_evm::wallet::{alloy_address, domain_address};
use payferry_journal::MovedAmounts;
use payferry_journal::chain::Role;
use payferry_runtime::trace::{Span, SpanKind};

use super::collect::{Signatures, collect_input, deposited, is_authorization, nonce_of, payer_of};

/// Failure text of an operation to a customer that is no longer cleared. Stored and compared: never change it.
pub(super) const NOT_CLEARED: &str = "the customer is not cleared to be paid at this wallet";

/// Failure text of an operation that was given up. Stored: never change it.
pub(super) const GIVEN_UP: &str = "it was given up before it could be sent again";

/// Span of a step of an operation, in the trace of its payment, payout or withdrawal.
pub(super) fn span_of(step: &'static str, row: &operations::Model, begun_at: SystemTime) -> Span {
    let mut span = Span::since(begun_at, row.traceparent.as_deref(), step, SpanKind::Internal);
    span.set("chain", || row.chain.clone());
    span.set("operation", || row.id.clone());
    span.set("operation.kind", || row.kind.clone());
    span
}

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

/// True if the operation settles a payment, to the PSP or to the recipient of a transfer. All other operations move one
/// fixed amount.
pub(super) fn settles(row: &operations::Model) -> bool {
    matches!(row.kind.as_str(), "settle" | "deliver")
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

#[cfg(test)]
mod tests;
