//! Given-when-then tests of one payment, with a small builder.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod authorization;
mod choice;
mod deliveries;
mod ledger;
mod many_at_once;
mod money_back;
mod oracle;
mod payer_requests;
mod properties;
mod refund_limits;
mod reorganised;
mod replay;
mod restart;
mod table;
mod violated;

use super::fixtures::*;
use super::*;
use crate::chain::{Address, Chain, Finality, FinalityPolicy};
use crate::ids::*;
use crate::ledger::Asset;
use crate::money::{Amount, FeeBps, Tolerance};
use proptest::prelude::ProptestConfig;
use ulid::Ulid;

pub(super) const ELSEWHERE: Address = Address([0x22; 20]);

/// Announcements by outcome.
pub(super) const CONFIRMED: &[&str] = &["payment.confirmed", "payin.confirmed"];
pub(super) const SETTLED: &[&str] = &["payment.settled", "payin.settled"];
pub(super) const MISMATCHED: &[&str] = &["payment.mismatched", "payin.mismatched"];
pub(super) const UNDERPAID: &[&str] = &["payment.mismatched", "payin.underpaid", "payin.mismatched"];
pub(super) const FAILED: &[&str] = &["payment.failed", "payin.failed"];
pub(super) const REORGED: &[&str] = &["payment.reorged"];

/// Number of cases, unless `PROPTEST_CASES` is set. A failing seed is printed, not written into the sources.
pub(super) fn cases(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(cases), failure_persistence: None, ..ProptestConfig::default() }
}

pub(super) fn refund_id(n: u128) -> RefundId {
    RefundId::from_ulid(Ulid(n + 1_000))
}

pub(super) fn request_id(n: u128) -> RefundRequestId {
    RefundRequestId::from_ulid(Ulid(n + 2_000))
}

/// A request for refund `n`, to `ELSEWHERE`.
pub(super) fn refund_of(n: u128, text: Option<&str>, funds: Funds, asset: Option<Asset>, by: Requester) -> Command {
    refund_to(Some(ELSEWHERE), n, text, funds, asset, by)
}

pub(super) fn refund_to(
    to: Option<Address>,
    n: u128,
    text: Option<&str>,
    funds: Funds,
    asset: Option<Asset>,
    by: Requester,
) -> Command {
    let order = RefundOrder { amount: text.map(amount), to, funds, asset, ..RefundOrder::new(refund_id(n), by) };
    Command::RequestRefund(Box::new(order))
}

/// A test of one payment: its state and the results of the commands so far.
pub(super) struct Story {
    pub(super) payment: Payment,
    pub(super) now: Timestamp,
    pub(super) commits: Vec<(Vec<Event>, Timestamp)>,
    pub(super) notified: Vec<Announcement>,
    pub(super) posted: Vec<crate::ledger::Posting>,
    pub(super) last: Option<Transition>,
    unread: usize,
}

pub(super) fn given(terms: Terms) -> Story {
    let made = initiate(terms, at(EXPIRY_SECS)).unwrap();
    assert_eq!((made.payment.version, made.payment.status), (1, Status::Pending));
    assert_eq!(made.effects, [Effect::AwaitDeadline { chain: Chain::Base, at: at(EXPIRY_SECS) }]);
    Story {
        payment: made.payment.clone(),
        now: START,
        commits: vec![(made.events.clone(), START)],
        notified: Vec::new(),
        posted: Vec::new(),
        last: Some(made),
        unread: 0,
    }
}

/// A payment that was paid exactly.
pub(super) fn paid() -> Story {
    given(terms()).arrives(tx(1))
}

/// A payment that received 4 of 10.
pub(super) fn underpaid() -> Story {
    given(terms()).arrives(tx(1).of("4"))
}

impl Story {
    /// Runs a command and returns whether anything changed. Checks the conditions that must hold after every step.
    pub(super) fn run(&mut self, command: &Command) -> Result<bool, Rejection> {
        self.now = self.now.plus_secs(1);
        let step = match transition(&self.payment, command, self.now) {
            Ok(Some(step)) => step,
            Ok(None) => {
                self.last = None;
                return Ok(false);
            }
            Err(TransitionError::Rejected(rejection)) => return Err(rejection),
            Err(TransitionError::Violated(violated)) => panic!("{violated} by {command:?}: {:?}", self.payment),
        };
        assert_eq!(step.payment.version, self.payment.version + 1, "one command, one version");
        for announcement in &step.announcements {
            assert_eq!(announcement.sequence, u32::try_from(self.notified.len()).unwrap() + 1, "no gap");
            self.notified.push(announcement.clone());
        }
        assert_eq!(step.payment.sequence, u32::try_from(self.notified.len()).unwrap());
        self.payment = step.payment.clone();
        self.commits.push((step.events.clone(), self.now));
        self.posted.extend(step.postings.iter().cloned());
        ledger::check(&self.payment, &self.posted);
        self.last = Some(step);
        Ok(true)
    }

    /// Sets the clock of the service, in seconds after initiation.
    pub(super) fn at(mut self, secs: i64) -> Self {
        self.now = at(secs);
        self
    }

    pub(super) fn when(mut self, command: Command) -> Self {
        self.run(&command).unwrap();
        self
    }

