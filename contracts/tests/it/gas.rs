//! Gas of batches of 50: the whole transaction divided by its items, with Circle's FiatToken behind its proxy and with the
//! test tokens. The figures are in `gas.snapshot`, which is reviewed. `PAYFERRY_UPDATE_GAS=1` writes it.

use std::fmt::Write;
use std::path::Path;

use alloy::primitives::{Address, TxKind};
use payferry_contracts::{
    BATCH_ITEMS_MAX, COLLECT_GROUP_GAS_TYPICAL, COLLECT_ITEM_GAS_TYPICAL, PAYFERRY_DEPLOY_GAS_MAX,
    SEND_ITEM_GAS_TYPICAL, SETTLE_ITEM_GAS_TYPICAL, payferry_init_code, payment_salt, psp_salt,
};
use revm::primitives::hardfork::SpecId;

use crate::env::{ADMIN, BPS, Env, PAYEE, TREASURY, send_item, settle_item, ulid};
use crate::fiat_token;
use crate::payer::{Payer, group};

const ITEMS: u64 = BATCH_ITEMS_MAX as u64;
const AMOUNT: u64 = 123_456_789;
const FEE: u64 = AMOUNT / 100;

/// Returns the gas per settlement of a batch of new vaults that it empties. `psps` PSPs share the batch. They and the
/// treasury already hold some of the token, unless `new_psps`.
fn settle_gas(env: &Env, token: Address, psps: u64, new_psps: bool) -> u64 {
    let mut env = env.clone();
    env.mint(token, TREASURY, 1);
    let mut items = Vec::new();
    for n in 0..ITEMS {
        let (payment, psp) = (format!("pay_{n}"), format!("psp_{}", n % psps));
        let vault = env.vault_of(payment_salt(ulid(&payment), ulid(&psp), BPS));
        env.mint(token, vault, AMOUNT);
        if !new_psps {
            let psp_vault = env.psp_vault(&psp);
            env.mint(token, psp_vault, 1);
        }
        items.push(settle_item(ulid(&format!("set_{n}")), &payment, token, &psp, AMOUNT.into(), FEE.into()));
    }
    let outcome = env.settle(items);
    assert_eq!(outcome.settled().len() as u64, ITEMS, "{outcome:?}");
    outcome.gas_used.div_ceil(ITEMS)
}

/// Returns the gas per payment of a batch for `psps` PSPs, which hold the token. The payers keep some of it.
fn collect_gas(env: &Env, token: Address, psps: u64, contract_holds: bool) -> u64 {
    let mut env = env.clone();
    env.mint(token, TREASURY, 1);
    if contract_holds {
        let factory = env.factory;
        env.mint(token, factory, 1);
    }
    let mut groups = Vec::new();
    for p in 0..psps {
        let psp = format!("psp_{p}");
        let psp_vault = env.psp_vault(&psp);
        env.mint(token, psp_vault, 1);
        let items = (0..ITEMS / psps).map(|n| {
            let payer = Payer::new(&format!("payer_{p}_{n}"));
            env.mint(token, payer.address, 2 * AMOUNT);
            payer.pays(&mut env, token, &format!("pay_{p}_{n}"), &psp, AMOUNT.into())
        });
        let items = items.collect();
        groups.push(group(&psp, token, items));
    }
    let outcome = env.collect(groups, vec![]);
    assert_eq!(outcome.collected().len() as u64, ITEMS, "{outcome:?}");
    outcome.gas_used.div_ceil(ITEMS)
}

/// Returns the gas per outbound transfer from one PSP vault that exists, to 50 recipients without any of the token.
fn send_gas(env: &Env, token: Address) -> u64 {
    let mut env = env.clone();
    let (vault, salt) = (env.psp_vault("psp_1"), psp_salt(ulid("psp_1")));
    env.mint(token, vault, ITEMS * AMOUNT * 2);
    env.send(vec![send_item(1, salt, token, PAYEE, 1)]);
    let to = |n: u64| Address::left_padding_from(&(n + 0x1_0000).to_be_bytes());
    let items: Vec<_> =
        (0..ITEMS).map(|n| send_item(ulid(&format!("out_{n}")), salt, token, to(n), AMOUNT.into())).collect();
    let outcome = env.send(items);
    assert_eq!(outcome.sent().len() as u64, ITEMS, "{outcome:?}");
    outcome.gas_used.div_ceil(ITEMS)
}

