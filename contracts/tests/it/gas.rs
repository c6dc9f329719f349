//! Gas of settlements and outbound transfers: the whole transaction divided by its items. `--nocapture` prints the
//! table.

use alloy::primitives::{Address, TxKind};
use alloy::sol_types::SolValue;
use payferry_contracts::{PAYFERRY_DEPLOY_GAS_MAX, SEND_ITEM_GAS_TYPICAL, SETTLE_ITEM_GAS_TYPICAL, payferry_init_code};

use crate::env::{ADMIN, Env, PAYEE, SENDER, SETTLER, TREASURY, send_item, settle_item};

const ITEMS: u64 = 50;
const AMOUNT: u64 = 123_456_789;
const FEE: u64 = AMOUNT / 100;

/// Returns the gas per settlement of a batch of new vaults that it empties. `psps` PSPs share the batch. They and the
/// treasury already hold some of the token, unless `new_psps`.
fn settle_gas(env: &Env, token: Address, psps: u64, new_psps: bool) -> u64 {
    let mut env = env.clone();
    env.mint(token, TREASURY, 1);
    let mut items = Vec::new();
    for number in 0..ITEMS {
        let (id, psp) = (format!("pay_{number}"), format!("psp_{}", number % psps));
        env.fund(token, &id, AMOUNT);
        if !new_psps {
            env.fund(token, &psp, 1);
        }
        // Operation numbers as in a system that has run for some time.
        items.push(settle_item(1_000_000 + number, &id, token, &psp, AMOUNT - FEE, FEE));
    }
    let outcome = env.settle(items);
    assert_eq!(outcome.settled().len() as u64, ITEMS);
    outcome.gas_used.div_ceil(ITEMS)
}

fn send_gas(env: &Env, token: Address) -> u64 {
    let mut env = env.clone();
    env.fund(token, "psp_1", ITEMS * AMOUNT * 2);
    env.send(vec![send_item(0, "psp_1", token, PAYEE, 1)]);
    let to = |n: u64| Address::left_padding_from(&(n + 0x1_0000).to_be_bytes());
    let items: Vec<_> = (0..ITEMS).map(|n| send_item(1_000_000 + n, "psp_1", token, to(n), AMOUNT)).collect();
    let outcome = env.send(items);
    assert_eq!(outcome.logs.len() as u64, 2 * ITEMS);
    outcome.gas_used.div_ceil(ITEMS)
}

#[test]
fn a_settlement_costs_at_most_65_000_gas() {
    let mut env = Env::new();
    let (usdc, usdt) = (env.usdc, env.usdt);
    let proxy = include_str!("../../artifacts/test/TokenProxy.json");
    let usdc_behind_proxy = env.create_test_contract(proxy, &usdc.abi_encode());
    for (name, token) in [("USDC-like", usdc), ("USDT-like", usdt), ("USDC-like behind a proxy", usdc_behind_proxy)] {
        let one_psp = settle_gas(&env, token, 1, false);
        let fifty_psps = settle_gas(&env, token, ITEMS, false);
        let new_psps = settle_gas(&env, token, ITEMS, true);
        println!("settle, {name}: {one_psp} gas (one PSP), {fifty_psps} (50 PSPs), {new_psps} (50 new PSPs)");
        assert!(one_psp <= SETTLE_ITEM_GAS_TYPICAL, "{name}: {one_psp}");
        assert!(fifty_psps <= SETTLE_ITEM_GAS_TYPICAL, "{name}: {fifty_psps}");
    }
}

#[test]
fn an_outbound_transfer_costs_at_most_its_documented_gas() {
    let env = Env::new();
    for (name, token) in [("USDC-like", env.usdc), ("USDT-like", env.usdt)] {
        let gas = send_gas(&env, token);
        println!("send, {name}: {gas} gas (one PSP vault, 50 receivers without any of the token)");
        assert!(gas <= SEND_ITEM_GAS_TYPICAL, "{name}: {gas}");
    }
}

#[test]
fn deployment_fits_its_gas_limit() {
    let mut env = Env::new();
    let init_code = payferry_init_code(ADMIN, SETTLER, SENDER, TREASURY);
    let outcome = env.transact(ADMIN, TxKind::Create, init_code, PAYFERRY_DEPLOY_GAS_MAX);
    println!("deployment: {} gas", outcome.gas_used);
    assert!(outcome.ok && outcome.gas_used * 10 <= PAYFERRY_DEPLOY_GAS_MAX * 9);
}
