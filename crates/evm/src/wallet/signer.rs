//! The key behind the operator's account.
//!
//! It comes as a private key, a keystore file with its password, or a mnemonic with an index; what comes in is borrowed,
//! and whoever holds it wipes it. Deliberately absent: the key in any output, and a key service, which would be a further
//! variant of [`OperatorSigner`]; signing is asynchronous already for its sake.

use std::fmt;
use std::path::Path;

use alloy::consensus::{SignableTransaction, TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Encodable2718;
use alloy::primitives::Bytes;
use alloy::signers::Signer as _;
use alloy::signers::local::coins_bip39::{English, Wordlist};
use alloy::signers::local::{MnemonicBuilder, PrivateKeySigner};
use payferry_domain::{Address, Hash32};

use super::keystore::{self, KeystoreError};
use super::{domain_address, domain_hash};

/// Highest index of a mnemonic's accounts: from here on BIP-32 means hardened ones.
const MNEMONIC_INDEX_MAX: u32 = (1 << 31) - 1;

/// Why there is no signer or no signature. Says nothing about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignerError {
    /// The text is not a private key.
    #[error("a private key is 0x and 64 hexadecimal digits, and not zero")]
    NotAKey,
    /// The keystore file gave no key.
    #[error(transparent)]
    Keystore(#[from] KeystoreError),
    /// So many words are no mnemonic.
    #[error("a mnemonic has 12, 15, 18, 21 or 24 words, and this one has {0}")]
    MnemonicLength(usize),
    /// A word of the mnemonic is not of the list; which one, counted from 1, and not what it says.
    #[error("word {0} of the mnemonic is not of the English BIP-39 list")]
    MnemonicWord(usize),
    /// The words are fine and do not belong together.
    #[error("the mnemonic's checksum does not fit: a word is wrong or in the wrong place")]
    MnemonicChecksum,
    /// There is no such account.
    #[error("a mnemonic's index is at most {MNEMONIC_INDEX_MAX}")]
    MnemonicIndex,
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

    /// From a keystore file (Web3 Secret Storage, version 3) and its password, which is taken as it is: a line end that
    /// a password's file has is the caller's to cut. Blocks for as long as the file's key derivation takes, a second or
    /// so.
    pub fn from_keystore(path: &Path, password: &str) -> Result<Self, SignerError> {
        Ok(Self::Local(keystore::open(path, password)?))
    }

    /// From an English BIP-39 mnemonic without passphrase: the account `m/44'/60'/0'/0/index`, as wallets count them.
    /// Blanks and lines between the words do not matter.
    pub fn from_mnemonic(phrase: &str, index: u32) -> Result<Self, SignerError> {
        let words: Vec<&str> = phrase.split_whitespace().collect();
        if !matches!(words.len(), 12 | 15 | 18 | 21 | 24) {
            return Err(SignerError::MnemonicLength(words.len()));
        }
        if let Some(position) = words.iter().position(|word| English::get_index(word).is_err()) {
            return Err(SignerError::MnemonicWord(position + 1));
        }
        // The builder wipes its phrase when it is dropped, and its errors quote it: they end here.
        let builder = MnemonicBuilder::from_phrase(words.join(" "));
        let builder = builder.index(index).map_err(|_| SignerError::MnemonicIndex)?;
        builder.build().map(Self::Local).map_err(|_| SignerError::MnemonicChecksum)
    }

    /// The account.
    pub fn address(&self) -> Address {
        match self {
            Self::Local(signer) => domain_address(signer.address()),
        }
    }

    /// Signs a transaction.
    pub async fn sign(&self, tx: TxEip1559) -> Result<SignedTx, SignerError> {
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

    /// The mnemonic that development nodes use.
    const JUNK: &str = "test test test test test test test test test test test junk";

    #[test]
    fn a_mnemonic_gives_the_accounts_that_wallets_show() {
        let account = |phrase: &str, index| OperatorSigner::from_mnemonic(phrase, index).unwrap().address().to_string();
        assert_eq!(account(JUNK, 0), "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266");
        assert_eq!(account(JUNK, 1), "0x70997970c51812dc3a010c7d01b50e0d17dc79c8");
        assert_eq!(account(&format!("\n {}\r\n", JUNK.replace(' ', "  ")), 9), account(JUNK, 9));
        let abandon = format!("{}art", "abandon ".repeat(23));
        assert_eq!(account(&abandon, 0), "0xf278cf59f82edcf871d630f28ecc8056f25c1cdb");
    }

    #[test]
    fn a_mnemonics_errors_say_what_is_wrong_and_show_no_word() {
        let refused = |phrase: &str| OperatorSigner::from_mnemonic(phrase, 0).unwrap_err();
        assert_eq!(refused("test junk"), SignerError::MnemonicLength(2));
        assert_eq!(refused(&JUNK.replace("test junk", "tset junk")), SignerError::MnemonicWord(11));
        let checksum = refused(&JUNK.replace("junk", "test"));
        assert_eq!(checksum, SignerError::MnemonicChecksum);
        assert!(!format!("{checksum} {checksum:?}").contains("test"));
        let hardened = OperatorSigner::from_mnemonic(JUNK, MNEMONIC_INDEX_MAX + 1).unwrap_err();
        assert_eq!(hardened, SignerError::MnemonicIndex);
        OperatorSigner::from_mnemonic(JUNK, MNEMONIC_INDEX_MAX).unwrap();
    }
}
