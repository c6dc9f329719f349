//! Content of the payer's page: one scene for each state of a payment.
//!
//! Pure functions. `texts` has the words; they name no person and do not mention screening. A scene never asks for money that
//! is already on its way. A transfer that may never count does not stop the payer from paying the rest. `view` renders the scene.

use payferry_domain::payment::{
    Authorization, AuthorizationFailure, AuthorizationState, Decision, FailureReason, Funds, Label, Payment, Refund,
    RefundState, Status, Transfer, TransferStatus,
};
use payferry_domain::{Amount, Timestamp, Token};

use super::texts::{Contact, Texts};

/// State of the payment, as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateColour {
    /// The payer has to act.
    Asking,
    /// The payment is in progress.
    Working,
    /// The payment succeeded.
    Good,
    /// The payment has a problem.
    Trouble,
    /// The payment is over.
    Over,
}

impl StateColour {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Asking => "asking",
            Self::Working => "working",
            Self::Good => "good",
            Self::Trouble => "trouble",
            Self::Over => "over",
        }
    }
}

/// Steps of a successful payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Nothing has arrived.
    Waiting,
    /// A transfer was seen that a reorg may still orphan.
    Seen,
    /// The payment is final.
    Confirmed,
    /// The money was passed on.
    Complete,
}

impl Step {
    pub(super) const ALL: [Self; 4] = [Self::Waiting, Self::Seen, Self::Confirmed, Self::Complete];
}

/// The content of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scene {
    pub(super) headline: &'static str,
    pub(super) explanation: String,
    pub(super) state_colour: StateColour,
    /// The current step; `None` if the payment left the usual course.
    pub(super) step: Option<Step>,
    /// The amount to send now, if any.
    pub(super) to_pay: Option<Amount>,
    /// Additional notices.
    pub(super) notices: Vec<String>,
}

/// Returns true if the payer can choose the chain now.
pub(super) fn may_choose(payment: &Payment, now: Timestamp) -> bool {
    payment.awaits_chain() && payment.status == Status::Pending && now < payment.expires_at
}

impl Scene {
    /// The scene of the payment at `now`, in these texts.
    pub(super) fn of(payment: &Payment, now: Timestamp, texts: &'static Texts) -> Self {
        let contact = Contact::of(payment);
        let mut scene = match payment.status {
            Status::Pending => pending(payment, now, texts),
            Status::Confirmed => usual(texts.confirmed, StateColour::Good, Step::Confirmed),
            Status::Settled => {
                usual((texts.complete, (texts.complete_text)(contact)), StateColour::Good, Step::Complete)
            }
            Status::Mismatched => mismatched(payment, now, texts),
            Status::Failed => failed(payment, texts),
        };
        scene.notices = notices(payment, texts);
        scene.notices.extend(not_collected(payment, texts));
        scene
    }

    /// True if the payer needs nothing more from the page.
    pub(super) fn is_done(&self, payment: &Payment) -> bool {
        match payment.status {
            Status::Confirmed | Status::Settled | Status::Failed => true,
            Status::Mismatched => self.step.is_none(),
            Status::Pending => false,
        }
    }
}

/// An amount with its token.
pub(super) fn money(amount: Amount, token: Token) -> String {
    format!("{amount} {token}")
}

/// Sum of transfers in the right token and in time that have arrived but do not count yet.
pub(super) fn on_its_way(payment: &Payment) -> Amount {
    payment.transfers.iter().filter(|transfer| is_coming(payment, transfer)).map(|transfer| transfer.amount).sum()
}

fn is_coming(payment: &Payment, transfer: &Transfer) -> bool {
    let is_good = transfer.is_right() && transfer.is_present() && !transfer.is_blocked();
    is_good && !transfer.counted && payment.is_in_time(transfer)
}

/// Sum of transfers in the right token and in time that a reorg orphaned and that are usually included again.
fn orphaned(payment: &Payment) -> Amount {
    let is_again = |gone: &Transfer| {
        let same = |other: &Transfer| other.key.chain == gone.key.chain && other.key.tx_hash == gone.key.tx_hash;
        payment.transfers.iter().any(|other| other.is_present() && same(other))
    };
    let is_gone = |transfer: &&Transfer| {
        let was_good = transfer.is_right() && payment.is_in_time(transfer) && !payment.is_dust(transfer);
        transfer.status == TransferStatus::Orphaned && was_good && !is_again(transfer)
    };
    payment.transfers.iter().filter(is_gone).map(|transfer| transfer.amount).sum()
}

