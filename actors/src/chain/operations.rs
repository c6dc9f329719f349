//! Operations as the contract takes them, and what its events say became of them.

use std::collections::HashMap;

use alloy::primitives::U256;
use alloy::rpc::types::TransactionReceipt;
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::{Payferry, SendItem, SettleItem, describe_reason, salt_of};
use payferry_domain::payment::Command;
use payferry_domain::sending::{self, FailureReason, SendingId};
use payferry_domain::{Address, Amount, Hash32, OperationId, PaymentId, RefundId, Timestamp};
use payferry_entities::operations;

use crate::inbox::PaymentInbox;
use crate::journal::Carried;
use crate::wallet::{alloy_address, domain_address};

/// Why an operation to a customer that may not be paid any more failed.
pub(super) const NOT_CLEARED: &str = "the customer is not cleared to be paid at this wallet";

/// Why an operation that nobody wants any more failed.
pub(super) const GIVEN_UP: &str = "it was given up before it could be sent again";

/// Which role of the contract carries an operation out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Settlements.
    Settle,
    /// Sendings.
    Send,
}

impl Role {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Settle, Self::Send];

    /// Values of `operations.kind` that it carries out.
    pub const fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Settle => &["settle"],
            Self::Send => &["deliver", "send", "send_psp", "payout", "withdrawal"],
        }
    }
}

/// A row that cannot be carried out because it makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("operation {id} cannot be read: {what}")]
pub struct BadOperation {
    /// `op_` id.
    pub id: String,
    /// What is wrong with it.
    pub what: String,
}

/// What the contract says about one operation in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Succeeded(Carried),
    Failed(Vec<u8>),
}

impl Verdict {
    pub(super) fn carried(&self) -> Option<Carried> {
        if let Self::Succeeded(carried) = self { Some(*carried) } else { None }
    }
}

/// The id whose vault an operation takes from.
pub(super) fn vault_id(row: &operations::Model) -> &str {
    match row.kind.as_str() {
        "send_psp" | "payout" | "withdrawal" => &row.psp_id,
        _ => &row.payment_id,
    }
}

fn address_of(row: &operations::Model, text: &str) -> Result<Address, BadOperation> {
    text.parse().map_err(|error| BadOperation { id: row.id.clone(), what: format!("{error}") })
}

fn unsigned(row: &operations::Model, value: i64, what: &str) -> Result<U256, BadOperation> {
    let bad = |_| BadOperation { id: row.id.clone(), what: format!("{what} is negative") };
    u64::try_from(value).map(U256::from).map_err(bad)
}

/// The call data of a batch.
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
    let no_recipient = || BadOperation { id: row.id.clone(), what: "it has no recipient".to_owned() };
    let recipient = row.recipient.as_deref().ok_or_else(no_recipient)?;
    Ok(SendItem {
        number: unsigned(row, row.number, "its number")?,
        vaultSalt: salt_of(vault_id(row)),
        token: alloy_address(address_of(row, &row.token_address)?),
        to: alloy_address(address_of(row, recipient)?),
        amount: unsigned(row, row.amount, "the amount")?,
    })
}

/// The number of an operation that a log says was carried out, and what it moved.
pub(super) fn carried(log: &alloy::primitives::Log) -> Option<(U256, Carried)> {
    let units = |value: U256| i64::try_from(value).ok();
    if let Ok(event) = Payferry::Settled::decode_log(log) {
        let (psp_amount, treasury_fee) = (units(event.pspAmount)?, units(event.treasuryFee)?);
        let amount = psp_amount.checked_add(treasury_fee)?;
        return Some((event.number, Carried { amount, psp_amount, treasury_fee }));
    }
    let event = Payferry::Sent::decode_log(log).ok()?;
    Some((event.number, Carried { amount: units(event.amount)?, psp_amount: 0, treasury_fee: 0 }))
}

