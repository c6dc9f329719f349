//! Scenarios. Each is checked with the rules of the service, and again with single rules undone: then the checker must
//! find a counterexample.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::chain::{Number, Operation};
use crate::payment::{DUE, SettlementState, Status};
use crate::properties::{APPLIED, OUTCOME, PAYS_ONCE, RESERVE, SETTLES_ONCE, is_idle};
use crate::scenario::{Budget, PAYOUT, Pause, Rules, Scenario};
use crate::service::Service;
use crate::settler::OperationStatus;
use crate::state::{PayoutState, State};

/// 10.00 and 0.001 to one payment, in two transactions.
fn two_transfers() -> Scenario {
    Scenario {
        payers: vec![vec![(0, DUE)], vec![(0, 1)]],
        budget: Budget { blocks: 3, reorgs: 1, ..Budget::default() },
        reaches: vec![
            ("confirmed, with excess", |_, state| {
                let payment = &state.database.payments[0];
                payment.status == Status::Confirmed && payment.counted() > DUE
            }),
            ("overpaid", |_, state| state.database.payments[0].status == Status::Overpaid),
        ],
        ..Scenario::default()
    }
}

/// The same transfers with screening, crashes and lost messages.
fn interrupted_transfers() -> Scenario {
    Scenario {
        screens: true,
        budget: Budget { blocks: 3, crashes: 1, losses: 1, ..Budget::default() },
        ..two_transfers()
    }
}

/// One transaction that pays two payments.
fn multi_send() -> Scenario {
    Scenario {
        payments: 2,
        payers: vec![vec![(0, DUE), (1, DUE)]],
        budget: Budget { blocks: 2, reorgs: 1, crashes: 1, losses: 1, ..Budget::default() },
        reaches: vec![("mined again under another log index", |model, state| {
            let confirmed = state.database.payments.iter().all(|payment| payment.status == Status::Confirmed);
            let shifted = state.chain.blocks.iter().any(|block| block.first_log > 0 && !block.txs.is_empty());
            confirmed && shifted && is_idle(model, state)
        })],
        ..Scenario::default()
    }
}

/// One transfer and its settlement.
fn settlement() -> Scenario {
    Scenario {
        payers: vec![vec![(0, DUE)]],
        settles: true,
        attempts_max: 2,
        reorg_blocks_max: 2,
        budget: Budget { blocks: 4, reorgs: 1, crashes: 1, losses: 1, ..Budget::default() },
        reaches: vec![
            ("settled", |_, state| state.database.payments[0].status == Status::Settled),
            ("settled, and orphaned", |_, state| {
                let settlement = state.database.payments[0].settlement.as_ref();
                let is_queued = settlement.is_some_and(|one| one.state == SettlementState::Queued);
                state.database.payments[0].status == Status::Settled && is_queued
            }),
        ],
        ..Scenario::default()
    }
}

/// A settlement with a restore of an older database.
fn restored_settlement() -> Scenario {
    Scenario {
        budget: Budget { blocks: 6, restores: 1, ..Budget::default() },
        reorg_blocks_max: 1,
        attempts_max: 1,
        reaches: vec![("executed before the restore, found and applied", |_, state| {
            let is_settled = state.database.payments[0].status == Status::Settled;
            is_settled && state.database.settler.txs.is_empty()
        })],
        ..settlement()
    }
}

/// Two payouts from a balance that covers one, and a restore of an older database.
fn payouts() -> Scenario {
    Scenario {
        payments: 0,
        settles: true,
        psp_balance: PAYOUT,
        reorg_blocks_max: 2,
        budget: Budget { blocks: 4, reorgs: 1, restores: 1, payouts: 2, ..Budget::default() },
        reaches: vec![
            ("failed, and the other one sent", |_, state| {
                let payouts = &state.database.payouts;
                let of = |wanted| payouts.values().any(|payout| payout.state == wanted);
                of(PayoutState::Failed) && of(PayoutState::Sent)
            }),
            ("sent before the restore, and reconciled", |_, state| {
                let is_sent = state.database.payouts.values().any(|payout| payout.state == PayoutState::Sent);
                is_sent && !state.database.settler.reconciled.is_empty()
            }),
        ],
        ..Scenario::default()
    }
}

/// One payment whose payer signs and sends by hand.
fn authorization() -> Scenario {
    Scenario {
        payers: vec![vec![(0, DUE)]],
        settles: true,
        elsewhere: true,
        valid_before: 3,
        budget: Budget { blocks: 4, reorgs: 1, authorizations: 1, ..Budget::default() },
        reaches: vec![
            ("collected, with the transfer by hand as excess", |_, state| {
                let payment = &state.database.payments[0];
                payment.collected.is_some() && payment.counted() == DUE
            }),
            ("used elsewhere or expired, and settled by the transfer", |_, state| {
                let status = state.database.settler.status(Operation::Collect(0, 0));
                status == Some(OperationStatus::Failed) && state.database.payments[0].status == Status::Settled
            }),
        ],
        ..Scenario::default()
    }
}

