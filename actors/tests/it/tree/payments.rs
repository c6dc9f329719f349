//! Lifecycle and crashes of payments.

use std::time::Duration;

use alloy::primitives::U256;
use alloy::sol_types::SolCall;
use payferry_contracts::Token;
use payferry_domain::payment::{
    BlockRef, Command, Decision, FailureReason, Label, ObservedTransfer, Status, fixtures, transition,
};
use payferry_domain::{Amount, CommandError};
use payferry_entities::quarantines;
use payferry_evm::wallet::alloy_address;
use payferry_journal::payments::{CommandOutcome, RequestRows, transition_write};
use payferry_journal::psps::Destinations;
use payferry_runtime::observe::ActorKind;

use sea_orm::{EntityTrait, PaginatorTrait};

use crate::env::{Coin, Env};

#[tokio::test(flavor = "multi_thread")]
async fn exact_amount_is_settled_on_chain() {
    let env = Env::new().await;
    let settled = env.initiate_and_settle().await;
    assert_eq!(settled.amount_received(), settled.terms.amount);
    env.assert_settled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_payment_leaves_and_a_late_transfer_wakes_it() {
    let env = Env::new().await;
    let payment = env.initiate("10").await;
    assert_eq!(env.system().observe().payments_live, 1);
    let cancelled = env.system().command(payment.id(), Command::Cancel, None).await.unwrap();
    assert_eq!((cancelled.status, cancelled.failure_reason), (Status::Failed, Some(FailureReason::Cancelled)));
    env.until_payments_live(0).await;
    env.pay(&payment, "10").await;
    let late = env.until_status(payment.id(), Status::Mismatched).await;
    assert!(late.labels.contains(Label::Late));
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_continues_after_a_restart_between_any_two_steps() {
    for gently in [true, false] {
        let mut env = Env::new().await;
        let mut payments = Vec::new();
        for round in 0..3 {
            payments.extend(env.initiate_and_pay(10).await);
            tokio::time::sleep(std::time::Duration::from_millis(60 * round)).await;
            env.restart(gently).await;
        }
        env.until_settled(&payments).await;
        env.assert_settled(30).await;
        env.stop(true).await;
    }
}

/// A whole payment and a speck of dust in one block, in both orders: neither the order of the messages to the actors nor
/// that of their waits decides the outcome.
#[tokio::test(flavor = "multi_thread")]
async fn a_speck_of_dust_in_the_same_block_has_the_same_outcome_for_every_payment() {
    const PAYMENTS: usize = 24;
    let env = Env::new().await;
    for amounts in [[10_000_000_u64, 1_000], [1_000, 10_000_000]] {
        let payments = env.initiate_many(PAYMENTS).await;
        let to = payments.iter().flat_map(|payment| [alloy_address(payment.terms.wallet); 2]).collect();
        let values = amounts.map(U256::from).repeat(PAYMENTS);
        let token = env.chain().coin(Coin::Usdc);
        env.chain().call_as_owner(token, Token::mintBatchCall { to, values }.abi_encode()).await;
        env.until_settled(&payments).await;
        for payment in &payments {
            let settled = env.load(payment.id()).await;
            assert_eq!(settled.labels, [Label::Excess, Label::Multiple].into_iter().collect(), "{amounts:?}");
            let received = [settled.amount_received(), settled.excess_received()].map(Amount::units);
            assert_eq!(received, [10_000_000, 1_000], "{amounts:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_panics_are_forgiven_and_the_fourth_quarantines_until_the_release() {
    let mut env = Env::new().await;
    let (bad, good) = (env.initiate("10").await, env.initiate("10").await);
    for panics in 1..=3 {
        env.system().inject_panic(bad.id());
        env.until_restarts(ActorKind::Payment, panics).await;
    }
    assert_eq!(env.system().observe().payments_quarantined, 0);
    env.system().inject_panic(bad.id());
    env.until("quarantined", async || env.system().is_quarantined(bad.id())).await;
    env.pay(&bad, "10").await;
    env.pay(&good, "10").await;
    env.until_status(good.id(), Status::Settled).await;
    assert_eq!(env.load(bad.id()).await.status, Status::Pending);

    let stored = async |env: &Env| quarantines::Entity::find().count(env.database.reader()).await.unwrap();
    env.until("stored", async || stored(&env).await == 1).await;
    env.restart(true).await;
    let quarantine = env.system().quarantine_of(bad.id()).unwrap();
    assert!(quarantine.reason.contains("on purpose"), "{quarantine:?}");
    let refused = env.system().command(bad.id(), Command::Cancel, None).await;
    assert!(matches!(refused, Err(CommandError::Quarantined)), "{refused:?}");
    assert_eq!(env.load(bad.id()).await.status, Status::Pending);

    assert!(env.release(bad.id()).await);
    env.until_status(bad.id(), Status::Settled).await;
    env.assert_settled(2).await;
    assert_eq!(stored(&env).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_not_refused_for_a_state_that_the_payment_has_left() {
    let env = Env::new().await;
    let pending = env.initiate("10").await;
    // Another node applies a transfer of too little, and the deadline. The actor here still has the pending payment.
    let block = BlockRef { number: 100, time: pending.terms.created_at.plus_secs(1) };
    let token_address = pending.terms.token_address;
    let short = fixtures::Tx(ObservedTransfer { token_address, block, ..fixtures::tx(1).of("4").0 });
    let chain_time = pending.deadline().plus_secs(1);
    let mut payment = pending.clone();
    for command in
        [short.seen(), short.finalised(), short.screened(Decision::Allow), Command::PassDeadline { chain_time }]
    {
        let now = env.clock().now();
        let transition = transition(&payment, &command, now).unwrap().unwrap();
        let rows = RequestRows::default();
        let to = |_| Destinations::default();
        let outcome =
            CommandOutcome { before: &payment, command: &command, transition: &transition, took: Duration::ZERO };
        let write = transition_write(outcome, rows, now, Amount::MAX, to).unwrap();
        env.system().journal().submit(write).await.unwrap();
        payment = transition.payment;
    }
    assert_eq!(payment.status, Status::Mismatched);
    let accept = Command::Accept { expected_received: None };
    let accepted = env.system().command(pending.id(), accept.clone(), None).await.unwrap();
    assert_eq!((accepted.status, accepted.version), (Status::Confirmed, payment.version + 1));
    // Refused by the row itself.
    env.system().command(pending.id(), accept, None).await.unwrap_err();
}
