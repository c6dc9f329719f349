//! Balances that the ledger must have for a payment, computed only from its state. The ledger check compares them with
//! the postings.
//!
//! This module does not use the postings themselves (`postings`).

use super::money_out::{RefundState, SettlementState, Vault};
use super::state::Payment;
use super::terms::Purpose;
use super::transfer::TransferStatus;
use crate::ledger::{Account, Holdings};
use crate::money::Amount;

impl Payment {
    /// Returns the balance of each account for this payment, in each token that it received.
    pub fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::default();
        for transfer in &self.transfers {
            let account = match transfer.status {
                TransferStatus::Final => Account::Payment,
                TransferStatus::Ignored => Account::Suspense,
                TransferStatus::Seen | TransferStatus::Orphaned => continue,
            };
            // A zero amount is never posted.
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
