//! Reads a key from an encrypted file (Web3 Secret Storage, version 3), the format of geth, foundry and most wallets.
//!
//! The file is validated before decryption: the decryption library indexes into lengths that the file specifies, and
//! allocates the memory that the file requests. Deliberately absent: writing such files.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use alloy::signers::local::PrivateKeySigner;
use payferry_domain::Address;
use serde::Deserialize;

use super::domain_address;

/// Maximum file size; real files have about 500 bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Maximum memory for scrypt; geth's default uses 256 MiB.
const SCRYPT_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Maximum number of parallel lanes of scrypt: they are computed one after the other.
const SCRYPT_LANES_MAX: u32 = 16;
/// Maximum number of rounds of PBKDF2; geth writes 262,144.
const PBKDF2_ROUNDS_MAX: u32 = 10_000_000;
/// Length of the derived key, in bytes: half for the cipher, half for the checksum.
const DERIVED_BYTES: u32 = 32;

/// Error of reading a keystore file. Contains neither the key nor the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeystoreError {
    /// The file cannot be read.
    #[error("the keystore file cannot be read: {0}")]
    Unreadable(ErrorKind),
    /// The file has another format.
    #[error("the keystore file is not a Web3 Secret Storage file of version 3: {0}")]
    NotAKeystore(&'static str),
    /// The file requires too much computation.
    #[error("the keystore file requires more memory or rounds than allowed")]
    TooCostly,
    /// The password does not match, or the file is damaged.
    #[error("the keystore's password is wrong, or its file is damaged")]
    WrongPassword,
    /// The file contains the key of another account than it names.
    #[error("the keystore file names one account but contains the key of another")]
    OtherAccount,
}

/// Decrypts the file. The key derivation deliberately takes about a second.
pub(super) fn open(path: &Path, password: &str) -> Result<PrivateKeySigner, KeystoreError> {
    let named = read(path)?.check()?;
    let signer = PrivateKeySigner::decrypt_keystore(path, password).map_err(|_| KeystoreError::WrongPassword)?;
    match named {
        Some(account) if account != domain_address(signer.address()) => Err(KeystoreError::OtherAccount),
        _ => Ok(signer),
    }
}

fn read(path: &Path) -> Result<Keystore, KeystoreError> {
    let unreadable = |error: std::io::Error| KeystoreError::Unreadable(error.kind());
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(unreadable)?.take(FILE_BYTES_MAX + 1);
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(KeystoreError::NotAKeystore("it is too large"));
    }
    serde_json::from_slice(&bytes).map_err(|_| KeystoreError::NotAKeystore("a field is missing or malformed"))
}

#[derive(Deserialize)]
struct Keystore {
    version: u32,
    #[serde(default)]
    address: Option<String>,
    crypto: Crypto,
}

#[derive(Deserialize)]
struct Crypto {
    cipher: String,
    cipherparams: CipherParams,
    ciphertext: String,
    kdf: String,
    kdfparams: KdfParams,
    mac: String,
}

#[derive(Deserialize)]
struct CipherParams {
    iv: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum KdfParams {
    Pbkdf2 { c: u32, dklen: u32, prf: String },
    Scrypt { dklen: u32, n: u32, p: u32, r: u32 },
}

impl Keystore {
    /// Checks that the file can be decrypted; returns the account that it names.
    fn check(&self) -> Result<Option<Address>, KeystoreError> {
        let must = |holds: bool, what| if holds { Ok(()) } else { Err(KeystoreError::NotAKeystore(what)) };
        must(self.version == 3, "another version")?;
        let Crypto { cipher, cipherparams, ciphertext, kdf, kdfparams, mac } = &self.crypto;
        must(cipher == "aes-128-ctr", "another cipher than aes-128-ctr")?;
        must(is_hex(&cipherparams.iv, 16), "the initialisation vector is not 16 bytes")?;
        must(is_hex(ciphertext, 32), "the encrypted key is not 32 bytes")?;
        must(is_hex(mac, 32), "the checksum is not 32 bytes")?;
        match kdfparams {
            KdfParams::Pbkdf2 { c, dklen, prf } => {
                must(kdf == "pbkdf2", "kdf and its parameters differ")?;
                must(prf == "hmac-sha256", "another function than hmac-sha256")?;
                must(*dklen == DERIVED_BYTES, "the derived key is not 32 bytes")?;
                must(*c > 0, "no rounds of pbkdf2")?;
                if *c > PBKDF2_ROUNDS_MAX {
                    return Err(KeystoreError::TooCostly);
                }
            }
            KdfParams::Scrypt { dklen, n, p, r } => {
                must(kdf == "scrypt", "kdf and its parameters differ")?;
                must(*dklen == DERIVED_BYTES, "the derived key is not 32 bytes")?;
                must(n.is_power_of_two() && *n > 1, "scrypt's n is not a power of two")?;
                must(*p > 0 && *r > 0, "scrypt's p or r is zero")?;
                let memory_bytes = u64::from(*n).saturating_mul(u64::from(*r)).saturating_mul(128);
                if memory_bytes > SCRYPT_BYTES_MAX || *p > SCRYPT_LANES_MAX {
                    return Err(KeystoreError::TooCostly);
                }
            }
        }
        let Some(address) = self.address.as_deref().filter(|address| !address.is_empty()) else { return Ok(None) };
        let digits = address.strip_prefix("0x").unwrap_or(address);
        let account = format!("0x{digits}").parse();
        account.map(Some).map_err(|_| KeystoreError::NotAKeystore("the account is not an address"))
    }
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;

