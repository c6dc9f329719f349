//! State of the payment aggregate: plain data, stored as one JSON column, with read-only queries.
//!
//! Not here: decisions (`decide`, `judge`) and changes (`evolve`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::authorization::Authorization;
use super::command::OutageId;
use super::money_out::{Funds, Refund, RefundState, Settlement, SettlementState, Vault};
use super::payer_request::PayerRequest;
use super::status::{FailureReason, HistoryEntry, Label, Labels, PublicFailure, Reason, Status};
use super::terms::Terms;
use super::transfer::{Decision, Transfer, TransferKey, TransferStatus, TransferToken, Verdict};
use crate::chain::{Address, Chain, Finality};
use crate::ids::PaymentId;
use crate::ledger::Asset;
use crate::money::{Amount, Token};
use crate::time::Timestamp;

/// One payment. Fields added by newer versions have defaults; unknown fields are ignored.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Payment {
    /// Terms of the payment.
    pub terms: Terms,
    /// Number of commits; 1 after initiation.
    pub version: u32,
    /// Number of announcements: the `sequence` of the last one.
    #[serde(default)]
    pub sequence: u32,
    /// Current status.
    pub status: Status,
    /// Labels: details beside the status.
    #[serde(default)]
    pub labels: Labels,
    /// Failure reason. Set exactly while the payment is failed.
    pub failure_reason: Option<FailureReason>,
    /// Time at which the payer chose the chain, if the payer has and could.
    pub chain_chosen_at: Option<Timestamp>,
    /// Payment deadline, including outages.
    pub expires_at: Timestamp,
    /// Payment deadline at initiation, or when the payer chose the chain.
    pub first_expires_at: Timestamp,
    /// Outages that moved the deadline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// Latest chain time at or after the deadline.
    pub passed_at: Option<Timestamp>,
    /// Time until which the payment waits (at least) for an orphaned in-time transfer to be mined again.
    pub remine_until: Option<Timestamp>,
    /// Transfers to the wallet that were ever seen, up to the limits in `listed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<Transfer>,
    /// True if the status does not take account of a counted transfer yet, because another in-time transfer awaits
    /// finality or screening.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted_undecided: bool,
    /// Surplus within the tolerance, at confirmation: excess, although its transfer is not.
    pub tolerated: Option<Amount>,
    /// The last authorization of a payer.
    pub authorization: Option<Box<Authorization>>,
    /// Number of authorizations so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub authorizations: u16,
    /// Settlement; set once the payment has been confirmed.
    pub settlement: Option<Box<Settlement>>,
    /// Refunds in the order of acceptance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refunds: Vec<Refund>,
    /// Requests of payers for a refund, in the order of their arrival.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refund_requests: Vec<PayerRequest>,
    /// Status history.
    pub history: Vec<HistoryEntry>,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// One outage that moved the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// Id of the outage.
    pub id: OutageId,
    /// Start.
    pub from: Timestamp,
    /// End.
    pub to: Timestamp,
}

/// Screening summary of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KytSummary<'a> {
    /// Decision; `None` while pending (no transfer arrived, or a transfer is not yet screened).
    pub decision: Option<Decision>,
    /// Verdict that determines the decision, with its details.
    pub verdict: Option<&'a Verdict>,
}

impl KytSummary<'_> {
    /// Returns `pending`, `allow`, `review`, or `block`.
    pub fn as_str(self) -> &'static str {
        self.decision.map_or("pending", Decision::as_str)
    }
}

impl Payment {
    /// Creates a payment at version 0, before its first commit.
    pub(crate) fn new(terms: Terms, expires_at: Timestamp) -> Self {
        let at = terms.created_at;
        Self {
            version: 0,
            sequence: 0,
            status: Status::Pending,
            labels: Labels::NONE,
            failure_reason: None,
            chain_chosen_at: None,
            expires_at,
            first_expires_at: expires_at,
            outages: Vec::new(),
            passed_at: None,
            remine_until: None,
            transfers: Vec::new(),
            counted_undecided: false,
            tolerated: None,
            authorization: None,
            authorizations: 0,
            settlement: None,
            refunds: Vec::new(),
            refund_requests: Vec::new(),
            history: vec![HistoryEntry { status: Status::Pending, at, reason: Reason::Initiated }],
            updated_at: at,
            terms,
        }
    }

