//! Payments by signature, with the test token and with Circle's FiatToken behind its proxy.

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::{SolError, SolValue};
use payferry_contracts::{
    CollectItem, DepositItem, Erc3009, Payferry, Role, SIGNATURE_BYTES_MAX, Token, describe_reason,
};
use revm::primitives::hardfork::SpecId;

use crate::env::{BPS, Env, MINTER, PAYEE, SETTLER, STRANGER, TREASURY, settle_item, ulid};
use crate::fiat_token::{self, FiatToken};
use crate::payer::{Payer, Terms, group, nonce_of};

/// Environments with a token of EIP-3009 and a payer with 10,000 base units.
fn envs() -> Vec<(Env, Address, Payer)> {
    let mut env = Env::new();
    let usdc = env.usdc;
    let mut real = Env::new();
    let fiat = fiat_token::deploy(&mut real);
    let all = [(env.clone(), usdc), (real, fiat)];
    env.now += 1;
    all.into_iter()
        .map(|(mut env, token)| {
            let payer = Payer::new("payer");
            env.mint(token, payer.address, 10_000);
            (env, token, payer)
        })
        .collect()
}

#[track_caller]
fn assert_failed(outcome: &crate::env::Outcome, payment: &str, words: &str) {
    let failures = outcome.collect_failures();
    assert_eq!(failures.len(), 1, "{outcome:?}");
    assert_eq!(failures[0].0, ulid(payment));
    let described = describe_reason(&failures[0].1);
    assert!(described.contains(words), "{described}");
}

fn is_used(env: &mut Env, token: Address, payer: &Payer, nonce: B256) -> bool {
    env.read(token, &Erc3009::authorizationStateCall { authorizer: payer.address, nonce })
}

#[test]
fn a_group_is_received_and_passed_on_in_two_transfers() {
    for (mut env, token, payer) in envs() {
        let items: Vec<_> = [("pay_1", 1_000), ("pay_2", 2_050)]
            .map(|(payment, value)| payer.pays(&mut env, token, payment, "psp_1", value))
            .into();
        let outcome = env.collect(vec![group("psp_1", token, items)], vec![]);
        let (factory, psp_vault) = (env.factory, env.psp_vault("psp_1"));
        let collected = |payment, psp_amount, fee| Payferry::Collected {
            paymentId: ulid(payment),
            nonce: nonce_of(&env, payment, "psp_1", 1),
            payer: payer.address,
            token,
            pspAmount: U256::from(psp_amount),
            treasuryFee: U256::from(fee),
        };
        assert_eq!(
            outcome.events::<Payferry::Collected>(),
            [collected("pay_1", 990, 10), collected("pay_2", 2_030, 20)]
        );
        let moves: Vec<_> = outcome.events::<Token::Transfer>().iter().map(|t| (t.from, t.to, t.value.to())).collect();
        let expected: [(Address, Address, u64); 4] = [
            (payer.address, factory, 1_000),
            (payer.address, factory, 2_050),
            (factory, psp_vault, 3_020),
            (factory, TREASURY, 30),
        ];
        assert_eq!(moves, expected);
        assert_eq!(env.balance(token, factory), 0);
        assert_eq!(env.code_len(psp_vault), 0, "no vault is deployed");
        let nonce = nonce_of(&env, "pay_1", "psp_1", 1);
        assert!(is_used(&mut env, token, &payer, nonce));
    }
}

