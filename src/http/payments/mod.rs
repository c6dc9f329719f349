//! Payments: reads query the database, changes are one call to the actors. A transfer to a customer is also a payment
//! and is found by its own id.

pub mod authorize;
pub mod change;
pub mod initiate;
pub mod payer_requests;
pub mod read;
pub mod refund_list;
pub mod refunds;
mod view;

use std::collections::HashMap;

use payferry_actors::chains::Chains;
use payferry_domain::outbound::OutboundId;
use payferry_domain::payment::{Payment, Purpose, Status, Terms};
use payferry_domain::{Amount, Chain, PaymentId, PspId, TransferId};
use payferry_entities::payments::{Column, Entity, Model};
use payferry_entities::sendings;
use payferry_evm::wallet::checksummed;
use payferry_httpkit::ApiError;
use payferry_journal::payments::payment_of;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use super::state::AppShared;

pub use view::PaymentRecord;
pub(super) use view::progress;

/// `purpose` of pay-in rows.
const PAY_IN: &str = Purpose::PayIn.as_str();
/// `purpose` of rows of transfers to customers.
pub(super) const TRANSFER: &str = "transfer";

/// Returns one of the PSP's own payments or transfers.
pub(super) async fn own(app: &AppShared, psp_id: PspId, id: &str) -> Result<Payment, ApiError> {
    Ok(payment_of(&own_row(app, psp_id, id).await?)?)
}

/// Returns the row of one of the PSP's own payments or transfers.
pub(crate) async fn own_row(app: &AppShared, psp_id: PspId, id: &str) -> Result<Model, ApiError> {
    let missing = || ApiError::NotFound("payment");
    let (payment_id, purpose) = match id.parse::<TransferId>() {
        Ok(transfer) => (transfer.payment(), TRANSFER),
        Err(_) => (id.parse::<PaymentId>().map_err(|_| missing())?, PAY_IN),
    };
    let row = Entity::find_by_id(payment_id.to_string())
        .filter(Column::PspId.eq(psp_id.to_string()))
        .filter(Column::Purpose.eq(purpose));
    row.one(app.database().reader()).await?.ok_or_else(missing)
}

/// Returns the payments and transfers with these ids, by id.
async fn payments_of(app: &AppShared, ids: impl Iterator<Item = &str>) -> Result<HashMap<String, Payment>, ApiError> {
    let rows = Entity::find().filter(Column::Id.is_in(ids)).all(app.database().reader()).await?;
    rows.iter().map(|row| Ok((row.id.clone(), payment_of(row)?))).collect()
}

/// Returns the id that webhooks use for one of the PSP's own payments, transfers, payouts or withdrawals.
pub(super) async fn own_subject(app: &AppShared, psp_id: PspId, id: &str) -> Result<String, ApiError> {
    let Ok(outbound) = id.parse::<OutboundId>() else { return own_row(app, psp_id, id).await.map(|_| id.to_owned()) };
    let row = sendings::Entity::find_by_id(outbound.to_string()).filter(sendings::Column::PspId.eq(psp_id.to_string()));
    let row = row.one(app.database().reader()).await?;
    row.map(|row| row.id).ok_or(ApiError::NotFound("payment"))
}

/// A payment's checksummed addresses. Each needs a hash, so an answer computes them once.
pub(super) struct Addresses {
    pub(super) wallet: String,
    pub(super) token: String,
}

impl Addresses {
    pub(super) fn of(terms: &Terms) -> Self {
        Self { wallet: checksummed(terms.wallet), token: checksummed(terms.token_address) }
    }

    /// An EIP-681 URI for a transfer of `amount` to the payment's wallet.
    pub(super) fn transfer_uri(&self, chains: &Chains, chain: Chain, amount: Amount) -> String {
        let Self { wallet, token } = self;
        let chain_id = chain_id(chains, chain);
        format!("ethereum:{token}@{chain_id}/transfer?address={wallet}&uint256={}", amount.units())
    }

    /// An EIP-681 URI for the amount still due, for QR codes. `None` if the payment no longer expects money, so that no
    /// payer is asked to pay without effect.
    fn payment_uri(&self, chains: &Chains, payment: &Payment) -> Option<String> {
        let waits = payment.status == Status::Pending || payment.is_completable();
        let due = Some(payment.amount_due()).filter(|due| waits && !due.is_zero())?;
        Some(self.transfer_uri(chains, payment.chain()?, due))
    }
}

/// The configured id of a chain.
pub(super) fn chain_id(chains: &Chains, chain: Chain) -> u64 {
    chains.spec(chain).map_or_else(|| chain.default_id(), |spec| spec.chain_id)
}
