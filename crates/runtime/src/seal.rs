//! Encryption at rest and keyed hashes, derived from the master keys.
//!
//! A sealed value is bound to its context (table, row, column) and does not open in another one. It contains the
//! version of its key, so that keys can be rotated: the highest version seals, all versions open. The hash key never
//! changes, because API keys are stored only as hashes and cannot be hashed again. Not here: re-sealing of stored values after
//! a rotation.
//!
//! # The key file
//!
//! A single key is 64 hexadecimal digits and is version 1. Several keys are written one per line as `version: 64
//! hexadecimal digits`; `#` begins a comment. The line `hash: 64 hexadecimal digits` is the hash key. Without that line
//! the hash key is derived from version 1, so one of the two must exist as long as API keys exist.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::str::FromStr;
use std::sync::Arc;

use aes_gcm_siv::aead::{Aead, KeyInit, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Length of a master key, bytes.
pub const MASTER_KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
/// Prefix of sealed bytes, before the key version as four big-endian bytes.
const BYTES_MARK: [u8; 4] = *b"pfs\x01";
const VERSION_BYTES: usize = 4;
const BYTES_HEAD: usize = BYTES_MARK.len() + VERSION_BYTES;

/// Version of a master key; the first is 1.
pub type KeyVersion = u32;

/// Seals and opens values, and hashes secrets that only need comparison. `Debug` shows nothing of the keys.
#[derive(Clone, derive_more::Debug)]
#[debug("Sealer")]
pub struct Sealer {
    current: KeyVersion,
    ciphers: Arc<BTreeMap<KeyVersion, Aes256GcmSiv>>,
    hash_key: Key,
}

/// Errors of opening a sealed value. They contain nothing of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealOpenError {
    /// The master keys do not include the key that sealed it.
    #[error("a value was sealed with key version {0}, which is not among the master keys")]
    UnknownVersion(KeyVersion),
    /// Another key of that version, another context, or damage.
    #[error("a sealed value does not open with this key in this context")]
    Mismatch,
}

impl Sealer {
    /// Creates a sealer with one key, as version 1.
    pub fn new(master: &[u8; MASTER_KEY_BYTES]) -> Self {
        Self::of(&MasterKeys::one(*master))
    }

    /// Creates a sealer with several versions; the highest seals.
    pub fn of(keys: &MasterKeys) -> Self {
        let cipher = |master: &Key| {
            let key = Zeroizing::new(hmac(&**master, &[b"payferry seal v1"]));
            Aes256GcmSiv::new((&*key).into())
        };
        let ciphers = keys.versions().map(|(version, master)| (version, cipher(master))).collect();
        Self { current: keys.current(), ciphers: Arc::new(ciphers), hash_key: keys.hash_key() }
    }

    /// Returns the version that seals.
    pub fn current(&self) -> KeyVersion {
        self.current
    }

    /// Encrypts `plaintext` for `place`, its context (such as `["webhook_endpoints", psp_id, "secret"]`), as printable
    /// text.
    pub fn seal(&self, place: &[&str], plaintext: &[u8]) -> String {
        let (nonce, body) = self.encrypt(place, plaintext);
        format!("v{}.{}.{}", self.current, BASE64.encode(nonce), BASE64.encode(body))
    }

    /// Decrypts the result of [`Self::seal`] for the same `place`. The plaintext is overwritten when it is dropped.
    pub fn open(&self, place: &[&str], sealed: &str) -> Result<Zeroizing<Vec<u8>>, SealOpenError> {
        let version = version_of(sealed).ok_or(SealOpenError::Mismatch)?;
        let mut parts = sealed.splitn(3, '.').skip(1);
        let (Some(nonce), Some(body)) = (parts.next(), parts.next()) else { return Err(SealOpenError::Mismatch) };
        let decoded = |text| BASE64.decode(text).map_err(|_| SealOpenError::Mismatch);
        self.decrypt(version, place, &decoded(nonce)?, &decoded(body)?)
    }

