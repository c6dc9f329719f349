//! Outbound transfers: each succeeds at most once, within the limit of its token.

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::{SolError, SolInterface};
use payferry_contracts::{ItemError, OperationKind, Payferry, SendItem, TestUSDC, psp_salt};

use crate::env::{DAY_SECS, Env, LIMIT, MINTER, PAYEE, STRANGER, salt, send_item, ulid};

const CAPACITY: u64 = LIMIT / 2;

fn psp() -> B256 {
    psp_salt(ulid("psp_1"))
}

/// An environment with much more than the limit in the vault of a PSP.
fn rich() -> Env {
    let mut env = Env::new();
    let vault = env.psp_vault("psp_1");
    env.mint(env.usdc, vault, 100 * LIMIT);
    env
}

fn exceeded(available: u64) -> Bytes {
    Payferry::LimitExceeded { available: U256::from(available) }.abi_encode().into()
}

#[test]
fn sends_from_psp_and_payment_vaults_but_not_to_the_zero_address() {
    let mut env = Env::new();
    let psp_vault = env.psp_vault("psp_1");
    env.mint(env.usdc, psp_vault, 1_000);
    env.fund(env.usdt, "pay_1", 1_000);
    let outcome = env.send(vec![
        send_item(1, psp(), env.usdc, PAYEE, 400),
        send_item(2, salt("pay_1"), env.usdt, PAYEE, 1_000),
        send_item(3, psp(), env.usdc, Address::ZERO, 100),
        send_item(4, psp(), env.usdc, PAYEE, 601),
        send_item(5, psp(), env.usdc, PAYEE, 0),
        send_item(6, psp(), env.usdc, PAYEE, 600),
    ]);
    assert_eq!(outcome.sent(), [1, 2, 6]);
    let failed = outcome.send_failures();
    assert_eq!(failed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3, 4, 5]);
    let reason = |i: usize| ItemError::abi_decode(&failed[i].1).unwrap();
    assert_eq!(reason(0), ItemError::InvalidAddress(Payferry::InvalidAddress {}));
    assert!(matches!(reason(1), ItemError::TransferFailed(_)));
    assert_eq!(reason(2), ItemError::NothingToMove(Payferry::NothingToMove {}));
    assert_eq!((env.balance(env.usdc, PAYEE), env.balance(env.usdt, PAYEE)), (1_000, 1_000));
    assert_eq!(
        outcome.events::<Payferry::Sent>()[1],
        Payferry::Sent {
            id: 2,
            kind: OperationKind::Payout.number(),
            vault: env.vault("pay_1"),
            token: env.usdt,
            to: PAYEE,
            amount: U256::from(1_000),
        }
    );
}

#[test]
fn each_kind_has_its_own_ids_and_a_settlement_cannot_be_sent() {
    let mut env = rich();
    let item = |kind| SendItem { kind, ..send_item(7, psp(), env.usdc, PAYEE, 10) };
    let items: Vec<_> = (0..5).map(item).collect();
    let again = items.clone();
    let outcome = env.send(items);
    assert_eq!(outcome.events::<Payferry::Sent>().iter().map(|sent| sent.kind).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(outcome.send_failures(), [(7, Payferry::InvalidKind {}.abi_encode().into())]);
    assert_eq!(env.send(again).sent(), [0_u128; 0]);
    assert_eq!(env.balance(env.usdc, PAYEE), 40);
    assert_eq!(env.done_at(OperationKind::Refund, 7), env.now);
    assert_eq!(env.done_at(OperationKind::Settlement, 7), 0);
}

#[test]
fn tokens_of_the_contract_itself_can_be_sent_back() {
    let mut env = Env::new();
    let (factory, usdc, usdt) = (env.factory, env.usdc, env.usdt);
    for token in [usdc, usdt] {
        env.mint(token, factory, 500);
    }
    let outcome = env.send(vec![
        send_item(1, B256::ZERO, usdc, PAYEE, 500),
        send_item(2, B256::ZERO, usdt, PAYEE, 499),
        send_item(3, B256::ZERO, usdt, PAYEE, 2),
        send_item(4, B256::ZERO, usdt, PAYEE, 0),
    ]);
    assert_eq!(outcome.sent(), [1, 2]);
    assert_eq!(outcome.events::<Payferry::Sent>()[0].vault, factory);
    assert_eq!(outcome.send_failures().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3, 4]);
    assert_eq!((env.balance(usdc, PAYEE), env.balance(usdt, PAYEE)), (500, 499));
}