    /// Returns the id.
    pub fn id(&self) -> PaymentId {
        self.terms.id
    }

    /// Returns the chain, once it is fixed.
    pub fn chain(&self) -> Option<Chain> {
        (!self.awaits_chain()).then_some(self.terms.chain)
    }

    /// Returns true if the payer has not chosen the chain yet.
    pub fn awaits_chain(&self) -> bool {
        self.chain_chosen_at.is_none() && !self.terms.offered().is_empty()
    }

    /// Returns the transfer with this key.
    pub fn transfer(&self, key: TransferKey) -> Option<&Transfer> {
        self.transfers.iter().find(|transfer| transfer.key == key)
    }

    /// Returns the amount received before confirmation, without a tolerated surplus. Refunds are not deducted. Frozen at
    /// confirmation.
    pub fn amount_received(&self) -> Amount {
        self.counted(false).saturating_sub(self.tolerated_surplus())
    }

    /// Returns the amount received after confirmation, and a tolerated surplus.
    pub fn excess_received(&self) -> Amount {
        self.counted(true).saturating_add(self.tolerated_surplus())
    }

    /// Returns the part of the amount received that is excess. A reorganisation can leave less than was tolerated.
    fn tolerated_surplus(&self) -> Amount {
        self.tolerated.unwrap_or_default().min(self.counted(false))
    }

    fn counted(&self, excess: bool) -> Amount {
        self.transfers.iter().filter(|t| t.counted && t.excess == excess).map(|t| t.amount).sum()
    }

    /// Returns the outstanding amount: zero unless the payment waits for funds.
    pub fn amount_due(&self) -> Amount {
        match self.status {
            Status::Pending | Status::Mismatched => self.terms.amount.saturating_sub(self.settleable()),
            Status::Confirmed | Status::Settled | Status::Failed => Amount::ZERO,
        }
    }

    /// Returns the amount that can be settled: received (including excess) less refunds, pending and sent, from the
    /// payment's own wallet. All decisions use this amount. Refunds from the PSP's vault are not deducted, because
    /// those funds were settled before.
    pub fn settleable(&self) -> Amount {
        let counted = self.amount_received().saturating_add(self.excess_received());
        counted.saturating_sub(self.refunded(Funds::Received, Some(Vault::Payment)))
    }

    /// Returns the amount received (including excess) less refunded and reserved, at least zero.
    pub fn net(&self) -> Amount {
        Amount(self.net_units().max(0))
    }

    /// Like `net`, but negative if more was refunded than is left after a reorganisation.
    pub(crate) fn net_units(&self) -> i64 {
        let counted = self.amount_received().saturating_add(self.excess_received());
        counted.units().saturating_sub(self.refunded(Funds::Received, None).units())
    }

    /// Returns the sum of pending and sent refunds of these funds in the due token, from one vault or from all.
    pub(crate) fn refunded(&self, funds: Funds, source: Option<Vault>) -> Amount {
        let of_them = |refund: &Refund| refund.funds == funds && refund.asset.is_none();
        let live = |refund: &&Refund| refund.state != RefundState::Failed && of_them(refund);
        let from = |refund: &&Refund| source.is_none_or(|vault| refund.source == vault);
        self.refunds.iter().filter(live).filter(from).map(|refund| refund.amount).sum()
    }

    /// Returns the only sender of the funds that arrived in this token, or (`None`) in the due token; `None` if there are
    /// several.
    pub fn sole_sender(&self, asset: Option<Asset>) -> Option<Address> {
        let of_it = |t: &&Transfer| if t.is_right() { asset.is_none() } else { asset == Some(self.asset_of(t)) };
        let mut final_ones = self.transfers.iter().filter(|t| t.status == TransferStatus::Final).filter(of_it);
        let first = final_ones.next()?.from;
        final_ones.all(|other| other.from == first).then_some(first)
    }

