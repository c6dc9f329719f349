//! The sandbox's secrets, made at its first start and kept in its folder.

use std::fmt;
use std::path::Path;

use anyhow::{Context, bail};
use payferry_accounts::keys::{ApiKey, KeyMode};
use payferry_actors::seal::{MASTER_KEY_BYTES, MasterKeys, Sealer};
use payferry_domain::PspId;
use payferry_sandbox::{Folder, read_json, write_json};
use serde::{Deserialize, Serialize};

/// Bytes of an operator token.
const OPERATOR_TOKEN_BYTES: usize = 32;

/// The secrets and the PSP they belong to. `Debug` shows the PSP only.
#[derive(Clone, Serialize, Deserialize)]
pub struct Keys {
    /// As a file of master keys holds them.
    master_key: String,
    /// The PSP that the sandbox makes for its user.
    pub psp_id: PspId,
    /// That PSP's key, with full scope.
    pub api_key: String,
    /// Opens the operator's listener.
    pub operator_token: String,
}

impl Keys {
    /// Reads the keys of the folder, or makes them if the folder is new.
    pub fn read_or_make(folder: &Folder) -> anyhow::Result<Self> {
        if let Some(keys) = Self::read(&folder.keys())? {
            return Ok(keys);
        }
        if folder.database().exists() {
            // What the database holds was sealed with the key that is missing.
            bail!(
                "{} has a database but no {}: put the file back, or take another folder",
                folder.path().display(),
                folder.keys().file_name().unwrap_or_default().display()
            );
        }
        let keys = Self {
            master_key: hex::encode(rand::random::<[u8; MASTER_KEY_BYTES]>()),
            psp_id: PspId::generate(),
            api_key: ApiKey::generate(KeyMode::Test).expose().to_owned(),
            operator_token: format!("op_test_{}", hex::encode(rand::random::<[u8; OPERATOR_TOKEN_BYTES]>())),
        };
        write_json(&folder.keys(), &keys)?;
        Ok(keys)
    }

    /// Reads a file of keys; `None` if there is none.
    pub fn read(file: &Path) -> anyhow::Result<Option<Self>> {
        let Some(keys) = read_json::<Self>(file)? else { return Ok(None) };
        let damaged = || format!("{} is damaged", file.display());
        keys.master_key.parse::<MasterKeys>().with_context(damaged)?;
        keys.key().with_context(damaged)?;
        Ok(Some(keys))
    }

    /// What the master keys seal and hash with.
    pub fn sealer(&self) -> Sealer {
        Sealer::of(&self.master_keys())
    }

    /// The master keys in all their versions.
    pub fn master_keys(&self) -> MasterKeys {
        self.master_key.parse().expect("checked when it was read or made")
    }

    /// The same with these master keys, kept in `file`.
    pub fn with_master_keys(self, keys: &MasterKeys, file: &Path) -> anyhow::Result<Self> {
        let changed = Self { master_key: keys.expose(), ..self };
        write_json(file, &changed)?;
        Ok(changed)
    }

    /// The PSP's key.
    pub fn key(&self) -> Option<ApiKey> {
        self.api_key.parse().ok()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("psp_id", &self.psp_id).finish_non_exhaustive()
    }
}