#[test]
fn a_token_without_a_limit_cannot_be_sent_until_it_has_one() {
    let mut env = Env::new();
    let token = env.hostile_token();
    env.fund(env.usdc, "pay_1", 1);
    let mint = crate::env::HostileToken::mintCall { to: env.vault("pay_1"), value: U256::from(100) };
    assert!(env.call(STRANGER, token, &mint).ok);
    let item = send_item(1, salt("pay_1"), token, PAYEE, 50);
    assert_eq!(env.send(vec![item.clone()]).send_failures(), [(1, exceeded(0))]);
    env.admin(&Payferry::setLimitCall { token, limit: U256::from(100) });
    assert_eq!(env.send(vec![item]).sent(), [1]);
}

#[test]
fn the_bucket_holds_half_of_the_limit_and_refills_half_in_24_hours() {
    let mut env = rich();
    let usdc = env.usdc;
    let send = |id, amount: u64| send_item(id, psp(), usdc, PAYEE, amount.into());
    assert_eq!(env.send(vec![send(1, CAPACITY + 1)]).send_failures(), [(1, exceeded(CAPACITY))]);
    let outcome = env.send(vec![send(2, CAPACITY - 5), send(3, 6), send(4, 5), send(5, 1)]);
    assert_eq!(outcome.sent(), [2, 4]);
    assert_eq!(outcome.send_failures(), [(3, exceeded(5)), (5, exceeded(0))]);
    env.now += DAY_SECS / 2;
    assert_eq!(env.send(vec![send(6, CAPACITY / 2 + 1)]).send_failures(), [(6, exceeded(CAPACITY / 2))]);
    assert_eq!(env.send(vec![send(6, CAPACITY / 2)]).sent(), [6]);
    env.now += 100 * DAY_SECS;
    assert_eq!(env.send(vec![send(7, CAPACITY + 1)]).send_failures(), [(7, exceeded(CAPACITY))]);
    // Each token has its own bucket.
    env.fund(env.usdt, "pay_1", 10);
    assert_eq!(env.send(vec![send_item(8, salt("pay_1"), env.usdt, PAYEE, 10)]).sent(), [8]);
}

#[test]
fn a_failed_transfer_gives_its_part_of_the_limit_back() {
    let mut env = rich();
    let account = PAYEE;
    assert!(env.call(MINTER, env.usdc, &TestUSDC::blacklistCall { account }).ok);
    let item = send_item(1, psp(), env.usdc, PAYEE, CAPACITY.into());
    assert_eq!(env.send(vec![item.clone()]).send_failures().len(), 1);
    assert!(env.call(MINTER, env.usdc, &TestUSDC::unBlacklistCall { account }).ok);
    assert_eq!(env.send(vec![item]).sent(), [1]);
}

/// The thief sends as much as the contract allows at irregular times, also while the admin lowers and raises the limit.
#[test]
fn a_stolen_sender_key_moves_at_most_the_limit_in_any_24_hours() {
    let mut env = rich();
    let usdc = env.usdc;
    let mut random = crate::random::Random::new(7);
    let mut sent: Vec<(u64, u64)> = Vec::new();
    let mut moved = 0;
    for id in 0..600 {
        env.now += [0, 1, 59, 3_600, 20_000, 86_399][random.below(6)];
        if id % 97 == 50 {
            env.admin(&Payferry::setLimitCall { token: usdc, limit: U256::from(LIMIT / 3) });
            env.admin(&Payferry::setLimitCall { token: usdc, limit: U256::from(LIMIT) });
        }
        if id % 97 == 90 {
            let due = env.read(env.factory, &Payferry::proposalsCall {})[0].effectiveAt.to::<u64>();
            env.now = env.now.max(due);
            env.admin(&Payferry::enactCall { setting: payferry_contracts::Setting::Limit, subject: usdc });
        }
        let available: u64 = env.read(env.factory, &Payferry::limitOfCall { token: usdc }).available.to();
        let amount = if random.below(3) == 0 { available } else { available / 7 };
        let more = send_item(2_000 + id, psp(), usdc, STRANGER, u128::from(available) + 1);
        assert_eq!(env.send(vec![more]).sent(), [0_u128; 0]);
        if amount > 0 {
            assert_eq!(env.send(vec![send_item(id, psp(), usdc, STRANGER, amount.into())]).sent(), [id]);
            sent.push((env.now, amount));
            moved += amount;
        }
        let window: u64 = sent.iter().filter(|(at, _)| at + DAY_SECS >= env.now).map(|(_, amount)| amount).sum();
        assert!(window <= LIMIT, "{window} in 24 hours");
    }
    assert_eq!(env.balance(usdc, STRANGER), moved);
    assert!(moved > 10 * LIMIT, "{moved}: the windows were tested at the limit");
}