/// Used, cancelled, expired, not yet valid, insufficient, a wrong signature, another amount: each fails alone.
#[test]
fn one_bad_authorization_does_not_affect_the_others() {
    for (mut env, token, payer) in envs() {
        let poor = Payer::new("poor");
        let used = payer.pays(&mut env, token, "pay_used", "psp_1", 100);
        assert_eq!(env.collect(vec![group("psp_1", token, vec![used.clone()])], vec![]).collected().len(), 1);
        let cancelled = payer.pays(&mut env, token, "pay_cancelled", "psp_1", 100);
        let nonce = nonce_of(&env, "pay_cancelled", "psp_1", 1);
        payer.cancels(&mut env, token, nonce);
        let terms = payer.terms(&env, 100);
        let expired = Terms { valid_before: env.now, ..terms };
        let early = Terms { valid_after: env.now, ..terms };
        let mut altered = payer.pays(&mut env, token, "pay_altered", "psp_1", 100);
        altered.authorization.value = 101;
        let stolen = CollectItem {
            paymentId: ulid("pay_stolen"),
            ..payer.pays(&mut env, token, "pay_of_another", "psp_1", 100)
        };
        let items = vec![
            payer.pays(&mut env, token, "pay_1", "psp_1", 1_000),
            used,
            cancelled,
            payer.pays_on(&mut env, token, "pay_expired", "psp_1", 1, expired),
            payer.pays_on(&mut env, token, "pay_early", "psp_1", 1, early),
            poor.pays(&mut env, token, "pay_poor", "psp_1", 100),
            altered,
            stolen,
            CollectItem { fee: 2, ..payer.pays(&mut env, token, "pay_fee", "psp_1", 100) },
            CollectItem { maxFeeBps: BPS + 1, ..payer.pays(&mut env, token, "pay_bps", "psp_1", 100) },
            payer.pays(&mut env, token, "pay_2", "psp_1", 1_000),
        ];
        let outcome = env.collect(vec![group("psp_1", token, items)], vec![]);
        assert_eq!(outcome.collected(), [ulid("pay_1"), ulid("pay_2")], "{outcome:?}");
        let failures: Vec<_> =
            outcome.collect_failures().into_iter().map(|(id, reason)| (id, describe_reason(&reason))).collect();
        let expected = [
            ("pay_used", "FiatTokenV2: authorization is used or canceled"),
            ("pay_cancelled", "FiatTokenV2: authorization is used or canceled"),
            ("pay_expired", "FiatTokenV2: authorization is expired"),
            ("pay_early", "FiatTokenV2: authorization is not yet valid"),
            ("pay_poor", "ERC20: transfer amount exceeds balance"),
            ("pay_altered", "FiatTokenV2: invalid signature"),
            ("pay_stolen", "FiatTokenV2: invalid signature"),
            ("pay_fee", "the fee exceeds the maximum that the address commits to"),
            ("pay_bps", "FiatTokenV2: invalid signature"),
        ];
        assert_eq!(failures, expected.map(|(payment, words)| (ulid(payment), words.to_owned())));
        assert_eq!((env.psp_balance(token, "psp_1"), env.balance(token, TREASURY)), (99 + 1_980, 21));
        assert_eq!(env.balance(token, env.factory), 0);
    }
}

#[test]
fn the_payer_can_sign_again_after_a_cancelled_attempt() {
    for (mut env, token, payer) in envs() {
        let nonce = nonce_of(&env, "pay_1", "psp_1", 1);
        payer.cancels(&mut env, token, nonce);
        let terms = payer.terms(&env, 1_000);
        let first = payer.pays_on(&mut env, token, "pay_1", "psp_1", 1, terms);
        let second = payer.pays_on(&mut env, token, "pay_1", "psp_1", 2, terms);
        let outcome = env.collect(vec![group("psp_1", token, vec![first, second])], vec![]);
        assert_eq!(outcome.events::<Payferry::Collected>()[0].nonce, nonce_of(&env, "pay_1", "psp_1", 2));
        assert_failed(&outcome, "pay_1", "used or canceled");
    }
}

/// The signature names the PSP, so a settler cannot pay another one with it.
#[test]
fn a_signature_for_one_psp_pays_no_other() {
    for (mut env, token, payer) in envs() {
        let item = payer.pays(&mut env, token, "pay_1", "psp_1", 1_000);
        let outcome = env.collect(vec![group("psp_thief", token, vec![item.clone()])], vec![]);
        assert_failed(&outcome, "pay_1", "invalid signature");
        assert_eq!(env.balance(token, payer.address), 10_000);
        assert_eq!(env.collect(vec![group("psp_1", token, vec![item])], vec![]).collected(), [ulid("pay_1")]);
    }
}