    /// Returns `true` if a result of [`Self::seal`] was sealed with the current key.
    pub fn is_current(&self, sealed: &str) -> bool {
        version_of(sealed) == Some(self.current)
    }

    /// Like [`Self::seal`], for large values outside the database: returns bytes, slightly more than the input.
    pub fn seal_bytes(&self, place: &[&str], plaintext: &[u8]) -> Vec<u8> {
        let (nonce, body) = self.encrypt(place, plaintext);
        [&BYTES_MARK[..], &self.current.to_be_bytes(), &nonce, &body].concat()
    }

    /// Decrypts the result of [`Self::seal_bytes`] for the same `place`.
    pub fn open_bytes(&self, place: &[&str], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealOpenError> {
        let version = version_of_bytes(sealed).ok_or(SealOpenError::Mismatch)?;
        let (nonce, body) = sealed[BYTES_HEAD..].split_at_checked(NONCE_BYTES).ok_or(SealOpenError::Mismatch)?;
        self.decrypt(version, place, nonce, body)
    }

    /// Returns `true` if a result of [`Self::seal_bytes`] was sealed with the current key.
    pub fn is_current_bytes(&self, sealed: &[u8]) -> bool {
        version_of_bytes(sealed) == Some(self.current)
    }

    /// Returns HMAC-SHA256 of `parts` under the hash key, as lower-case hex. Parts are length-prefixed, so `["a","bc"]`
    /// and `["ab","c"]` differ.
    pub fn keyed_hash(&self, parts: &[&[u8]]) -> String {
        hex::encode(hmac(&*self.hash_key, parts))
    }

    fn encrypt(&self, place: &[&str], plaintext: &[u8]) -> ([u8; NONCE_BYTES], Vec<u8>) {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let aad = place.join("\u{1f}");
        let payload = Payload { msg: plaintext, aad: aad.as_bytes() };
        let sealed = self.ciphers[&self.current].encrypt(&Nonce::from(nonce), payload);
        (nonce, sealed.expect("AES-GCM-SIV encrypts anything below 64 GiB"))
    }

    fn decrypt(
        &self,
        version: KeyVersion,
        place: &[&str],
        nonce: &[u8],
        body: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealOpenError> {
        let cipher = self.ciphers.get(&version).ok_or(SealOpenError::UnknownVersion(version))?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| SealOpenError::Mismatch)?;
        let aad = place.join("\u{1f}");
        let payload = Payload { msg: body, aad: aad.as_bytes() };
        let plaintext = cipher.decrypt(&Nonce::from(nonce), payload).map_err(|_| SealOpenError::Mismatch)?;
        Ok(Zeroizing::new(plaintext))
    }
}

/// Returns the version in a sealed text, if it is spelled canonically.
fn version_of(sealed: &str) -> Option<KeyVersion> {
    let digits = sealed.split_once('.')?.0.strip_prefix('v')?;
    digits.parse().ok().filter(|version: &KeyVersion| version.to_string() == digits)
}

fn version_of_bytes(sealed: &[u8]) -> Option<KeyVersion> {
    let version = sealed.strip_prefix(&BYTES_MARK)?.first_chunk::<VERSION_BYTES>()?;
    Some(KeyVersion::from_be_bytes(*version))
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts a key of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Version of a single key.
const FIRST: KeyVersion = 1;
/// Label of the line with the hash key.
const HASH: &str = "hash";

/// A key, which is overwritten when it is dropped.
type Key = Zeroizing<[u8; MASTER_KEY_BYTES]>;

/// At least one master key, and the hash key. `Debug` shows only the versions.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("MasterKeys({:?})", versions.keys())]
pub struct MasterKeys {
    versions: BTreeMap<KeyVersion, Key>,
    hash: Key,
}

/// Reasons to reject a file of master keys. They contain no digit of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MasterKeysError {
    /// The file is empty.
    #[error("it is empty; expected 64 hexadecimal digits, or lines `version: 64 hexadecimal digits`")]
    Empty,
    /// A malformed line.
    #[error(
        "line {0}: expected `version: 64 hexadecimal digits`, with a whole number above zero or `hash` as the version"
    )]
    Line(usize),
    /// A malformed single key.
    #[error("expected 64 hexadecimal digits")]
    Alone,
    /// A duplicate version.
    #[error("line {0}: this version occurs twice")]
    Twice(usize),
    /// Two versions with the same key.
    #[error("versions {0} and {1} are the same key")]
    Same(KeyVersion, KeyVersion),
    /// No hash key.
    #[error(
        "there is neither version 1 nor a `hash` line: one of them is needed to recognise API keys; \
         restore it from the backup"
    )]
    NoHash,
    /// Two different hash keys.
    #[error("the `hash` line differs from the hash key of version 1: with it, no API key would be recognised")]
    OtherHash,
}

