//! Addresses and keys: vault addresses, and the signer of an account's transactions.
//!
//! Deliberately absent: nonces (the settler's table), fees, and chain access.

mod keystore;
mod remote;
mod signer;

use alloy::primitives::B256;
use payferry_contracts::{payment_salt, psp_salt, vault_code_hash};
use payferry_domain::{Address, FeeBps, Hash32, PaymentId, PspId};

pub use keystore::KeystoreError;
pub use remote::{KeyListing, RemoteFault, RemoteKey, RemoteSigner, RemoteSignerError};
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

    /// The intermediary wallet of a payment. It commits to the PSP and to the maximum fee.
    pub fn of_payment(&self, id: PaymentId, psp_id: PspId, max_fee: FeeBps) -> Address {
        self.at(payment_salt(id.ulid().0, psp_id.ulid().0, max_fee.get()))
    }

    /// The vault that receives a PSP's share.
    pub fn of_psp(&self, id: PspId) -> Address {
        self.at(psp_salt(id.ulid().0))
    }

    fn at(&self, salt: B256) -> Address {
        domain_address(alloy_address(self.factory).create2(salt, alloy_hash(self.code_hash)))
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
    fn vault_addresses_differ_by_their_parts_and_match_the_contract() {
        let vaults = Vaults::new(Address([7; 20]));
        let (payment, psp, fee) = (PaymentId::generate(), PspId::generate(), FeeBps::DEFAULT);
        let vault = vaults.of_payment(payment, psp, fee);
        assert_ne!(vault, vaults.of_psp(PspId::from_ulid(payment.ulid())));
        assert_ne!(vault, vaults.of_payment(PaymentId::generate(), psp, fee));
        assert_ne!(vault, vaults.of_payment(payment, PspId::generate(), fee));
        assert_ne!(vault, vaults.of_payment(payment, psp, FeeBps::ZERO));
        let salt = payment_salt(payment.ulid().0, psp.ulid().0, fee.get());
        assert_eq!(vault.0, payferry_contracts::vault_address([7; 20].into(), salt).into_array());
    }
}
