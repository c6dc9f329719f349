//! The key behind the operator's account.
//!
//! Deliberately absent: the key in any output. Keystore files, mnemonics and a key service are further variants of
//! [`OperatorSigner`]; signing is asynchronous already for their sake.

use std::fmt;

use alloy::consensus::{SignableTransaction, TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Encodable2718;
use alloy::primitives::Bytes;
use alloy::signers::Signer as _;
use alloy::signers::local::PrivateKeySigner;
use payferry_domain::{Address, Hash32};

use super::{domain_address, domain_hash};

/// Why there is no signer or no signature. Says nothing about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignerError {
    /// The text is not a private key.
    #[error("a private key is 0x and 64 hexadecimal digits, and not zero")]
    NotAKey,
    /// The signer refused.
    #[error("the signer did not sign")]
    Refused,
}

/// Signs as one account.
#[derive(Clone)]
pub enum OperatorSigner {
    /// A key held in memory.
    Local(PrivateKeySigner),
}

/// A signed transaction, ready to store and broadcast.
#[derive(Clone, Debug)]
pub struct SignedTx {
    /// EIP-2718 bytes.
    pub raw: Bytes,
    /// Their hash.
    pub hash: Hash32,
}

impl OperatorSigner {
    /// From a private key as 64 hexadecimal digits, with or without `0x`.
    pub fn from_private_key(text: &str) -> Result<Self, SignerError> {
        text.trim().parse().map(Self::Local).map_err(|_| SignerError::NotAKey)
    }

    /// From a private key's 32 bytes.
    pub fn from_bytes(key: &[u8; 32]) -> Result<Self, SignerError> {
        PrivateKeySigner::from_slice(key).map(Self::Local).map_err(|_| SignerError::NotAKey)
    }

    /// The account.
    pub fn address(&self) -> Address {
        match self {
            Self::Local(signer) => domain_address(signer.address()),
        }
    }

    /// Signs a transaction.
    pub(crate) async fn sign(&self, tx: TxEip1559) -> Result<SignedTx, SignerError> {
        let digest = tx.signature_hash();
        let signature = match self {
            Self::Local(signer) => signer.sign_hash(&digest).await.map_err(|_| SignerError::Refused)?,
        };
        let envelope: TxEnvelope = tx.into_signed(signature).into();
        Ok(SignedTx { raw: envelope.encoded_2718().into(), hash: domain_hash(*envelope.tx_hash()) })
    }
}

impl fmt::Debug for OperatorSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OperatorSigner").field(&self.address()).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_signer_shows_its_account_and_no_key() {
        let key = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d";
        let signer = OperatorSigner::from_private_key(key).unwrap();
        let shown = format!("{signer:?}");
        assert_eq!(shown, "OperatorSigner(0x70997970c51812dc3a010c7d01b50e0d17dc79c8)");
        assert_eq!(OperatorSigner::from_private_key("0x12").unwrap_err(), SignerError::NotAKey);
        assert_eq!(OperatorSigner::from_bytes(&[0; 32]).unwrap_err(), SignerError::NotAKey);
    }
}
