//! Settlements and outbound transfers: each succeeds at most once, and each item is atomic and independent.

use alloy::primitives::{Address, U256};
use alloy::sol_types::{SolCall, SolError, SolInterface};
use payferry_contracts::{
    ITEM_GAS_MAX, ItemError, Payferry, TestUSDC, TestUSDT, Vault, batch_gas_limit, describe_reason, salt_of,
};

use crate::env::{ADMIN, Env, MINTER, PAYEE, SENDER, SETTLER, STRANGER, TREASURY, send_item, settle_item};

#[test]
fn a_settlement_pays_the_psp_vault_and_the_treasury() {
    for token_of in [|w: &Env| w.usdc, |w: &Env| w.usdt] {
        let mut env = Env::new();
        let token = token_of(&env);
        env.fund(token, "pay_1", 1_000);
        let outcome = env.settle(vec![settle_item(7, "pay_1", token, "psp_1", 990, 10)]);
        assert!(outcome.ok);
        assert_eq!(
            outcome.events::<Payferry::Settled>(),
            [Payferry::Settled {
                number: U256::from(7),
                vaultSalt: salt_of("pay_1"),
                pspSalt: salt_of("psp_1"),
                token,
                pspAmount: U256::from(990),
                treasuryFee: U256::from(10),
            }]
        );
        assert_eq!(env.vault_balance(token, "pay_1"), 0);
        assert_eq!(env.vault_balance(token, "psp_1"), 990);
        assert_eq!(env.balance(token, TREASURY), 10);
        assert!(env.is_done(7));
        assert!(!env.is_done(6) && !env.is_done(8) && !env.is_done(7 + 256));
    }
}

#[test]
fn a_settlement_without_a_fee_does_not_pay_the_treasury() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 1_000);
    let outcome = env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 1_000, 0)]);
    assert_eq!(outcome.events::<payferry_contracts::Token::Transfer>().len(), 1);
    assert_eq!(env.vault_balance(env.usdc, "psp_1"), 1_000);
}

#[test]
fn an_item_without_amount_fails_and_its_number_stays_usable() {
    let mut env = Env::new();
    let outcome = env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 0, 0)]);
    assert_eq!(outcome.settle_failures(), [(1, Payferry::NothingToMove {}.abi_encode().into())]);
    assert!(!env.is_done(1));
}

#[test]
fn a_repeated_number_moves_nothing_and_reports_the_reason() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 3_000);
    let item = settle_item(5, "pay_1", env.usdc, "psp_1", 990, 10);
    // Twice in one batch, later again, and as an outbound transfer: settlements and outbound transfers share the
    // numbers.
    let first = env.settle(vec![item.clone(), item.clone()]);
    let again = env.settle(vec![item]);
    let sent = env.send(vec![send_item(5, "pay_1", env.usdc, PAYEE, 100)]);
    let already = Payferry::AlreadyDone { number: U256::from(5) }.abi_encode();
    assert_eq!(first.settled(), [5]);
    assert_eq!(first.settle_failures(), [(5, already.clone().into())]);
    assert_eq!(again.settled(), [0_u64; 0]);
    assert_eq!(again.settle_failures(), [(5, already.clone().into())]);
    assert_eq!(sent.events::<Payferry::SendFailed>()[0].reason, already);
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 2_000);
    assert_eq!(env.vault_balance(env.usdc, "psp_1"), 990);
    assert_eq!(env.balance(env.usdc, PAYEE), 0);
}

#[test]
fn a_blacklisted_psp_fails_only_its_own_item_and_can_be_retried() {
    let mut env = Env::new();
    for id in ["pay_1", "pay_2", "pay_3"] {
        env.fund(env.usdc, id, 1_000);
    }
    let account = env.vault("psp_bad");
    assert!(env.call(MINTER, env.usdc, &TestUSDC::blacklistCall { account }).ok);
    let items = vec![
        settle_item(1, "pay_1", env.usdc, "psp_1", 990, 10),
        settle_item(2, "pay_2", env.usdc, "psp_bad", 990, 10),
        settle_item(3, "pay_3", env.usdc, "psp_1", 990, 10),
    ];
    let outcome = env.settle(items.clone());
    assert_eq!(outcome.settled(), [1, 3]);
    let failures = outcome.settle_failures();
    assert_eq!(failures.len(), 1);
    let failed = Vault::TransferFailed::abi_decode_validate(&failures[0].1).unwrap();
    assert_eq!(failed.to, account);
    assert!(describe_reason(&failures[0].1).ends_with("Blacklistable: account is blacklisted"));
    assert_eq!(env.vault_balance(env.usdc, "pay_2"), 1_000);
    assert_eq!(env.balance(env.usdc, TREASURY), 20, "the fee of the failed item is not taken");
    assert!(!env.is_done(2));

    assert!(env.call(MINTER, env.usdc, &TestUSDC::unBlacklistCall { account }).ok);
    let retried = env.settle(items);
    assert_eq!(retried.settled(), [2]);
    assert_eq!(env.vault_balance(env.usdc, "psp_bad"), 990);
    assert_eq!(env.vault_balance(env.usdc, "psp_1"), 1_980);
}

