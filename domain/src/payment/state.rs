//! The payment aggregate: plain data, stored as one JSON column, and what can be read off it.
//!
//! Deliberately absent: every decision (`decide`, `judge`) and every change (`evolve`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::command::OutageId;
use super::label::{Label, Labels};
use super::money_out::{Funds, Refund, RefundState, Settlement, SettlementState, Vault};
use super::status::{FailureReason, HistoryEntry, Reason, Status};
use super::terms::Terms;
use super::transfer::{Decision, Transfer, TransferKey, TransferStatus, TransferToken, Verdict};
use crate::chain::Finality;
use crate::ids::PaymentId;
use crate::ledger::Asset;
use crate::money::{Amount, Token};
use crate::time::Timestamp;

/// One payment. Fields that newer versions add have defaults; unknown ones are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Payment {
    /// What was agreed.
    pub terms: Terms,
    /// Commits so far; 1 after initiation.
    pub version: u32,
    /// Announcements made so far: the `sequence` of the last one.
    #[serde(default)]
    pub sequence: u32,
    /// Where it stands.
    pub status: Status,
    /// The finer facts.
    #[serde(default)]
    pub labels: Labels,
    /// Why it failed; exactly while it is failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<FailureReason>,
    /// Until when it can be paid, outages included.
    pub expires_at: Timestamp,
    /// The deadline as it was at initiation.
    pub first_expires_at: Timestamp,
    /// Outages that moved the deadline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// The latest chain time that showed the deadline to be past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_at: Option<Timestamp>,
    /// Until when (at least) an in-time transfer that was orphaned is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remine_until: Option<Timestamp>,
    /// The transfers to the wallet that were ever seen, as far as there is room (`listed`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<Transfer>,
    /// The settlement, once the payment has been confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settlement: Option<Box<Settlement>>,
    /// Refunds in the order of their acceptance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refunds: Vec<Refund>,
    /// How it came to where it stands.
    pub history: Vec<HistoryEntry>,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// One outage that moved the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// Which.
    pub id: OutageId,
    /// From.
    pub from: Timestamp,
    /// To.
    pub to: Timestamp,
}

/// What screening says about a payment as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KytSummary<'a> {
    /// `None` while pending: nothing arrived, or something is not screened yet.
    pub decision: Option<Decision>,
    /// The verdict that decides, with its details.
    pub verdict: Option<&'a Verdict>,
}

impl KytSummary<'_> {
    /// `pending`, `allow`, `review` or `block`.
    pub fn as_str(self) -> &'static str {
        self.decision.map_or("pending", Decision::as_str)
    }
}

impl Payment {
    /// A fresh payment at version 0, before its first commit.
    pub(crate) fn new(terms: Terms, expires_at: Timestamp) -> Self {
        let at = terms.created_at;
        Self {
            version: 0,
            sequence: 0,
            status: Status::Pending,
            labels: Labels::NONE,
            failure_reason: None,
            expires_at,
            first_expires_at: expires_at,
            outages: Vec::new(),
            passed_at: None,
            remine_until: None,
            transfers: Vec::new(),
            settlement: None,
            refunds: Vec::new(),
            history: vec![HistoryEntry { status: Status::Pending, at, reason: Reason::Initiated }],
            updated_at: at,
            terms,
        }
    }

    /// The payment's id.
    pub fn id(&self) -> PaymentId {
        self.terms.id
    }

    /// The transfer with this key.
    pub fn transfer(&self, key: TransferKey) -> Option<&Transfer> {
        self.transfers.iter().find(|transfer| transfer.key == key)
    }

    /// What was received at or before confirmation, refunds not taken off; frozen from confirmation on.
    pub fn amount_received(&self) -> Amount {
        self.transfers.iter().filter(|t| t.counted && !t.excess).map(|t| t.amount).sum()
    }

    /// What came after confirmation.
    pub fn excess_received(&self) -> Amount {
        self.transfers.iter().filter(|t| t.counted && t.excess).map(|t| t.amount).sum()
    }

    /// What is still to be paid: zero unless the payment waits for money.
    pub fn amount_due(&self) -> Amount {
        match self.status {
            Status::Pending | Status::Mismatched => self.terms.amount.saturating_sub(self.settleable()),
            Status::Confirmed | Status::Settled | Status::Failed => Amount::ZERO,
        }
    }

