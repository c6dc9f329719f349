//! Content of the payer's page: one scene for each state of a payment.
//!
//! Pure functions. The texts name no person and do not mention screening. They never ask for money that is already on
//! its way. A transfer that may never count does not stop the payer from paying the rest. `view` renders the scene.

use payferry_domain::payment::{
    Authorization, AuthorizationFailure, AuthorizationState, Decision, FailureReason, Funds, Label, Payment, Refund,
    RefundState, Status, Transfer, TransferStatus,
};
use payferry_domain::{Amount, Timestamp};

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

impl Scene {
    /// The scene of the payment at `now`.
    pub(super) fn of(payment: &Payment, now: Timestamp) -> Self {
        let mut scene = match payment.status {
            Status::Pending => pending(payment, now),
            Status::Confirmed => usual(
                "Payment confirmed",
                "Thank you. Your payment is final; there is nothing more to do.",
                StateColour::Good,
                Step::Confirmed,
            ),
            Status::Settled => usual(
                "Payment complete",
                format!("Thank you. Your payment has arrived and was passed on to {}.", recipient(payment)),
                StateColour::Good,
                Step::Complete,
            ),
            Status::Mismatched => mismatched(payment, now),
            Status::Failed => failed(payment),
        };
        scene.notices = notices(payment);
        scene.notices.extend(not_collected(payment));
        scene
    }
}

/// The payer's contact. A transfer to a customer has no merchant.
pub(super) fn contact(payment: &Payment) -> &'static str {
    if payment.terms.purpose.is_pay_in() { "the merchant" } else { "the sender of this link" }
}

/// The contact at the beginning of a sentence.
fn contact_first(payment: &Payment) -> &'static str {
    if payment.terms.purpose.is_pay_in() { "The merchant" } else { "The sender of this link" }
}

fn recipient(payment: &Payment) -> &'static str {
    if payment.terms.purpose.is_pay_in() { "the merchant" } else { "the recipient" }
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
fn usual(headline: &'static str, explanation: impl Into<String>, state_colour: StateColour, step: Step) -> Scene {
    Scene { step: Some(step), ..unusual(headline, explanation, state_colour) }
}

