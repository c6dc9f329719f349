//! Permissions to change settings, and the time at which changes take effect.

use alloy::primitives::{Address, TxKind, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::{PAYFERRY_DEPLOY_GAS_MAX, Payferry, payferry_init_code};

use crate::env::{ADMIN, Env, PAYEE, SENDER, SETTLER, STRANGER, TREASURY, send_item, settle_item};

const NEW: Address = Address::with_last_byte(0xb1);

#[test]
fn only_the_admin_can_administer() {
    let mut env = Env::new();
    let factory = env.factory;
    let calls: [Vec<u8>; 6] = [
        Payferry::proposeAdminCall { admin_: NEW }.abi_encode(),
        Payferry::setSettlerCall { settler_: NEW }.abi_encode(),
        Payferry::setSenderCall { sender_: NEW }.abi_encode(),
        Payferry::proposeTreasuryCall { treasury_: NEW }.abi_encode(),
        Payferry::applyTreasuryCall {}.abi_encode(),
        Payferry::setPausedCall { settlePaused_: true, sendPaused_: true }.abi_encode(),
    ];
    for who in [STRANGER, SETTLER, SENDER, TREASURY] {
        for data in &calls {
            let outcome = env.transact(who, TxKind::Call(factory), data.clone().into(), 1_000_000);
            outcome.assert_reverted_with::<Payferry::NotAdmin>();
        }
    }
}

#[test]
fn the_admin_changes_in_two_steps() {
    let mut env = Env::new();
    let factory = env.factory;
    env.call(NEW, factory, &Payferry::acceptAdminCall {}).assert_reverted_with::<Payferry::NotAdmin>();
    assert!(env.call(ADMIN, factory, &Payferry::proposeAdminCall { admin_: NEW }).ok);
    assert_eq!(env.read(factory, &Payferry::adminCall {}), ADMIN);
    env.call(ADMIN, factory, &Payferry::acceptAdminCall {}).assert_reverted_with::<Payferry::NotAdmin>();
    assert!(env.call(NEW, factory, &Payferry::acceptAdminCall {}).ok);
    assert_eq!(env.read(factory, &Payferry::adminCall {}), NEW);
    let set = Payferry::setSettlerCall { settler_: NEW };
    env.call(ADMIN, factory, &set).assert_reverted_with::<Payferry::NotAdmin>();
    assert!(env.call(NEW, factory, &set).ok);
    env.call(NEW, factory, &Payferry::acceptAdminCall {}).assert_reverted_with::<Payferry::NotAdmin>();
}

#[test]
fn roles_rotate_immediately() {
    let mut env = Env::new();
    let factory = env.factory;
    assert!(env.call(ADMIN, factory, &Payferry::setSettlerCall { settler_: NEW }).ok);
    assert!(env.call(ADMIN, factory, &Payferry::setSenderCall { sender_: STRANGER }).ok);
    env.fund(env.usdc, "pay_1", 1_000);
    let settle = Payferry::settleCall { items: vec![settle_item(1, "pay_1", env.usdc, "psp_1", 500, 0)] };
    let send = Payferry::sendCall { items: vec![send_item(2, "pay_1", env.usdc, PAYEE, 500)] };
    env.call(SETTLER, factory, &settle).assert_reverted_with::<Payferry::NotSettler>();
    env.call(SENDER, factory, &send).assert_reverted_with::<Payferry::NotSender>();
    assert_eq!(env.call(NEW, factory, &settle).settled(), [1]);
    assert_eq!(env.call(STRANGER, factory, &send).events::<Payferry::Sent>().len(), 1);
}

#[test]
fn settlements_and_outbound_transfers_pause_separately() {
    let mut env = Env::new();
    let factory = env.factory;
    env.fund(env.usdc, "pay_1", 1_000);
    let settle = |n| vec![settle_item(n, "pay_1", env.usdc, "psp_1", 100, 0)];
    let send = |n| vec![send_item(n, "pay_1", env.usdc, PAYEE, 100)];
    let (settle_1, settle_2, settle_3) = (settle(1), settle(2), settle(3));
    let (send_4, send_5, send_6) = (send(4), send(5), send(6));
    let pause =
        |settle_paused, send_paused| Payferry::setPausedCall { settlePaused_: settle_paused, sendPaused_: send_paused };
    assert!(env.call(ADMIN, factory, &pause(true, false)).ok);
    env.settle(settle_1).assert_reverted_with::<Payferry::SettlePaused>();
    assert!(env.send(send_4).ok);
    assert!(env.call(ADMIN, factory, &pause(false, true)).ok);
    assert_eq!(env.settle(settle_2).settled(), [2]);
    env.send(send_5).assert_reverted_with::<Payferry::SendPaused>();
    assert!(env.call(ADMIN, factory, &pause(false, false)).ok);
    assert_eq!(env.settle(settle_3).settled(), [3]);
    assert_eq!(env.send(send_6).events::<Payferry::Sent>().len(), 1);
    assert_eq!(env.balance(env.usdc, PAYEE), 200);
}

#[test]
fn a_new_treasury_waits_for_its_delay() {
    let mut env = Env::new();
    let factory = env.factory;
    let apply = Payferry::applyTreasuryCall {};
    env.call(ADMIN, factory, &apply).assert_reverted_with::<Payferry::NoTreasuryProposed>();
    let delay: u64 = env.read(factory, &Payferry::TREASURY_DELAYCall {}).to();
    assert_eq!(delay, 2 * 24 * 60 * 60);
    assert!(env.call(ADMIN, factory, &Payferry::proposeTreasuryCall { treasury_: NEW }).ok);
    let proposed_at = env.now;
    env.now = proposed_at + delay - 1;
    env.call(ADMIN, factory, &apply).assert_reverted_with::<Payferry::TreasuryTooEarly>();
    env.fund(env.usdc, "pay_1", 1_000);
    env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 490, 10)]);
    assert_eq!(env.balance(env.usdc, TREASURY), 10);
    env.now = proposed_at + delay;
    assert!(env.call(ADMIN, factory, &apply).ok);
    env.settle(vec![settle_item(2, "pay_1", env.usdc, "psp_1", 490, 10)]);
    assert_eq!(env.balance(env.usdc, TREASURY), 10);
    assert_eq!(env.balance(env.usdc, NEW), 10);
    env.call(ADMIN, factory, &apply).assert_reverted_with::<Payferry::NoTreasuryProposed>();
}

