//! Computed addresses match the addresses on the chain.

use alloy::consensus::TxEnvelope;
use alloy::consensus::transaction::SignerRecoverable;
use alloy::eips::eip2718::Decodable2718;
use alloy::primitives::{B256, TxKind, keccak256};
use payferry_contracts::{
    CREATE2_DEPLOYER, CREATE2_DEPLOYER_CODE, CREATE2_DEPLOYER_FUNDING_WEI, CREATE2_DEPLOYER_SIGNER,
    CREATE2_DEPLOYER_TRANSACTION, Payferry, salt_of, vault_address, vault_implementation_address,
};

use crate::env::{Env, settle_item};

#[test]
fn vault_addresses_match_the_contract() {
    let mut env = Env::new();
    let implementation = env.read(env.factory, &Payferry::vaultImplementationCall {});
    assert_eq!(implementation, vault_implementation_address(env.factory));
    for salt in [B256::ZERO, B256::repeat_byte(0xff), salt_of("pay_1"), salt_of("psp_1")] {
        let on_chain = env.read(env.factory, &Payferry::vaultAddressCall { salt });
        assert_eq!(on_chain, vault_address(env.factory, salt));
    }
}

#[test]
fn a_clone_is_created_at_its_computed_address_and_has_34_bytes() {
    let mut env = Env::new();
    let vault = env.vault("pay_1");
    assert_eq!(env.code_len(vault), 0);
    env.fund(env.usdc, "pay_1", 100);
    env.settle(vec![settle_item(1, "pay_1", env.usdc, "psp_1", 99, 1)]);
    assert_eq!(env.code_len(vault), 34);
}

#[test]
fn salts_hash_the_complete_id() {
    assert_eq!(salt_of("pay_1"), keccak256("payferry.vault:pay_1"));
    let long = "pay_".to_owned() + &"a".repeat(100);
    assert_ne!(salt_of(&long), salt_of(&format!("{long}b")));
    assert_ne!(salt_of("pay_1"), salt_of("psp_1"));
}

/// Checks the constants of the deployer against each other: the transaction is signed by the signer, costs exactly the
/// funding, and creates the code at the address.
#[test]
fn the_deployer_constants_are_consistent() {
    let transaction = TxEnvelope::decode_2718(&mut CREATE2_DEPLOYER_TRANSACTION.as_ref()).unwrap();
    let TxEnvelope::Legacy(signed) = &transaction else { panic!("legacy transaction") };
    let tx = signed.tx();
    assert_eq!(transaction.recover_signer().unwrap(), CREATE2_DEPLOYER_SIGNER);
    assert_eq!((tx.chain_id, tx.nonce, tx.to), (None, 0, TxKind::Create));
    assert_eq!(u128::from(tx.gas_limit) * tx.gas_price, u128::from(CREATE2_DEPLOYER_FUNDING_WEI));
    assert_eq!(CREATE2_DEPLOYER_SIGNER.create(0), CREATE2_DEPLOYER);
    let mut env = Env::new();
    let made = env.create(tx.input.clone());
    assert_eq!(env.code_len(made), CREATE2_DEPLOYER_CODE.len());
    assert!(tx.input.ends_with(&CREATE2_DEPLOYER_CODE));
}