/// An authorization while messages are lost and the process crashes.
fn interrupted_authorization() -> Scenario {
    Scenario {
        payers: Vec::new(),
        budget: Budget { blocks: 5, reorgs: 1, crashes: 1, losses: 1, authorizations: 2, ..Budget::default() },
        reaches: vec![("the second attempt is collected", |_, state| {
            state.database.settler.status(Operation::Collect(0, 1)) == Some(OperationStatus::Succeeded)
        })],
        valid_before: Number::MAX,
        ..authorization()
    }
}

fn holds(name: &str, scenario: Scenario) {
    let begun = Instant::now();
    let checker = Service::new(scenario).checker().spawn_bfs().join();
    let (states, steps) = (checker.unique_state_count(), checker.state_count());
    println!("{name}: {states} states, {steps} steps, depth {}, {:?}", checker.max_depth(), begun.elapsed());
    checker.assert_properties();
}

/// With the undone rule, the checker finds a counterexample of the property.
fn finds(property: &'static str, scenario: Scenario, undo: impl FnOnce(&mut Rules)) {
    let mut scenario = scenario;
    undo(&mut scenario.rules);
    let enough = HasDiscoveries::AllOf([property].into_iter().collect());
    let checker = Service::new(scenario).checker().finish_when(enough).spawn_bfs().join();
    let steps = checker.discovery(property).expect("a counterexample").into_actions();
    println!("{property}: after {} states\n{steps:#?}", checker.unique_state_count());
}

#[test]
fn two_transfers_hold() {
    holds("two transfers", two_transfers());
}

#[test]
fn interrupted_transfers_hold() {
    holds("interrupted transfers", interrupted_transfers());
}

#[test]
fn multi_send_holds() {
    holds("multi-send", multi_send());
}

#[test]
fn settlement_holds() {
    holds("settlement", settlement());
}

#[test]
fn restored_settlement_holds() {
    holds("settlement and restore", restored_settlement());
}

#[test]
fn payouts_hold() {
    holds("payouts and restore", payouts());
}

#[test]
fn authorization_holds() {
    holds("authorization", authorization());
}

#[test]
fn interrupted_authorization_holds() {
    holds("interrupted authorization", interrupted_authorization());
}

/// Final transfers of one advance are applied one by one, in any order.
#[test]
fn delivery_order_that_decides_outcomes_is_found() {
    finds(OUTCOME, two_transfers(), |rules| rules.final_together = false);
}

/// A row changes its owner when log indexes shift, and the crash loses the message of the orphaned block.
#[test]
fn transfer_key_without_its_block_is_found() {
    finds(APPLIED, multi_send(), |rules| rules.block_in_key = false);
}

/// A payment takes a transfer as final without reading that it was orphaned.
#[test]
fn finality_before_recorded_rows_is_found() {
    finds(OUTCOME, two_transfers(), |rules| rules.reads_recorded = false);
}

#[test]
fn contract_that_executes_an_operation_twice_is_found() {
    let rich = Scenario { psp_balance: 2 * PAYOUT, ..payouts() };
    finds(PAYS_ONCE, rich, |rules| rules.once_only = false);
}

/// Without the pause, nothing is paid twice, but the balance of a payout that was sent before the restore is available.
#[test]
fn restore_without_a_pause_is_found() {
    finds(RESERVE, payouts(), |rules| rules.pause = Pause::Never);
}

#[test]
fn failure_in_a_block_that_may_be_orphaned_is_found() {
    finds(RESERVE, payouts(), |rules| rules.fails_when_finalized = false);
}

#[test]
fn settlement_beside_a_submitted_authorization_is_found() {
    finds(SETTLES_ONCE, authorization(), |rules| rules.waits_for_collection = false);
}

/// No sequence of steps returns to an earlier state. The environment's steps are limited, so the service becomes idle,
/// and the properties of idle states say what eventually happens.
#[test]
fn the_service_becomes_idle() {
    for scenario in [interrupted_transfers(), restored_settlement(), interrupted_authorization()] {
        assert_acyclic(&Service::new(scenario));
    }
}

/// Searches depth first. A state that is reached again while it is on the path closes a cycle.
fn assert_acyclic(model: &Service) {
    let (mut done, mut on_path) = (HashSet::new(), HashSet::new());
    let mut path: Vec<(u64, Vec<State>)> = Vec::new();
    let mut unvisited = model.init_states();
    while let Some(state) = unvisited.pop() {
        let hash = fingerprint(&state);
        assert!(!on_path.contains(&hash), "a cycle through {state:#?}");
        if done.insert(hash) {
            on_path.insert(hash);
            path.push((hash, std::mem::replace(&mut unvisited, model.next_states(&state))));
        }
        while unvisited.is_empty()
            && let Some((finished, rest)) = path.pop()
        {
            on_path.remove(&finished);
            unvisited = rest;
        }
    }
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
