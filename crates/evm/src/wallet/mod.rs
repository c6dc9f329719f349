//! Addresses and keys: where vaults are, and who signs the operator's transactions.
//!
//! Deliberately absent: nonces (the settler's table), fees, anything that talks to a chain.

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
    /// Of the code that creates them.
    code_hash: Hash32,
}

impl Vaults {
    /// Vaults of the factory (`Payferry`) at this address.
    pub fn new(factory: Address) -> Self {
        Self { factory, code_hash: domain_hash(vault_code_hash(alloy_address(factory))) }
    }

    /// The factory.
    pub const fn factory(&self) -> Address {
        self.factory
    }

    /// The intermediary wallet of a payment: two hashes of its full id.
    pub fn of_payment(&self, id: PaymentId) -> Address {
        self.of(&id.to_string())
    }

    /// The vault where a PSP's share lands.
    pub fn of_psp(&self, id: PspId) -> Address {
        self.of(&id.to_string())
    }

    fn of(&self, id: &str) -> Address {
        domain_address(alloy_address(self.factory).create2(salt_of(id), alloy_hash(self.code_hash)))
    }
}

/// The domain's address as alloy's.
pub fn alloy_address(address: Address) -> alloy::primitives::Address {
    alloy::primitives::Address::from(address.0)
}

/// alloy's address as the domain's.
pub fn domain_address(address: alloy::primitives::Address) -> Address {
    Address(address.into_array())
}

/// An address as people compare it: EIP-55, with its checksum in the letters' case.
pub fn checksummed(address: Address) -> String {
    alloy_address(address).to_checksum(None)
}

/// The domain's hash as alloy's.
pub fn alloy_hash(hash: Hash32) -> alloy::primitives::B256 {
    alloy::primitives::B256::from(hash.0)
}

/// alloy's hash as the domain's.
pub fn domain_hash(hash: alloy::primitives::B256) -> Hash32 {
    Hash32(hash.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn vaults_differ_by_id_and_kind_and_are_the_contracts() {
        let vaults = Vaults::new(Address([7; 20]));
        let payment = PaymentId::generate();
        let psp: PspId = payment.to_string().replace("pay_", "psp_").parse().unwrap();
        assert_ne!(vaults.of_payment(payment), vaults.of_psp(psp));
        assert_ne!(vaults.of_payment(payment), vaults.of_payment(PaymentId::generate()));
        let expected = payferry_contracts::vault_address([7; 20].into(), salt_of(&payment.to_string()));
        assert_eq!(vaults.of_payment(payment).0, expected.into_array());
    }
}
