//! Computed addresses, salts and nonces match the contract's.

use alloy::primitives::{Address, B256};
use payferry_contracts::{
    Payferry, collect_nonce, payment_salt, psp_salt, vault_address, vault_code_hash, vault_implementation_address,
};

use crate::env::{CHAIN_ID, Env, salt, settle_item};

const IDS: [u128; 4] = [0, 1, 0x0192_3f4a_5b6c_7d8e_9fa0_b1c2_d3e4_f506, u128::MAX];

#[test]
fn vault_addresses_match_the_contract() {
    let mut env = Env::new();
    let implementation = env.read(env.factory, &Payferry::vaultImplementationCall {});
    assert_eq!(implementation, vault_implementation_address(env.factory));
    assert_eq!(env.read(env.factory, &Payferry::vaultInitCodeHashCall {}), vault_code_hash(env.factory));
    for salt in [B256::ZERO, B256::repeat_byte(0xff), salt("pay_1"), psp_salt(1)] {
        let on_chain = env.read(env.factory, &Payferry::vaultAddressCall { salt });
        assert_eq!(on_chain, vault_address(env.factory, salt));
    }
}

#[test]
fn salts_and_nonces_match_the_contract() {
    let mut env = Env::new();
    let factory = env.factory;
    for (payment, psp, fee) in [(IDS[0], IDS[1], 0), (IDS[1], IDS[0], 100), (IDS[2], IDS[3], u16::MAX)] {
        let call = Payferry::paymentSaltCall { paymentId: payment, pspId: psp, maxFeeBps: fee };
        assert_eq!(env.read(factory, &call), payment_salt(payment, psp, fee));
        assert_eq!(env.read(factory, &Payferry::pspSaltCall { pspId: psp }), psp_salt(psp));
        let vault = vault_address(factory, psp_salt(psp));
        let call =
            Payferry::collectNonceCall { paymentId: payment, pspVault: vault, maxFeeBps: fee, attempt: u16::MAX };
        assert_eq!(env.read(factory, &call), collect_nonce(CHAIN_ID, factory, payment, vault, fee, u16::MAX));
    }
}

#[test]
fn salts_and_nonces_commit_to_each_of_their_parts() {
    let salts = [payment_salt(1, 2, 3), payment_salt(2, 2, 3), payment_salt(1, 1, 3), payment_salt(1, 2, 4)];
    let [here, there] = [1, 2].map(Address::with_last_byte);
    let nonces = [
        collect_nonce(1, here, 1, here, 1, 1),
        collect_nonce(2, here, 1, here, 1, 1),
        collect_nonce(1, there, 1, here, 1, 1),
        collect_nonce(1, here, 2, here, 1, 1),
        collect_nonce(1, here, 1, there, 1, 1),
        collect_nonce(1, here, 1, here, 2, 1),
        collect_nonce(1, here, 1, here, 1, 2),
    ];
    for all in [&salts[..], &nonces[..]] {
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{i}");
        }
    }
    // The domains of payments and PSPs differ, whatever the ids are.
    for id in IDS {
        assert!(IDS.iter().all(|other| payment_salt(id, *other, 0) != psp_salt(*other)));
    }
}

#[test]
fn a_clone_is_created_at_its_computed_address_and_has_40_bytes() {
    let mut env = Env::new();
    let vault = env.vault("pay_1");
    assert_eq!(env.code_len(vault), 0);
    env.fund(env.usdc, "pay_1", 100);
    env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 100, 1)]);
    assert_eq!(env.code_len(vault), 40);
}