impl MasterKeys {
    /// Creates a set with one key, as version 1.
    pub fn one(key: [u8; MASTER_KEY_BYTES]) -> Self {
        Self { hash: hash_key(&key), versions: BTreeMap::from([(FIRST, Key::new(key))]) }
    }

    /// Returns the highest version, which seals.
    pub fn current(&self) -> KeyVersion {
        *self.versions.keys().next_back().expect("there is at least one key")
    }

    /// Adds `key`, which seals from then on. Returns its version.
    pub fn add(&mut self, key: [u8; MASTER_KEY_BYTES]) -> KeyVersion {
        let version = self.current() + 1;
        self.versions.insert(version, Key::new(key));
        version
    }

    fn versions(&self) -> impl Iterator<Item = (KeyVersion, &Key)> {
        self.versions.iter().map(|(version, key)| (*version, key))
    }

    fn hash_key(&self) -> Key {
        self.hash.clone()
    }

    /// Formats the keys for a file, readable by [`FromStr`]. Version 1 may be removed later, because the hash key has a
    /// line of its own.
    pub fn expose(&self) -> String {
        let mut text = format!("{HASH}: {}\n", hex::encode(*self.hash));
        for (version, key) in &self.versions {
            let _ = writeln!(text, "{version}: {}", hex::encode(**key));
        }
        text
    }
}

impl FromStr for MasterKeys {
    type Err = MasterKeysError;

    fn from_str(text: &str) -> Result<Self, MasterKeysError> {
        let lines =
            text.lines().enumerate().map(|(index, line)| (index + 1, line.split('#').next().unwrap_or_default()));
        let lines: Vec<_> = lines.filter(|(_, line)| !line.trim().is_empty()).collect();
        match lines.as_slice() {
            [] => return Err(MasterKeysError::Empty),
            [(_, alone)] if !alone.contains(':') => {
                return key_of(alone).map(|key| Self::one(*key)).ok_or(MasterKeysError::Alone);
            }
            _ => {}
        }
        let (mut versions, mut hash) = (BTreeMap::new(), None);
        for (number, line) in lines {
            let (name, key) = line.split_once(':').ok_or(MasterKeysError::Line(number))?;
            let key = key_of(key).ok_or(MasterKeysError::Line(number))?;
            let before = match name.trim() {
                HASH => hash.replace(key),
                name => {
                    let version = name.parse().ok().filter(|version| *version >= FIRST);
                    versions.insert(version.ok_or(MasterKeysError::Line(number))?, key)
                }
            };
            if before.is_some() {
                return Err(MasterKeysError::Twice(number));
            }
        }
        if versions.is_empty() {
            return Err(MasterKeysError::Empty);
        }
        same(&versions)?;
        let made = versions.get(&FIRST).map(|key| hash_key(&**key));
        let hash = match (hash, made) {
            (Some(hash), Some(made)) if hash != made => return Err(MasterKeysError::OtherHash),
            (hash, made) => hash.or(made).ok_or(MasterKeysError::NoHash)?,
        };
        Ok(Self { versions, hash })
    }
}

