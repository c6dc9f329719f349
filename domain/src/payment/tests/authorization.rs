//! Payments by signature: screened before the money moves, counted and settled in one command.

use super::*;
use crate::ledger::{Account, PostingKind};

const NONCE: u8 = 9;

fn operation(n: u128) -> OperationId {
    OperationId::from_ulid(Ulid(7_000 + n))
}

/// The order of attempt `n` for the whole amount.
fn order(n: u16) -> AuthorizationOrder {
    AuthorizationOrder {
        operation: operation(n.into()),
        kind: AuthorizationKind::Receive,
        attempt: n,
        from: PAYER,
        value: amount("10.00"),
        valid_before: at(EXPIRY_SECS),
        nonce: hash(NONCE),
    }
}

fn deposit() -> AuthorizationOrder {
    AuthorizationOrder { kind: AuthorizationKind::Transfer, ..order(1) }
}

fn screened(n: u16, decision: Decision) -> Command {
    Command::ScreenAuthorization { operation: operation(n.into()), verdict: verdict(decision) }
}

fn block(n: u8) -> CollectedBlock {
    let block = BlockRef { number: u64::from(n), time: at(60) };
    CollectedBlock { tx_hash: hash(n), block_hash: hash(100 + n), block, log_index: 3 }
}

fn collected(n: u16, revision: u32) -> Command {
    Command::CompleteAuthorization { operation: operation(n.into()), revision, block: block(50) }
}

fn ended(n: u16, revision: u32, end: AuthorizationEnd) -> Command {
    let operation = operation(n.into());
    Command::FailAuthorization { operation, revision, end, detail: "why".to_owned() }
}

/// A payment with a queued authorization.
fn authorized() -> Story {
    given(terms()).when(Command::Authorize(order(1))).when(screened(1, Decision::Allow))
}

fn state(story: &Story) -> AuthorizationState {
    story.payment.authorization.as_deref().unwrap().state
}

fn refusal(payment: &Payment, order: AuthorizationOrder, secs: i64) -> Rejection {
    decide(payment, &Command::Authorize(order), at(secs)).unwrap_err()
}

#[test]
fn payer_is_screened_before_the_settler_gets_the_authorization() {
    let accepted = given(terms()).when(Command::Authorize(order(1)));
    let effects = &accepted.last.as_ref().unwrap().effects;
    let screening =
        Effect::ScreenAuthorization { operation: operation(1), from: PAYER, amount: amount("10.00"), alarm_at: None };
    assert_eq!(effects, &[screening]);
    assert!(accepted.last.as_ref().unwrap().operations.is_empty());
    assert!(accepted.payment.labels.contains(Label::Authorized));

    let queued = accepted.when(screened(1, Decision::Allow));
    let transition = queued.last.as_ref().unwrap();
    assert_eq!(transition.effects, [Effect::Collect { operation: operation(1), chain: Chain::Base }]);
    let payer = PayerTerms { from: PAYER, nonce: hash(NONCE), valid_before: at(EXPIRY_SECS) };
    let (psp_amount, treasury_fee) = (amount("9.90"), amount("0.10"));
    let body = OperationBody::Collect { amount: amount("10.00"), psp_amount, treasury_fee, payer };
    assert_eq!(transition.operations.iter().map(|queued| queued.body).collect::<Vec<_>>(), [body]);
    assert!(transition.announcements.is_empty() && transition.postings.is_empty());
}

#[test]
fn collection_counts_confirms_and_settles_in_one_command() {
    let story = authorized().when(collected(1, 2));
    let transition = story.last.as_ref().unwrap();
    assert_eq!(story.payment.status, Status::Settled);
    let names: Vec<_> = transition.announcements.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, [CONFIRMED, SETTLED].concat());
    let kinds: Vec<_> = transition.postings.iter().map(|posting| posting.kind).collect();
    assert_eq!(kinds, [PostingKind::Received, PostingKind::Settled, PostingKind::Fee]);
    assert!(transition.operations.is_empty(), "no settlement is queued");
    let settlement = story.payment.settlement.as_deref().unwrap();
    assert_eq!((settlement.state, settlement.tx_hash), (SettlementState::Settled, Some(hash(50))));
    assert_eq!(settlement.psp_amount, amount("9.90"));
    let transfer = &story.payment.transfers[0];
    assert_eq!((transfer.from, transfer.counted, transfer.key.log_index), (PAYER, true, 3));
    assert_eq!(story.payment.in_wallet(), Amount::ZERO);
}