    /// The transfer is seen, allowed, and final.
    pub(super) fn arrives(self, tx: Tx) -> Self {
        self.when(tx.seen()).when(tx.screened(Decision::Allow)).when(tx.finalised())
    }

    /// The transfer is seen, blocked, and final.
    pub(super) fn tainted(self, tx: Tx) -> Self {
        self.when(tx.seen()).when(tx.screened(Decision::Block)).when(tx.finalised())
    }

    /// Screening allows the address of this refund.
    pub(super) fn cleared(self, n: u128) -> Self {
        self.when(Command::ScreenRefund { refund_id: refund_id(n), verdict: verdict(Decision::Allow) })
    }

    /// The watcher has read a block at this time.
    pub(super) fn read_to(self, secs: i64) -> Self {
        self.when(Command::PassDeadline { chain_time: at(secs) })
    }

    pub(super) fn expired(self) -> Self {
        self.read_to(EXPIRY_SECS)
    }

    pub(super) fn operation(&self) -> OperationId {
        OperationId::settlement_of(self.payment.id())
    }

    pub(super) fn settled(self, revision: u32) -> Self {
        let amount = self.payment.settlement.as_deref().map_or(Amount::ZERO, |settlement| settlement.amount);
        self.settled_with(revision, &amount.to_string())
    }

    /// The chain reports another amount than the one frozen last.
    pub(super) fn settled_with(self, revision: u32, text: &str) -> Self {
        let (operation, amount) = (self.operation(), amount(text));
        self.when(Command::CompleteSettlement { operation, revision, amount, tx_hash: hash(90), block_time: at(90) })
    }

    pub(super) fn settlement_fails(self, revision: u32) -> Self {
        let operation = self.operation();
        self.when(Command::FailSettlement { operation, revision, reason: "reverted".to_owned() })
    }

    pub(super) fn settlement_orphaned(self, revision: u32) -> Self {
        let operation = self.operation();
        self.when(Command::OrphanSettlement { operation, revision })
    }

    pub(super) fn refused(mut self, command: &Command, code: &str) -> Self {
        let before = self.payment.clone();
        let refusal = self.run(command).unwrap_err();
        assert_eq!(refusal.code(), code, "{refusal}");
        assert_eq!(self.payment, before);
        self
    }

    pub(super) fn unchanged(mut self, command: &Command) -> Self {
        assert_eq!(self.run(command), Ok(false), "{command:?} {:?}", self.last);
        self
    }

    #[track_caller]
    pub(super) fn is(self, status: Status, labels: &[Label]) -> Self {
        let expected: Labels = labels.iter().copied().collect();
        assert_eq!((self.payment.status, self.payment.labels), (status, expected), "{:?}", self.payment.history);
        self
    }

    #[track_caller]
    pub(super) fn failed(self, reason: FailureReason) -> Self {
        assert_eq!((self.payment.status, self.payment.failure_reason), (Status::Failed, Some(reason)));
        self
    }

    /// Asserts the announcements since the last call.
    #[track_caller]
    pub(super) fn notified(mut self, names: &[&str]) -> Self {
        let new: Vec<_> = self.notified[self.unread..].iter().map(|notified| notified.name.as_str()).collect();
        assert_eq!(new, names);
        self.unread = self.notified.len();
        self
    }

    #[track_caller]
    pub(super) fn money(self, received: &str, excess: &str, due: &str, refundable: &str) -> Self {
        let p = &self.payment;
        let now = [p.amount_received(), p.excess_received(), p.amount_due(), p.refundable()];
        assert_eq!(now.map(|amount| amount.to_string()), [received, excess, due, refundable]);
        self
    }

    /// Asserts the operations of the last command: action and amount.
    #[track_caller]
    pub(super) fn queues(self, expected: &[(OperationAction, &str)]) -> Self {
        let operations = &self.last.as_ref().unwrap().operations;
        let amounts = operations.iter().map(|operation| match operation.body {
            OperationBody::Settle { amount, .. }
            | OperationBody::Collect { amount, .. }
            | OperationBody::Deposit { amount, .. }
            | OperationBody::Deliver { amount, .. }
            | OperationBody::Send { amount, .. } => (operation.action, amount),
        });
        let expected: Vec<_> = expected.iter().map(|(action, text)| (*action, amount(text))).collect();
        assert_eq!(amounts.collect::<Vec<_>>(), expected);
        self
    }

    #[track_caller]
    pub(super) fn asks_for(self, effect: &Effect) -> Self {
        let effects = &self.last.as_ref().unwrap().effects;
        assert!(effects.contains(effect), "{effect:?} in {effects:?}");
        self
    }

    /// Asserts that nothing is to be done after the last command.
    #[track_caller]
    pub(super) fn asks_for_nothing(self) -> Self {
        assert_eq!(self.last.as_ref().unwrap().effects, []);
        self
    }

    /// Asserts that the last command raises exactly these alarms.
    #[track_caller]
    pub(super) fn alarms(self, expected: &[Alarm]) -> Self {
        let effects = &self.last.as_ref().unwrap().effects;
        let of = |effect: &Effect| if let Effect::Alarm(alarm) = effect { Some(*alarm) } else { None };
        assert_eq!(effects.iter().filter_map(of).collect::<Vec<_>>(), expected);
        self
    }

    pub(super) fn also(self, look: impl FnOnce(&Payment)) -> Self {
        look(&self.payment);
        self
    }
}