#[test]
fn a_blacklisted_treasury_reverts_the_psp_share_too() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 1_000);
    assert!(env.call(MINTER, env.usdc, &TestUSDC::blacklistCall { account: TREASURY }).ok);
    let outcome = env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 990, 10)]);
    let failed = Vault::TransferFailed::abi_decode_validate(&outcome.settle_failures()[0].1).unwrap();
    assert_eq!(failed.to, TREASURY);
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 1_000);
    assert_eq!(env.vault_balance(env.usdc, "psp_1"), 0);
}

#[test]
fn insufficient_funds_fail_alone_on_both_tokens() {
    let mut env = Env::new();
    for token in [env.usdc, env.usdt] {
        let base = if token == env.usdc { 0 } else { 10 };
        env.fund(token, "pay_1", 999);
        env.fund(token, "pay_2", 1_000);
        let items = vec![
            settle_item(base + 1, "pay_1", token, "psp_1", 990, 10),
            settle_item(base + 2, "pay_2", token, "psp_1", 990, 10),
        ];
        let outcome = env.settle(items.clone());
        assert_eq!(outcome.settled(), [base + 2]);
        assert_eq!(outcome.settle_failures()[0].0, base + 1);
        assert_eq!(env.vault_balance(token, "pay_1"), 999);
        env.fund(token, "pay_1", 1);
        assert_eq!(env.settle(items).settled(), [base + 1]);
    }
}

#[test]
fn a_blacklisted_usdt_vault_fails_alone() {
    let mut env = Env::new();
    env.fund(env.usdt, "pay_1", 1_000);
    let account = env.vault("pay_1");
    assert!(env.call(MINTER, env.usdt, &TestUSDT::addBlackListCall { account }).ok);
    let outcome = env.settle(vec![settle_item(1, "pay_1", env.usdt, "psp_1", 990, 10)]);
    assert_eq!(outcome.settled(), [0_u64; 0]);
    assert!(describe_reason(&outcome.settle_failures()[0].1).ends_with("without a reason"));
}

#[test]
fn late_funds_can_be_settled_in_the_same_batch_and_later() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 2_000);
    let same_batch = env.settle(vec![
        settle_item(1, "pay_1", env.usdc, "psp_1", 990, 10),
        settle_item(2, "pay_1", env.usdc, "psp_1", 990, 10),
    ]);
    assert_eq!(same_batch.settled(), [1, 2]);
    env.fund(env.usdc, "pay_1", 500);
    env.fund(env.usdt, "pay_1", 300);
    let later = env.settle(vec![
        settle_item(3, "pay_1", env.usdc, "psp_1", 500, 0),
        settle_item(4, "pay_1", env.usdt, "psp_1", 297, 3),
    ]);
    assert_eq!(later.settled(), [3, 4]);
    assert_eq!(env.vault_balance(env.usdc, "psp_1"), 2_480);
    assert_eq!(env.vault_balance(env.usdt, "psp_1"), 297);
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 0);
}

#[test]
fn sends_from_psp_and_payment_vaults_but_not_to_the_zero_address() {
    let mut env = Env::new();
    env.fund(env.usdc, "psp_1", 1_000);
    env.fund(env.usdt, "pay_1", 1_000);
    let outcome = env.send(vec![
        send_item(1, "psp_1", env.usdc, PAYEE, 400),
        send_item(2, "pay_1", env.usdt, PAYEE, 1_000),
        send_item(3, "psp_1", env.usdc, Address::ZERO, 100),
        send_item(4, "psp_1", env.usdc, PAYEE, 601),
        send_item(5, "psp_1", env.usdc, PAYEE, 600),
    ]);
    let sent: Vec<u64> = outcome.events::<Payferry::Sent>().iter().map(|e| e.number.to()).collect();
    assert_eq!(sent, [1, 2, 5]);
    let failed = outcome.events::<Payferry::SendFailed>();
    assert_eq!(failed.iter().map(|e| e.number.to()).collect::<Vec<u64>>(), [3, 4]);
    assert_eq!(ItemError::abi_decode(&failed[0].reason).unwrap(), ItemError::ZeroAddress(Payferry::ZeroAddress {}));
    assert_eq!(env.balance(env.usdc, PAYEE), 1_000);
    assert_eq!(env.balance(env.usdt, PAYEE), 1_000);
    let event = &outcome.events::<Payferry::Sent>()[1];
    assert_eq!((event.vaultSalt, event.token, event.to), (salt_of("pay_1"), env.usdt, PAYEE));
}

