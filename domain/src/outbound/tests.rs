//! Given-when-then tests of payouts and withdrawals, and the ledger for any order of facts.

use proptest::prelude::*;
use ulid::Ulid;

use super::*;
use crate::chain::{FinalityPolicy, Hash32};
use crate::ids::{CustomerId, PayoutId, PspId, WithdrawalId};
use crate::ledger::{Account, Asset, Holdings, PostingKind};
use crate::money::Token;
use crate::payment::Verdict;
use crate::payment::fixtures::{START, verdict as provided};

const TX: Hash32 = Hash32([7; 32]);

fn payout() -> Order {
    Order {
        id: OutboundId::Payout(PayoutId::from_ulid(Ulid(7))),
        psp_id: PspId::from_ulid(Ulid(1)),
        customer_id: Some(CustomerId::from_ulid(Ulid(2))),
        reference: Some("salary 3".to_owned()),
        metadata: None,
        amount: "25.00".parse().unwrap(),
        token: Token::Usdc,
        asset: Asset { chain: Chain::Polygon, address: Address([0xaa; 20]) },
        to: Address([0x33; 20]),
        finality: FinalityPolicy::sandbox(),
        traceparent: None,
        created_at: START,
    }
}

fn withdrawal() -> Order {
    Order { id: OutboundId::Withdrawal(WithdrawalId::from_ulid(Ulid(8))), customer_id: None, ..payout() }
}

fn verdict(decision: Decision, by_operator: bool) -> Command {
    Command::Screen(Verdict { by_operator, plain_sender: None, ..provided(decision) })
}

fn complete() -> Command {
    Command::Complete { revision: 2, tx_hash: TX }
}

fn fail() -> Command {
    Command::Fail { revision: 1, reason: FailureReason::SendFailed, detail: "reverted".to_owned() }
}

/// It was orphaned and rejected when it was sent again.
fn fail_after_all() -> Command {
    Command::Fail { revision: 4, reason: FailureReason::SendFailed, detail: "reverted".to_owned() }
}

/// An outbound transfer with its announcements and postings.
struct Story {
    outbound: OutboundTransfer,
    notified: Vec<&'static str>,
    posted: Vec<Posting>,
    queued: usize,
}

fn given(order: Order) -> Story {
    let mut story =
        Story { outbound: OutboundTransfer::new(order.clone()), notified: vec![], posted: vec![], queued: 0 };
    story.take(accept(order).unwrap());
    story
}

impl Story {
    fn take(&mut self, step: Transition) {
        assert_eq!(step.outbound.version, self.outbound.version + 1);
        for announcement in &step.announcements {
            self.notified.push(announcement.name.as_str());
            assert_eq!(announcement.sequence as usize, self.notified.len(), "no gap");
            let body = payload(&step.outbound, announcement, crate::ids::EventId::from_ulid(Ulid(9))).unwrap();
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(body["payment_id"], step.outbound.id().to_string());
            assert_eq!(body["address"], step.outbound.order.to.checksummed());
        }
        self.posted.extend(step.postings);
        self.queued += usize::from(step.queues_operation);
        self.outbound = step.outbound;
        assert_eq!(self.posted.iter().collect::<Holdings>(), self.outbound.holdings());
        let json = serde_json::to_string(&self.outbound).unwrap();
        assert_eq!(serde_json::from_str::<OutboundTransfer>(&json).unwrap(), self.outbound);
    }

    fn when(mut self, command: &Command) -> Self {
        if let Some(step) = transition(&self.outbound, command, START.plus_secs(5)).unwrap() {
            self.take(step);
        }
        self
    }

    fn balance(&self, account: Account) -> i64 {
        self.posted.iter().map(|posting| posting.change_of(account)).sum()
    }

    #[track_caller]
    fn is(self, status: OutboundStatus, notified: &[&str], balances: [i64; 3]) -> Self {
        assert_eq!(self.outbound.status, status);
        assert_eq!(self.notified, notified);
        let now = [Account::Psp, Account::InFlight, Account::External].map(|account| self.balance(account));
        assert_eq!(now, balances);
        self
    }
}

const AMOUNT: i64 = 25_000_000;

#[test]
fn acceptance_reserves_the_amount_and_screens_the_address() {
    let story = given(payout()).is(OutboundStatus::Pending, &["payout.pending"], [-AMOUNT, AMOUNT, 0]);
    let Order { to, amount, .. } = payout();
    assert_eq!(resume(&story.outbound)[0], Effect::Screen { to, amount, chain: Chain::Polygon });
    assert_eq!(story.queued, 0, "nothing is sent before the screening result");
    given(withdrawal()).is(OutboundStatus::Pending, &[], [-AMOUNT, AMOUNT, 0]);
}

