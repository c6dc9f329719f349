//! The same lifecycle under the rules of each fork, and with each gas limit.

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::{SolCall, SolError};
use payferry_contracts::{ITEM_GAS, ITEM_GAS_MIN, Payferry, psp_salt};
use revm::primitives::hardfork::SpecId;
use revm::state::Bytecode;

use crate::env::{CHAIN_ID, Env, PAYEE, SETTLER, STRANGER, TREASURY, salt, send_item, settle_item, ulid};
use crate::fiat_token;
use crate::payer::{Payer, group};

const RULES: [SpecId; 4] = [SpecId::CANCUN, SpecId::PRAGUE, SpecId::OSAKA, SpecId::AMSTERDAM];

#[test]
fn every_operation_works_under_every_rule_set() {
    for spec in RULES {
        let mut env = Env::with_rules(spec);
        let fiat = fiat_token::deploy(&mut env);
        for (base, token) in [(0, env.usdc), (10, env.usdt), (20, fiat)] {
            let items: Vec<_> = (1..=5)
                .map(|n| {
                    env.fund(token, &format!("pay_{n}"), 1_000);
                    settle_item(base + n, &format!("pay_{n}"), token, "psp_1", 1_000, 10)
                })
                .collect();
            let outcome = env.settle(items);
            assert_eq!(outcome.settled().len(), 5, "{spec:?}: {outcome:?}");
            let outcome = env.send(vec![send_item(base + 1, psp_salt(ulid("psp_1")), token, PAYEE, 500)]);
            assert_eq!(outcome.sent().len(), 1, "{spec:?}: {outcome:?}");
            println!("{spec:?}: {} gas to settle 5", outcome.gas_used);
            if token == env.usdt {
                continue;
            }
            let payer = Payer::new("payer");
            env.mint(token, payer.address, 10_000);
            let items = ["pay_11", "pay_12"].map(|payment| payer.pays(&mut env, token, payment, "psp_2", 1_000));
            let terms = payer.terms(&env, 700);
            let deposit = payer.deposits(&mut env, token, "pay_13", B256::repeat_byte(9), terms);
            let outcome = env.collect(vec![group("psp_2", token, items.into())], vec![deposit]);
            assert_eq!(outcome.collected().len(), 2, "{spec:?}: {outcome:?}");
            assert_eq!((env.psp_balance(token, "psp_2"), env.balance(token, TREASURY)), (1_980, 70));
            assert_eq!(env.vault_balance(token, "pay_13"), 700);
        }
        env.force_coin(STRANGER, 10);
        let vault = env.vault("pay_99");
        assert!(env.transact_with_value(STRANGER, vault.into(), Bytes::new(), 500_000, 10).ok);
        env.admin(&Payferry::sweepNativeCall { vaultSalt: salt("pay_99") });
        assert_eq!(env.coin(TREASURY), 10);
    }
}

/// A batch whose first item, with everything new, uses the most gas of regular items, and that uses all three functions.
fn batches(env: &mut Env, token: Address) -> [Vec<u8>; 3] {
    let items: Vec<_> = (1..=4)
        .map(|n| {
            env.fund(token, &format!("pay_{n}"), 1_000);
            settle_item(n, &format!("pay_{n}"), token, "psp_1", 1_000, 10)
        })
        .collect();
    let vault = env.psp_vault("psp_9");
    env.mint(token, vault, 4_000);
    let sends = (1..=4).map(|n| {
        let to = Address::with_last_byte(0xe0 + u8::try_from(n).unwrap());
        send_item(n, psp_salt(ulid("psp_9")), token, to, 1_000)
    });
    let sends = sends.collect();
    let payer = Payer::new("payer");
    env.mint(token, payer.address, 10_000);
    let groups = ["psp_2", "psp_3"].map(|psp| {
        let items = ["pay_1", "pay_2"].map(|payment| payer.pays(env, token, payment, psp, 1_000));
        group(psp, token, items.into())
    });
    let terms = payer.terms(env, 700);
    let deposits = vec![payer.deposits(env, token, "pay_13", B256::repeat_byte(9), terms)];
    [
        Payferry::settleCall { items, itemGas: env.item_gas() }.abi_encode(),
        Payferry::sendCall { items: sends, itemGas: env.item_gas() }.abi_encode(),
        Payferry::collectCall { groups: groups.into(), deposits, itemGas: env.item_gas() }.abi_encode(),
    ]
}