    /// Returns the amount that the PSP can refund, over both vaults: received less refunded and reserved.
    pub fn refundable(&self) -> Amount {
        match self.status {
            Status::Pending => Amount::ZERO,
            Status::Failed if self.failure_reason == Some(FailureReason::KytBlocked) => Amount::ZERO,
            // Funds that were sent on to a customer belong to the customer.
            _ if !self.terms.purpose.is_pay_in() => self.net().min(self.in_wallet()),
            _ => self.net(),
        }
    }

    /// Returns the counted funds that should be in the payment's own wallet.
    pub fn in_wallet(&self) -> Amount {
        let settled = match &self.settlement {
            Some(settlement) if settlement.state == SettlementState::Settled => settlement.amount,
            _ => Amount::ZERO,
        };
        self.settleable().saturating_sub(settled)
    }

    /// Returns the due token on its chain.
    pub fn asset(&self) -> Asset {
        Asset { chain: self.terms.chain, address: self.terms.token_address }
    }

    /// Returns the token of a transfer on its chain.
    pub fn asset_of(&self, transfer: &Transfer) -> Asset {
        Asset { chain: transfer.key.chain, address: transfer.token_address(self.terms.token_address) }
    }

    /// Returns the token of an asset, if the service supports it.
    pub fn token_of(&self, asset: Asset) -> Option<Token> {
        if asset == self.asset() {
            return Some(self.terms.token);
        }
        self.transfers.iter().filter(|transfer| self.asset_of(transfer) == asset).find_map(|t| match t.token {
            TransferToken::Right => Some(self.terms.token),
            TransferToken::Other { token, .. } => Some(token),
            TransferToken::LookAlike { .. } => None,
        })
    }

    /// Returns the allowed funds in another token or on another chain, less pending and sent refunds of them.
    pub fn misdirected(&self, asset: Asset) -> Amount {
        self.held_elsewhere(asset, Decision::Allow, Funds::Misdirected)
    }

    /// Returns the blocked funds in another token or on another chain, less what the operator refunded, by token and
    /// chain. Zero amounts are omitted.
    pub fn blocked_misdirected(&self) -> Vec<(Asset, Amount)> {
        let blocked = self.transfers.iter().filter(|t| !t.is_right() && t.is_blocked());
        let assets: BTreeSet<Asset> = blocked.map(|transfer| self.asset_of(transfer)).collect();
        let held = |asset| (asset, self.held_elsewhere(asset, Decision::Block, Funds::Blocked));
        assets.into_iter().map(held).filter(|(_, amount)| !amount.is_zero()).collect()
    }

    fn held_elsewhere(&self, asset: Asset, decision: Decision, funds: Funds) -> Amount {
        let held = |t: &&Transfer| !t.is_right() && t.status == TransferStatus::Final && self.asset_of(t) == asset;
        let all = || self.transfers.iter().filter(held);
        let so: Amount = all().filter(|t| t.decision() == Some(decision)).map(|t| t.amount).sum();
        let gone = || self.refunds.iter().filter(|r| r.state != RefundState::Failed && r.asset == Some(asset));
        let of_them: Amount = gone().filter(|r| r.funds == funds).map(|r| r.amount).sum();
        // Funds may have been sent before screening changed its verdict.
        let left = all().map(|t| t.amount).sum::<Amount>().saturating_sub(gone().map(|r| r.amount).sum());
        so.saturating_sub(of_them).min(left)
    }

    /// Returns the blocked funds of the due token, less what the operator refunded.
    pub fn blocked_held(&self) -> Amount {
        let blocked =
            self.transfers.iter().filter(|t| t.is_right() && t.is_blocked() && t.status == TransferStatus::Final);
        let blocked: Amount = blocked.map(|transfer| transfer.amount).sum();
        let clean = if self.failure_reason == Some(FailureReason::KytBlocked) { self.net() } else { Amount::ZERO };
        blocked.saturating_add(clean).saturating_sub(self.refunded(Funds::Blocked, None))
    }

