//! Roles, settings, and the time at which changes take effect.

use alloy::primitives::{Address, Bytes, TxKind, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::{ITEM_GAS, PAYFERRY_DEPLOY_GAS_MAX, Payferry, Role, Setting, payferry_init_code};
use revm::primitives::hardfork::SpecId;

use crate::env::{
    ADMIN, DAY_SECS, Env, GUARDIAN, LIMIT, PAYEE, SENDER, SETTLER, STRANGER, TREASURY, salt, send_item, settle_item,
};

const NEW: Address = Address::with_last_byte(0xb1);
const OTHER: Address = Address::with_last_byte(0xb2);
const DELAY_SECS: u64 = 2 * DAY_SECS;

fn grant(role: Role, key: Address) -> Payferry::grantCall {
    Payferry::grantCall { role, key }
}

fn revoke(role: Role, key: Address) -> Payferry::revokeCall {
    Payferry::revokeCall { role, key }
}

fn enact(setting: Setting, subject: Address) -> Payferry::enactCall {
    Payferry::enactCall { setting, subject }
}

fn limit(token: Address, limit: u64) -> Payferry::setLimitCall {
    Payferry::setLimitCall { token, limit: U256::from(limit) }
}

fn has(env: &mut Env, role: Role, key: Address) -> bool {
    env.read(env.factory, &Payferry::hasRoleCall { role, key })
}

/// Enacts a change one second too early, which fails, and then in time.
fn enact_after_delay(env: &mut Env, setting: Setting, subject: Address) {
    let factory = env.factory;
    let proposals = env.read(factory, &Payferry::proposalsCall {});
    let proposal = proposals.iter().find(|p| p.setting == setting && p.subject == subject).expect("is proposed");
    assert_eq!(proposal.effectiveAt.to::<u64>(), env.now + DELAY_SECS);
    env.now += DELAY_SECS - 1;
    let caller = if setting == Setting::Admin { subject } else { ADMIN };
    env.call(caller, factory, &enact(setting, subject)).assert_reverted_with::<Payferry::TooEarly>();
    env.now += 1;
    assert!(env.call(caller, factory, &enact(setting, subject)).ok);
    assert!(!env.read(factory, &Payferry::proposalsCall {}).iter().any(|p| p.setting == setting));
}

#[test]
fn everything_is_zero_at_deployment() {
    let mut env = Env::deployed(SpecId::OSAKA);
    let factory = env.factory;
    for role in [Role::Settler, Role::Sender, Role::Guardian] {
        assert!(env.read(factory, &Payferry::keysOfCall { role }).is_empty());
    }
    assert_eq!(env.read(factory, &Payferry::treasuryCall {}), Address::ZERO);
    assert_eq!(env.read(factory, &Payferry::adminCall {}), ADMIN);
    assert_eq!(env.read(factory, &Payferry::delayCall {}).to::<u64>(), DELAY_SECS);
    assert_eq!(env.read(factory, &Payferry::VERSIONCall {}).to::<u64>(), 2);
    let limit = env.read(factory, &Payferry::limitOfCall { token: env.usdc });
    assert_eq!((limit.limit, limit.available), (U256::ZERO, U256::ZERO));
    env.call(SETTLER, factory, &Payferry::settleCall { items: vec![], itemGas: ITEM_GAS })
        .assert_reverted_with::<Payferry::NotSettler>();
}

#[test]
fn deployment_requires_an_admin() {
    let mut env = Env::new();
    let outcome = env.transact(STRANGER, TxKind::Create, payferry_init_code(Address::ZERO), PAYFERRY_DEPLOY_GAS_MAX);
    outcome.assert_reverted_with::<Payferry::InvalidAddress>();
}

#[test]
fn only_the_admin_can_administer() {
    let mut env = Env::new();
    let factory = env.factory;
    let calls: [Vec<u8>; 9] = [
        grant(Role::Settler, NEW).abi_encode(),
        Payferry::setTreasuryCall { treasury_: NEW }.abi_encode(),
        limit(env.usdc, 1).abi_encode(),
        Payferry::proposeAdminCall { admin_: NEW }.abi_encode(),
        Payferry::setDelayCall { delay_: U256::from(DELAY_SECS * 2) }.abi_encode(),
        enact(Setting::Treasury, NEW).abi_encode(),
        Payferry::cancelCall { setting: Setting::Treasury, subject: NEW }.abi_encode(),
        Payferry::unpauseCall { settle_: true, send_: true }.abi_encode(),
        Payferry::sweepNativeCall { vaultSalt: salt("pay_1") }.abi_encode(),
    ];
    for who in [STRANGER, SETTLER, SENDER, GUARDIAN, TREASURY] {
        for data in &calls {
            let outcome = env.transact(who, TxKind::Call(factory), data.clone().into(), 1_000_000);
            outcome.assert_reverted_with::<Payferry::NotAdmin>();
        }
    }
    // The new admin is the only one to accept, and only its own proposal.
    env.call(NEW, factory, &enact(Setting::Admin, NEW)).assert_reverted_with::<Payferry::NotProposed>();
}

#[test]
fn each_function_requires_its_role() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 1_000);
    let (factory, item_gas) = (env.factory, ITEM_GAS);
    let settle =
        Payferry::settleCall { items: vec![settle_item(1, "pay_1", env.usdc, "psp_1", 990, 9)], itemGas: item_gas };
    let send =
        Payferry::sendCall { items: vec![send_item(1, salt("pay_1"), env.usdc, PAYEE, 1_000)], itemGas: item_gas };
    let collect = Payferry::collectCall { groups: vec![], deposits: vec![], itemGas: item_gas };
    let group = Payferry::CollectGroup { pspId: 1, token: env.usdc, items: vec![] };
    for who in [STRANGER, ADMIN, SENDER, GUARDIAN, TREASURY] {
        env.call(who, factory, &settle).assert_reverted_with::<Payferry::NotSettler>();
        env.call(who, factory, &collect).assert_reverted_with::<Payferry::NotSettler>();
    }
    for who in [STRANGER, ADMIN, SETTLER, GUARDIAN, TREASURY] {
        env.call(who, factory, &send).assert_reverted_with::<Payferry::NotSender>();
    }
    for who in [STRANGER, ADMIN, SETTLER, SENDER, GUARDIAN] {
        let settle_item = Payferry::settleItemCall { item: settle.items[0].clone() };
        let send_item = Payferry::sendItemCall { item: send.items[0].clone() };
        let collect_group = Payferry::collectGroupCall { group: group.clone(), itemGas: item_gas, held: U256::MAX };
        env.call(who, factory, &settle_item).assert_reverted_with::<Payferry::NotSelf>();
        env.call(who, factory, &send_item).assert_reverted_with::<Payferry::NotSelf>();
        env.call(who, factory, &collect_group).assert_reverted_with::<Payferry::NotSelf>();
    }
    assert_eq!(env.vault_balance(env.usdc, "pay_1"), 1_000);
}