    /// go-ethereum's test vector for light scrypt, with an empty password.
    fn light() -> Value {
        json!({
            "address": "45dea0fb0bba44f4fcf290bba71fd57d7117cbb8",
            "crypto": {
                "cipher": "aes-128-ctr",
                "ciphertext": "b87781948a1befd247bff51ef4063f716cf6c2d3481163e9a8f42e1f9bb74145",
                "cipherparams": { "iv": "dc4926b48a105133d2f16b96833abf1e" },
                "kdf": "scrypt",
                "kdfparams": {
                    "dklen": 32, "n": 2, "p": 1, "r": 8,
                    "salt": "004244bbdc51cadda545b1cfa43cff9ed2ae88e08c61f1479dbb45410722f8f0"
                },
                "mac": "39990c1684557447940d4c69e06b1b82b2aceacb43f284df65c956daf3046b85"
            },
            "id": "ce541d8d-c79b-40f8-9f8c-20f59616faba",
            "version": 3
        })
    }

    /// PBKDF2 test vector of the Web3 Secret Storage definition.
    fn pbkdf2() -> Value {
        json!({
            "crypto": {
                "cipher": "aes-128-ctr",
                "cipherparams": { "iv": "6087dab2f9fdbbfaddc31a909735c1e6" },
                "ciphertext": "5318b4d5bcd28de64ee5559e671353e16f075ecae9f99c7a79a38af5f869aa46",
                "kdf": "pbkdf2",
                "kdfparams": {
                    "c": 262_144, "dklen": 32, "prf": "hmac-sha256",
                    "salt": "ae3cd4e7013836a3df6bd7241b12db061dbe2c6785853cce422d148a624ce0bd"
                },
                "mac": "517ead924a9d0dc3124507e3393d175ce3ff7c1e96529c6c555ce9e51205e9b2"
            },
            "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6",
            "version": 3
        })
    }

    fn opened(keystore: &Value, password: &str) -> Result<PrivateKeySigner, KeystoreError> {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("key.json");
        std::fs::write(&path, keystore.to_string()).unwrap();
        open(&path, password)
    }

    #[test]
    fn reads_the_keys_of_known_files() {
        let signer = opened(&light(), "").unwrap();
        assert_eq!(format!("{:?}", signer.address()), "0x45dea0fb0bba44f4fcf290bba71fd57d7117cbb8");
        let signer = opened(&pbkdf2(), "testpassword").unwrap();
        let secret = "7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d";
        assert_eq!(hex::encode(signer.to_bytes()), secret);
    }

    #[test]
    fn reports_a_wrong_password() {
        assert_eq!(opened(&light(), "x").unwrap_err(), KeystoreError::WrongPassword);
        let missing = open(Path::new("/nowhere/key.json"), "").unwrap_err();
        assert_eq!(missing, KeystoreError::Unreadable(ErrorKind::NotFound));
    }

    /// Each of these would panic in the library, exhaust memory, or sign for another account than the file names.
    #[test]
    fn rejects_malicious_files() {
        let with = |pointer: &str, value: Value| {
            let mut keystore = light();
            *keystore.pointer_mut(pointer).unwrap() = value;
            opened(&keystore, "").unwrap_err()
        };
        for (pointer, value) in [
            ("/version", json!(1)),
            ("/crypto/cipher", json!("aes-128-cbc")),
            ("/crypto/cipherparams/iv", json!("dc49")),
            ("/crypto/ciphertext", json!("")),
            ("/crypto/mac", json!("zz")),
            ("/crypto/kdf", json!("pbkdf2")),
            ("/crypto/kdfparams/dklen", json!(16)),
            ("/crypto/kdfparams/n", json!(3)),
            ("/crypto/kdfparams/n", json!(0)),
            ("/crypto/kdfparams/r", json!(0)),
            ("/address", json!("0x12")),
            ("/crypto", json!("what")),
        ] {
            let error = with(pointer, value.clone());
            assert!(matches!(error, KeystoreError::NotAKeystore(_)), "{pointer} {value}: {error:?}");
        }
        assert_eq!(with("/crypto/kdfparams/n", json!(1_u32 << 31)), KeystoreError::TooCostly);
        assert_eq!(with("/crypto/kdfparams/p", json!(1_000)), KeystoreError::TooCostly);
        assert_eq!(with("/address", json!("00".repeat(20))), KeystoreError::OtherAccount);
        let large = json!({ "padding": " ".repeat(70_000) });
        assert_eq!(opened(&large, "").unwrap_err(), KeystoreError::NotAKeystore("it is too large"));
    }
}
