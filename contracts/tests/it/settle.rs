//! Settlements: each succeeds at most once, pays only what the payment's address commits to, and is atomic and
//! independent.

use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::{SolCall, SolError};
use payferry_contracts::{
    ITEM_GAS, ITEM_GAS_MIN, OperationKind, Payferry, SettleItem, TestUSDC, TestUSDT, Token, Vault, batch_gas_limit,
    describe_reason, payment_salt,
};
use revm::primitives::hardfork::SpecId;

use crate::env::{
    ADMIN, BPS, Env, MINTER, PAYEE, SENDER, SETTLER, STRANGER, TREASURY, salt, send_item, settle_item, ulid,
};

fn transfer_failed(reason: &[u8]) -> Payferry::TransferFailed {
    Payferry::TransferFailed::abi_decode_validate(reason).unwrap()
}

#[test]
fn a_settlement_pays_the_psp_vault_and_the_treasury() {
    for token_of in [|env: &Env| env.usdc, |env: &Env| env.usdt] {
        let mut env = Env::new();
        let token = token_of(&env);
        env.fund(token, "pay_1", 1_000);
        let outcome = env.settle(vec![settle_item(7, "pay_1", token, "psp_1", 1_000, 10)]);
        assert_eq!(
            outcome.events::<Payferry::Settled>(),
            [Payferry::Settled {
                id: 7,
                vault: env.vault("pay_1"),
                pspVault: env.psp_vault("psp_1"),
                token,
                pspAmount: U256::from(990),
                treasuryFee: U256::from(10),
            }]
        );
        assert_eq!(env.vault_balance(token, "pay_1"), 0);
        assert_eq!(env.psp_balance(token, "psp_1"), 990);
        assert_eq!(env.balance(token, TREASURY), 10);
        assert_eq!(env.done_at(OperationKind::Settlement, 7), env.now);
        assert!(!env.is_settled(6) && !env.is_settled(8));
        assert_eq!(env.done_at(OperationKind::Payout, 7), 0, "each kind has its own ids");
    }
}

#[test]
fn a_settlement_without_a_fee_does_not_pay_the_treasury() {
    let mut env = Env::deployed(SpecId::OSAKA);
    env.admin(&Payferry::grantCall { role: payferry_contracts::Role::Settler, key: SETTLER });
    env.fund(env.usdc, "pay_1", 1_000);
    env.fund(env.usdc, "pay_2", 1_000);
    // While the treasury is zero, a fee reverts the batch.
    let with_fee = vec![
        settle_item(1, "pay_1", env.usdc, "psp_1", 1_000, 0),
        settle_item(2, "pay_2", env.usdc, "psp_1", 1_000, 1),
    ];
    env.settle(with_fee).assert_reverted_with::<Payferry::NoTreasury>();
    let outcome = env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 1_000, 0)]);
    assert_eq!(outcome.events::<Token::Transfer>().len(), 1);
    assert_eq!(env.psp_balance(env.usdc, "psp_1"), 1_000);
}

#[test]
fn an_item_without_amount_fails_and_its_id_stays_usable() {
    let mut env = Env::new();
    let outcome = env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 0, 0)]);
    assert_eq!(outcome.settle_failures(), [(1, Payferry::NothingToMove {}.abi_encode().into())]);
    assert!(!env.is_settled(1));
}

#[test]
fn a_fee_is_at_most_the_floor_of_the_committed_maximum() {
    let mut env = Env::new();
    let too_high = Bytes::from(Payferry::FeeTooHigh {}.abi_encode());
    for (id, amount, fee) in [(1, 199, 1), (2, 10_000, 100), (3, 1, 0)] {
        env.fund(env.usdc, "pay_1", amount);
        let refused = settle_item(id, "pay_1", env.usdc, "psp_1", amount.into(), fee + 1);
        assert_eq!(env.settle(vec![refused]).settle_failures(), [(id, too_high.clone())]);
        let allowed = settle_item(id, "pay_1", env.usdc, "psp_1", amount.into(), fee);
        assert_eq!(env.settle(vec![allowed]).settled(), [id]);
    }
    // Not even an address that commits to more than everything.
    let item = SettleItem { maxFeeBps: u16::MAX, ..settle_item(4, "pay_1", env.usdc, "psp_1", 1_000, 1_001) };
    assert_eq!(env.settle(vec![item]).settle_failures(), [(4, too_high.clone())]);
    let item = SettleItem { maxFeeBps: u16::MAX, ..settle_item(5, "pay_1", env.usdc, "psp_1", u128::MAX, u128::MAX) };
    assert_eq!(transfer_failed(&env.settle(vec![item]).settle_failures()[0].1).to, TREASURY);
}

