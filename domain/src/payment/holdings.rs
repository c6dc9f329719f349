//! What the ledger must say of a payment, by its state alone: to hold the postings of its life against.
//!
//! Deliberately absent: the postings themselves (`postings`), which this knows nothing of.

use super::money_out::{RefundState, SettlementState, Vault};
use super::state::Payment;
use super::terms::Purpose;
use super::transfer::TransferStatus;
use crate::ledger::{Account, Holdings};
use crate::money::Amount;

impl Payment {
    /// What stands on each account for this payment, in each token that it has met.
    pub fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::default();
        for transfer in &self.transfers {
            let account = match transfer.status {
                TransferStatus::Final => Account::Payment,
                TransferStatus::Ignored => Account::Suspense,
                TransferStatus::Seen | TransferStatus::Orphaned => continue,
            };
            // One of nothing is never posted.
            let amount = transfer.amount.max(Amount::ZERO);
            holdings.moved(self.asset_of(transfer), Account::External, account, amount);
        }
        if let Some(settlement) = self.settlement.as_deref().filter(|one| one.state == SettlementState::Settled) {
            let mut share = |credit, amount| holdings.moved(self.asset(), Account::Payment, credit, amount);
            match self.terms.purpose {
                Purpose::Transfer { .. } => share(Account::External, settlement.amount),
                Purpose::PayIn => {
                    share(Account::Psp, settlement.psp_amount);
                    share(Account::Treasury, settlement.treasury_fee);
                }
            }
        }
        for refund in &self.refunds {
            let (debit, credit) = match (refund.source, refund.state) {
                (Vault::Payment, RefundState::Sent) => (Account::Payment, Account::External),
                (Vault::Psp, RefundState::Sent) => (Account::Psp, Account::External),
                (Vault::Psp, RefundState::Pending) => (Account::Psp, Account::InFlight),
                (_, RefundState::Failed) | (Vault::Payment, RefundState::Pending) => continue,
            };
            holdings.moved(refund.asset.unwrap_or_else(|| self.asset()), debit, credit, refund.amount);
        }
        holdings
    }
}
