//! Checks that the model's payment and `payferry_domain::payment` agree, in every order of facts that leads to another
//! state of the model.
//!
//! Both take each command. Then status, transfers, settlement and operation changes must be equal. Two states are the same
//! if the model's payments are the same. Not here: collections, which the domain does not implement yet.

use std::hash::{Hash, Hasher};

use payferry_domain::payment::fixtures::{START, Tx, at, hash, terms, tx};
use payferry_domain::payment::{
    self as domain, Decision, Label, OperationAction, OperationBody, Requester, TransferFinality, TransferStatus,
};
use payferry_domain::{Amount as Units, Finality, OperationId};
use stateright::{Checker, Model, Property};

use crate::chain::{Amount, BlockHash, Number};
use crate::payment::{
    Command, Key, Observed, OperationChange, Outcome, Payment, PaymentRules, SettlementState, Status, TransferState,
};

const RULES: PaymentRules = PaymentRules { holds_back: true, waits_for_collection: true, screens: true };
/// Newest revision of the settlement's row.
const SETTLEMENT_REVISIONS_MAX: u8 = 2;

/// A transfer of the payer: transaction, block, log index and amount.
#[derive(Clone, Copy, Debug)]
struct Sent(u8, Number, u8, Amount);

impl Sent {
    fn key(self) -> Key {
        let Self(tx, number, log, _) = self;
        Key { block: BlockHash(number), tx, log }
    }

    fn in_domain(self) -> Tx {
        let Self(n, number, log, amount) = self;
        let mut sent = tx(n).at(i64::from(number)).log(log.into());
        sent.0.amount = units(amount);
        sent
    }
}

fn units(amount: Amount) -> Units {
    Units::from_units(i64::from(amount) * 1_000)
}

/// The same payment in the model and in the domain.
#[derive(Clone, Debug)]
struct Pair {
    model: Payment,
    domain: Box<domain::Payment>,
    agrees: bool,
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        (&self.model, self.agrees) == (&other.model, other.agrees)
    }
}

impl Hash for Pair {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.model, self.agrees).hash(hasher);
    }
}

/// All orders of the facts about these transfers and, with `settles`, about the settlement.
struct Deliveries {
    sent: Vec<Sent>,
    settles: bool,
}

impl Deliveries {
    fn sent(&self, key: Key) -> Sent {
        *self.sent.iter().find(|sent| sent.key() == key).expect("a command names a transfer of the scenario")
    }

    fn in_domain(&self, command: &Command) -> domain::Command {
        let operation = OperationId::settlement_of(terms().id);
        match command {
            Command::Observe(Observed { key, revision, is_present, .. }) => {
                let row = self.sent(*key).in_domain().rev((*revision).into());
                if *is_present { row.seen() } else { row.gone().seen() }
            }
            Command::Screen(key) => self.sent(*key).in_domain().screened(Decision::Allow),
            Command::Finalise(reached) => {
                let reached = reached.iter().map(|(key, revision)| TransferFinality {
                    key: self.sent(*key).in_domain().0.key,
                    revision: (*revision).into(),
                    reached: Finality::Finalized,
                });
                domain::Command::FinaliseTransfers(reached.collect())
            }
            Command::Settlement(revision, outcome) => {
                let (revision, tx_hash) = ((*revision).into(), hash(90));
                match outcome {
                    Outcome::Completed(amount) => {
                        let (amount, block_time) = (units(*amount), at(100));
                        domain::Command::CompleteSettlement { operation, revision, amount, tx_hash, block_time }
                    }
                    Outcome::Failed => {
                        domain::Command::FailSettlement { operation, revision, reason: "refused".to_owned() }
                    }
                    Outcome::Orphaned => domain::Command::OrphanSettlement { operation, revision },
                }
            }
            Command::Retry => domain::Command::RetrySettlement { by: Requester::Schedule },
            Command::Collection(..) | Command::SubmitCollection => unreachable!("the domain has no collections"),
        }
    }
}

/// Status, transfers and settlement, in the model's terms.
type View = (Status, Vec<(u8, TransferState, bool, bool)>, Option<(SettlementState, u8, Units)>);

fn model_view(payment: &Payment) -> View {
    let transfers = payment.transfers.values().map(|t| (t.revision, t.state, t.is_counted, t.is_excess)).collect();
    let settlement = payment.settlement.as_ref().map(|one| (one.state, one.revision, units(one.amount)));
    (payment.status, transfers, settlement)
}