#[test]
fn blocked_money_is_never_taken() {
    let story = given(terms()).when(Command::Authorize(order(1))).when(screened(1, Decision::Block));
    assert_eq!((state(&story), story.payment.status), (AuthorizationState::Failed, Status::Pending));
    let authorization = story.payment.authorization.as_deref().unwrap();
    assert_eq!(authorization.failure, Some(AuthorizationFailure::PayerBlocked));
    assert!(!story.payment.labels.contains(Label::Authorized));
    assert!(story.last.as_ref().unwrap().operations.is_empty());
    // The next attempt has another number, to which its nonce commits.
    assert_eq!(refusal(&story.payment, order(1), 0), Rejection::AuthorizationOutdated);
    assert_eq!(state(&story.when(Command::Authorize(order(2)))), AuthorizationState::Screening);
}

#[test]
fn review_waits_for_the_operator_and_does_not_hold_expiry() {
    let reviewed = || given(terms()).when(Command::Authorize(order(1))).when(screened(1, Decision::Review));
    let story = reviewed();
    assert_eq!(state(&story), AuthorizationState::Review);
    assert!(story.payment.labels.contains(Label::InReview));
    let decision = Verdict { by_operator: true, ..verdict(Decision::Allow) };
    let allowed = story.when(Command::ScreenAuthorization { operation: operation(1), verdict: decision });
    assert_eq!(state(&allowed), AuthorizationState::Queued);

    let expired = reviewed().when(Command::PassDeadline { chain_time: at(EXPIRY_SECS) });
    assert_eq!(expired.payment.failure_reason, Some(FailureReason::Expired));
    assert_eq!(state(&expired), AuthorizationState::Expired);
}

#[test]
fn payment_does_not_expire_and_is_not_cancelled_while_the_settler_has_the_authorization() {
    let story = authorized();
    assert_eq!(decide(&story.payment, &Command::Cancel, at(5)).unwrap_err(), Rejection::AuthorizationInProgress);
    let late = story.when(Command::PassDeadline { chain_time: at(EXPIRY_SECS) });
    assert_eq!(late.payment.status, Status::Pending);
    let settled = late.when(collected(1, 2));
    assert_eq!(settled.payment.status, Status::Settled);
    let late = authorized().when(Command::PassDeadline { chain_time: at(EXPIRY_SECS) });
    let expired = late.when(ended(1, 2, AuthorizationEnd::Expired));
    assert_eq!(expired.payment.failure_reason, Some(FailureReason::Expired));
}

#[test]
fn money_sent_by_hand_waits_for_the_end_of_the_authorization() {
    let waiting = authorized().arrives(tx(1));
    assert_eq!((waiting.payment.status, waiting.payment.amount_received()), (Status::Pending, Amount::ZERO));
    let paid = waiting.when(ended(1, 2, AuthorizationEnd::Failed(AuthorizationFailure::NonceUsed)));
    assert_eq!(paid.payment.status, Status::Confirmed, "the transfer pays");

    let both = authorized().arrives(tx(1)).when(collected(1, 2));
    assert_eq!((both.payment.status, both.payment.excess_received()), (Status::Settled, amount("10.00")));
    assert_eq!(both.payment.refundable(), amount("20.00"));
    assert_eq!(both.payment.in_wallet(), amount("10.00"), "the rest is in the payment's wallet");
}

#[test]
fn payment_that_is_paid_by_hand_needs_no_authorization() {
    let paid = given(terms()).when(Command::Authorize(order(1))).arrives(tx(1)).when(screened(1, Decision::Allow));
    assert_eq!((paid.payment.status, state(&paid)), (Status::Confirmed, AuthorizationState::Failed));
    let authorization = paid.payment.authorization.as_deref().unwrap();
    assert_eq!(authorization.failure, Some(AuthorizationFailure::NotDue));
}