/// Rejects equal keys: a new version with an old key would look like a rotation without being one.
fn same(versions: &BTreeMap<KeyVersion, Key>) -> Result<(), MasterKeysError> {
    let mut seen = BTreeMap::new();
    for (version, key) in versions {
        if let Some(other) = seen.insert(**key, *version) {
            return Err(MasterKeysError::Same(other, *version));
        }
    }
    Ok(())
}

fn key_of(text: &str) -> Option<Key> {
    let mut key = Key::default();
    hex::decode_to_slice(text.trim(), &mut *key).ok().map(|()| key)
}

fn hash_key(master: &[u8]) -> Key {
    Key::new(hmac(master, &[b"payferry hash v1"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: [&str; 3] = ["t", "row", "c"];
    const ELSEWHERE: [&str; 3] = ["t", "other", "c"];

    #[test]
    fn sealed_value_opens_only_in_its_context_with_its_key() {
        let sealer = Sealer::new(&[7; 32]);
        let sealed = sealer.seal(&PLACE, b"whsec_x");
        assert_eq!(*sealer.open(&PLACE, &sealed).unwrap(), b"whsec_x");
        assert_eq!(sealer.open(&ELSEWHERE, &sealed), Err(SealOpenError::Mismatch));
        assert_eq!(Sealer::new(&[8; 32]).open(&PLACE, &sealed), Err(SealOpenError::Mismatch));
        assert!(!sealed.contains("whsec"));
        assert_ne!(sealed, sealer.seal(&PLACE, b"whsec_x"), "each nonce is used once");
    }

    #[test]
    fn sealed_bytes_are_bound_to_their_context() {
        let sealer = Sealer::new(&[7; 32]);
        let sealed = sealer.seal_bytes(&PLACE, b"%PDF-1.7 marked");
        assert_eq!(sealer.open_bytes(&PLACE, &sealed).unwrap().as_slice(), b"%PDF-1.7 marked");
        assert_eq!(sealer.open_bytes(&ELSEWHERE, &sealed), Err(SealOpenError::Mismatch));
        assert!(!sealed.windows(6).any(|window| window == b"marked"));
        for cut in 0..sealed.len() {
            assert!(sealer.open_bytes(&PLACE, &sealed[..cut]).is_err(), "cut to {cut} bytes");
        }
        let mut damaged = sealed;
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(sealer.open_bytes(&PLACE, &damaged), Err(SealOpenError::Mismatch));
    }

    #[test]
    fn newest_key_seals_and_older_keys_open() {
        let first = Sealer::new(&[7; 32]);
        let keys: MasterKeys = format!("1: {}\n2: {}", "07".repeat(32), "08".repeat(32)).parse().unwrap();
        let both = Sealer::of(&keys);
        let (old, new) = (first.seal(&PLACE, b"x"), both.seal(&PLACE, b"x"));
        assert!(old.starts_with("v1.") && new.starts_with("v2."), "{old} {new}");
        assert!(!both.is_current(&old) && both.is_current(&new) && first.is_current(&old));
        assert_eq!([&old, &new].map(|sealed| both.open(&PLACE, sealed).unwrap().to_vec()), [b"x", b"x"]);
        assert_eq!(first.open(&PLACE, &new), Err(SealOpenError::UnknownVersion(2)));
        assert_eq!(first.keyed_hash(&[b"sk"]), both.keyed_hash(&[b"sk"]), "hashes stay the same");

        let (old, new) = (first.seal_bytes(&PLACE, b"x"), both.seal_bytes(&PLACE, b"x"));
        assert!(!both.is_current_bytes(&old) && both.is_current_bytes(&new));
        assert_eq!(both.open_bytes(&PLACE, &old).unwrap().as_slice(), b"x");
        assert_eq!(first.open_bytes(&PLACE, &new), Err(SealOpenError::UnknownVersion(2)));

        let named = SealOpenError::UnknownVersion(2).to_string();
        assert!(named.contains("version 2"), "{named}");
    }

    #[test]
    fn foreign_text_does_not_open() {
        let sealer = Sealer::new(&[7; 32]);
        let body = sealer.seal(&PLACE, b"x");
        let body = body.strip_prefix("v1").unwrap();
        for bad in ["", "v1", "v1.", "plain text", "v01..", "v+1.a.b", "v99999999999.a.b", "v1.AAAA.AAAA"] {
            assert_eq!(sealer.open(&PLACE, bad), Err(SealOpenError::Mismatch), "{bad}");
        }
        assert_eq!(sealer.open(&PLACE, &format!("v01{body}")), Err(SealOpenError::Mismatch));
        assert_eq!(sealer.open(&PLACE, &format!("v3{body}")), Err(SealOpenError::UnknownVersion(3)));
    }

    #[test]
    fn keyed_hashes_depend_on_part_boundaries() {
        let sealer = Sealer::new(&[7; 32]);
        assert_ne!(sealer.keyed_hash(&[b"a", b"bc"]), sealer.keyed_hash(&[b"ab", b"c"]));
    }

    fn hex_of(byte: u8) -> String {
        hex::encode([byte; 32])
    }

    #[test]
    fn single_key_is_version_1() {
        let keys: MasterKeys = format!("  {}\n", hex_of(7)).parse().unwrap();
        assert_eq!((keys.current(), &keys), (1, &MasterKeys::one([7; 32])));
        let spelled: MasterKeys = format!("# ours\n1: {} # the first\n\n", hex_of(7)).parse().unwrap();
        assert_eq!(spelled, keys);
    }

    #[test]
    fn hashes_stay_when_keys_are_added_and_version_1_removed() {
        let mut keys = MasterKeys::one([7; 32]);
        let before = Sealer::of(&keys);
        assert_eq!(keys.add([8; 32]), 2);
        let written = keys.expose();
        assert_eq!(written.parse::<MasterKeys>().unwrap(), keys);
        let without_first = written.lines().filter(|line| !line.starts_with("1:")).collect::<Vec<_>>().join("\n");
        let later: MasterKeys = without_first.parse().unwrap();
        assert_eq!(later.current(), 2);
        assert_eq!(Sealer::of(&later).keyed_hash(&[b"sk"]), before.keyed_hash(&[b"sk"]));
        assert!(!format!("{keys:?}").contains("07"), "{keys:?}");
    }

    #[test]
    fn errors_contain_no_key_digits() {
        let (one, two) = (hex_of(1), hex_of(2));
        let hash = hex::encode(MasterKeys::one([1; 32]).hash_key());
        for (text, error) in [
            (String::new(), MasterKeysError::Empty),
            ("# nothing\n".to_owned(), MasterKeysError::Empty),
            (format!("hash: {hash}"), MasterKeysError::Empty),
            (one[..63].to_owned(), MasterKeysError::Alone),
            (format!("{one}\n{two}"), MasterKeysError::Line(1)),
            (format!("1: {one}\nnew: {two}"), MasterKeysError::Line(2)),
            (format!("0: {one}"), MasterKeysError::Line(1)),
            (format!("1: {one}\n2: {}", &two[..60]), MasterKeysError::Line(2)),
            (format!("1: {one}\n1: {two}"), MasterKeysError::Twice(2)),
            (format!("1: {one}\nhash: {hash}\nhash: {hash}"), MasterKeysError::Twice(3)),
            (format!("1: {one}\n3: {one}"), MasterKeysError::Same(1, 3)),
            (format!("2: {two}"), MasterKeysError::NoHash),
            (format!("hash: {two}\n1: {one}"), MasterKeysError::OtherHash),
        ] {
            let refused = text.parse::<MasterKeys>().unwrap_err();
            assert_eq!(refused, error, "{text}");
            let told = refused.to_string();
            assert!(!told.contains(&one[..8]) && !told.contains(&two[..8]), "{told}");
        }
    }
}
