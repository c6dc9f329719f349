//! Master keys in their file format: a single key, or several versions.
//!
//! A single key is 64 hexadecimal digits and is version 1. Several keys are written one per line as `version: 64
//! hexadecimal digits`; `#` begins a comment. The line `hash: 64 hexadecimal digits` is the hash key. Without that line
//! the hash key is derived from version 1, so one of the two must exist as long as API keys exist.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::str::FromStr;

use super::{KeyVersion, MASTER_KEY_BYTES, hmac};

/// Version of a single key.
const FIRST: KeyVersion = 1;
/// Label of the line with the hash key.
const HASH: &str = "hash";

type Key = [u8; MASTER_KEY_BYTES];

/// At least one master key, and the hash key. `Debug` shows only the versions.
#[derive(Clone, PartialEq, Eq)]
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
    pub fn one(key: Key) -> Self {
        Self { versions: BTreeMap::from([(FIRST, key)]), hash: hash_key(&key) }
    }

    /// Returns the highest version, which seals.
    pub fn current(&self) -> KeyVersion {
        *self.versions.keys().next_back().expect("there is at least one key")
    }

    /// Adds `key`, which seals from then on. Returns its version.
    pub fn add(&mut self, key: Key) -> KeyVersion {
        let version = self.current() + 1;
        self.versions.insert(version, key);
        version
    }

    pub(super) fn versions(&self) -> impl Iterator<Item = (KeyVersion, &Key)> {
        self.versions.iter().map(|(version, key)| (*version, key))
    }

    pub(super) fn hash_key(&self) -> Key {
        self.hash
    }

    /// Formats the keys for a file, readable by [`FromStr`]. Version 1 may be removed later, because the hash key has a
    /// line of its own.
    pub fn expose(&self) -> String {
        let mut text = format!("{HASH}: {}\n", hex::encode(self.hash));
        for (version, key) in &self.versions {
            let _ = writeln!(text, "{version}: {}", hex::encode(key));
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
                return key_of(alone).map(Self::one).ok_or(MasterKeysError::Alone);
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
        let made = versions.get(&FIRST).map(hash_key);
        let hash = match (hash, made) {
            (Some(hash), Some(made)) if hash != made => return Err(MasterKeysError::OtherHash),
            (hash, made) => hash.or(made).ok_or(MasterKeysError::NoHash)?,
        };
        Ok(Self { versions, hash })
    }
}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MasterKeys").field(&self.versions.keys()).finish()
    }
}

/// Rejects equal keys: a new version with an old key would look like a rotation without being one.
fn same(versions: &BTreeMap<KeyVersion, Key>) -> Result<(), MasterKeysError> {
    let mut seen = BTreeMap::new();
    for (version, key) in versions {
        if let Some(other) = seen.insert(key, *version) {
            return Err(MasterKeysError::Same(other, *version));
        }
    }
    Ok(())
}

fn key_of(text: &str) -> Option<Key> {
    let mut key = [0; MASTER_KEY_BYTES];
    hex::decode_to_slice(text.trim(), &mut key).ok().map(|()| key)
}

fn hash_key(master: &Key) -> Key {
    hmac(master, &[b"payferry hash v1"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::Sealer;

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
