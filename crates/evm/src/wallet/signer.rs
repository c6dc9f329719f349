//! Signer of one account: the settler's, the sender's, or the admin's.
//!
//! The key comes from a private key, a keystore file with its password, or a mnemonic with an index, or a remote signer has
//! it. Inputs are borrowed; the caller wipes them. Deliberately absent: the key in any output.

use std::path::Path;
use std::sync::Arc;

use alloy::consensus::{SignableTransaction, TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Encodable2718;
use alloy::primitives::Bytes;
use alloy::signers::Signer as _;
use alloy::signers::local::coins_bip39::{English, Wordlist};
use alloy::signers::local::{MnemonicBuilder, PrivateKeySigner};
use payferry_domain::{Address, Hash32};

use super::keystore::{self, KeystoreError};
use super::remote::{RemoteKey, RemoteSigner, RemoteSignerError};
use super::{domain_address, domain_hash};

/// Highest account index of a mnemonic: BIP-32 uses higher indexes for hardened keys.
const MNEMONIC_INDEX_MAX: u32 = (1 << 31) - 1;

/// Error of creating a signer or a signature. Never contains the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignerError {
    /// The text is not a private key.
    #[error("a private key must be 0x and 64 hexadecimal digits, and must not be zero")]
    NotAKey,
    /// The keystore file could not be read.
    #[error(transparent)]
    Keystore(#[from] KeystoreError),
    /// The mnemonic has an invalid number of words.
    #[error("a mnemonic must have 12, 15, 18, 21 or 24 words, but this one has {0}")]
    MnemonicLength(usize),
    /// A word of the mnemonic is not in the word list: its position, counted from 1, and not the word itself.
    #[error("word {0} of the mnemonic is not in the English BIP-39 word list")]
    MnemonicWord(usize),
    /// All words are valid, but the checksum is not.
    #[error("the mnemonic's checksum is invalid: a word is wrong or in the wrong place")]
    MnemonicChecksum,
    /// The account index is too high.
    #[error("a mnemonic's index must be at most {MNEMONIC_INDEX_MAX}")]
    MnemonicIndex,
    /// The signer rejected the request.
    #[error("the signer did not sign")]
    Refused,
    /// The remote signer failed.
    #[error(transparent)]
    Remote(#[from] RemoteSignerError),
}

/// Signer of one account.
#[derive(Clone, derive_more::Debug)]
#[debug("OperatorSigner({})", self.address())]
pub struct OperatorSigner(Key);

#[derive(Clone)]
enum Key {
    Local(PrivateKeySigner),
    Remote(Arc<RemoteSigner>),
}

impl From<PrivateKeySigner> for OperatorSigner {
    fn from(key: PrivateKeySigner) -> Self {
        Self(Key::Local(key))
    }
}

/// A signed transaction, ready to store and broadcast.
#[derive(Clone, Debug)]
pub struct SignedTx {
    /// EIP-2718 bytes of the transaction.
    pub raw: Bytes,
    /// Transaction hash.
    pub hash: Hash32,
}

impl OperatorSigner {
    /// Creates a signer from a private key of 64 hexadecimal digits, with or without `0x`.
    pub fn from_private_key(text: &str) -> Result<Self, SignerError> {
        text.trim().parse().map(PrivateKeySigner::into).map_err(|_| SignerError::NotAKey)
    }

    /// Creates a signer from the 32 bytes of a private key.
    pub fn from_bytes(key: &[u8; 32]) -> Result<Self, SignerError> {
        PrivateKeySigner::from_slice(key).map(Self::from).map_err(|_| SignerError::NotAKey)
    }

    /// Creates a signer from a keystore file (Web3 Secret Storage, version 3) and its password. The password is used as
    /// it is: the caller must remove the line end of a password file. Blocks for the file's key derivation, about a
    /// second.
    pub fn from_keystore(path: &Path, password: &str) -> Result<Self, SignerError> {
        Ok(keystore::open(path, password)?.into())
    }

    /// Creates a signer from an English BIP-39 mnemonic without passphrase, for the account `m/44'/60'/0'/0/index` as
    /// in wallets. Any white space may separate the words.
    pub fn from_mnemonic(phrase: &str, index: u32) -> Result<Self, SignerError> {
        let words: Vec<&str> = phrase.split_whitespace().collect();
        if !matches!(words.len(), 12 | 15 | 18 | 21 | 24) {
            return Err(SignerError::MnemonicLength(words.len()));
        }
        if let Some(position) = words.iter().position(|word| English::get_index(word).is_err()) {
            return Err(SignerError::MnemonicWord(position + 1));
        }
        // The builder wipes its phrase on drop. Its errors quote the phrase, so they are not passed on.
        let builder = MnemonicBuilder::from_phrase(words.join(" "));
        let builder = builder.index(index).map_err(|_| SignerError::MnemonicIndex)?;
        builder.build().map(Self::from).map_err(|_| SignerError::MnemonicChecksum)
    }

    /// Creates a client of a remote signer. Sends nothing: the signer may respond later.
    pub fn from_remote(key: RemoteKey<'_>) -> Result<Self, SignerError> {
        Ok(Self(Key::Remote(Arc::new(RemoteSigner::new(key)?))))
    }

    /// Address of the account.
    pub fn address(&self) -> Address {
        match &self.0 {
            Key::Local(key) => domain_address(key.address()),
            Key::Remote(remote) => remote.address(),
        }
    }

    /// The remote signer, if the key is not in this process.
    pub fn remote(&self) -> Option<&RemoteSigner> {
        match &self.0 {
            Key::Local(_) => None,
            Key::Remote(remote) => Some(remote),
        }
    }

    /// Signs a transaction.
    pub async fn sign(&self, tx: TxEip1559) -> Result<SignedTx, SignerError> {
        let signature = match &self.0 {
            Key::Local(key) => key.sign_hash(&tx.signature_hash()).await.map_err(|_| SignerError::Refused)?,
            Key::Remote(remote) => remote.sign(&tx.encoded_for_signing()).await?,
        };
        let envelope: TxEnvelope = tx.into_signed(signature).into();
        Ok(SignedTx { raw: envelope.encoded_2718().into(), hash: domain_hash(*envelope.tx_hash()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_the_account_and_no_key() {
        let key = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d";
        let signer = OperatorSigner::from_private_key(key).unwrap();
        let shown = format!("{signer:?}");
        assert_eq!(shown, "OperatorSigner(0x70997970c51812dc3a010c7d01b50e0d17dc79c8)");
        assert_eq!(OperatorSigner::from_private_key("0x12").unwrap_err(), SignerError::NotAKey);
        assert_eq!(OperatorSigner::from_bytes(&[0; 32]).unwrap_err(), SignerError::NotAKey);
    }

    /// The mnemonic of development nodes.
    const JUNK: &str = "test test test test test test test test test test test junk";

    #[test]
    fn mnemonic_yields_the_same_accounts_as_wallets() {
        let account = |phrase: &str, index| OperatorSigner::from_mnemonic(phrase, index).unwrap().address().to_string();
        assert_eq!(account(JUNK, 0), "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266");
        assert_eq!(account(JUNK, 1), "0x70997970c51812dc3a010c7d01b50e0d17dc79c8");
        assert_eq!(account(&format!("\n {}\r\n", JUNK.replace(' ', "  ")), 9), account(JUNK, 9));
        let abandon = format!("{}art", "abandon ".repeat(23));
        assert_eq!(account(&abandon, 0), "0xf278cf59f82edcf871d630f28ecc8056f25c1cdb");
    }

    #[test]
    fn mnemonic_errors_name_the_problem_and_no_word() {
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