    /// Returns the effective deadline: `expires_at`, or later while the payment waits for an orphaned in-time transfer.
    pub fn deadline(&self) -> Timestamp {
        match self.remine_until {
            Some(until) if self.misses_remined() => self.expires_at.max(until),
            _ => self.expires_at,
        }
    }

    /// Returns true if the chain has been read past the deadline.
    pub fn deadline_passed(&self) -> bool {
        self.passed_at.is_some_and(|passed| passed >= self.deadline())
    }

    /// Returns the most urgent label that needs attention from an operator, if any. Only the operator can end the wait
    /// for an approval, so that it comes first.
    pub fn attention(&self) -> Option<Label> {
        let failing = self.status == Status::Confirmed && self.labels.contains(Label::SettlementFailed);
        if self.labels.contains(Label::RefundApproval) {
            Some(Label::RefundApproval)
        } else if failing {
            Some(Label::SettlementFailed)
        } else if self.labels.contains(Label::InReview) {
            Some(Label::InReview)
        } else if !self.blocked_held().is_zero() || !self.blocked_misdirected().is_empty() {
            Some(Label::FundsBlocked)
        } else {
            None
        }
    }

    /// Returns true if the first block that contained the transfer is before the deadline.
    pub fn is_in_time(&self, transfer: &Transfer) -> bool {
        transfer.first_block_time < self.expires_at
    }

    /// Returns true if an in-time transfer of the due token was orphaned and its transaction is currently in no block.
    pub fn misses_remined(&self) -> bool {
        let gone = |t: &&Transfer| t.status == TransferStatus::Orphaned && t.is_right() && self.is_in_time(t);
        self.transfers.iter().filter(gone).any(|gone| !self.is_dust(gone) && !self.has_sibling(gone))
    }

    /// Returns true if another present transfer has the same transaction.
    fn has_sibling(&self, of: &Transfer) -> bool {
        self.transfers.iter().any(|t| t.key != of.key && t.is_of_transaction(of.key) && t.is_present())
    }

    /// Returns true if the transfer is below the dust floor.
    pub fn is_dust(&self, transfer: &Transfer) -> bool {
        self.is_dust_amount(transfer.amount)
    }

    /// Returns max(amount due, total received), which determines the precautions before its transfers count.
    pub fn amount_at_risk(&self) -> Amount {
        let present = self.transfers.iter().filter(|t| t.is_right() && t.is_present());
        present.map(|transfer| transfer.amount).sum::<Amount>().max(self.terms.amount)
    }

    /// Returns the finality that the transfers of this payment require.
    pub fn required_finality(&self) -> Finality {
        self.terms.finality.required(self.amount_at_risk())
    }

    /// Returns true if further in-time funds would complete the payment without a decision of a person.
    pub fn is_completable(&self) -> bool {
        self.status == Status::Mismatched
            && self.labels.contains(Label::Underpaid)
            && !self.labels.contains(Label::Late)
            && !self.was_sent_back()
    }

    /// Returns true if a refund of received funds was accepted, which means that a person has decided about the
    /// payment. Refunds of funds that never counted do not matter here.
    pub(crate) fn was_sent_back(&self) -> bool {
        self.refunds.iter().any(|refund| refund.funds == Funds::Received)
    }

    /// Returns true if the deadline can still change the payment.
    pub fn awaits_deadline(&self) -> bool {
        (self.status == Status::Pending || self.is_completable()) && !self.deadline_passed()
    }

    /// Returns the last counted transfer, by block and position in the block.
    pub fn last_counted(&self) -> Option<&Transfer> {
        let counted = self.transfers.iter().filter(|transfer| transfer.counted);
        counted.max_by_key(|transfer| (transfer.excess, transfer.block.number, transfer.key.log_index))
    }