/// What the contract's events in a receipt say, by operation number. A later event of the same number wins: a number
/// that failed can be in the batch again, one that succeeded cannot succeed again.
pub(super) fn verdicts(contract: Address, receipt: &TransactionReceipt) -> HashMap<i64, Verdict> {
    let mut found: HashMap<i64, Verdict> = HashMap::new();
    for log in receipt.inner.logs().iter().filter(|log| domain_address(log.address()) == contract) {
        let verdict = match log.topic0() {
            Some(&Payferry::Settled::SIGNATURE_HASH | &Payferry::Sent::SIGNATURE_HASH) => {
                carried(&log.inner).map(|(number, carried)| (number, Verdict::Succeeded(carried)))
            }
            Some(&Payferry::SettleFailed::SIGNATURE_HASH) => Payferry::SettleFailed::decode_log(&log.inner)
                .ok()
                .map(|event| (event.number, Verdict::Failed(event.reason.to_vec()))),
            Some(&Payferry::SendFailed::SIGNATURE_HASH) => Payferry::SendFailed::decode_log(&log.inner)
                .ok()
                .map(|event| (event.number, Verdict::Failed(event.reason.to_vec()))),
            _ => None,
        };
        let Some((number, verdict)) = verdict else { continue };
        let Ok(number) = i64::try_from(number) else { continue };
        if found.get(&number).is_none_or(|known| known.carried().is_none()) {
            found.insert(number, verdict);
        }
    }
    found
}

/// Whether trying the same again may end differently: the item ran out of its gas.
pub(super) fn is_transient(reason: &[u8]) -> bool {
    reason.is_empty()
}

/// A failed item's reason for operators.
pub(super) fn failure_text(reason: &[u8]) -> String {
    describe_reason(reason)
}

/// What a row's outcome says to its payment.
pub(super) enum Outcome<'a> {
    /// Mined and final by the tier.
    Completed { tx_hash: Hash32, block_time: Timestamp },
    /// Failed for a lasting reason.
    Failed { reason: &'a str },
    /// Was final, and is in the chain no more.
    Orphaned,
}

/// Whether it is a payout's or a withdrawal's.
pub(super) fn is_sending(row: &operations::Model) -> bool {
    matches!(row.kind.as_str(), "payout" | "withdrawal")
}

/// Whether a customer is paid by it, who must be cleared when it is signed.
pub(super) fn pays_customer(row: &operations::Model) -> bool {
    matches!(row.kind.as_str(), "payout" | "deliver")
}

/// Tells whoever an operation belongs to what became of it; answers whether there was anything to tell.
pub(super) fn tell(inbox: &dyn PaymentInbox, row: &operations::Model, outcome: &Outcome<'_>) -> bool {
    if is_sending(row) {
        let told = sending_command(row, outcome);
        return told.map(|(id, command)| inbox.tell_sending(id, command)).is_some();
    }
    command(row, outcome).map(|(id, command)| inbox.tell(id, command)).is_some()
}

fn sending_command(row: &operations::Model, outcome: &Outcome<'_>) -> Option<(SendingId, sending::Command)> {
    let id = row.payment_id.parse().ok()?;
    let revision = u32::try_from(row.revision).ok()?;
    let command = match *outcome {
        Outcome::Completed { tx_hash, .. } => sending::Command::Complete { revision, tx_hash },
        Outcome::Failed { reason } => {
            let cleared = reason != NOT_CLEARED;
            let why = if cleared { FailureReason::SendFailed } else { FailureReason::CustomerNotCleared };
            sending::Command::Fail { revision, reason: why, detail: reason.to_owned() }
        }
        Outcome::Orphaned => return None,
    };
    Some((id, command))
}

/// The command that tells a payment; `None` where there is nothing to tell.
fn command(row: &operations::Model, outcome: &Outcome<'_>) -> Option<(PaymentId, Command)> {
    let payment_id: PaymentId = row.payment_id.parse().ok()?;
    let operation: OperationId = row.id.parse().ok()?;
    let revision = u32::try_from(row.revision).ok()?;
    let command = if matches!(row.kind.as_str(), "settle" | "deliver") {
        match *outcome {
            Outcome::Completed { tx_hash, block_time } => {
                let amount = Amount::from_units(row.amount);
                Command::CompleteSettlement { operation, revision, amount, tx_hash, block_time }
            }
            Outcome::Failed { reason } => Command::FailSettlement { operation, revision, reason: reason.to_owned() },
            Outcome::Orphaned => Command::OrphanSettlement { operation, revision },
        }
    } else {
        // The refund and its sending share the ULID.
        let refund_id = RefundId::from_ulid(operation.ulid());
        match *outcome {
            Outcome::Completed { tx_hash, .. } => Command::CompleteRefund { refund_id, revision, tx_hash },
            Outcome::Failed { reason } => Command::FailRefund { refund_id, revision, reason: reason.to_owned() },
            Outcome::Orphaned => return None,
        }
    };
    Some((payment_id, command))
}