#[test]
fn a_second_proposal_restarts_the_delay() {
    let mut env = Env::new();
    let factory = env.factory;
    assert!(env.call(ADMIN, factory, &Payferry::proposeTreasuryCall { treasury_: NEW }).ok);
    env.now += 2 * 24 * 60 * 60;
    assert!(env.call(ADMIN, factory, &Payferry::proposeTreasuryCall { treasury_: STRANGER }).ok);
    let apply = Payferry::applyTreasuryCall {};
    env.call(ADMIN, factory, &apply).assert_reverted_with::<Payferry::TreasuryTooEarly>();
    let effective_at: u64 = env.read(factory, &Payferry::treasuryEffectiveAtCall {});
    assert_eq!(U256::from(effective_at), U256::from(env.now + 2 * 24 * 60 * 60));
}

#[test]
fn deployment_requires_an_admin_and_a_treasury() {
    let mut env = Env::new();
    for init_code in [
        payferry_init_code(Address::ZERO, SETTLER, SENDER, TREASURY),
        payferry_init_code(ADMIN, SETTLER, SENDER, Address::ZERO),
    ] {
        let outcome = env.transact(STRANGER, TxKind::Create, init_code, PAYFERRY_DEPLOY_GAS_MAX);
        outcome.assert_reverted_with::<Payferry::ZeroAddress>();
    }
}