/// Everything that a stolen settler key can put into an item gives the address of another vault, which is empty.
#[test]
fn a_stolen_settler_key_cannot_redirect_a_payment() {
    let mut env = Env::new();
    let usdc = env.usdc;
    env.fund(usdc, "pay_1", 1_000);
    let psp = env.psp_vault("psp_1");
    env.mint(usdc, psp, 5_000);
    let good = settle_item(1, "pay_1", usdc, "psp_1", 1_000, 10);
    let attacks = [
        SettleItem { pspId: ulid("psp_thief"), ..good.clone() },
        SettleItem { maxFeeBps: BPS + 1, ..good.clone() },
        SettleItem { fee: 11, ..good.clone() },
        // The vault of a PSP as the source.
        SettleItem { paymentId: ulid("psp_1"), ..good.clone() },
        SettleItem { paymentId: 0, ..good.clone() },
        // The contract and a vault as the token.
        SettleItem { token: env.factory, ..good.clone() },
        SettleItem { token: psp, ..good.clone() },
    ];
    for attack in attacks {
        let outcome = env.settle(vec![attack.clone()]);
        assert_eq!((outcome.settled().len(), outcome.settle_failures().len()), (0, 1), "{attack:?}");
    }
    assert_eq!((env.vault_balance(usdc, "pay_1"), env.balance(usdc, psp)), (1_000, 5_000));
    assert_eq!(env.settle(vec![good]).settled(), [1]);
}

#[test]
fn a_repeated_id_moves_nothing_and_reports_the_reason() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 3_000);
    let item = settle_item(5, "pay_1", env.usdc, "psp_1", 1_000, 10);
    // Twice in one batch, and later again.
    let first = env.settle(vec![item.clone(), item.clone()]);
    let again = env.settle(vec![item]);
    let already = Bytes::from(Payferry::AlreadyDone { kind: 0, id: 5 }.abi_encode());
    assert_eq!(first.settled(), [5]);
    assert_eq!(first.settle_failures(), [(5, already.clone())]);
    assert_eq!(again.settled(), [0_u128; 0]);
    assert_eq!(again.settle_failures(), [(5, already)]);
    // A settlement does not use up the id of an outbound transfer.
    assert_eq!(env.send(vec![send_item(5, salt("pay_1"), env.usdc, PAYEE, 100)]).sent(), [5]);
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 1_900);
    assert_eq!(env.psp_balance(env.usdc, "psp_1"), 990);
}

#[test]
fn a_blacklisted_psp_fails_only_its_own_item_and_can_be_retried() {
    let mut env = Env::new();
    let usdc = env.usdc;
    for (payment, psp) in [("pay_1", "psp_1"), ("pay_2", "psp_bad"), ("pay_3", "psp_1")] {
        let vault = env.vault_of(payment_salt(ulid(payment), ulid(psp), BPS));
        env.mint(usdc, vault, 1_000);
    }
    let account = env.psp_vault("psp_bad");
    assert!(env.call(MINTER, usdc, &TestUSDC::blacklistCall { account }).ok);
    let items = vec![
        settle_item(1, "pay_1", usdc, "psp_1", 1_000, 10),
        settle_item(2, "pay_2", usdc, "psp_bad", 1_000, 10),
        settle_item(3, "pay_3", usdc, "psp_1", 1_000, 10),
    ];
    let outcome = env.settle(items.clone());
    assert_eq!(outcome.settled(), [1, 3]);
    let failures = outcome.settle_failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(transfer_failed(&failures[0].1).to, account);
    assert!(describe_reason(&failures[0].1).ends_with("Blacklistable: account is blacklisted"));
    assert_eq!(env.balance(usdc, TREASURY), 20, "the fee of the failed item is not taken");
    assert!(!env.is_settled(2));

    assert!(env.call(MINTER, usdc, &TestUSDC::unBlacklistCall { account }).ok);
    assert_eq!(env.settle(items).settled(), [2]);
    assert_eq!((env.balance(usdc, account), env.psp_balance(usdc, "psp_1")), (990, 1_980));
}

#[test]
fn a_blacklisted_treasury_reverts_the_psp_share_too() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 1_000);
    assert!(env.call(MINTER, env.usdc, &TestUSDC::blacklistCall { account: TREASURY }).ok);
    let outcome = env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 1_000, 10)]);
    assert_eq!(transfer_failed(&outcome.settle_failures()[0].1).to, TREASURY);
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 1_000);
    assert_eq!(env.psp_balance(env.usdc, "psp_1"), 0);
}

