//! Given-when-then tests of one payment, with a small builder.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod deliveries;
mod ledger;
mod many_at_once;
mod money_back;
mod oracle;
mod properties;
mod reorganised;
mod restart;
mod table;

use super::*;
use crate::chain::{Address, Chain, Finality, FinalityPolicy, Hash32};
use crate::ids::*;
use crate::ledger::Asset;
use crate::money::{Amount, FeeBps, Token, Tolerance};
use proptest::prelude::ProptestConfig;
use ulid::Ulid;

pub(crate) const START: Timestamp = Timestamp(1_732_000_000_000);
pub(super) const EXPIRY_SECS: i64 = 1_200;
pub(super) const USDC: Address = Address([0xaa; 20]);
pub(super) const WALLET: Address = Address([0x77; 20]);
pub(super) const PAYER: Address = Address([0x11; 20]);
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

pub(super) fn amount(text: &str) -> Amount {
    text.parse().unwrap()
}

/// Returns a time in seconds after initiation.
pub(super) fn at(secs: i64) -> Timestamp {
    START.plus_secs(secs)
}

pub(super) fn hash(n: u8) -> Hash32 {
    Hash32([n; 32])
}

pub(super) fn refund_id(n: u128) -> RefundId {
    RefundId::from_ulid(Ulid(n + 1_000))
}

/// 10.00 USDC on Base, two blocks, fee 1 %, no tolerance, overpayment policy hold.
pub(super) fn terms() -> Terms {
    Terms {
        id: PaymentId::from_ulid(Ulid(42)),
        psp_id: PspId::from_ulid(Ulid(1)),
        purpose: Purpose::PayIn,
        merchant_id: Some(MerchantId::from_ulid(Ulid(2))),
        customer_id: None,
        reference: Some("order 7".to_owned()),
        metadata: None,
        amount: amount("10.00"),
        token: Token::Usdc,
        token_address: USDC,
        chain: Chain::Base,
        chain_choice: ChainChoice::Asked,
        wallet: WALLET,
        link_token: "unguessable".to_owned(),
        fee_bps: FeeBps::DEFAULT,
        tolerance: Tolerance::default(),
        overpayment: OverpaymentPolicy::Hold,
        refund_to_sender: false,
        dust_floor: amount("0.001"),
        finality: FinalityPolicy::sandbox(),
        created_at: START,
    }
}

pub(crate) fn verdict(decision: Decision) -> Verdict {
    Verdict {
        decision,
        by_operator: false,
        risk_level: None,
        score: None,
        flags: Vec::new(),
        provider: "list".to_owned(),
        provider_ref: None,
        list_version: None,
        plain_sender: Some(true),
        checked_at: START,
    }
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
    Command::RequestRefund { refund_id: refund_id(n), amount: text.map(amount), to, funds, asset, by }
}

/// A transfer of the payer, as in the watcher's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tx(pub(super) ObservedTransfer);

/// Transaction `n`: 10.00 of the due token, 60 s after the start.
pub(super) fn tx(n: u8) -> Tx {
    let key = TransferKey { chain: Chain::Base, tx_hash: hash(n), log_index: 0 };
    let block = BlockRef { number: 100, hash: hash(200), time: at(60) };
    Tx(ObservedTransfer {
        key,
        revision: 1,
        block,
        first_block_time: None,
        from: PAYER,
        token_address: USDC,
        token: Some(Token::Usdc),
        amount: amount("10.00"),
        presence: Presence::Present,
    })
}

impl Tx {
    pub(super) fn of(mut self, text: &str) -> Self {
        self.0.amount = amount(text);
        self
    }
    /// Moves it into a separate block at this time.
    pub(super) fn at(mut self, secs: i64) -> Self {
        self.0.block = BlockRef { number: secs.unsigned_abs(), hash: hash(secs.to_le_bytes()[0]), time: at(secs) };
        self
    }
    pub(super) fn log(mut self, index: u32) -> Self {
        self.0.key.log_index = index;
        self
    }
    pub(super) fn rev(mut self, revision: u32) -> Self {
        self.0.revision = revision;
        self
    }
    pub(super) fn from(mut self, from: Address) -> Self {
        self.0.from = from;
        self
    }
    pub(super) fn gone(mut self) -> Self {
        self.0.presence = Presence::Orphaned;
        self
    }
    pub(super) fn look_alike(mut self) -> Self {
        (self.0.token_address, self.0.token) = (Address([0xbb; 20]), None);
        self
    }
    pub(super) fn on(mut self, chain: Chain) -> Self {
        self.0.key.chain = chain;
        self
    }
    pub(super) fn seen(self) -> Command {
        Command::ObserveTransfer(self.0)
    }
    pub(super) fn finalised(self) -> Command {
        let (key, revision) = (self.0.key, self.0.revision);
        Command::FinaliseTransfer { key, revision, reached: Finality::Finalized }
    }
    pub(super) fn screened(self, decision: Decision) -> Command {
        Command::ScreenTransfer { key: self.0.key, revision: self.0.revision, verdict: verdict(decision) }
    }
    pub(super) fn decided(self, decision: Decision) -> Command {
        let verdict = Verdict { by_operator: true, ..verdict(decision) };
        Command::ScreenTransfer { key: self.0.key, revision: self.0.revision, verdict }
    }
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
    let made = initiate(terms, at(EXPIRY_SECS));
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
        let Some(step) = transition(&self.payment, command, self.now)? else {
            self.last = None;
            return Ok(false);
        };
        assert_eq!(step.payment.version, self.payment.version + 1, "one command, one version");
        assert_eq!(step.violations, [], "after {command:?}");
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
