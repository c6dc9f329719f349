//! Verifies that an account signed a message: with its key (EIP-191, `personal_sign`), or by its contract (ERC-1271).
//!
//! The key of an account needs no chain. A contract answers itself, on the chain where it is asked about. Deliberately absent:
//! accounts whose contract is not deployed on that chain (ERC-6492). They have sent no money there.

use std::time::Duration;

use alloy::primitives::{B256, Bytes, Signature, eip191_hash_message};
use alloy::sol_types::SolCall;
use payferry_contracts::{Erc1271, PLAIN_SIGNATURE_BYTES, SIGNATURE_BYTES_MAX};
use payferry_domain::{Address, Chain, Hash32};
use payferry_evm::client::ClientError;
use payferry_evm::wallet::{alloy_address, alloy_hash, domain_hash};

use super::System;

/// Maximum time for the answer of the chain.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Gas of the contract's check. A check of a passkey without a precompile needs about 400,000.
const CHECK_GAS: u64 = 1_000_000;

/// Reason why a signature is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AccountSignatureError {
    /// It is not that of the account, or not of this message.
    #[error("the signature is not one of this account for this message")]
    Invalid,
    /// The chain does not answer.
    #[error("the chain does not answer: {0}")]
    ChainAway(String),
}

impl System {
    /// Verifies that `account` signed the message with this hash. A contract is asked on `chain`.
    pub async fn verify_signature(
        &self,
        chain: Chain,
        account: Address,
        message_hash: Hash32,
        signature: &[u8],
    ) -> Result<(), AccountSignatureError> {
        let hash = alloy_hash(message_hash);
        let is_valid = signature.len() <= SIGNATURE_BYTES_MAX
            && (is_by_key(account, &hash, signature) || self.is_by_contract(chain, account, hash, signature).await?);
        is_valid.then_some(()).ok_or(AccountSignatureError::Invalid)
    }

    async fn is_by_contract(
        &self,
        chain: Chain,
        account: Address,
        hash: B256,
        signature: &[u8],
    ) -> Result<bool, AccountSignatureError> {
        let away = |why: &str| AccountSignatureError::ChainAway(why.to_owned());
        let client = self.inner.parts.accounts.client(chain).ok_or_else(|| away("it is not running"))?;
        let spec = self.chains().spec(chain).ok_or_else(|| away("it is not running"))?;
        let check = Erc1271::isValidSignatureCall { hash, signature: Bytes::copy_from_slice(signature) };
        let asked = client.call_from(spec.contract, account, check.abi_encode(), CHECK_GAS);
        match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
            // An account without a contract answers nothing.
            Ok(Ok(answer)) => {
                let is_valid =
                    |magic: alloy::primitives::FixedBytes<4>| magic == Erc1271::isValidSignatureCall::SELECTOR;
                Ok(Erc1271::isValidSignatureCall::abi_decode_returns_validate(&answer).is_ok_and(is_valid))
            }
            Ok(Err(ClientError::Reverted { .. })) => Ok(false),
            Ok(Err(error)) => Err(away(&error.to_string())),
            Err(_) => Err(away("it took too long")),
        }
    }
}

/// The hash of a message that accounts sign (EIP-191).
pub fn message_hash(message: &str) -> Hash32 {
    domain_hash(eip191_hash_message(message))
}

/// Returns true if the key of the account signed the hash. A contract has no key, so its code is not asked for.
fn is_by_key(account: Address, hash: &B256, signature: &[u8]) -> bool {
    let signature = (signature.len() == PLAIN_SIGNATURE_BYTES).then(|| Signature::from_raw(signature));
    let signer = signature.and_then(|signature| signature.ok()?.recover_address_from_prehash(hash).ok());
    signer == Some(alloy_address(account))
}

#[cfg(test)]
mod tests {
    use alloy::primitives::U256;
    use alloy::signers::SignerSync;
    use alloy::signers::local::PrivateKeySigner;
    use payferry_evm::wallet::domain_address;

    use super::*;

    #[test]
    fn key_signs_one_message_and_another_form_of_the_signature_is_the_same() {
        let signer = PrivateKeySigner::from_slice(&[7; 32]).unwrap();
        let account = domain_address(signer.address());
        let signed = signer.sign_message_sync(b"Refund 1").unwrap();
        let (hash, other) = (eip191_hash_message("Refund 1"), eip191_hash_message("Refund 2"));
        assert!(is_by_key(account, &hash, &signed.as_bytes()));
        assert!(!is_by_key(account, &other, &signed.as_bytes()));
        assert!(!is_by_key(Address([1; 20]), &hash, &signed.as_bytes()));
        assert!(!is_by_key(account, &hash, &signed.as_bytes()[..64]) && !is_by_key(account, &hash, &[0; 65]));
        // Wallets that write the parity as 0 or 1.
        let mut raw = signed.as_bytes();
        raw[64] -= 27;
        assert!(is_by_key(account, &hash, &raw));
        // The hash is the fact, not the signature: the other valid form of it changes nothing.
        let order: U256 = "0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141".parse().unwrap();
        let high = Signature::new(signed.r(), order - signed.s(), !signed.v());
        assert!(is_by_key(account, &hash, &high.as_bytes()));
    }
}