#[test]
fn a_token_without_code_is_a_failure() {
    let mut env = Env::new();
    let outcome = env.settle(vec![settle_item(1, "pay_1", STRANGER, "psp_1", 1, 0)]);
    let failed = Vault::TransferFailed::abi_decode_validate(&outcome.settle_failures()[0].1).unwrap();
    assert!(failed.reason.is_empty());
    assert!(!env.is_done(1));
}

#[test]
fn an_item_that_cannot_be_decoded_fails_alone() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 1_000);
    let items =
        vec![settle_item(1, "pay_1", env.usdc, "psp_1", 100, 0), settle_item(2, "pay_1", env.usdc, "psp_1", 100, 0)];
    let mut data = Payferry::settleCall { items }.abi_encode();
    // Leading bytes of the token word of the first item, which are zero in every address.
    data[4 + 2 * 32 + 2 * 32] = 1;
    let factory = env.factory;
    let outcome = env.transact(SETTLER, factory.into(), data.into(), batch_gas_limit(2));
    assert_eq!(outcome.settled(), [2]);
    assert_eq!(outcome.settle_failures(), [(1, alloy::primitives::Bytes::new())]);
}

#[test]
fn a_batch_with_too_little_gas_reverts_completely() {
    let mut env = Env::new();
    let mut items = Vec::new();
    for number in 0..10 {
        let id = format!("pay_{number}");
        env.fund(env.usdc, &id, 1_000);
        items.push(settle_item(number, &id, env.usdc, "psp_1", 990, 10));
    }
    // With every gas limit, the batch either succeeds completely or moves nothing. An item never fails because of the
    // limit.
    let (mut reverted, mut succeeded) = (0, 0);
    for gas_limit in (70_000..1_100_000).step_by(10_007) {
        let mut env = env.clone();
        let outcome = env.settle_with_gas(items.clone(), gas_limit);
        if outcome.ok {
            succeeded += 1;
            assert_eq!(outcome.settled().len(), 10, "with {gas_limit} gas");
        } else {
            reverted += 1;
            assert_eq!(env.vault_balance(env.usdc, "psp_1"), 0);
            assert!(!env.is_done(0));
        }
    }
    assert!(reverted > 10 && succeeded > 10, "{reverted} reverted, {succeeded} succeeded");
    let short = env.settle_with_gas(items.clone(), ITEM_GAS_MAX + 2 * 65_000);
    short.assert_reverted_with::<Payferry::OutOfGasForItem>();
    assert_eq!(env.settle(items).settled().len(), 10);
}

#[test]
fn each_function_requires_its_role() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 1_000);
    let factory = env.factory;
    let settle = Payferry::settleCall { items: vec![settle_item(1, "pay_1", env.usdc, "psp_1", 990, 10)] };
    let send = Payferry::sendCall { items: vec![send_item(1, "pay_1", env.usdc, PAYEE, 1_000)] };
    for who in [STRANGER, ADMIN, SENDER, TREASURY] {
        env.call(who, factory, &settle).assert_reverted_with::<Payferry::NotSettler>();
    }
    for who in [STRANGER, ADMIN, SETTLER, TREASURY] {
        env.call(who, factory, &send).assert_reverted_with::<Payferry::NotSender>();
    }
    for who in [STRANGER, ADMIN, SETTLER, SENDER] {
        let settle_item = Payferry::settleItemCall { item: settle.items[0].clone() };
        let send_item = Payferry::sendItemCall { item: send.items[0].clone() };
        env.call(who, factory, &settle_item).assert_reverted_with::<Payferry::NotSelf>();
        env.call(who, factory, &send_item).assert_reverted_with::<Payferry::NotSelf>();
    }
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 1_000);
}

#[test]
fn a_vault_obeys_only_the_factory() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 1_000);
    env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 100, 0)]);
    let vault = env.vault("pay_1");
    let implementation = env.read(env.factory, &Payferry::vaultImplementationCall {});
    let pay = Vault::payCall {
        token: env.usdc,
        first: STRANGER,
        firstAmount: U256::from(900),
        second: STRANGER,
        secondAmount: U256::ZERO,
    };
    for who in [STRANGER, ADMIN, SETTLER, SENDER, TREASURY] {
        // A clone returns the error instead of reverting. The important condition is that nothing moves.
        let outcome = env.call(who, vault, &pay);
        assert_eq!(outcome.output, Vault::Stranger {}.abi_encode());
        env.call(who, implementation, &pay).assert_reverted_with::<Vault::Stranger>();
    }
    for data in [vec![], vec![0xff; 3], vec![0; 500], pay.abi_encode()[..40].to_vec()] {
        env.transact(STRANGER, vault.into(), data.into(), 1_000_000);
    }
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 900);
    assert_eq!(env.balance(env.usdc, STRANGER), 0);
}