/// Only the contract can submit the payer's signature, so it cannot be front-run. The payer can use the nonce for another
/// recipient; then nothing is collected.
#[test]
fn a_front_run_authorization_is_not_collected() {
    for (mut env, token, payer) in envs() {
        let item = payer.pays(&mut env, token, "pay_1", "psp_1", 1_000);
        let nonce = nonce_of(&env, "pay_1", "psp_1", 1);
        let a = &item.authorization;
        let receive = Erc3009::receiveWithAuthorization_0Call {
            from: a.from,
            to: env.factory,
            value: U256::from(a.value),
            validAfter: a.validAfter,
            validBefore: a.validBefore,
            nonce,
            v: a.v,
            r: a.r,
            s: a.s,
        };
        assert!(!env.call(STRANGER, token, &receive).ok);
        let terms = payer.terms(&env, 1_000);
        let b = payer.transfers(&mut env, token, PAYEE, nonce, terms);
        let elsewhere = Erc3009::transferWithAuthorization_0Call {
            from: b.from,
            to: PAYEE,
            value: U256::from(b.value),
            validAfter: b.validAfter,
            validBefore: b.validBefore,
            nonce,
            v: b.v,
            r: b.r,
            s: b.s,
        };
        assert!(env.call(STRANGER, token, &elsewhere).ok);
        let outcome = env.collect(vec![group("psp_1", token, vec![item])], vec![]);
        assert_failed(&outcome, "pay_1", "used or canceled");
        assert_eq!(env.balance(token, PAYEE), 1_000);
    }
}

#[test]
fn a_group_that_cannot_be_passed_on_fails_as_a_whole_and_alone() {
    for (mut env, token, payer) in envs() {
        let blacklist = |account| FiatToken::blacklistCall { account };
        let account = env.psp_vault("psp_bad");
        assert!(env.call(MINTER, token, &blacklist(account)).ok);
        let groups = |env: &mut Env| {
            let item = |env: &mut Env, payment, psp| payer.pays(env, token, payment, psp, 1_000);
            vec![
                group("psp_1", token, vec![item(env, "pay_1", "psp_1")]),
                group("psp_bad", token, vec![item(env, "pay_2", "psp_bad"), item(env, "pay_3", "psp_bad")]),
                group("psp_1", token, vec![item(env, "pay_4", "psp_1")]),
            ]
        };
        let all = groups(&mut env);
        let outcome = env.collect(all, vec![]);
        assert_eq!(outcome.collected(), [ulid("pay_1"), ulid("pay_4")]);
        let failures = outcome.collect_failures();
        assert_eq!(failures.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ulid("pay_2"), ulid("pay_3")]);
        for (_, reason) in failures {
            assert_eq!(Payferry::TransferFailed::abi_decode(&reason).unwrap().to, account);
        }
        let events = outcome.events::<Payferry::CollectFailed>();
        assert_eq!(events[1].nonce, nonce_of(&env, "pay_3", "psp_bad", 1));
        assert_eq!(env.balance(token, payer.address), 8_000);
        // The authorizations are unused and can be collected later.
        assert!(env.call(MINTER, token, &FiatToken::unBlacklistCall { account }).ok);
        assert!(env.call(MINTER, token, &blacklist(TREASURY)).ok);
        let blocked = groups(&mut env).remove(1);
        assert_eq!(env.collect(vec![blocked.clone()], vec![]).collect_failures().len(), 2);
        assert!(env.call(MINTER, token, &FiatToken::unBlacklistCall { account: TREASURY }).ok);
        assert_eq!(env.collect(vec![blocked], vec![]).collected(), [ulid("pay_2"), ulid("pay_3")]);
        assert_eq!(env.balance(token, account), 1_980);
    }
}