/// The amount still to be sent if everything on its way arrives, and `besides` too.
fn missing(payment: &Payment, besides: Amount) -> Amount {
    let expected = payment.settleable().saturating_add(on_its_way(payment)).saturating_add(besides);
    if expected >= payment.terms.tolerance.least_for(payment.terms.amount) {
        return Amount::ZERO;
    }
    payment.terms.amount.saturating_sub(expected)
}

/// Returns true if a transfer that could pay is under review by screening.
fn is_reviewed(transfer: &Transfer) -> bool {
    could_pay(transfer) && transfer.decision() == Some(Decision::Review)
}

/// Returns true if the transfer is in the chain and in the right token.
fn could_pay(transfer: &Transfer) -> bool {
    transfer.is_right() && transfer.is_present()
}

/// A scene of the usual course.
fn usual(said: (&'static str, impl Into<String>), state_colour: StateColour, step: Step) -> Scene {
    Scene { step: Some(step), ..unusual(said, state_colour) }
}

fn unusual((headline, explanation): (&'static str, impl Into<String>), state_colour: StateColour) -> Scene {
    let explanation = explanation.into();
    Scene { headline, explanation, state_colour, step: None, to_pay: None, notices: Vec::new() }
}

/// Returns true if the due amount has arrived and only a review is pending.
fn waits_for_review(payment: &Payment) -> bool {
    let reviewed = |transfer: &Transfer| is_coming(payment, transfer) && is_reviewed(transfer);
    payment.status == Status::Pending
        && missing(payment, Amount::ZERO).is_zero()
        && payment.transfers.iter().any(reviewed)
}

fn pending(payment: &Payment, now: Timestamp, texts: &'static Texts) -> Scene {
    let in_token = |amount| money(amount, payment.terms.token);
    let coming = on_its_way(payment);
    if let Some(authorization) = payment.authorization.as_deref().filter(|last| last.is_unfinished()) {
        return signed(payment, authorization, texts);
    }
    if waits_for_review(payment) {
        return usual(texts.checked, StateColour::Working, Step::Seen);
    }
    if missing(payment, Amount::ZERO).is_zero() {
        return usual((texts.seen, (texts.seen_text)(&in_token(coming))), StateColour::Working, Step::Seen);
    }
    let gone = orphaned(payment);
    let missing = missing(payment, gone);
    if missing.is_zero() {
        return usual(texts.chain_waits, StateColour::Working, Step::Seen);
    }
    if now >= payment.expires_at {
        return usual(texts.time_up, StateColour::Working, Step::Waiting);
    }
    let seen = coming.saturating_add(gone);
    if !seen.is_zero() {
        let [seen, due, still] = [seen, payment.terms.amount, missing].map(in_token);
        let said = (texts.part_seen, (texts.part_seen_text)(&seen, &due, &still));
        return Scene { to_pay: Some(missing), ..usual(said, StateColour::Asking, Step::Seen) };
    }
    if payment.awaits_chain() {
        return usual(texts.choose, StateColour::Asking, Step::Waiting);
    }
    Scene { to_pay: Some(missing), ..usual(texts.waiting, StateColour::Asking, Step::Waiting) }
}

/// The payer has signed. Screening is not mentioned.
fn signed(payment: &Payment, authorization: &Authorization, texts: &'static Texts) -> Scene {
    if authorization.state == AuthorizationState::Review {
        return usual((texts.checked.0, texts.signed_checked_text), StateColour::Working, Step::Seen);
    }
    let amount = money(authorization.value, payment.terms.token);
    usual((texts.signed, (texts.signed_text)(&amount)), StateColour::Working, Step::Seen)
}

/// Notice about an authorization that was not collected.
fn not_collected(payment: &Payment, texts: &Texts) -> Option<String> {
    let last = payment.authorization.as_deref().filter(|last| !last.is_valid())?;
    if !matches!(payment.status, Status::Pending) {
        return None;
    }
    let notice = match last.failure {
        Some(AuthorizationFailure::NonceUsed) => texts.signature_used,
        Some(AuthorizationFailure::PayerBlocked | AuthorizationFailure::NotDue) => texts.signature_refused,
        None => texts.signature_expired,
    };
    Some(notice.to_owned())
}

fn mismatched(payment: &Payment, now: Timestamp, texts: &'static Texts) -> Scene {
    let contact = Contact::of(payment);
    let missing = missing(payment, Amount::ZERO);
    let [received, due, still] =
        [payment.amount_received(), payment.terms.amount, missing].map(|amount| money(amount, payment.terms.token));
    if payment.is_completable() && missing.is_zero() {
        return usual((texts.seen, texts.rest_seen_text), StateColour::Working, Step::Seen);
    }
    if payment.is_completable() && now < payment.expires_at {
        let said = (texts.incomplete, (texts.incomplete_text)(&received, &due, &still));
        return Scene { to_pay: Some(missing), ..usual(said, StateColour::Asking, Step::Seen) };
    }
    let said = if payment.labels.contains(Label::Late) {
        (texts.late, (texts.late_text)(contact))
    } else if payment.labels.contains(Label::Underpaid) {
        (texts.incomplete, (texts.underpaid_text)(&received, &due, contact))
    } else if payment.labels.contains(Label::Overpaid) {
        (texts.overpaid, (texts.overpaid_text)(&received, &due, contact))
    } else {
        (texts.mismatched, (texts.mismatched_text)(contact))
    };
    unusual(said, StateColour::Trouble)
}

fn failed(payment: &Payment, texts: &Texts) -> Scene {
    let contact = Contact::of(payment);
    let said = match payment.failure_reason {
        Some(FailureReason::Expired) => (texts.expired, (texts.expired_text)(contact)),
        Some(FailureReason::Cancelled) => (texts.cancelled, (texts.cancelled_text)(contact)),
        Some(FailureReason::KytBlocked) => (texts.checked.0, (texts.blocked_text)(contact)),
        Some(FailureReason::SettlementFailed) => (texts.sent_back, (texts.sent_back_text)(contact)),
        None => (texts.failed, (texts.failed_text)(contact)),
    };
    unusual(said, StateColour::Over)
}

fn notices(payment: &Payment, texts: &Texts) -> Vec<String> {
    let (terms, contact) = (&payment.terms, Contact::of(payment));
    let mut notices = Vec::new();
    let strays = || payment.transfers.iter().filter(|transfer| transfer.is_present() && !transfer.is_right());
    if payment.labels.contains(Label::WrongToken) || strays().any(|stray| stray.key.chain == terms.chain) {
        notices.push((texts.wrong_token)(terms.token.as_str(), contact));
    }
    if payment.labels.contains(Label::WrongChain) || strays().any(|stray| stray.key.chain != terms.chain) {
        notices.push((texts.wrong_chain)(chain_name(terms.chain), contact));
    }
    if payment.status != Status::Failed {
        if payment.transfers.iter().any(|transfer| could_pay(transfer) && transfer.is_blocked()) {
            notices.push((texts.under_check_contact)(contact));
        } else if payment.transfers.iter().any(is_reviewed) && !waits_for_review(payment) {
            notices.push(texts.under_check.to_owned());
        }
    }
    let excess = payment.excess_received();
    if !excess.is_zero() {
        notices.push((texts.excess)(&money(excess, terms.token), contact));
    }
    let returned = |is_so: fn(&Refund) -> bool| -> Amount {
        let refunds = payment.refunds.iter().filter(|refund| is_so(refund) && refund.funds == Funds::Received);
        refunds.map(|refund| refund.amount).sum()
    };
    let held = returned(Refund::awaits_approval);
    let going = returned(|refund| refund.state == RefundState::Pending && !refund.awaits_approval());
    let gone = returned(|refund| refund.state == RefundState::Sent);
    for (amount, text) in [(held, texts.refund_held), (going, texts.refund_going), (gone, texts.refund_sent)] {
        if !amount.is_zero() {
            notices.push(text(&money(amount, terms.token)));
        }
    }
    notices
}

/// The chain's name in wallets.
pub(super) fn chain_name(chain: payferry_domain::Chain) -> &'static str {
    match chain {
        payferry_domain::Chain::Base => "Base",
        payferry_domain::Chain::Polygon => "Polygon",
        payferry_domain::Chain::Arbitrum => "Arbitrum One",
    }
}

#[cfg(test)]
mod tests;