    /// What could be settled: received (excess too) less what goes or went back out of the payment's own wallet. Every
    /// decision is taken on it. (What goes back out of the PSP's vault was settled before.)
    pub fn settleable(&self) -> Amount {
        let counted = self.amount_received().saturating_add(self.excess_received());
        counted.saturating_sub(self.refunded(Funds::Received, Some(Vault::Payment)))
    }

    /// Received (excess too) less refunded and reserved, at least zero.
    pub fn net(&self) -> Amount {
        Amount(self.net_units().max(0))
    }

    /// `net`, negative if more was sent back than is left after a reorganisation.
    pub(crate) fn net_units(&self) -> i64 {
        let counted = self.amount_received().saturating_add(self.excess_received());
        counted.units().saturating_sub(self.refunded(Funds::Received, None).units())
    }

    /// Refunds of these funds of the due token that are pending or sent, from one vault or all.
    pub(crate) fn refunded(&self, funds: Funds, source: Option<Vault>) -> Amount {
        let of_them = |refund: &Refund| refund.funds == funds && refund.asset.is_none();
        let live = |refund: &&Refund| refund.state != RefundState::Failed && of_them(refund);
        let from = |refund: &&Refund| source.is_none_or(|vault| refund.source == vault);
        self.refunds.iter().filter(live).filter(from).map(|refund| refund.amount).sum()
    }

    /// What the PSP can have refunded, over both vaults: received less refunded and reserved.
    pub fn refundable(&self) -> Amount {
        match self.status {
            Status::Pending => Amount::ZERO,
            Status::Failed if self.failure_reason == Some(FailureReason::KytBlocked) => Amount::ZERO,
            // What was sent on to a customer is the customer's.
            _ if !self.terms.purpose.is_pay_in() => self.net().min(self.in_wallet()),
            _ => self.net(),
        }
    }

    /// What the payment's own wallet should hold of money that counts.
    pub fn in_wallet(&self) -> Amount {
        let settled = match &self.settlement {
            Some(settlement) if settlement.state == SettlementState::Settled => settlement.amount,
            _ => Amount::ZERO,
        };
        self.settleable().saturating_sub(settled)
    }

    /// The token that is due, on its chain.
    pub fn asset(&self) -> Asset {
        Asset { chain: self.terms.chain, address: self.terms.token_address }
    }

    /// The token that a transfer moved, on its chain.
    pub fn asset_of(&self, transfer: &Transfer) -> Asset {
        Asset { chain: transfer.key.chain, address: transfer.token_address(self.terms.token_address) }
    }

    /// Which token it is, if it is one that the service deals in.
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

    /// Clean money of another token or on another chain in the wallet, less what went or goes back of it.
    pub fn misdirected(&self, asset: Asset) -> Amount {
        self.held_elsewhere(asset, Decision::Allow, Funds::Misdirected)
    }