#[test]
fn an_allowed_address_is_paid_and_announced() {
    let story = given(payout()).when(&verdict(Decision::Allow, false));
    assert_eq!(story.queued, 1);
    let story =
        story.when(&complete()).is(OutboundStatus::Sent, &["payout.pending", "payout.sent"], [-AMOUNT, 0, AMOUNT]);
    assert_eq!(resume(&story.outbound).last(), Some(&Effect::Passivate));
    let again = story.when(&complete()).when(&fail()).when(&verdict(Decision::Block, false));
    again.is(OutboundStatus::Sent, &["payout.pending", "payout.sent"], [-AMOUNT, 0, AMOUNT]);
}

#[test]
fn a_blocked_address_fails_and_releases_the_reservation() {
    let story = given(withdrawal()).when(&verdict(Decision::Block, false));
    assert_eq!((story.queued, story.outbound.failure_reason), (0, Some(FailureReason::AddressBlocked)));
    story.is(OutboundStatus::Failed, &["withdraw.failed"], [0, 0, 0]);
}

#[test]
fn a_review_waits_for_the_operator() {
    let story = given(payout()).when(&verdict(Decision::Review, false)).when(&verdict(Decision::Review, false));
    assert_eq!(story.outbound.version, 2, "a repeated verdict changes nothing");
    assert!(matches!(resume(&story.outbound)[0], Effect::AwaitReview { .. }));
    let story = story.when(&verdict(Decision::Allow, true));
    assert_eq!(story.queued, 1);
    let refused = transition(&story.outbound, &verdict(Decision::Block, true), START);
    assert_eq!(refused, Err(TransitionError::Rejected(Rejection::NotInReview)));
    let blocked = given(payout()).when(&verdict(Decision::Review, false)).when(&verdict(Decision::Block, true));
    blocked.is(OutboundStatus::Failed, &["payout.pending", "payout.failed"], [0, 0, 0]);
}

#[test]
fn failure_releases_funds_and_a_later_completion_still_counts() {
    let failed = given(payout()).when(&verdict(Decision::Allow, false)).when(&fail()).when(&fail());
    let failed = failed.is(OutboundStatus::Failed, &["payout.pending", "payout.failed"], [0, 0, 0]);
    let notified = ["payout.pending", "payout.failed", "payout.sent"];
    let sent = failed.when(&complete()).is(OutboundStatus::Sent, &notified, [-AMOUNT, 0, AMOUNT]);
    assert_eq!(
        sent.posted.last().map(|posting| (posting.kind, posting.debit)),
        Some((PostingKind::Sent, Account::Psp))
    );
}

#[test]
fn orphaned_then_rejected_fails_and_returns_the_funds() {
    let sent = given(payout()).when(&verdict(Decision::Allow, false)).when(&complete());
    let notified = ["payout.pending", "payout.sent", "payout.failed"];
    let failed = sent.when(&fail_after_all()).when(&fail_after_all()).when(&complete());
    let failed = failed.is(OutboundStatus::Failed, &notified, [0, 0, 0]);
    assert_eq!((failed.outbound.tx_hash, failed.queued), (None, 1));
    let last = failed.posted.last().map(|posting| (posting.kind, posting.debit, posting.credit));
    assert_eq!(last, Some((PostingKind::SentReversed, Account::External, Account::Psp)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn balances_match_the_status_for_any_order_of_facts(
        facts in proptest::collection::vec(0..7_usize, 0..12)
    ) {
        let again = Command::Complete { revision: 5, tx_hash: TX };
        let screened = [Decision::Allow, Decision::Review, Decision::Block].map(|decision| verdict(decision, false));
        let commands = [screened.as_slice(), &[complete(), fail(), fail_after_all(), again]].concat();
        let mut story = given(payout());
        for fact in facts {
            story = story.when(&commands[fact]);
            let expected = match story.outbound.status {
                OutboundStatus::Pending => [-AMOUNT, AMOUNT, 0],
                OutboundStatus::Sent => [-AMOUNT, 0, AMOUNT],
                OutboundStatus::Failed => [0, 0, 0],
            };
            let now = [Account::Psp, Account::InFlight, Account::External].map(|account| story.balance(account));
            prop_assert_eq!(now, expected);
            prop_assert!(story.queued <= 1);
        }
    }
}

#[test]
fn a_transition_that_violates_an_invariant_is_refused_with_its_number() {
    let free = Order { amount: Amount::ZERO, ..payout() };
    assert_eq!(accept(free).unwrap_err().0.iter().map(|one| one.id).collect::<Vec<_>>(), ["OUT-1"]);
    let mut broken = given(payout()).outbound;
    (broken.failure, broken.finished_at) = (Some("reverted".to_owned()), Some(START));
    let refused = transition(&broken, &verdict(Decision::Allow, false), START);
    let Err(TransitionError::Violated(violated)) = refused else { panic!("{refused:?}") };
    assert_eq!(violated.0.iter().map(|one| one.id).collect::<Vec<_>>(), ["OUT-3", "OUT-5"]);
}
