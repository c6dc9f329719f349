//! Misbehaving tokens affect only their own item or group.

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::{SolCall, SolError};
use payferry_contracts::{
    Authorization, BATCH_ITEMS_MAX, CollectGroup, CollectItem, ITEM_GAS, Payferry, Role, Setting, Vault,
    batch_gas_limit,
};

use crate::env::HostileToken::{self, Mode};
use crate::env::{ADMIN, BPS, Env, Outcome, SETTLER, STRANGER, TREASURY, settle_item, ulid};
use crate::payer::{Payer, group};

/// Settles a hostile item between two regular ones.
fn settle_between(env: &mut Env, token: Address) -> Outcome {
    env.fund(env.usdc, "pay_1", 1_000);
    env.fund(env.usdt, "pay_3", 1_000);
    env.fund(token, "pay_2", 1_000);
    let items = vec![
        settle_item(1, "pay_1", env.usdc, "psp_1", 1_000, 10),
        settle_item(2, "pay_2", token, "psp_1", 1_000, 10),
        settle_item(3, "pay_3", env.usdt, "psp_1", 1_000, 10),
    ];
    // Enough for tokens that do other things during a transfer.
    let call = Payferry::settleCall { items, itemGas: 1_000_000 };
    env.call(SETTLER, env.factory, &call)
}

fn set_mode(env: &mut Env, token: Address, mode_: Mode) {
    assert!(env.call(STRANGER, token, &HostileToken::setModeCall { mode_ }).ok);
}

fn set_authorization_mode(env: &mut Env, token: Address, mode_: Mode) {
    assert!(env.call(STRANGER, token, &HostileToken::setAuthorizationModeCall { mode_ }).ok);
}

fn hostile(mode: Mode) -> (Env, Address, Outcome) {
    let mut env = Env::new();
    let token = env.hostile_token();
    set_mode(&mut env, token, mode);
    let outcome = settle_between(&mut env, token);
    assert!(outcome.ok);
    (env, token, outcome)
}

/// A payment that needs no signature, because the hostile token accepts any.
fn unsigned(payment: &str, from: Address, value: u128) -> CollectItem {
    CollectItem {
        paymentId: ulid(payment),
        maxFeeBps: BPS,
        attempt: 1,
        fee: value / 100,
        authorization: Authorization {
            from,
            value,
            validAfter: U256::ZERO,
            validBefore: U256::MAX,
            v: 27,
            r: B256::ZERO,
            s: B256::ZERO,
        },
        signature: Bytes::new(),
    }
}

#[test]
fn hostile_transfers_fail_alone() {
    for mode in [Mode::ReturnFalse, Mode::ReturnTwo, Mode::RevertBomb, Mode::BurnGas] {
        let (mut env, token, outcome) = hostile(mode);
        assert_eq!(outcome.settled(), [1, 3], "mode {}", mode as u8);
        let failures = outcome.settle_failures();
        assert_eq!((failures.len(), failures[0].0), (1, 2));
        assert!(failures[0].1.len() <= 288, "mode {}: a bounded reason", mode as u8);
        assert!(!env.is_settled(2));
        assert_eq!(env.vault_balance(token, "pay_2"), 1_000);
        assert_eq!(env.psp_balance(token, "psp_1"), 0);
        // When the token behaves normally again, the id can be used.
        set_mode(&mut env, token, Mode::Honest);
        assert_eq!(env.settle(vec![settle_item(2, "pay_2", token, "psp_1", 1_000, 10)]).settled(), [2]);
    }
}

#[test]
fn a_long_revert_reason_is_cut_to_160_bytes() {
    let (_, _, outcome) = hostile(Mode::RevertBomb);
    let failed = Payferry::TransferFailed::abi_decode_validate(&outcome.settle_failures()[0].1).unwrap();
    assert_eq!(failed.reason.len(), 160);
}

#[test]
fn a_return_bomb_is_not_copied() {
    let (mut env, token, outcome) = hostile(Mode::ReturnBomb);
    assert_eq!(outcome.settled(), [1, 2, 3]);
    assert_eq!(env.psp_balance(token, "psp_1"), 990);
}

#[test]
fn a_full_batch_of_gas_burners_stays_within_its_gas_limit() {
    let mut env = Env::new();
    let token = env.hostile_token();
    set_mode(&mut env, token, Mode::BurnGas);
    let items: Vec<_> = (0..BATCH_ITEMS_MAX as u128)
        .map(|id| settle_item(id, &format!("pay_{id}"), token, "psp_1", 1_000, 10))
        .collect();
    let outcome = env.settle(items);
    assert_eq!(outcome.settle_failures().len(), BATCH_ITEMS_MAX, "{outcome:?}");
    println!("settle: {} of {} gas", outcome.gas_used, batch_gas_limit(BATCH_ITEMS_MAX, ITEM_GAS));

    // One group whose authorizations all burn their gas, and groups that burn it when they are passed on.
    set_authorization_mode(&mut env, token, Mode::BurnGas);
    let items: Vec<_> = (0..BATCH_ITEMS_MAX).map(|n| unsigned(&format!("pay_{n}"), STRANGER, 1_000)).collect();
    let outcome = env.collect(vec![group("psp_1", token, items)], vec![]);
    assert_eq!(outcome.collect_failures().len(), BATCH_ITEMS_MAX, "{outcome:?}");
    println!("collect: {} gas", outcome.gas_used);
    set_authorization_mode(&mut env, token, Mode::Honest);
    env.mint(token, STRANGER, 1_000_000);
    let groups: Vec<_> = (0..20)
        .map(|n| group(&format!("psp_{n}"), token, vec![unsigned(&format!("pay_{n}"), STRANGER, 1_000)]))
        .collect();
    let outcome = env.collect(groups, vec![]);
    assert_eq!(outcome.collect_failures().len(), 20, "{outcome:?}");
    assert_eq!(env.balance(token, STRANGER), 1_000_000);
}

