//! Misbehaving tokens affect only their own item.

use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::{SolCall, SolError};
use payferry_contracts::{BATCH_ITEMS_MAX, Payferry, Vault, batch_gas_limit};

use crate::env::HostileToken::{self, Mode};
use crate::env::{ADMIN, Env, Outcome, STRANGER, settle_item};

/// Settles a hostile item between two regular ones.
fn settle_between(env: &mut Env, token: Address) -> Outcome {
    env.fund(env.usdc, "pay_1", 1_000);
    env.fund(env.usdt, "pay_3", 1_000);
    env.fund(token, "pay_2", 1_000);
    let items = vec![
        settle_item(1, "pay_1", env.usdc, "psp_1", 990, 10),
        settle_item(2, "pay_2", token, "psp_1", 990, 10),
        settle_item(3, "pay_3", env.usdt, "psp_1", 990, 10),
    ];
    env.settle(items)
}

fn hostile(mode: Mode) -> (Env, Address, Outcome) {
    let mut env = Env::new();
    let token = env.hostile_token();
    assert!(env.call(STRANGER, token, &HostileToken::setModeCall { mode_: mode }).ok);
    let outcome = settle_between(&mut env, token);
    assert!(outcome.ok);
    (env, token, outcome)
}

#[test]
fn hostile_transfers_fail_alone() {
    for mode in [Mode::ReturnFalse, Mode::ReturnTwo, Mode::RevertBomb, Mode::BurnGas] {
        let (mut env, token, outcome) = hostile(mode);
        assert_eq!(outcome.settled(), [1, 3], "mode {}", mode as u8);
        let failures = outcome.settle_failures();
        assert_eq!((failures.len(), failures[0].0), (1, 2));
        assert!(failures[0].1.len() <= 288, "mode {}: a bounded reason", mode as u8);
        assert!(!env.is_done(2));
        assert_eq!(env.vault_balance(token, "pay_2"), 1_000);
        assert_eq!(env.vault_balance(token, "psp_1"), 0);
        // When the token behaves normally again, the operation number can be used.
        assert!(env.call(STRANGER, token, &HostileToken::setModeCall { mode_: Mode::Honest }).ok);
        let retried = env.settle(vec![settle_item(2, "pay_2", token, "psp_1", 990, 10)]);
        assert_eq!(retried.settled(), [2]);
    }
}

#[test]
fn a_long_revert_reason_is_cut_to_160_bytes() {
    let (_, _, outcome) = hostile(Mode::RevertBomb);
    let failed = Vault::TransferFailed::abi_decode_validate(&outcome.settle_failures()[0].1).unwrap();
    assert_eq!(failed.reason.len(), 160);
}

#[test]
fn a_return_bomb_is_not_copied() {
    let (mut env, token, outcome) = hostile(Mode::ReturnBomb);
    assert_eq!(outcome.settled(), [1, 2, 3]);
    assert_eq!(env.vault_balance(token, "psp_1"), 990);
}

#[test]
fn a_full_batch_of_gas_burners_stays_within_its_gas_limit() {
    let mut env = Env::new();
    let token = env.hostile_token();
    assert!(env.call(STRANGER, token, &HostileToken::setModeCall { mode_: Mode::BurnGas }).ok);
    let items: Vec<_> = (0..BATCH_ITEMS_MAX as u64)
        .map(|number| settle_item(number, &format!("pay_{number}"), token, "psp_1", 990, 10))
        .collect();
    let outcome = env.settle(items);
    assert!(outcome.ok, "{outcome:?}");
    assert_eq!(outcome.settle_failures().len(), BATCH_ITEMS_MAX);
    println!("{} of {} gas", outcome.gas_used, batch_gas_limit(BATCH_ITEMS_MAX));
}

/// The token calls back during its transfer, in every way that could lead to a second payment.
#[test]
fn re_entrancy_does_not_pay_twice() {
    let mut env = Env::new();
    let token = env.hostile_token();
    let factory = env.factory;
    let vault = env.vault("pay_2");
    let item = settle_item(2, "pay_2", token, "psp_1", 990, 10);
    let other = settle_item(9, "pay_2", token, "psp_2", 10, 0);
    let pay =
        Vault::payCall { token, first: token, firstAmount: U256::from(10), second: token, secondAmount: U256::ZERO };
    let attempts: [(Address, Vec<u8>); 4] = [
        (factory, Payferry::settleCall { items: vec![item.clone()] }.abi_encode()),
        (factory, Payferry::settleItemCall { item }.abi_encode()),
        (factory, Payferry::settleItemCall { item: other }.abi_encode()),
        (vault, pay.abi_encode()),
    ];
    for (target, payload) in attempts {
        let mut env = env.clone();
        let reenter = HostileToken::setReenterCall { target_: target, payload_: payload.into() };
        assert!(env.call(STRANGER, token, &reenter).ok);
        let outcome = settle_between(&mut env, token);
        assert_eq!(outcome.settled(), [1, 2, 3]);
        assert_eq!(env.read(token, &HostileToken::reentriesCall {}), U256::from(2), "the token called back");
        assert_eq!(env.vault_balance(token, "pay_2"), 0);
        assert_eq!(env.vault_balance(token, "psp_1"), 990);
        assert_eq!(env.vault_balance(token, "psp_2"), 0);
        assert_eq!(env.balance(token, token), 0);
    }
}

/// Worst case: the token itself has the settler role, so that its call is accepted.
#[test]
fn re_entrancy_with_the_settler_role_settles_nothing_twice() {
    let mut env = Env::new();
    let token = env.hostile_token();
    let factory = env.factory;
    env.fund(token, "pay_1", 5_000);
    assert!(env.call(ADMIN, factory, &Payferry::setSettlerCall { settler_: token }).ok);
    let settle: Bytes =
        Payferry::settleCall { items: vec![settle_item(1, "pay_1", token, "psp_1", 990, 0)] }.abi_encode().into();
    let reenter = HostileToken::setReenterCall { target_: factory, payload_: settle.clone() };
    assert!(env.call(STRANGER, token, &reenter).ok);
    let run = HostileToken::runCall { target_: factory, data: settle };
    let outcome = env.call(STRANGER, token, &run);
    assert_eq!(outcome.settled(), [1]);
    assert_eq!(env.read(token, &HostileToken::reentriesCall {}), U256::from(1));
    assert_eq!(env.vault_balance(token, "psp_1"), 990);
    assert_eq!(env.vault_balance(token, "pay_1"), 4_010);
    // The gas of an item is less than a nested batch requires, so the nested batch does not start.
    let answer = env.read(token, &HostileToken::answerCall {});
    assert!(Payferry::OutOfGasForItem::abi_decode(&answer).is_ok(), "{answer}");
}