#[test]
fn a_blacklisted_payer_and_a_paused_token_fail() {
    for (mut env, token, payer) in envs() {
        let item = payer.pays(&mut env, token, "pay_1", "psp_1", 1_000);
        let groups = vec![group("psp_1", token, vec![item])];
        let account = payer.address;
        assert!(env.call(MINTER, token, &FiatToken::blacklistCall { account }).ok);
        assert_failed(&env.collect(groups.clone(), vec![]), "pay_1", "account is blacklisted");
        assert!(env.call(MINTER, token, &FiatToken::unBlacklistCall { account }).ok);
        let paused = if token == env.usdc {
            env.call(MINTER, token, &Token::setPausedCall { paused_: true })
        } else {
            env.call(MINTER, token, &FiatToken::pauseCall {})
        };
        assert!(paused.ok);
        assert_failed(&env.collect(groups, vec![]), "pay_1", "Pausable: paused");
    }
}

#[test]
fn a_deposit_pays_the_payments_own_vault() {
    for (mut env, token, payer) in envs() {
        let nonce = B256::repeat_byte(0x77);
        let terms = payer.terms(&env, 1_000);
        let item = payer.deposits(&mut env, token, "pay_1", nonce, terms);
        let redirected = [
            DepositItem { paymentId: ulid("pay_2"), ..item.clone() },
            DepositItem { pspId: ulid("psp_thief"), ..item.clone() },
            DepositItem { maxFeeBps: BPS + 1, ..item.clone() },
            DepositItem { token: STRANGER, ..item.clone() },
        ];
        let outcome = env.collect(vec![], redirected.into());
        assert_eq!(outcome.collect_failures().len(), 4);
        assert_eq!(env.balance(token, payer.address), 10_000);
        let outcome = env.collect(vec![], vec![item.clone()]);
        assert!(outcome.ok && outcome.collect_failures().is_empty() && outcome.collected().is_empty());
        assert_eq!(env.vault_balance(token, "pay_1"), 1_000);
        let again = env.collect(vec![], vec![item]);
        assert_failed(&again, "pay_1", "used or canceled");
        assert_eq!(again.events::<Payferry::CollectFailed>()[0].nonce, nonce);
        // The ordinary settlement follows.
        assert_eq!(env.settle(vec![settle_item(1, "pay_1", token, "psp_1", 1_000, 10)]).settled(), [1]);
    }
}

#[test]
fn groups_and_deposits_share_one_transaction() {
    for (mut env, token, payer) in envs() {
        let terms = payer.terms(&env, 100);
        let good = payer.deposits(&mut env, token, "pay_3", B256::repeat_byte(1), terms);
        let bad = DepositItem { nonce: B256::repeat_byte(2), paymentId: ulid("pay_4"), ..good.clone() };
        let item = payer.pays(&mut env, token, "pay_1", "psp_1", 1_000);
        let other = payer.pays(&mut env, token, "pay_2", "psp_2", 1_000);
        let groups = vec![group("psp_1", token, vec![item]), group("psp_2", token, vec![other])];
        let outcome = env.collect(groups, vec![bad, good]);
        assert_eq!(outcome.collected(), [ulid("pay_1"), ulid("pay_2")]);
        assert_failed(&outcome, "pay_4", "invalid signature");
        assert_eq!(env.vault_balance(token, "pay_3"), 100);
        assert_eq!(env.psp_balance(token, "psp_2"), 990);
    }
}

/// The wallet's signatures have no v, r and s.
#[test]
fn contract_wallets_pay_with_a_signature_of_their_own_form() {
    for (mut env, token, owner) in envs() {
        let artifact = include_str!("../../artifacts/test/SmartWallet.json");
        let wallet = env.create_test_contract(artifact, &owner.address.abi_encode());
        env.mint(token, wallet, 5_000);
        let packed = |a: &payferry_contracts::Authorization| -> Bytes {
            [a.r.as_slice(), a.s.as_slice(), &[a.v, 0]].concat().into()
        };
        let terms = Terms { from: wallet, ..owner.terms(&env, 1_000) };
        let mut item = owner.pays_on(&mut env, token, "pay_1", "psp_1", 1, terms);
        let plain = group("psp_1", token, vec![item.clone()]);
        assert_failed(&env.collect(vec![plain], vec![]), "pay_1", "invalid signature");
        item.signature = packed(&item.authorization);
        let mut deposit = owner.deposits(&mut env, token, "pay_2", B256::repeat_byte(1), terms);
        deposit.signature = packed(&deposit.authorization);
        let outcome = env.collect(vec![group("psp_1", token, vec![item])], vec![deposit]);
        assert!(outcome.collect_failures().is_empty());
        assert_eq!((env.psp_balance(token, "psp_1"), env.vault_balance(token, "pay_2")), (990, 1_000));
        assert_eq!(env.balance(token, wallet), 3_000);
    }
}