/// The token calls back during its transfer, in every way that could lead to a second payment.
#[test]
fn re_entrancy_does_not_pay_twice() {
    let mut env = Env::new();
    let token = env.hostile_token();
    let factory = env.factory;
    let vault = env.vault("pay_2");
    let item = settle_item(2, "pay_2", token, "psp_1", 1_000, 10);
    let other = settle_item(9, "pay_2", token, "psp_1", 10, 0);
    let pay =
        Vault::payCall { token, first: token, firstAmount: U256::from(10), second: token, secondAmount: U256::ZERO };
    let collected = CollectGroup { pspId: 1, token, items: vec![unsigned("pay_9", vault, 10)] };
    let attempts: [(Address, Vec<u8>); 5] = [
        (factory, Payferry::settleCall { items: vec![item.clone()], itemGas: ITEM_GAS }.abi_encode()),
        (factory, Payferry::settleItemCall { item }.abi_encode()),
        (factory, Payferry::settleItemCall { item: other }.abi_encode()),
        (factory, Payferry::collectGroupCall { group: collected, itemGas: ITEM_GAS, held: U256::MAX }.abi_encode()),
        (vault, pay.abi_encode()),
    ];
    for (target, payload) in attempts {
        let mut env = env.clone();
        let reenter = HostileToken::setReenterCall { target_: target, payload_: payload.into() };
        assert!(env.call(STRANGER, token, &reenter).ok);
        let outcome = settle_between(&mut env, token);
        assert_eq!(outcome.settled(), [1, 2, 3]);
        assert_eq!(env.read(token, &HostileToken::reentriesCall {}), U256::from(2), "the token called back");
        assert!(!env.read(token, &HostileToken::reenteredCall {}), "and was refused");
        assert_eq!(env.vault_balance(token, "pay_2"), 0);
        assert_eq!(env.psp_balance(token, "psp_1"), 990);
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
    env.admin(&Payferry::grantCall { role: Role::Settler, key: token });
    env.now += 2 * crate::env::DAY_SECS;
    env.admin(&Payferry::enactCall { setting: Setting::Settler, subject: token });
    // The inner call has less gas than an item needs, unless the outer one has more.
    for (item_gas, is_refused) in [(ITEM_GAS, true), (1_000_000, false)] {
        let mut env = env.clone();
        let settle = |gas| -> Bytes {
            let items = vec![settle_item(1, "pay_1", token, "psp_1", 1_000, 0)];
            Payferry::settleCall { items, itemGas: gas }.abi_encode().into()
        };
        let reenter = HostileToken::setReenterCall { target_: factory, payload_: settle(ITEM_GAS) };
        assert!(env.call(STRANGER, token, &reenter).ok);
        let run = HostileToken::runCall { target_: factory, data: settle(item_gas) };
        let outcome = env.call(STRANGER, token, &run);
        assert_eq!(outcome.settled(), [1]);
        assert_eq!(env.read(token, &HostileToken::reentriesCall {}), U256::from(1));
        assert_eq!(env.psp_balance(token, "psp_1"), 1_000);
        assert_eq!(env.vault_balance(token, "pay_1"), 4_000);
        let answer = env.read(token, &HostileToken::answerCall {});
        assert_eq!(Payferry::OutOfGasForItem::abi_decode(&answer).is_ok(), is_refused, "{answer}");
        if !is_refused {
            let already = Payferry::AlreadyDone { kind: 0, id: 1 }.abi_encode();
            assert_eq!(outcome.settle_failures(), [(1, already.into())], "the inner settlement was refused");
        }
    }
}

/// Tokens that were sent to the contract by mistake stay there, whatever the token reports in `collect`.
#[test]
fn collect_never_changes_the_contracts_own_balance() {
    let mut env = Env::new();
    let token = env.hostile_token();
    let factory = env.factory;
    env.mint(token, factory, 5_000);
    env.mint(token, STRANGER, 5_000);
    let payer = Payer::new("payer");
    env.mint(env.usdc, payer.address, 1_000);
    for (mode, authorization_mode) in [
        // Reports a payment that did not happen (like a token that accepts any call), or delivers less.
        (Mode::Honest, Mode::Ignore),
        (Mode::Honest, Mode::TakeFee),
        // Reports passing on that did not happen.
        (Mode::Ignore, Mode::Honest),
        (Mode::ReturnFalse, Mode::Honest),
        (Mode::RevertBomb, Mode::Honest),
    ] {
        let mut env = env.clone();
        set_mode(&mut env, token, mode);
        set_authorization_mode(&mut env, token, authorization_mode);
        let usdc = env.usdc;
        let good = payer.pays(&mut env, usdc, "pay_1", "psp_1", 1_000);
        let bad = vec![unsigned("pay_2", STRANGER, 1_000), unsigned("pay_3", STRANGER, 1_000)];
        let groups = vec![group("psp_1", token, bad), group("psp_1", usdc, vec![good])];
        let outcome = env.collect(groups, vec![]);
        assert_eq!(outcome.collected(), [ulid("pay_1")], "mode {}", mode as u8);
        assert_eq!(outcome.collect_failures().len(), 2);
        assert_eq!((env.balance(token, factory), env.balance(token, STRANGER)), (5_000, 5_000));
        assert_eq!((env.psp_balance(token, "psp_1"), env.balance(token, TREASURY)), (0, 0));
    }
    // An honest one passes.
    let groups = vec![group("psp_1", token, vec![unsigned("pay_2", STRANGER, 1_000)])];
    assert_eq!(env.collect(groups, vec![]).collected(), [ulid("pay_2")]);
    assert_eq!((env.balance(token, factory), env.psp_balance(token, "psp_1")), (5_000, 990));
}

/// A maximum fee above 100 % in one item does not take the share of another item of its group.
#[test]
fn a_fee_above_the_amount_fails_its_item() {
    let mut env = Env::new();
    let token = env.hostile_token();
    env.mint(token, STRANGER, 5_000);
    let greedy = CollectItem { maxFeeBps: 20_000, fee: 200, ..unsigned("pay_1", STRANGER, 100) };
    let groups = vec![group("psp_1", token, vec![greedy, unsigned("pay_2", STRANGER, 1_000)])];
    let outcome = env.collect(groups, vec![]);
    assert_eq!(outcome.collect_failures(), [(ulid("pay_1"), Payferry::FeeTooHigh {}.abi_encode().into())]);
    assert_eq!((env.psp_balance(token, "psp_1"), env.balance(token, TREASURY)), (990, 10));
}

/// The contract copies each group as it stands in the call data. Another order of the groups, or offsets that point
/// elsewhere, fail; they never pay anything else.
#[test]
fn call_data_in_another_order_pays_nothing_else() {
    let mut env = Env::new();
    let (usdc, factory) = (env.usdc, env.factory);
    let payer = Payer::new("payer");
    env.mint(usdc, payer.address, 10_000);
    let groups: Vec<_> = [("pay_1", "psp_1"), ("pay_2", "psp_2")]
        .map(|(payment, psp)| {
            let item = payer.pays(&mut env, usdc, payment, psp, 1_000);
            group(psp, usdc, vec![item])
        })
        .into();
    let data = Payferry::collectCall { groups, deposits: vec![], itemGas: ITEM_GAS }.abi_encode();
    // The two offsets of the groups, swapped.
    let start = 4 + 4 * 32;
    let mut swapped = data.clone();
    swapped[start..start + 32].copy_from_slice(&data[start + 32..start + 64]);
    swapped[start + 32..start + 64].copy_from_slice(&data[start..start + 32]);
    let outcome = env.clone().transact(SETTLER, factory.into(), swapped.into(), 10_000_000);
    assert_eq!(outcome.collected(), [ulid("pay_2"), ulid("pay_1")], "also complete when read to the end");
    for position in (4..data.len()).step_by(32) {
        for value in [0_u8, 1, 0x20, 0x60, 0xff] {
            let mut changed = data.clone();
            changed[position + 31] ^= value;
            let mut env = env.clone();
            let outcome = env.transact(SETTLER, factory.into(), changed.into(), 10_000_000);
            let paid = outcome.collected().len() as u64;
            let received = env.psp_balance(usdc, "psp_1") + env.psp_balance(usdc, "psp_2");
            assert_eq!(received + env.balance(usdc, TREASURY), paid * 1_000, "byte {position} ^ {value}");
            assert_eq!(env.balance(usdc, factory), 0);
        }
    }
}

/// The admin moves no tokens.
#[test]
fn the_admin_cannot_move_tokens() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 1_000);
    let factory = env.factory;
    for data in [
        Payferry::settleCall { items: vec![settle_item(1, "pay_1", env.usdc, "psp_1", 1, 0)], itemGas: ITEM_GAS }
            .abi_encode(),
        Payferry::sendCall { items: vec![], itemGas: ITEM_GAS }.abi_encode(),
        Payferry::collectCall { groups: vec![], deposits: vec![], itemGas: ITEM_GAS }.abi_encode(),
    ] {
        assert!(!env.transact(ADMIN, factory.into(), data.into(), 1_000_000).ok);
    }
    env.admin(&Payferry::sweepNativeCall { vaultSalt: crate::env::salt("pay_1") });
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 1_000);
}