    /// Blocked money of another token or on another chain in the wallet, less what the operator sent back of it: by token and
    /// chain, nothing that is zero.
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
        // What screening took back its word about may have left before.
        let left = all().map(|t| t.amount).sum::<Amount>().saturating_sub(gone().map(|r| r.amount).sum());
        so.saturating_sub(of_them).min(left)
    }

    /// Blocked money of the due token in the wallet less what the operator sent back of it.
    pub fn blocked_held(&self) -> Amount {
        let blocked =
            self.transfers.iter().filter(|t| t.is_right() && t.is_blocked() && t.status == TransferStatus::Final);
        let blocked: Amount = blocked.map(|transfer| transfer.amount).sum();
        let clean = if self.failure_reason == Some(FailureReason::KytBlocked) { self.net() } else { Amount::ZERO };
        blocked.saturating_add(clean).saturating_sub(self.refunded(Funds::Blocked, None))
    }

    /// The deadline that counts now: `expires_at`, or later while an orphaned in-time transfer is waited for.
    pub fn deadline(&self) -> Timestamp {
        match self.remine_until {
            Some(until) if self.misses_remined() => self.expires_at.max(until),
            _ => self.expires_at,
        }
    }

    /// Whether the chain has been read past the deadline.
    pub fn deadline_passed(&self) -> bool {
        self.passed_at.is_some_and(|passed| passed >= self.deadline())
    }

    /// What of it wants an operator: the most pressing, if anything does.
    pub fn attention(&self) -> Option<Label> {
        let failing = self.status == Status::Confirmed && self.labels.contains(Label::SettlementFailed);
        if failing {
            Some(Label::SettlementFailed)
        } else if self.labels.contains(Label::InReview) {
            Some(Label::InReview)
        } else if !self.blocked_held().is_zero() || !self.blocked_misdirected().is_empty() {
            Some(Label::FundsBlocked)
        } else {
            None
        }
    }

    /// Whether the first block that held the transfer came before the deadline.
    pub fn is_in_time(&self, transfer: &Transfer) -> bool {
        transfer.first_block_time < self.expires_at
    }

    /// Whether a right in-time transfer was orphaned and its transaction is in no block now.
    pub fn misses_remined(&self) -> bool {
        let gone = |t: &&Transfer| t.status == TransferStatus::Orphaned && t.is_right() && self.is_in_time(t);
        self.transfers.iter().filter(gone).any(|gone| !self.is_dust(gone) && !self.has_sibling(gone))
    }

    /// Whether another present transfer has the same transaction.
    fn has_sibling(&self, of: &Transfer) -> bool {
        self.transfers.iter().any(|t| {
            t.key != of.key && t.key.chain == of.key.chain && t.key.tx_hash == of.key.tx_hash && t.is_present()
        })
    }

    /// Whether the transfer is below the floor under which money is ignored.
    pub fn is_dust(&self, transfer: &Transfer) -> bool {
        self.is_dust_amount(transfer.amount)
    }

    /// The finality that this payment's transfers need now: that of max(amount, everything received so far).
    pub fn required_finality(&self) -> Finality {
        let present = self.transfers.iter().filter(|t| t.is_right() && t.is_present());
        let received: Amount = present.map(|transfer| transfer.amount).sum();
        self.terms.finality.required(received.max(self.terms.amount))
    }

    /// Whether further in-time money would complete it by itself.
    pub fn is_completable(&self) -> bool {
        self.status == Status::Mismatched
            && self.labels.contains(Label::Underpaid)
            && !self.labels.contains(Label::Late)
            && !self.was_sent_back()
    }

    /// Whether a refund of what was received was accepted: somebody has decided about the payment. Sending back what
    /// never counted decides nothing.
    pub(crate) fn was_sent_back(&self) -> bool {
        self.refunds.iter().any(|refund| refund.funds == Funds::Received)
    }

    /// Whether the deadline still has something to decide.
    pub fn awaits_deadline(&self) -> bool {
        (self.status == Status::Pending || self.is_completable()) && !self.deadline_passed()
    }

    /// The last transfer that counted, by block and place in it.
    pub fn last_counted(&self) -> Option<&Transfer> {
        let counted = self.transfers.iter().filter(|transfer| transfer.counted);
        counted.max_by_key(|transfer| (transfer.excess, transfer.block.number, transfer.key.log_index))
    }

    /// What screening says: of the settled money once the payment is confirmed, else the worst of all that arrived.
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

    /// Where it stands, in the words of what it is: of a transfer `pending`, `underpaid`, `settled` or `failed`.
    pub fn public_status(&self) -> &'static str {
        self.public_status_at(self.status)
    }

    /// The same of a status that it had on its way here.
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

    /// Its history with where it stood then, in the same words.
    pub fn public_history(&self) -> impl Iterator<Item = (&HistoryEntry, &'static str)> {
        let is_pay_in = self.terms.purpose.is_pay_in();
        self.history.iter().scan(None, move |before: &mut Option<(Status, &'static str)>, entry| {
            let noted = matches!(entry.reason, Reason::MoreReceived | Reason::DeadlineMoved | Reason::Reorged);
            let status = match (entry.status, entry.reason, *before) {
                (status, _, _) if is_pay_in => status.as_str(),
                // Only noted: it stands where it stood.
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

    /// Whether it needs an actor: it is not over, or something is in flight.
    pub fn is_live(&self) -> bool {
        let settling = self.settlement.as_ref().is_some_and(|s| s.state == SettlementState::Queued);
        matches!(self.status, Status::Pending | Status::Confirmed)
            || self.awaits_deadline()
            || settling
            || self.refunds.iter().any(|refund| refund.state == RefundState::Pending)
            || self.transfers.iter().any(|t| t.status == TransferStatus::Seen || t.awaits_screening())
    }
}
