//! Operations that the contract reports as done: by their own transaction when an endpoint lags, or with other terms.

use alloy::sol_types::SolCall;
use payferry_contracts::{ITEM_GAS, OperationKind, Payferry, SendItem, psp_salt};
use payferry_devchain::Faults;
use payferry_domain::{Address, OperationId};
use payferry_evm::wallet::alloy_address;

use super::blocking_error::reset_results;
use super::env::Env;
use crate::env::Coin;

const UNITS: u64 = 1_000_000;

#[tokio::test]
async fn contract_refusal_counts_as_done_despite_a_lagging_endpoint() {
    let env = Env::new().await;
    env.start().await;
    let payments = env.paid(1, 10_000_000).await;
    // State that calls return: the funds are present and not settled.
    let shown = env.devchain.head().number;
    env.mine(4).await;
    env.queue_settlements(&payments, 10_000_000).await;
    env.mine_until_all("mined").await;
    let done = env.operation().await.tx_hash;
    assert!(done.is_some());
    env.stop_settler().await;
    reset_results(&env).await;
    let fall_behind = || {
        let head_lag_blocks = env.devchain.head().number - shown;
        env.devchain.set_faults(Faults { methods: vec!["eth_call".to_owned()], head_lag_blocks, ..Faults::default() });
    };
    fall_behind();
    env.settle().await;
    env.mine_until("it is found where it was done", async || {
        fall_behind();
        let row = env.operation().await;
        assert_ne!(row.status.as_str(), "failed", "{row:?}");
        row.status.as_str() == "mined" && row.tx_hash == done
    })
    .await;
    assert_eq!(env.inbox.failed(), 0);
    assert_eq!(env.operation().await.attempts, 2, "it was refused");
    env.assert_settled_once(1, 10_000_000).await;
}

/// A stolen sender's key can use up an id. The transfer then needs the operator: it was not made, and can never be.
#[tokio::test]
async fn an_id_used_up_with_other_terms_is_neither_a_success_nor_a_failure() {
    let env = Env::new().await;
    env.watch().await;
    env.send_money(env.psp_vault(), UNITS * 10).await;
    let (own, other) = (Address([1; 20]), Address([2; 20]));
    env.queue_withdrawals(&[own], UNITS).await;
    let id: OperationId = env.operation().await.id.parse().unwrap();
    let item = SendItem {
        kind: OperationKind::Withdrawal.number(),
        id: id.ulid().0,
        vaultSalt: psp_salt(env.psp.ulid().0),
        token: alloy_address(env.coin(Coin::Usdc)),
        to: alloy_address(other),
        amount: UNITS.into(),
    };
    let call = Payferry::sendCall { items: vec![item], itemGas: ITEM_GAS };
    env.mine(1).await;
    env.call_as("operator", env.spec.contract, call.abi_encode(), 1_000_000).await;
    env.mine(1).await;
    assert_eq!(env.balance(other).await, UNITS);
    // The thief's transfer is not the operation's own, so the ledger has it apart.
    let posted = env.reconcile_sender().await;
    let rows: Vec<_> = posted.iter().map(|one| (one.psp_id.clone(), one.to, one.amount, &one.payment)).collect();
    assert_eq!(rows, [(env.psp.to_string(), other, 1_000_000, &None)]);
    assert!(env.reconcile_sender().await.is_empty(), "it is posted once");
    env.settle().await;
    env.mine_until("it is reported", async || {
        env.handle.blocked_reason().is_some_and(|reason| reason.contains("its own event was not found"))
    })
    .await;
    assert_eq!(env.operation().await.status.as_str(), "submitted");
    assert_eq!(env.balance(own).await, 0);
    assert!(env.inbox.find_outbound(|_, _| Some(())).is_empty());
}
