//! Addresses and keys: vault addresses, and the signer of the operator's transactions.
//!
//! Deliberately absent: nonces (the settler's table), fees, and chain access.

mod keystore;
mod signer;

use payferry_contracts::{salt_of, vault_code_hash};
use payferry_domain::{Address, Hash32, PaymentId, PspId};

pub use keystore::KeystoreError;
pub use signer::{OperatorSigner, SignedTx, SignerError};

/// Derives vault addresses. They depend on the factory's address alone, which is the same on every chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vaults {
    factory: Address,
    /// Hash of the vault's init code.
    code_hash: Hash32,
}

impl Vaults {
    /// Vaults of the factory (`Payferry`) at this address.
    pub fn new(factory: Address) -> Self {
        Self { factory, code_hash: domain_hash(vault_code_hash(alloy_address(factory))) }
    }

    /// Address of the factory.
    pub const fn factory(&self) -> Address {
        self.factory
    }

    /// The intermediary wallet of a payment: two hashes of its full id.
    pub fn of_payment(&self, id: PaymentId) -> Address {
        self.of(&id.to_string())
    }

    /// The vault that receives a PSP's share.
    pub fn of_psp(&self, id: PspId) -> Address {
        self.of(&id.to_string())
    }

    fn of(&self, id: &str) -> Address {
        domain_address(alloy_address(self.factory).create2(salt_of(id), alloy_hash(self.code_hash)))
    }
}

/// Converts a domain address to alloy's type.
pub fn alloy_address(address: Address) -> alloy::primitives::Address {
    alloy::primitives::Address::from(address.0)
}

/// Converts an alloy address to the domain's type.
pub fn domain_address(address: alloy::primitives::Address) -> Address {
    Address(address.into_array())
}

/// Formats an address with its EIP-55 checksum.
pub fn checksummed(address: Address) -> String {
    address.checksummed()
}

/// Converts a domain hash to alloy's type.
pub fn alloy_hash(hash: Hash32) -> alloy::primitives::B256 {
    alloy::primitives::B256::from(hash.0)
}

/// Converts an alloy hash to the domain's type.
pub fn domain_hash(hash: alloy::primitives::B256) -> Hash32 {
    Hash32(hash.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vault_addresses_differ_by_id_and_kind_and_match_the_contract() {
        let vaults = Vaults::new(Address([7; 20]));
        let payment = PaymentId::generate();
        let psp: PspId = payment.to_string().replace("pay_", "psp_").parse().unwrap();
        assert_ne!(vaults.of_payment(payment), vaults.of_psp(psp));
        assert_ne!(vaults.of_payment(payment), vaults.of_payment(PaymentId::generate()));
        let expected = payferry_contracts::vault_address([7; 20].into(), salt_of(&payment.to_string()));
        assert_eq!(vaults.of_payment(payment).0, expected.into_array());
    }
}