fn domain_view(payment: &domain::Payment) -> View {
    let status = match payment.status {
        domain::Status::Pending => Status::Pending,
        domain::Status::Mismatched if payment.labels.contains(Label::Underpaid) => Status::Underpaid,
        domain::Status::Mismatched => Status::Overpaid,
        domain::Status::Confirmed => Status::Confirmed,
        domain::Status::Settled => Status::Settled,
        domain::Status::Failed => unreachable!("no scenario fails a payment"),
    };
    let state = |transfer: &domain::Transfer| match transfer.status {
        TransferStatus::Seen => TransferState::Seen,
        TransferStatus::Final => TransferState::Final,
        TransferStatus::Orphaned => TransferState::Orphaned,
        TransferStatus::Ignored => unreachable!("no amount is below the dust floor"),
    };
    let small = |revision: u32| u8::try_from(revision).unwrap_or(u8::MAX);
    let mut transfers: Vec<_> = payment.transfers.iter().collect();
    transfers.sort_by_key(|t| (t.block.number, t.key.tx_hash, t.key.log_index));
    let settlement = payment.settlement.as_deref().map(|one| {
        let state = match one.state {
            domain::SettlementState::Queued => SettlementState::Queued,
            domain::SettlementState::Settled => SettlementState::Settled,
            domain::SettlementState::Failed => SettlementState::Failed,
            domain::SettlementState::Withdrawn => SettlementState::Withdrawn,
        };
        (state, small(one.revision), one.amount)
    });
    (status, transfers.iter().map(|t| (small(t.revision), state(t), t.counted, t.excess)).collect(), settlement)
}

/// Changes of the operation in the domain, in the model's terms.
fn domain_changes(transition: Option<&domain::Transition>) -> Vec<Option<Units>> {
    let operations = transition.map(|transition| transition.operations.as_slice()).unwrap_or_default();
    let amount = |body| if let OperationBody::Settle { amount, .. } = body { Some(amount) } else { None };
    let change = |one: &domain::NewOperation| match one.action {
        OperationAction::Queue | OperationAction::Requeue => amount(one.body),
        OperationAction::Cancel => None,
    };
    operations.iter().map(change).collect()
}

fn model_changes(changes: &[OperationChange]) -> Vec<Option<Units>> {
    let change = |change: &OperationChange| match change {
        OperationChange::Queue(amount) => Some(units(*amount)),
        OperationChange::Cancel => None,
    };
    changes.iter().map(change).collect()
}

impl Model for Deliveries {
    type State = Pair;
    type Action = Command;

    fn init_states(&self) -> Vec<Pair> {
        let domain = domain::initiate(terms(), at(1_200)).expect("the terms are valid").payment;
        vec![Pair { model: Payment::default(), domain: Box::new(domain), agrees: true }]
    }

    fn actions(&self, state: &Pair, actions: &mut Vec<Command>) {
        let transfers = &state.model.transfers;
        for sent in &self.sent {
            let (key, Sent(_, number, _, amount)) = (sent.key(), *sent);
            let known = transfers.get(&key).map_or(0, |transfer| transfer.revision);
            // The second revision orphans the transfer. The first may arrive late.
            for revision in 1..=2 {
                let observed = Observed { key, revision, number, amount, is_present: revision == 1 };
                actions.push(Command::Observe(observed));
            }
            if known > 0 {
                actions.extend([Command::Screen(key), Command::Finalise(vec![(key, 1)])]);
            }
        }
        let all: Vec<_> = transfers.keys().map(|key| (*key, 1)).collect();
        actions.push(Command::Finalise(all));
        if let Some(settlement) = state.model.settlement.as_ref().filter(|_| self.settles) {
            let revision = settlement.revision + 1;
            if revision <= SETTLEMENT_REVISIONS_MAX {
                let outcomes = [Outcome::Completed(settlement.amount), Outcome::Failed, Outcome::Orphaned];
                actions.extend(outcomes.map(|outcome| Command::Settlement(revision, outcome)));
            }
            actions.push(Command::Retry);
        }
    }

    fn next_state(&self, state: &Pair, command: Command) -> Option<Pair> {
        let mut next = state.clone();
        let changes = next.model.apply(RULES, &command);
        let transition = domain::transition(&state.domain, &self.in_domain(&command), START);
        let Ok(transition) = transition else { return Some(Pair { agrees: false, ..next }) };
        next.agrees = model_changes(&changes) == domain_changes(transition.as_ref());
        if let Some(transition) = transition {
            *next.domain = transition.payment;
        }
        next.agrees &= model_view(&next.model) == domain_view(&next.domain);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("the model and the domain agree", |_, state: &Pair| state.agrees)]
    }
}

fn check(sent: &[Sent], settles: bool) {
    let checker = Deliveries { sent: sent.to_vec(), settles }.checker().spawn_bfs().join();
    println!("{sent:?}: {} states, {} steps", checker.unique_state_count(), checker.state_count());
    checker.assert_properties();
}

#[test]
fn whole_amount_and_a_speck_of_dust() {
    check(&[Sent(1, 1, 0, 10_000), Sent(2, 1, 1, 1)], true);
}

#[test]
fn two_parts_of_which_one_is_mined_again() {
    check(&[Sent(1, 1, 0, 4_000), Sent(2, 1, 1, 6_000), Sent(1, 2, 0, 4_000)], false);
}

#[test]
fn whole_amount_that_is_mined_again_after_a_part() {
    check(&[Sent(1, 1, 0, 10_000), Sent(2, 1, 1, 1), Sent(1, 2, 1, 10_000)], false);
}