#[test]
fn the_first_grant_is_immediate_and_later_ones_wait() {
    let mut env = Env::deployed(SpecId::OSAKA);
    let factory = env.factory;
    for (role, setting) in
        [(Role::Settler, Setting::Settler), (Role::Sender, Setting::Sender), (Role::Guardian, Setting::Guardian)]
    {
        env.admin(&grant(role, SETTLER));
        assert!(has(&mut env, role, SETTLER));
        env.admin(&grant(role, NEW));
        assert!(!has(&mut env, role, NEW));
        enact_after_delay(&mut env, setting, NEW);
        assert!(has(&mut env, role, NEW) && has(&mut env, role, SETTLER), "a role has several keys");
        assert_eq!(env.read(factory, &Payferry::keysOfCall { role }), [SETTLER, NEW]);
        env.call(ADMIN, factory, &grant(role, NEW)).assert_reverted_with::<Payferry::AlreadySet>();
        // Revoking every key does not make the next grant a first one.
        env.admin(&revoke(role, SETTLER));
        env.admin(&revoke(role, NEW));
        assert!(env.read(factory, &Payferry::keysOfCall { role }).is_empty());
        env.admin(&grant(role, OTHER));
        assert!(!has(&mut env, role, OTHER));
        enact_after_delay(&mut env, setting, OTHER);
    }
    env.call(ADMIN, factory, &grant(Role::Settler, Address::ZERO)).assert_reverted_with::<Payferry::InvalidAddress>();
}

#[test]
fn the_first_treasury_is_immediate_and_later_ones_wait() {
    let mut env = Env::deployed(SpecId::OSAKA);
    let factory = env.factory;
    for treasury in [Address::ZERO, factory] {
        let set = Payferry::setTreasuryCall { treasury_: treasury };
        env.call(ADMIN, factory, &set).assert_reverted_with::<Payferry::InvalidAddress>();
    }
    env.admin(&Payferry::setTreasuryCall { treasury_: TREASURY });
    assert_eq!(env.read(factory, &Payferry::treasuryCall {}), TREASURY);
    env.admin(&Payferry::setTreasuryCall { treasury_: OTHER });
    // A second proposal replaces the first and restarts the delay.
    env.now += DAY_SECS;
    env.admin(&Payferry::setTreasuryCall { treasury_: NEW });
    env.now += DAY_SECS;
    env.call(ADMIN, factory, &enact(Setting::Treasury, OTHER)).assert_reverted_with::<Payferry::NotProposed>();
    env.call(ADMIN, factory, &enact(Setting::Treasury, NEW)).assert_reverted_with::<Payferry::TooEarly>();
    assert_eq!(env.read(factory, &Payferry::treasuryCall {}), TREASURY);
    env.now += DAY_SECS;
    env.admin(&enact(Setting::Treasury, NEW));
    assert_eq!(env.read(factory, &Payferry::treasuryCall {}), NEW);
    env.call(ADMIN, factory, &enact(Setting::Treasury, NEW)).assert_reverted_with::<Payferry::NotProposed>();
}