fn unusual(headline: &'static str, explanation: impl Into<String>, state_colour: StateColour) -> Scene {
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

fn pending(payment: &Payment, now: Timestamp) -> Scene {
    let token = payment.terms.token;
    let coming = on_its_way(payment);
    if let Some(authorization) = payment.authorization.as_deref().filter(|last| last.is_unfinished()) {
        return signed(payment, authorization);
    }
    if waits_for_review(payment) {
        let explanation = "Your transfer has arrived and is being checked, which can take a while. There is nothing for \
                           you to do; do not pay again.";
        return usual("Payment being checked", explanation, StateColour::Working, Step::Seen);
    }
    if missing(payment, Amount::ZERO).is_zero() {
        let explanation = format!(
            "Your transfer of {coming} {token} has arrived and is being confirmed by the chain. There is nothing more \
             to do."
        );
        return usual("Payment seen", explanation, StateColour::Working, Step::Seen);
    }
    let gone = orphaned(payment);
    let missing = missing(payment, gone);
    if missing.is_zero() {
        let explanation = "Your transfer was seen, but the chain has dropped its block. It usually reappears within \
                           minutes; do not pay again yet.";
        return usual("Waiting for the chain", explanation, StateColour::Working, Step::Seen);
    }
    if now >= payment.expires_at {
        let explanation = "The time to pay is over. The service is still checking for transfers that were sent in \
                           time; do not send anything now.";
        return usual("Time is up", explanation, StateColour::Working, Step::Waiting);
    }
    let seen = coming.saturating_add(gone);
    if !seen.is_zero() {
        let explanation = format!(
            "{seen} {token} of {} {token} was seen and does not count yet. {missing} {token} is missing: send it to the \
             same address in time.",
            payment.terms.amount
        );
        let scene = usual("Part of the payment seen", explanation, StateColour::Asking, Step::Seen);
        return Scene { to_pay: Some(missing), ..scene };
    }
    let explanation = "Send exactly this amount to the address shown here. You will see it arrive on this page.";
    let scene = usual("Waiting for your payment", explanation, StateColour::Asking, Step::Waiting);
    Scene { to_pay: Some(missing), ..scene }
}

/// The payer has signed. Screening is not mentioned.
fn signed(payment: &Payment, authorization: &Authorization) -> Scene {
    let (amount, token) = (authorization.value, payment.terms.token);
    if authorization.state == AuthorizationState::Review {
        let explanation = "Your signed payment is being checked, which can take a while. There is nothing for you to do; do \
                           not pay again.";
        return usual("Payment being checked", explanation, StateColour::Working, Step::Seen);
    }
    let explanation =
        format!("Your signed payment of {amount} {token} is being collected. There is nothing more to do.");
    usual("Payment signed", explanation, StateColour::Working, Step::Seen)
}

/// Notice about an authorization that was not collected.
fn not_collected(payment: &Payment) -> Option<String> {
    let last = payment.authorization.as_deref().filter(|last| !last.is_valid())?;
    if !matches!(payment.status, Status::Pending) {
        return None;
    }
    let why = match last.failure {
        Some(AuthorizationFailure::NonceUsed) => "it was cancelled, or used elsewhere",
        Some(AuthorizationFailure::PayerBlocked | AuthorizationFailure::NotDue) => "this account cannot be used",
        None => "it expired",
    };
    Some(format!("Your last signature was not used: {why}. No money was taken; you can pay again."))
}

fn mismatched(payment: &Payment, now: Timestamp) -> Scene {
    let (token, due) = (payment.terms.token, payment.terms.amount);
    let (received, missing) = (payment.amount_received(), missing(payment, Amount::ZERO));
    let (they, them) = (contact_first(payment), contact(payment));
    if payment.is_completable() && missing.is_zero() {
        let explanation = "The rest of your payment has arrived and is being confirmed by the chain. There is nothing \
                           more to do.";
        return usual("Payment seen", explanation, StateColour::Working, Step::Seen);
    }
    if payment.is_completable() && now < payment.expires_at {
        let explanation = format!(
            "{received} {token} of {due} {token} has arrived. {missing} {token} is missing: send it to the same address \
             in time, and the payment is complete."
        );
        let scene = usual("Payment incomplete", explanation, StateColour::Asking, Step::Seen);
        return Scene { to_pay: Some(missing), ..scene };
    }
    if payment.labels.contains(Label::Late) {
        let explanation = format!(
            "Money arrived after the time to pay was over. {they} has been notified and will accept it or send it \
             back. Contact {them}; do not pay again."
        );
        return unusual("Payment arrived late", explanation, StateColour::Trouble);
    }
    if payment.labels.contains(Label::Underpaid) {
        let explanation = format!(
            "{received} {token} of {due} {token} arrived in time. {they} has been notified and will accept it or send \
             it back. Contact {them}; do not send anything more."
        );
        return unusual("Payment incomplete", explanation, StateColour::Trouble);
    }
    if payment.labels.contains(Label::Overpaid) {
        let explanation = format!(
            "{received} {token} arrived instead of {due} {token}. {they} has been notified and will accept it or send \
             money back. There is nothing for you to pay."
        );
        return unusual("More than the amount arrived", explanation, StateColour::Trouble);
    }
    let explanation = format!(
        "The received money does not match the request. {they} has been notified. Contact {them}; do not send \
         anything more."
    );
    unusual("Payment does not match", explanation, StateColour::Trouble)
}

fn failed(payment: &Payment) -> Scene {
    let (they, them) = (contact_first(payment), contact(payment));
    let (headline, explanation) = match payment.failure_reason {
        Some(FailureReason::Expired) => (
            "Payment expired",
            format!(
                "The time to pay is over. Do not send anything; ask {them} for a new link. If you have just sent \
                 money, contact {them}: it is not lost."
            ),
        ),
        Some(FailureReason::Cancelled) => {
            ("Payment cancelled", format!("{they} cancelled this payment. Do not send anything."))
        }
        Some(FailureReason::KytBlocked) => (
            "Payment being checked",
            format!(
                "The received money is being checked, and this payment cannot be completed. Do not send anything \
                 more; contact {them}."
            ),
        ),
        Some(FailureReason::SettlementFailed) => (
            "Payment sent back",
            format!(
                "This payment could not be completed, and {them} will send it back. Contact {them} before you pay \
                 again."
            ),
        ),
        None => ("Payment failed", format!("Do not send anything; contact {them}.")),
    };
    unusual(headline, explanation, StateColour::Over)
}

fn notices(payment: &Payment) -> Vec<String> {
    let (terms, they, them) = (&payment.terms, contact_first(payment), contact(payment));
    let mut notices = Vec::new();
    let strays = || payment.transfers.iter().filter(|transfer| transfer.is_present() && !transfer.is_right());
    if payment.labels.contains(Label::WrongToken) || strays().any(|stray| stray.key.chain == terms.chain) {
        notices.push(format!(
            "A token arrived that is not the {} asked for, so it does not count for this payment. Contact {them} to \
             have it sent back.",
            terms.token
        ));
    }
    if payment.labels.contains(Label::WrongChain) || strays().any(|stray| stray.key.chain != terms.chain) {
        notices.push(format!(
            "Money arrived on another chain than {}, so it does not count for this payment. Contact {them} to have it \
             sent back.",
            chain_name(terms.chain)
        ));
    }
    let checked = "A received transfer is being checked and does not count until then.";
    if payment.status != Status::Failed {
        if payment.transfers.iter().any(|transfer| could_pay(transfer) && transfer.is_blocked()) {
            notices.push(format!("{checked} Contact {them}."));
        } else if payment.transfers.iter().any(is_reviewed) && !waits_for_review(payment) {
            notices.push(checked.to_owned());
        }
    }
    let excess = payment.excess_received();
    if !excess.is_zero() {
        notices.push(format!(
            "{excess} {} arrived after the payment was complete. {they} has been notified and can send it back.",
            terms.token
        ));
    }
    let returned = |is_so: fn(&Refund) -> bool| -> Amount {
        let refunds = payment.refunds.iter().filter(|refund| is_so(refund) && refund.funds == Funds::Received);
        refunds.map(|refund| refund.amount).sum()
    };
    let held = returned(Refund::awaits_approval);
    let going = returned(|refund| refund.state == RefundState::Pending && !refund.awaits_approval());
    let gone = returned(|refund| refund.state == RefundState::Sent);
    for (amount, words) in
        [(held, "is sent back after a check"), (going, "is on its way back"), (gone, "was sent back")]
    {
        if !amount.is_zero() {
            notices.push(format!("{amount} {} {words}.", terms.token));
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