#[test]
fn orphaned_collection_is_undone_and_collected_again() {
    let orphan = Command::OrphanAuthorization { operation: operation(1), revision: 3 };
    let story = authorized().when(collected(1, 2)).when(orphan);
    assert_eq!((story.payment.status, state(&story)), (Status::Pending, AuthorizationState::Queued));
    assert!(story.payment.settlement.is_none());
    let names: Vec<_> = story.last.as_ref().unwrap().announcements.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, REORGED);

    let again = Command::CompleteAuthorization { operation: operation(1), revision: 4, block: block(51) };
    let again = story.when(again);
    assert_eq!(again.payment.status, Status::Settled);
    assert_eq!(again.payment.settlement.as_deref().unwrap().tx_hash, Some(hash(51)));
}

#[test]
fn collection_that_is_orphaned_for_good_fails_with_reversing_postings() {
    let story = authorized().when(collected(1, 2)).when(ended(1, 3, AuthorizationEnd::Expired));
    assert_eq!((story.payment.status, state(&story)), (Status::Pending, AuthorizationState::Expired));
    let net: i64 = story.posted.iter().filter(|one| one.credit == Account::Psp).map(|one| one.amount.units()).sum();
    let back: i64 = story.posted.iter().filter(|one| one.debit == Account::Psp).map(|one| one.amount.units()).sum();
    assert_eq!(net, back);
}

#[test]
fn outdated_and_repeated_outcomes_change_nothing() {
    let story = authorized().when(collected(1, 2));
    for outcome in [collected(1, 2), collected(1, 1), ended(1, 2, AuthorizationEnd::Expired), collected(2, 9)] {
        assert!(decide(&story.payment, &outcome, at(9)).unwrap().is_empty(), "{outcome:?}");
    }
}

#[test]
fn deposit_is_an_ordinary_transfer_once_it_is_final() {
    let story = given(terms()).when(Command::Authorize(deposit())).when(screened(1, Decision::Allow));
    assert!(matches!(story.last.as_ref().unwrap().operations[0].body, OperationBody::Deposit { .. }));
    let final_ = story.when(collected(1, 2)).when(Command::PassDeadline { chain_time: at(EXPIRY_SECS) });
    assert_eq!((final_.payment.status, state(&final_)), (Status::Pending, AuthorizationState::Final));
    let paid = final_.arrives(tx(50));
    assert_eq!(paid.payment.status, Status::Confirmed, "and an ordinary settlement follows");
}

#[test]
fn authorization_must_fit_the_payment() {
    let payment = given(terms()).payment;
    let of = |text: &str| AuthorizationOrder { value: amount(text), ..order(1) };
    let until = |secs| AuthorizationOrder { valid_before: at(secs), ..order(1) };
    let not_due = Rejection::AmountNotDue { due: amount("10.00"), authorized: amount("9.99") };
    assert_eq!(refusal(&payment, of("9.99"), 0), not_due);
    assert_eq!(refusal(&payment, until(EXPIRY_SECS + 1), 0), Rejection::AuthorizationTooLong(at(EXPIRY_SECS)));
    assert_eq!(refusal(&payment, until(59), 0), Rejection::AuthorizationTooShort);
    assert_eq!(refusal(&payment, order(2), 0), Rejection::AuthorizationOutdated);
    assert_eq!(refusal(&authorized().payment, order(2), 0), Rejection::AuthorizationInProgress);
    assert_eq!(refusal(&paid().payment, order(1), 0), Rejection::PaymentNotPending(Status::Confirmed));
    assert_eq!(refusal(&given(terms()).when(tx(1).seen()).payment, order(1), 0), Rejection::TransferPending);
    let transfer = Terms { purpose: Purpose::Transfer { to: ELSEWHERE }, ..terms() };
    let refused = refusal(&given(transfer).payment, order(1), 0);
    assert_eq!(refused, Rejection::PaymentNotPending(Status::Pending));
}
