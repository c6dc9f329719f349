//! The database that a command uses, and the keys that belong to it.

#[cfg(feature = "sandbox")]
use std::path::Path;
use std::path::PathBuf;

use anyhow::{Context, bail};
use payferry_accounts::documents::DocumentStore;
use payferry_accounts::keys::KeyMode;
use payferry_domain::{Address, Chain};
use payferry_entities::Database;
use payferry_evm::ChainSpec;
use payferry_migration::pending;
use payferry_runtime::files::write_private;
use payferry_runtime::seal::{KeyVersion, MASTER_KEY_BYTES, Sealer};

use crate::config::{ChainSection, Config, DatabaseSection, database_url, sqlite_file};
#[cfg(feature = "sandbox")]
use crate::sandbox::{Keys, database_file, documents, documents_folder, keys_file, known_spec};
use crate::service::secrets;
use crate::statements::Tokens;

/// Error text for an invalid database URL.
pub(super) const URL_EXPECTED: &str =
    "--database-url: expected a path, sqlite://path?mode=rwc or postgres://user:password@host/name";

/// Options of every command that uses a database.
#[derive(Debug, clap::Args)]
pub(super) struct DatabaseArgs {
    /// A path, sqlite://path?mode=rwc or postgres://user:password@host/name [default: from the configuration].
    #[arg(long, env = "PAYFERRY_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,
    /// Data folder of a sandbox: use its keys, and its database unless --database-url is set.
    #[cfg(feature = "sandbox")]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
}

impl DatabaseArgs {
    /// Data folder of the sandbox, if set.
    #[cfg(feature = "sandbox")]
    pub(super) fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    /// Opens the database without checking for missing tables.
    pub(super) async fn open_any(&self, config: &Config) -> anyhow::Result<Database> {
        Database::open_primary(self.section(config)?.servers()).await.context("the database cannot be opened")
    }

    fn section(&self, config: &Config) -> anyhow::Result<DatabaseSection> {
        if let Some(given) = &self.database_url {
            return database_url(given).map(DatabaseSection::at).context(URL_EXPECTED);
        }
        #[cfg(feature = "sandbox")]
        if let Some(folder) = &self.data_dir {
            let file = database_file(folder);
            if !file.exists() {
                bail!("--data-dir: there is no sandbox in {}", folder.display());
            }
            return Ok(DatabaseSection::at(format!("sqlite://{}?mode=rw", file.display())));
        }
        Ok(config.database.clone())
    }

    /// Opens the database and checks that no migration is pending.
    pub(super) async fn open(&self, config: &Config) -> anyhow::Result<Database> {
        if let Some(file) = sqlite_file(&self.section(config)?.servers()[0]).filter(|file| !file.exists()) {
            bail!("there is no database at {}; create it with `payferry migrate`", file.display());
        }
        let database = self.open_any(config).await?;
        match pending(&database.long_timeout()).await?.len() {
            0 => Ok(database),
            n => bail!("the database lacks {n} migrations; run `payferry migrate` on it first"),
        }
    }

    /// File of the SQLite database.
    pub(super) fn sqlite_file(&self, config: &Config) -> anyhow::Result<PathBuf> {
        #[cfg(feature = "sandbox")]
        if let (None, Some(folder)) = (&self.database_url, &self.data_dir) {
            return Ok(database_file(folder));
        }
        let section = self.section(config)?;
        let file = sqlite_file(&section.servers()[0]).context(
            "the database is on PostgreSQL: back it up with pg_dump or by archiving its log, see docs/src/operate/backup.md",
        )?;
        Ok(file.to_owned())
    }

    /// Folder of the documents. `None` if they are in a bucket.
    pub(super) fn documents_folder(&self, config: &Config) -> Option<PathBuf> {
        if config.documents.bucket.is_some() {
            return None;
        }
        #[cfg(feature = "sandbox")]
        if let Some(folder) = &self.data_dir {
            return Some(documents_folder(folder));
        }
        Some(config.documents.folder.clone())
    }

    /// Document store that belongs to the database.
    pub(super) fn documents(&self, config: &Config, sealer: Sealer) -> anyhow::Result<DocumentStore> {
        #[cfg(feature = "sandbox")]
        if let Some(folder) = &self.data_dir {
            return documents(config, folder, sealer);
        }
        crate::service::documents::store(&config.documents, sealer)
    }

    /// Adds a master key that encrypts from the next start on. Returns its version and its file.
    pub(super) fn add_master_key(&self, config: &Config) -> anyhow::Result<(KeyVersion, PathBuf)> {
        let new = rand::random::<[u8; MASTER_KEY_BYTES]>();
        #[cfg(feature = "sandbox")]
        if let Some(folder) = &self.data_dir {
            let file = keys_file(folder);
            let keys = Keys::read(&file)?.context("--data-dir: the sandbox has no keys")?;
            let mut masters = keys.master_keys();
            let version = masters.add(new);
            keys.with_master_keys(&masters, &file)?;
            return Ok((version, file));
        }
        let mut masters = secrets::master_keys(config)?;
        let version = masters.add(new);
        let file = config.secrets.master_key_file.clone().context("`secrets.master_key_file` is not set")?;
        write_private(&file, masters.expose().as_bytes())
            .with_context(|| format!("{} cannot be written", file.display()))?;
        Ok((version, file))
    }

    /// Mode of the API keys: test or production.
    pub(super) fn mode(&self, config: &Config) -> KeyMode {
        #[cfg(feature = "sandbox")]
        if self.data_dir.is_some() {
            return KeyMode::Test;
        }
        config.server.environment.key_mode()
    }

    /// Specifications of all chains that belong to the database, enabled or not: to recognise Payferry's own addresses.
    pub(super) fn specs(&self, config: &Config) -> anyhow::Result<Vec<ChainSpec>> {
        #[cfg(feature = "sandbox")]
        if self.data_dir.is_some() {
            return Ok(Chain::ALL.map(known_spec).to_vec());
        }
        let contract = crate::service::contract(config)?;
        Ok(config.chains.iter().map(|(chain, section)| section.spec(*chain, contract, &config.contracts)).collect())
    }

    /// Configured tokens by contract address, to name them in output.
    pub(super) fn tokens(&self, config: &Config) -> Tokens {
        // No address is derived from the settlement contract here, so it need not be deployed.
        let nowhere = Address([0; 20]);
        #[cfg(feature = "sandbox")]
        if self.data_dir.is_some() {
            return Tokens::of(&Chain::ALL.map(known_spec));
        }
        let spec = |(chain, section): (&Chain, &ChainSection)| section.spec(*chain, nowhere, &config.contracts);
        Tokens::of(&config.chains.iter().map(spec).collect::<Vec<_>>())
    }

    /// Sealer that hashes API keys and operators' tokens.
    pub(super) fn sealer(&self, config: &Config) -> anyhow::Result<Sealer> {
        #[cfg(feature = "sandbox")]
        if let Some(folder) = &self.data_dir {
            let keys = Keys::read(&keys_file(folder))?.context("--data-dir: the sandbox has no keys")?;
            return Ok(keys.sealer());
        }
        if config.secrets.master_key_file.is_none() {
            bail!(
                "API keys and tokens are hashed with the master key: set `secrets.master_key_file` in the configuration or \
                 PAYFERRY_SECRETS__MASTER_KEY_FILE, or --data-dir to use the keys of a sandbox"
            );
        }
        secrets::sealer(config)
    }
}