    /// Returns the screening summary: of the settled funds once the payment is confirmed, otherwise the worst of all
    /// transfers.
    pub fn kyt(&self) -> KytSummary<'_> {
        let frozen = matches!(self.status, Status::Confirmed | Status::Settled);
        let relevant = |t: &&Transfer| if frozen { t.counted && !t.excess } else { t.is_right() && t.is_present() };
        let rank = |t: &&Transfer| match t.decision() {
            Some(Decision::Block) => 3,
            Some(Decision::Review) => 2,
            None => 1,
            Some(Decision::Allow) => 0,
        };
        let worst = self.transfers.iter().filter(relevant).max_by_key(rank);
        KytSummary {
            decision: worst.and_then(Transfer::decision),
            verdict: worst.and_then(|transfer| transfer.verdict.as_deref()),
        }
    }

    /// Returns the public status. A transfer has its own names: `pending`, `underpaid`, `settled`, or `failed`.
    pub fn public_status(&self) -> &'static str {
        self.public_status_at(self.status)
    }

    /// Returns the public name of an earlier `status`.
    pub(crate) fn public_status_at(&self, status: Status) -> &'static str {
        let short = self.labels.contains(Label::Underpaid) && !self.labels.contains(Label::Late);
        match status {
            _ if self.terms.purpose.is_pay_in() => status.as_str(),
            Status::Settled => "settled",
            Status::Mismatched if short => "underpaid",
            Status::Confirmed if self.labels.contains(Label::SettlementFailed) => "failed",
            Status::Pending | Status::Confirmed => "pending",
            Status::Mismatched | Status::Failed => "failed",
        }
    }

    /// Returns the failure that the public status shows.
    pub fn public_failure(&self) -> Option<PublicFailure> {
        self.public_failure_at(self.status, self.failure_reason)
    }

    /// Returns the failure that the public name of an earlier `status` with this reason shows.
    pub(crate) fn public_failure_at(&self, status: Status, reason: Option<FailureReason>) -> Option<PublicFailure> {
        match (status, reason) {
            (Status::Failed, reason) => reason.map(PublicFailure::from),
            _ if self.public_status_at(status) != Status::Failed.as_str() => None,
            (Status::Confirmed, _) => Some(PublicFailure::SettlementFailed),
            _ => Some(PublicFailure::Mismatched),
        }
    }

    /// Returns the history with the public status of each entry.
    pub fn public_history(&self) -> impl Iterator<Item = (&HistoryEntry, &'static str)> {
        let is_pay_in = self.terms.purpose.is_pay_in();
        self.history.iter().scan(None, move |before: &mut Option<(Status, &'static str)>, entry| {
            let noted = matches!(
                entry.reason,
                Reason::MoreReceived | Reason::DeadlineMoved | Reason::ChainChosen | Reason::Reorged
            );
            let status = match (entry.status, entry.reason, *before) {
                (status, _, _) if is_pay_in => status.as_str(),
                // The entry only records an event; the public status does not change.
                (status, _, Some((same, public))) if noted && status == same => public,
                (Status::Settled, _, _) => "settled",
                (Status::Mismatched, Reason::Underpaid, _) => "underpaid",
                (Status::Failed | Status::Mismatched, _, _) | (_, Reason::SettlementFailed, _) => "failed",
                (Status::Pending | Status::Confirmed, _, _) => "pending",
            };
            *before = Some((entry.status, status));
            Some((entry, status))
        })
    }

    /// Returns true if the payment needs an actor: it is not finished, or work is in progress.
    pub fn is_live(&self) -> bool {
        let settling = self.settlement.as_ref().is_some_and(|s| s.state == SettlementState::Queued);
        matches!(self.status, Status::Pending | Status::Confirmed)
            || self.awaits_deadline()
            || settling
            || self.authorization.as_deref().is_some_and(Authorization::is_unfinished)
            || self.refunds.iter().any(|refund| refund.state == RefundState::Pending)
            || self.transfers.iter().any(|t| t.status == TransferStatus::Seen || t.awaits_screening())
    }
}