#[test]
fn a_signature_that_is_too_long_fails_its_group_only() {
    let (mut env, token, payer) = envs().remove(0);
    let long = CollectItem {
        signature: vec![1; SIGNATURE_BYTES_MAX + 1].into(),
        ..payer.pays(&mut env, token, "pay_1", "psp_2", 1_000)
    };
    let longest = CollectItem {
        signature: vec![1; SIGNATURE_BYTES_MAX].into(),
        ..payer.pays(&mut env, token, "pay_2", "psp_1", 1_000)
    };
    let good = payer.pays(&mut env, token, "pay_3", "psp_1", 1_000);
    let groups = vec![group("psp_2", token, vec![long]), group("psp_1", token, vec![longest, good])];
    let outcome = env.collect(groups, vec![]);
    assert_eq!(outcome.collected(), [ulid("pay_3")]);
    let failures = outcome.collect_failures();
    assert_eq!(failures[0], (ulid("pay_1"), Payferry::SignatureTooLong {}.abi_encode().into()));
    assert_eq!(failures[1].0, ulid("pay_2"));
}

#[test]
fn a_fee_without_a_treasury_reverts_the_batch() {
    let mut env = Env::deployed(SpecId::OSAKA);
    env.admin(&Payferry::grantCall { role: Role::Settler, key: SETTLER });
    let (token, payer) = (env.usdc, Payer::new("payer"));
    env.mint(token, payer.address, 10_000);
    let with_fee = payer.pays(&mut env, token, "pay_1", "psp_1", 1_000);
    let without = CollectItem { fee: 0, ..payer.pays(&mut env, token, "pay_2", "psp_1", 1_000) };
    let both = vec![group("psp_1", token, vec![without.clone(), with_fee])];
    env.collect(both, vec![]).assert_reverted_with::<Payferry::NoTreasury>();
    assert_eq!(env.collect(vec![group("psp_1", token, vec![without])], vec![]).collected(), [ulid("pay_2")]);
    assert_eq!(env.psp_balance(token, "psp_1"), 1_000);
}

#[test]
fn items_and_deposits_are_bounded_together() {
    let (mut env, token, payer) = envs().remove(0);
    let item = payer.pays(&mut env, token, "pay_1", "psp_1", 1_000);
    let terms = payer.terms(&env, 1_000);
    let deposit = payer.deposits(&mut env, token, "pay_1", B256::ZERO, terms);
    let groups = vec![group("psp_1", token, vec![item; 50])];
    env.collect(groups, vec![deposit]).assert_reverted_with::<Payferry::TooManyItems>();
}

/// A token without EIP-3009 (USDT-like) or without code.
#[test]
fn other_tokens_fail() {
    let (mut env, token, payer) = envs().remove(0);
    let item = payer.pays(&mut env, token, "pay_1", "psp_1", 1_000);
    let other = Payer::new("other");
    let (usdt, factory) = (env.usdt, env.factory);
    env.mint(usdt, other.address, 10_000);
    for not_supported in [usdt, STRANGER, factory, env.psp_vault("psp_1")] {
        let outcome = env.collect(vec![group("psp_1", not_supported, vec![item.clone()])], vec![]);
        assert!(outcome.ok && outcome.collected().is_empty());
        assert_eq!(outcome.collect_failures().len(), 1);
    }
}
