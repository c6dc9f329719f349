//! The properties that hold in every state, and the oracle of outcomes.
//!
//! "Eventually" is checked where the service is idle: if no step of the service is left, every final fact is applied.
//! `tests::the_service_becomes_idle` shows for three scenarios that the service always becomes idle.

use stateright::Property;

use crate::chain::{Amount, Effect, Event, FINALIZED_BLOCKS, Operation};
use crate::payment::{DUE, Payment, SettlementState, Status, Transfer, TransferState};
use crate::service::Service;
use crate::settler::{OperationRow, OperationStatus};
use crate::state::{PayoutState, State};

/// Name of the first property.
pub const PAYS_ONCE: &str = "each operation pays at most once";
/// Name of the second property.
pub const SETTLES_ONCE: &str = "each payment settles at most once";
/// Name of the third property.
pub const RESERVE: &str = "a reserve is released only if its operation has not paid";
/// Name of the fourth property.
pub const APPLIED: &str = "every final fact is eventually applied";
/// Name of the fifth property.
pub const OUTCOME: &str = "the outcome follows from the order of the chain";

/// All properties.
pub fn all() -> Vec<Property<Service>> {
    vec![
        Property::always(PAYS_ONCE, pays_once),
        Property::always(SETTLES_ONCE, settles_once),
        Property::always(RESERVE, reserves),
        Property::always(APPLIED, |model, state| !is_idle(model, state) || facts_are_applied(model, state)),
        Property::always(OUTCOME, |model, state| !is_idle(model, state) || outcomes_follow(model, state)),
    ]
}

/// True if no step of the service is left.
pub fn is_idle(model: &Service, state: &State) -> bool {
    let mut actions = Vec::new();
    model.service(state, &mut actions);
    actions.is_empty()
}

/// Executed operations of the canonical chain.
fn paid(model: &Service, state: &State) -> Vec<Operation> {
    let paid = |event: &Event| if let Effect::Paid(call) = event.effect { Some(call.operation) } else { None };
    state.chain.events(&model.script).iter().filter_map(paid).collect()
}

fn pays_once(model: &Service, state: &State) -> bool {
    let mut paid = paid(model, state);
    let count = paid.len();
    paid.sort_unstable();
    paid.dedup();
    paid.len() == count
}

fn settles_once(model: &Service, state: &State) -> bool {
    let paid = paid(model, state);
    let settled = |payment| paid.iter().filter(|operation| operation.payment() == Some(payment)).count();
    (0..model.scenario.payments).all(|payment| settled(payment) <= 1)
}

/// A payout that a restored database has lost has no reserve. That is safe while payouts are paused.
fn reserves(model: &Service, state: &State) -> bool {
    let paid = paid(model, state);
    let is_released = |id: &u8| {
        let payout = state.database.payouts.get(id);
        payout.is_none_or(|payout| payout.state == PayoutState::Failed)
    };
    let mut released = (0..state.accepted).filter(is_released);
    !released.any(|id| paid.contains(&Operation::Send(id))) || model.is_paused(state)
}

fn facts_are_applied(model: &Service, state: &State) -> bool {
    let events = state.chain.events(&model.script);
    let payments = (0..).zip(&state.database.payments);
    payments.into_iter().all(|(id, payment)| transfers_are_applied(model, state, &events, id, payment))
        && events.iter().all(|event| execution_is_applied(state, event))
}

/// The payment has exactly the transfers of the canonical chain, and those with finality are final.
fn transfers_are_applied(model: &Service, state: &State, events: &[Event], id: u8, payment: &Payment) -> bool {
    let received = events.iter().filter_map(|event| match event.effect {
        Effect::Received { payment, log, amount } if payment == id => Some((event.number, log, amount)),
        _ => None,
    });
    let received: Vec<_> = received.collect();
    let present = payment.transfers.iter().filter(|(_, transfer)| transfer.is_present());
    let mut listed: Vec<_> = present.map(|(key, t)| (t.number, key.log, t.amount)).collect();
    listed.sort_unstable();
    let is_due = |number| state.database.watcher.reached(number, model.scenario.tier_blocks);
    let is_final = |t: &Transfer| t.state != TransferState::Seen || !is_due(t.number);
    listed == received && payment.transfers.values().all(is_final)
}

/// The owner of an operation has applied its finalized execution.
fn execution_is_applied(state: &State, event: &Event) -> bool {
    let Effect::Paid(call) = event.effect else { return true };
    let is_finalized = state.database.watcher.reached(event.number, FINALIZED_BLOCKS);
    let payment = |id: u8| &state.database.payments[usize::from(id)];
    let is_applied = match call.operation {
        Operation::Settle(id) => payment(id)
            .settlement
            .as_ref()
            .is_some_and(|one| (one.state, one.amount) == (SettlementState::Settled, call.amount)),
        Operation::Collect(id, _) => {
            payment(id).collected == Some(call.amount) && payment(id).status == Status::Settled
        }
        Operation::Send(id) => state.database.payouts.get(&id).is_some_and(|one| one.state == PayoutState::Sent),
    };
    !is_finalized || is_applied
}

fn outcomes_follow(model: &Service, state: &State) -> bool {
    let paid = paid(model, state);
    let events = state.chain.events(&model.script);
    (0..).zip(&state.database.payments).all(|(id, payment)| {
        let is_paid = paid.iter().any(|operation| operation.payment() == Some(id));
        // An orphaned outcome is reported once. If that message is lost, the next outcome corrects the payment.
        let is_submitted = |(operation, row): (&Operation, &OperationRow)| {
            let is_collection = matches!(operation, Operation::Collect(..)) && operation.payment() == Some(id);
            is_collection && row.status == OperationStatus::Submitted
        };
        let is_open = payment.transfers.values().any(|t| t.state == TransferState::Seen)
            || state.database.settler.operations.iter().any(is_submitted);
        let status = match payment.status {
            // Decided before another transfer was orphaned.
            Status::Underpaid if payment.misses_remined() => Status::Pending,
            // A settled payment stays settled while its orphaned settlement is sent again.
            Status::Settled => Status::Confirmed,
            status => status,
        };
        is_paid || is_open || status == oracle(&events, id, payment.misses_remined())
    })
}

/// Status of a payment that the chain has not settled. It depends only on the amounts, in the order of the chain.
fn oracle(events: &[Event], id: u8, misses_remined: bool) -> Status {
    let amounts = events.iter().filter_map(|event| match event.effect {
        Effect::Received { payment, amount, .. } if payment == id => Some(amount),
        _ => None,
    });
    let sums = amounts.scan(0, |sum: &mut Amount, amount| {
        *sum += amount;
        Some(*sum)
    });
    let sums: Vec<Amount> = sums.collect();
    match sums.iter().find(|sum| **sum >= DUE) {
        Some(&DUE) => Status::Confirmed,
        Some(_) => Status::Overpaid,
        None if sums.is_empty() || misses_remined => Status::Pending,
        None => Status::Underpaid,
    }
}