/// Returns the gas per outbound transfer from 50 vaults that exist.
fn send_gas_of_50_vaults(env: &Env, token: Address) -> u64 {
    let mut env = env.clone();
    let to = |n: u64| Address::left_padding_from(&(n + 0x1_0000).to_be_bytes());
    let mut items = Vec::new();
    for n in 0..ITEMS {
        let salt = psp_salt(ulid(&format!("psp_{n}")));
        let vault = env.vault_of(salt);
        env.mint(token, vault, AMOUNT * 2);
        env.send(vec![send_item(n.into(), salt, token, PAYEE, 1)]);
        items.push(send_item(ulid(&format!("out_{n}")), salt, token, to(n), AMOUNT.into()));
    }
    let outcome = env.send(items);
    assert_eq!(outcome.sent().len() as u64, ITEMS, "{outcome:?}");
    outcome.gas_used.div_ceil(ITEMS)
}

#[test]
fn gas_is_as_in_the_snapshot_and_within_its_limits() {
    let mut table = String::from("Gas per item in batches of 50, Osaka rules (contracts/tests/it/gas.rs)\n\n");
    let mut env = Env::with_rules(SpecId::OSAKA);
    let fiat = fiat_token::deploy(&mut env);
    let (usdc, usdt) = (env.usdc, env.usdt);
    let mut row = |operation: &str, token: &str, gas: u64, most: u64| {
        writeln!(table, "{operation:<52} {token:<10} {gas:>8}").unwrap();
        assert!(gas <= most, "{operation}, {token}: {gas} gas, at most {most}");
    };
    for (name, token) in [("FiatToken", fiat), ("TestUSDC", usdc), ("TestUSDT", usdt)] {
        row("settle, one PSP", name, settle_gas(&env, token, 1, false), SETTLE_ITEM_GAS_TYPICAL);
        row("settle, 50 PSPs", name, settle_gas(&env, token, ITEMS, false), SETTLE_ITEM_GAS_TYPICAL);
        row("settle, 50 PSPs without any of the token", name, settle_gas(&env, token, ITEMS, true), 110_000);
        if name != "TestUSDT" {
            let both = COLLECT_ITEM_GAS_TYPICAL + COLLECT_GROUP_GAS_TYPICAL;
            row("collect, one PSP", name, collect_gas(&env, token, 1, false), COLLECT_ITEM_GAS_TYPICAL);
            row("collect, 50 PSPs", name, collect_gas(&env, token, ITEMS, false), both);
            row("collect, 50 PSPs, the contract holds one unit", name, collect_gas(&env, token, ITEMS, true), both);
        }
        row("send, one vault that exists, new recipients", name, send_gas(&env, token), SEND_ITEM_GAS_TYPICAL);
        row(
            "send, 50 vaults that exist, new recipients",
            name,
            send_gas_of_50_vaults(&env, token),
            SEND_ITEM_GAS_TYPICAL,
        );
    }
    let deployed = env.transact(ADMIN, TxKind::Create, payferry_init_code(ADMIN), PAYFERRY_DEPLOY_GAS_MAX);
    assert!(deployed.ok && deployed.gas_used * 10 <= PAYFERRY_DEPLOY_GAS_MAX * 9, "{}", deployed.gas_used);
    writeln!(table, "\n{:<63} {:>8}", "deployment", deployed.gas_used).unwrap();

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("gas.snapshot");
    if std::env::var_os("PAYFERRY_UPDATE_GAS").is_some() {
        std::fs::write(&file, &table).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(table, committed, "PAYFERRY_UPDATE_GAS=1 writes gas.snapshot");
}