/// With every gas limit, either everything runs or the batch reverts and moves nothing. An item never fails because of the
/// limit. The transaction itself can also run out of gas, before the contract's first check.
#[test]
fn any_gas_limit_runs_everything_or_reverts() {
    for spec in [SpecId::OSAKA, SpecId::AMSTERDAM] {
        let mut env = Env::with_rules(spec);
        let token = fiat_token::deploy(&mut env);
        let factory = env.factory;
        let batches = batches(&mut env, token);
        let senders = [SETTLER, crate::env::SENDER, SETTLER];
        for (data, sender) in batches.into_iter().zip(senders) {
            let (mut named, mut halted, mut complete) = (0, 0, 0);
            let most = env.item_gas() * 6;
            for gas_limit in (200_000..most).step_by(usize::try_from(most / 307).unwrap()) {
                let mut env = env.clone();
                let outcome = env.transact(sender, factory.into(), data.clone().into(), gas_limit);
                let failures =
                    outcome.settle_failures().len() + outcome.send_failures().len() + outcome.collect_failures().len();
                assert_eq!(failures, 0, "{spec:?}, {gas_limit}: {outcome:?}");
                if outcome.ok {
                    complete += 1;
                } else if Payferry::OutOfGasForItem::abi_decode(&outcome.output).is_ok() {
                    named += 1;
                } else {
                    assert!(outcome.output.is_empty(), "{outcome:?}");
                    halted += 1;
                }
            }
            println!(
                "{spec:?}: {complete} complete, {named} OutOfGasForItem, {halted} out of gas before the first check"
            );
            assert!(complete > 30 && named > 30 && halted < 80);
        }
    }
}

/// The most expensive regular item: nothing exists, every slot is cold and new, the token is behind a proxy.
#[test]
fn the_most_expensive_regular_item_fits_the_lowest_gas_limit() {
    for spec in [SpecId::CANCUN, SpecId::PRAGUE, SpecId::OSAKA] {
        let mut env = Env::with_rules(spec);
        let token = fiat_token::deploy(&mut env);
        env.fund(token, "pay_1", 1_000);
        let items = vec![settle_item(1, "pay_1", token, "psp_1", 1_000, 10)];
        let call = Payferry::settleCall { items, itemGas: ITEM_GAS_MIN };
        let outcome = env.call(SETTLER, env.factory, &call);
        assert_eq!(outcome.settled(), [1], "{outcome:?}");
        println!("{spec:?}: {} gas", outcome.gas_used);
        assert!(outcome.gas_used < ITEM_GAS, "{}", outcome.gas_used);
    }
}

/// A plain account with delegated code (EIP-7702) signs like a contract wallet, as FiatToken 2.2 decides by the code.
#[test]
fn accounts_with_delegated_code_are_validated_as_the_token_does() {
    let mut env = Env::with_rules(SpecId::OSAKA);
    let token = fiat_token::deploy(&mut env);
    let payer = Payer::new("payer");
    env.mint(token, payer.address, 10_000);
    let item = payer.pays(&mut env, token, "pay_1", "psp_1", 1_000);
    // Delegated to code without ERC-1271: this token refuses the account's own signature.
    let delegate = env.usdt;
    env.set_code(payer.address, Bytecode::new_eip7702(delegate));
    let outcome = env.collect(vec![group("psp_1", token, vec![item])], vec![]);
    assert_eq!(outcome.collect_failures().len(), 1);
    assert_eq!(env.balance(token, payer.address), 10_000);
}

#[test]
fn the_nonce_is_of_this_chain() {
    let mut env = Env::new();
    let call = Payferry::collectNonceCall { paymentId: 1, pspVault: PAYEE, maxFeeBps: 1, attempt: 1 };
    let nonce = env.read(env.factory, &call);
    assert_eq!(nonce, payferry_contracts::collect_nonce(CHAIN_ID, env.factory, 1, PAYEE, 1, 1));
    assert_ne!(U256::from_be_bytes(nonce.0), U256::ZERO);
}