#[test]
fn insufficient_funds_fail_alone_on_both_tokens() {
    let mut env = Env::new();
    for token in [env.usdc, env.usdt] {
        let base = if token == env.usdc { 0 } else { 10 };
        env.fund(token, "pay_1", 999);
        env.fund(token, "pay_2", 1_000);
        let items = vec![
            settle_item(base + 1, "pay_1", token, "psp_1", 1_000, 10),
            settle_item(base + 2, "pay_2", token, "psp_1", 1_000, 10),
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
    let outcome = env.settle(vec![settle_item(1, "pay_1", env.usdt, "psp_1", 1_000, 10)]);
    assert_eq!(outcome.settled(), [0_u128; 0]);
    assert!(describe_reason(&outcome.settle_failures()[0].1).ends_with("without a reason"));
}

#[test]
fn late_funds_can_be_settled_in_the_same_batch_and_later() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 2_000);
    let same_batch = env.settle(vec![
        settle_item(1, "pay_1", env.usdc, "psp_1", 1_000, 10),
        settle_item(2, "pay_1", env.usdc, "psp_1", 1_000, 10),
    ]);
    assert_eq!(same_batch.settled(), [1, 2]);
    env.fund(env.usdc, "pay_1", 500);
    env.fund(env.usdt, "pay_1", 300);
    let later = env.settle(vec![
        settle_item(3, "pay_1", env.usdc, "psp_1", 500, 0),
        settle_item(4, "pay_1", env.usdt, "psp_1", 300, 3),
    ]);
    assert_eq!(later.settled(), [3, 4]);
    assert_eq!(env.psp_balance(env.usdc, "psp_1"), 2_480);
    assert_eq!(env.psp_balance(env.usdt, "psp_1"), 297);
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 0);
}

#[test]
fn a_token_without_code_is_a_failure() {
    let mut env = Env::new();
    let outcome = env.settle(vec![settle_item(1, "pay_1", STRANGER, "psp_1", 1, 0)]);
    assert!(transfer_failed(&outcome.settle_failures()[0].1).reason.is_empty());
    assert!(!env.is_settled(1));
}

#[test]
fn an_item_that_cannot_be_decoded_fails_alone() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 1_000);
    let items =
        vec![settle_item(1, "pay_1", env.usdc, "psp_1", 100, 0), settle_item(2, "pay_1", env.usdc, "psp_1", 100, 0)];
    let mut data = Payferry::settleCall { items, itemGas: ITEM_GAS }.abi_encode();
    // Leading bytes of the token word of the first item, which are zero in every address.
    data[4 + 3 * 32 + 4 * 32] = 1;
    let factory = env.factory;
    let outcome = env.transact(SETTLER, factory.into(), data.into(), batch_gas_limit(2, ITEM_GAS));
    assert_eq!(outcome.settled(), [2]);
    assert_eq!(outcome.settle_failures(), [(1, Bytes::new())]);
}

#[test]
fn batches_and_the_gas_of_items_are_bounded() {
    let mut env = Env::new();
    let factory = env.factory;
    let items = |count| vec![settle_item(1, "pay_1", Address::ZERO, "psp_1", 1, 0); count];
    let call = |count, gas| Payferry::settleCall { items: items(count), itemGas: gas };
    env.call(SETTLER, factory, &call(51, ITEM_GAS)).assert_reverted_with::<Payferry::TooManyItems>();
    env.call(SETTLER, factory, &call(1, ITEM_GAS_MIN - 1)).assert_reverted_with::<Payferry::ItemGasTooLow>();
    assert!(env.call(SETTLER, factory, &call(50, ITEM_GAS_MIN)).ok);
    assert!(!env.call(SETTLER, factory, &call(1, u64::MAX)).ok, "a limit that no transaction has");
    let send =
        Payferry::sendCall { items: vec![send_item(1, salt("pay_1"), env.usdc, PAYEE, 1); 51], itemGas: ITEM_GAS };
    env.call(SENDER, factory, &send).assert_reverted_with::<Payferry::TooManyItems>();
}

#[test]
fn a_vault_obeys_only_the_contract() {
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
        for target in [vault, implementation] {
            env.call(who, target, &pay).assert_reverted_with::<Vault::Stranger>();
            env.call(who, target, &Vault::sweepCall { to: who }).assert_reverted_with::<Vault::Stranger>();
        }
    }
    for data in [vec![], vec![0xff; 3], vec![0; 500], pay.abi_encode()[..40].to_vec()] {
        assert!(!env.transact(STRANGER, vault.into(), data.into(), 1_000_000).ok);
    }
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 900);
    assert_eq!(env.balance(env.usdc, STRANGER), 0);
}
