//! Computed addresses match the addresses on the chain.

use alloy::primitives::{B256, keccak256};
use payferry_contracts::{Payferry, salt_of, vault_address, vault_implementation_address};

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
