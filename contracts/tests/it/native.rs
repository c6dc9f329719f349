//! Native coin is refused, and swept if it arrives anyway.

use alloy::primitives::{B256, Bytes};
use alloy::sol_types::SolCall;
use payferry_contracts::{Payferry, Role, TX_GAS_MAX, Vault};
use revm::primitives::hardfork::SpecId;

use crate::env::{ADMIN, Env, SETTLER, STRANGER, TREASURY, salt, settle_item};

#[test]
fn vaults_and_the_contract_refuse_native_coin() {
    let mut env = Env::new();
    env.fund(env.usdc, "pay_1", 100);
    env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 100, 0)]);
    let (vault, factory) = (env.vault("pay_1"), env.factory);
    let implementation = env.read(factory, &Payferry::vaultImplementationCall {});
    env.force_coin(STRANGER, 1_000);
    let sweep = Bytes::from(Vault::sweepCall { to: STRANGER }.abi_encode());
    for target in [vault, factory, implementation] {
        for data in [Bytes::new(), Bytes::from_static(&[1]), sweep.clone()] {
            assert!(!env.transact_with_value(STRANGER, target.into(), data, 1_000_000, 1).ok);
        }
        assert!(!env.transact(STRANGER, target.into(), Bytes::new(), 1_000_000).ok, "empty calldata");
        assert_eq!(env.coin(target), 0);
    }
    assert_eq!(env.coin(STRANGER), 1_000);
}

#[test]
fn the_admin_sweeps_native_coin_to_the_treasury() {
    let mut env = Env::new();
    let (factory, vault) = (env.factory, env.vault("pay_1"));
    // Sent before the vault exists. The sweep deploys it; a second one uses it.
    env.force_coin(STRANGER, 1_000);
    assert!(env.transact_with_value(STRANGER, vault.into(), Bytes::new(), 100_000, 600).ok);
    env.admin(&Payferry::sweepNativeCall { vaultSalt: salt("pay_1") });
    assert_eq!((env.coin(vault), env.coin(TREASURY), env.code_len(vault)), (0, 600, 40));
    env.force_coin(vault, 5);
    env.admin(&Payferry::sweepNativeCall { vaultSalt: salt("pay_1") });
    env.force_coin(factory, 7);
    env.admin(&Payferry::sweepNativeCall { vaultSalt: B256::ZERO });
    assert_eq!((env.coin(vault), env.coin(factory), env.coin(TREASURY)), (0, 0, 612));
    // The vault still works.
    env.fund(env.usdc, "pay_1", 100);
    assert_eq!(env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 100, 1)]).settled(), [1]);
}

#[test]
fn a_sweep_needs_a_treasury_that_accepts() {
    let mut env = Env::deployed(SpecId::OSAKA);
    let (factory, vault) = (env.factory, env.vault("pay_1"));
    env.force_coin(vault, 5);
    let sweep = Payferry::sweepNativeCall { vaultSalt: salt("pay_1") };
    env.call(ADMIN, factory, &sweep).assert_reverted_with::<Payferry::NoTreasury>();
    // A contract without a way to receive native coin: the token.
    env.admin(&Payferry::setTreasuryCall { treasury_: env.usdc });
    env.call(ADMIN, factory, &sweep).assert_reverted_with::<Vault::SweepRefused>();
    env.force_coin(factory, 5);
    let own = Payferry::sweepNativeCall { vaultSalt: B256::ZERO };
    env.call(ADMIN, factory, &own).assert_reverted_with::<Vault::SweepRefused>();
    assert_eq!(env.coin(vault), 5);
    env.admin(&Payferry::grantCall { role: Role::Settler, key: SETTLER });
    assert!(!env.transact(SETTLER, factory.into(), sweep.abi_encode().into(), TX_GAS_MAX).ok);
}
