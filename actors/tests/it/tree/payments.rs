//! Lifecycle and crashes of payments.

use alloy::primitives::U256;
use alloy::sol_types::SolCall;
use payferry_contracts::Token;
use payferry_domain::Amount;
use payferry_domain::payment::{Command, FailureReason, Label, Status};
use payferry_evm::wallet::alloy_address;
use payferry_runtime::observe::ActorKind;

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
async fn three_panics_are_forgiven_and_the_fourth_quarantines() {
    let env = Env::new().await;
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

    assert!(env.system().release(bad.id()));
    env.until_status(bad.id(), Status::Settled).await;
    env.assert_settled(2).await;
}