#[test]
fn a_cancelled_proposal_cannot_be_enacted() {
    let mut env = Env::new();
    let factory = env.factory;
    env.admin(&Payferry::setTreasuryCall { treasury_: NEW });
    env.admin(&Payferry::cancelCall { setting: Setting::Treasury, subject: NEW });
    env.now += DELAY_SECS;
    env.call(ADMIN, factory, &enact(Setting::Treasury, NEW)).assert_reverted_with::<Payferry::NotProposed>();
    let cancel = Payferry::cancelCall { setting: Setting::Treasury, subject: NEW };
    env.call(ADMIN, factory, &cancel).assert_reverted_with::<Payferry::NotProposed>();
}

#[test]
fn a_limit_is_lowered_immediately_and_raised_after_the_delay() {
    let mut env = Env::new();
    let (factory, usdc) = (env.factory, env.usdc);
    let now = |env: &mut Env| {
        let limit = env.read(factory, &Payferry::limitOfCall { token: usdc });
        (limit.limit.to::<u64>(), limit.available.to::<u64>())
    };
    assert_eq!(now(&mut env), (LIMIT, LIMIT / 2));
    env.admin(&limit(usdc, LIMIT * 2));
    assert_eq!(now(&mut env), (LIMIT, LIMIT / 2));
    env.admin(&limit(usdc, 1_000));
    assert_eq!(now(&mut env), (1_000, 500));
    // Lowering withdrew the pending raise.
    env.now += DELAY_SECS;
    env.call(ADMIN, factory, &enact(Setting::Limit, usdc)).assert_reverted_with::<Payferry::NotProposed>();
    env.admin(&limit(usdc, 0));
    assert_eq!(now(&mut env), (0, 0));
    // The limit is zero and was set before, so this is no first limit. Raising does not refill the bucket.
    env.admin(&limit(usdc, 2_000));
    assert_eq!(now(&mut env), (0, 0));
    enact_after_delay(&mut env, Setting::Limit, usdc);
    assert_eq!(now(&mut env), (2_000, 0));
    env.now += DAY_SECS / 4;
    assert_eq!(now(&mut env), (2_000, 250));
    env.now += DAY_SECS * 10;
    assert_eq!(now(&mut env), (2_000, 1_000));
    let too_large = Payferry::setLimitCall { token: usdc, limit: U256::from(1) << 104 };
    env.call(ADMIN, factory, &too_large).assert_reverted_with::<Payferry::InvalidValue>();
}

#[test]
fn the_admin_changes_in_two_steps_after_the_delay() {
    let mut env = Env::new();
    let factory = env.factory;
    env.admin(&Payferry::proposeAdminCall { admin_: NEW });
    assert_eq!(env.read(factory, &Payferry::adminCall {}), ADMIN);
    for who in [ADMIN, STRANGER] {
        env.call(who, factory, &enact(Setting::Admin, NEW)).assert_reverted_with::<Payferry::NotAdmin>();
    }
    enact_after_delay(&mut env, Setting::Admin, NEW);
    assert_eq!(env.read(factory, &Payferry::adminCall {}), NEW);
    let pause = Payferry::unpauseCall { settle_: true, send_: true };
    env.call(ADMIN, factory, &pause).assert_reverted_with::<Payferry::NotAdmin>();
    assert!(env.call(NEW, factory, &pause).ok);
    env.call(NEW, factory, &enact(Setting::Admin, NEW)).assert_reverted_with::<Payferry::NotProposed>();
    let zero = Payferry::proposeAdminCall { admin_: Address::ZERO };
    env.call(NEW, factory, &zero).assert_reverted_with::<Payferry::InvalidAddress>();
}

