//! The sandbox's secrets, created at its first start and stored in its folder.

use std::fmt;
use std::path::Path;

use anyhow::{Context, bail};
use payferry_accounts::keys::{ApiKey, KeyMode};
use payferry_domain::PspId;
use payferry_runtime::seal::{MASTER_KEY_BYTES, MasterKeys, Sealer};
use payferry_sandbox::{Folder, database_file, keys_file, read_json, write_json};
use serde::{Deserialize, Serialize};

/// Length of an operator token in bytes.
const OPERATOR_TOKEN_BYTES: usize = 32;

/// The secrets and the PSP they belong to. `Debug` prints the PSP only.
#[derive(Clone, Serialize, Deserialize)]
pub struct Keys {
    /// Master keys, in the format of a master key file.
    master_key: String,
    /// The PSP that the sandbox creates for its user.
    pub psp_id: PspId,
    /// That PSP's API key, with full scope.
    pub api_key: String,
    /// Bearer token of the operator listener.
    pub operator_token: String,
}

impl Keys {
    /// Reads the keys of the folder, or creates them if the folder is new.
    pub fn read_or_make(folder: &Folder) -> anyhow::Result<Self> {
        let file = keys_file(folder.path());
        if let Some(keys) = Self::read(&file)? {
            return Ok(keys);
        }
        if database_file(folder.path()).exists() {
            // The database was sealed with the key that is missing.
            bail!(
                "{} has a database but no {}: restore the file, or use another folder",
                folder.path().display(),
                file.file_name().unwrap_or_default().display()
            );
        }
        let keys = Self {
            master_key: hex::encode(rand::random::<[u8; MASTER_KEY_BYTES]>()),
            psp_id: PspId::generate(),
            api_key: ApiKey::generate(KeyMode::Test).expose().to_owned(),
            operator_token: format!("op_test_{}", hex::encode(rand::random::<[u8; OPERATOR_TOKEN_BYTES]>())),
        };
        write_json(&file, &keys)?;
        Ok(keys)
    }

    /// Reads a file of keys; `None` if it does not exist.
    pub fn read(file: &Path) -> anyhow::Result<Option<Self>> {
        let Some(keys) = read_json::<Self>(file)? else { return Ok(None) };
        let damaged = || format!("{} is damaged", file.display());
        keys.master_key.parse::<MasterKeys>().with_context(damaged)?;
        keys.key().with_context(damaged)?;
        Ok(Some(keys))
    }

    /// Sealer of the master keys: seals values and hashes API keys.
    pub fn sealer(&self) -> Sealer {
        Sealer::of(&self.master_keys())
    }

    /// All versions of the master key.
    pub fn master_keys(&self) -> MasterKeys {
        self.master_key.parse().expect("the master keys were validated when they were read or created")
    }

    /// Replaces the master keys and writes the result to `file`.
    pub fn with_master_keys(self, keys: &MasterKeys, file: &Path) -> anyhow::Result<Self> {
        let changed = Self { master_key: keys.expose(), ..self };
        write_json(file, &changed)?;
        Ok(changed)
    }

    /// The PSP's API key.
    pub fn key(&self) -> Option<ApiKey> {
        self.api_key.parse().ok()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("psp_id", &self.psp_id).finish_non_exhaustive()
    }
}
