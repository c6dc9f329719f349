//! Agreement of two endpoints on a transfer of a large payment, before the payment counts it as final.
//!
//! The watcher verifies logs by receipts, but both may come from one endpoint, which may be on a branch of its own or
//! return forged data. A final transfer of a payment of `agree_from` or more waits until two endpoints return its
//! block's hash and a receipt with the transfer. Until then the transfer is held, the operator sees it, and the check
//! is repeated.
//!
//! Deliberately absent: failing the payment. The wait for finality stays in the watchlist, so nothing is lost if the
//! watcher dies.

use alloy::rpc::types::TransactionReceipt;
use payferry_domain::{Amount, Hash32};
use payferry_entities::transfers;
use payferry_evm::ClientError;
use payferry_evm::client::BlockHeader;
use payferry_evm::wallet::domain_hash;
use payferry_runtime::observe::Mailbox;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use tokio_util::task::AbortOnDropHandle;

use super::block_transfers::is_log_of;
use super::finality_waits::{FinalityWait, finalities};
use super::watcher::{WatcherMessage, WatcherState};
use super::{ChainContext, metrics};

/// Endpoints that must return the same.
const ENDPOINTS_MIN: usize = 2;
/// Maximum number of transfers per check. The others follow.
const TRANSFERS_MAX: usize = 50;
/// Failed checks of a transfer before a missing answer is reported: endpoints are often a few blocks apart.
const CHECKS_QUIET: u32 = 3;

/// Reason why a transfer is not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// An endpoint returned something else.
    #[error("endpoint {endpoint} contradicts it: {reason}")]
    Contradicted {
        /// Place of the endpoint in the configuration.
        endpoint: usize,
        /// Difference.
        reason: &'static str,
    },
    /// Too few endpoints answered.
    #[error("endpoint {endpoint} does not confirm it: {error}")]
    Unconfirmed {
        /// Place of the endpoint in the configuration.
        endpoint: usize,
        /// Its error.
        error: ClientError,
    },
    /// The transfer could not be read from the database.
    #[error("the transfer cannot be read: {0}")]
    Unread(String),
}

impl ChainContext {
    /// Amount of a payment from which two endpoints must agree; `None` if there are not two endpoints.
    pub(super) fn agree_from(&self) -> Option<Amount> {
        (self.client.endpoints_len() >= ENDPOINTS_MIN).then_some(self.spec.agree_from)
    }

    /// Checks the final transfers of large payments, if any wait for it: notifies the payments of confirmed ones, and holds the
    /// others.
    pub(super) async fn confirm(&self) {
        let Self { spec, watchlist, inbox, clock, .. } = self;
        let (Some(from), Some(reach)) = (self.agree_from(), watchlist.reach(spec.chain)) else { return };
        let waits = watchlist.waits(spec.chain).to_confirm(reach, from, TRANSFERS_MAX);
        let check = |wait: FinalityWait| async move { (wait, self.check_agreement(&wait).await) };
        let mut confirmed = Vec::new();
        for (wait, result) in futures::future::join_all(waits.into_iter().map(check)).await {
            match result {
                // Replaced in the meantime if the payment now needs a stronger finality, or the transfer was reorged.
                Ok(()) if watchlist.waits(spec.chain).confirmed(&wait) => confirmed.push(wait),
                Ok(()) => {}
                Err(disagreement) => {
                    let is_contradicted = matches!(disagreement, Disagreement::Contradicted { .. });
                    let quiet = if is_contradicted { 0 } else { CHECKS_QUIET };
                    let reason = disagreement.to_string();
                    if watchlist.waits(spec.chain).hold(&wait, &reason, quiet, clock.real_now()) {
                        tracing::error!(chain = %spec.chain, payment.id = %wait.payment_id, tx.hash = %wait.key.tx_hash,
                            "a transfer is held until two endpoints of {} agree on it: {reason}", spec.chain);
                        metrics::DISAGREEMENTS.add(&metrics::of(spec.chain), 1);
                    }
                }
            }
        }
        metrics::TRANSFERS_HELD.set_count(&metrics::of(spec.chain), watchlist.held(spec.chain).len() as u64);
        inbox.notify_together(finalities(confirmed));
    }

    /// True if transfers wait for a check.
    pub(super) fn has_to_confirm(&self) -> bool {
        let (Some(from), Some(reach)) = (self.agree_from(), self.watchlist.reach(self.spec.chain)) else {
            return false;
        };
        !self.watchlist.waits(self.spec.chain).to_confirm(reach, from, 1).is_empty()
    }

    async fn check_agreement(&self, wait: &FinalityWait) -> Result<(), Disagreement> {
        let unread = |error: &dyn std::fmt::Display| Disagreement::Unread(error.to_string());
        let row = transfers::Entity::find()
            .filter(transfers::Column::Chain.eq(self.spec.chain.as_str()))
            .filter(transfers::Column::TxHash.eq(wait.key.tx_hash.to_string()))
            .filter(transfers::Column::BlockHash.eq(wait.key.block_hash.to_string()))
            .filter(transfers::Column::LogIndex.eq(i64::from(wait.key.log_index)))
            .filter(transfers::Column::Revision.eq(i64::from(wait.revision)))
            .one(self.database.reader())
            .await
            .map_err(|error| unread(&error))?
            .ok_or_else(|| unread(&"it was recorded anew"))?;
        agreed(&row, wait.key.block_hash, self.client.claims(wait.block_number, wait.key.tx_hash).await)
    }
}

/// Compares a recorded transfer with the claims of the endpoints, in their order.
fn agreed(
    row: &transfers::Model,
    block: Hash32,
    claims: Vec<Result<(BlockHeader, Option<TransactionReceipt>), ClientError>>,
) -> Result<(), Disagreement> {
    let (mut confirmed, mut unconfirmed) = (0, None);
    for (endpoint, claim) in claims.into_iter().enumerate() {
        match claim {
            Ok((header, receipt)) => match difference(row, block, &header, receipt.as_ref()) {
                None => confirmed += 1,
                Some(reason) => return Err(Disagreement::Contradicted { endpoint, reason }),
            },
            Err(error) => {
                unconfirmed.get_or_insert(Disagreement::Unconfirmed { endpoint, error });
            }
        }
    }
    match unconfirmed {
        Some(unconfirmed) if confirmed < ENDPOINTS_MIN => Err(unconfirmed),
        _ => Ok(()),
    }
}

/// Difference between a recorded transfer and an endpoint's claim, if any.
fn difference(
    row: &transfers::Model,
    block: Hash32,
    header: &BlockHeader,
    receipt: Option<&TransactionReceipt>,
) -> Option<&'static str> {
    if header.hash != block {
        return Some("its block has another hash");
    }
    let Some(receipt) = receipt else { return Some("it has the block and not the transaction") };
    if receipt.block_hash.map(domain_hash) != Some(block) {
        return Some("the receipt is of another block");
    }
    let is_made = receipt.status() && receipt.inner.logs().iter().any(|log| is_log_of(log, row));
    (!is_made).then_some("the receipt does not have the transfer")
}

impl WatcherState {
    /// Starts a check if transfers wait for one and none is in progress. It runs beside the reads.
    pub(super) fn start_agreement(&mut self, myself: &Mailbox<WatcherMessage>) {
        if self.agreement.is_some() || !self.args.has_to_confirm() {
            return;
        }
        let (context, myself) = (self.args.context.clone(), myself.clone());
        let task = tokio::spawn(async move {
            context.confirm().await;
            let _ = myself.cast(WatcherMessage::AgreementChecked);
        });
        self.agreement = Some(AbortOnDropHandle::new(task));
    }
}