#[test]
fn a_longer_delay_is_immediate_and_a_shorter_one_waits() {
    let mut env = Env::new();
    let factory = env.factory;
    let set = |days: u64| Payferry::setDelayCall { delay_: U256::from(days * DAY_SECS) };
    env.admin(&set(1));
    assert_eq!(env.read(factory, &Payferry::delayCall {}).to::<u64>(), DELAY_SECS);
    enact_after_delay(&mut env, Setting::Delay, Address::ZERO);
    assert_eq!(env.read(factory, &Payferry::delayCall {}).to::<u64>(), DAY_SECS);
    env.admin(&set(30));
    assert_eq!(env.read(factory, &Payferry::delayCall {}).to::<u64>(), 30 * DAY_SECS);
    for days in [0, 31] {
        env.call(ADMIN, factory, &set(days)).assert_reverted_with::<Payferry::InvalidValue>();
    }
}

#[test]
fn the_guardian_pauses_and_revokes_but_gives_nothing() {
    let mut env = Env::new();
    let factory = env.factory;
    env.admin(&grant(Role::Settler, NEW));
    for (role, key) in [(Role::Settler, SETTLER), (Role::Sender, SENDER), (Role::Settler, NEW)] {
        env.call(STRANGER, factory, &revoke(role, key)).assert_reverted_with::<Payferry::NotGuardian>();
        assert!(env.call(GUARDIAN, factory, &revoke(role, key)).ok);
        assert!(!has(&mut env, role, key));
    }
    // The pending grant is withdrawn, too.
    assert!(env.read(factory, &Payferry::proposalsCall {}).is_empty());
    env.call(GUARDIAN, factory, &revoke(Role::Guardian, GUARDIAN)).assert_reverted_with::<Payferry::NotGuardian>();
    let pause = |settle_, send_| Payferry::pauseCall { settle_, send_ };
    env.call(STRANGER, factory, &pause(true, true)).assert_reverted_with::<Payferry::NotGuardian>();
    assert!(env.call(GUARDIAN, factory, &pause(true, false)).ok);
    assert!(env.call(GUARDIAN, factory, &pause(false, true)).ok);
    assert!(env.read(factory, &Payferry::settlePausedCall {}) && env.read(factory, &Payferry::sendPausedCall {}));
    let unpause = Payferry::unpauseCall { settle_: true, send_: true };
    env.call(GUARDIAN, factory, &unpause).assert_reverted_with::<Payferry::NotAdmin>();
    env.admin(&revoke(Role::Guardian, GUARDIAN));
    env.call(GUARDIAN, factory, &pause(true, true)).assert_reverted_with::<Payferry::NotGuardian>();
}

#[test]
fn settlements_and_outbound_transfers_pause_separately() {
    let mut env = Env::new();
    let usdc = env.usdc;
    env.fund(usdc, "pay_1", 1_000);
    let settle = |id| vec![settle_item(id, "pay_1", usdc, "psp_1", 100, 0)];
    let send = |id| vec![send_item(id, salt("pay_1"), usdc, PAYEE, 100)];
    env.admin(&Payferry::pauseCall { settle_: true, send_: false });
    env.settle(settle(1)).assert_reverted_with::<Payferry::SettlePaused>();
    env.collect(vec![], vec![]).assert_reverted_with::<Payferry::SettlePaused>();
    assert_eq!(env.send(send(4)).sent(), [4]);
    env.admin(&Payferry::pauseCall { settle_: false, send_: true });
    env.admin(&Payferry::unpauseCall { settle_: true, send_: false });
    assert_eq!(env.settle(settle(2)).settled(), [2]);
    env.send(send(5)).assert_reverted_with::<Payferry::SendPaused>();
    env.admin(&Payferry::unpauseCall { settle_: false, send_: true });
    assert_eq!(env.settle(settle(3)).settled(), [3]);
    assert_eq!(env.send(send(6)).sent(), [6]);
    assert_eq!(env.balance(usdc, PAYEE), 200);
}

/// An admin cannot fill the lists so that the guardian's `revoke` runs out of gas.
#[test]
fn keys_and_proposals_are_bounded() {
    let mut env = Env::new();
    let factory = env.factory;
    let key = |n: u8| Address::repeat_byte(n);
    for n in 1..=32 {
        env.admin(&grant(Role::Settler, key(n)));
    }
    env.call(ADMIN, factory, &grant(Role::Settler, key(33))).assert_reverted_with::<Payferry::TooManyProposals>();
    env.now += DELAY_SECS;
    for n in 1..8 {
        env.admin(&enact(Setting::Settler, key(n)));
    }
    env.call(ADMIN, factory, &enact(Setting::Settler, key(8))).assert_reverted_with::<Payferry::TooManyKeys>();
    let data: Bytes = revoke(Role::Settler, key(7)).abi_encode().into();
    let outcome = env.transact(GUARDIAN, factory.into(), data, 300_000);
    assert!(outcome.ok && !has(&mut env, Role::Settler, key(7)), "{outcome:?}");
}
