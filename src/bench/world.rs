//! Where measurements take place: a folder that is removed afterwards, and the databases.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use payferry_entities::Database;
use sea_orm::ConnectionTrait;
use url::Url;

use super::service::SandboxSetup;

/// The time between blocks, as a sandbox has it unless asked otherwise.
const BLOCK_TIME: Duration = Duration::from_millis(crate::sandbox::BLOCK_TIME_MS_DEFAULT);

/// The folder of one run; removed when it is dropped.
#[derive(Debug)]
pub(super) struct World {
    folder: PathBuf,
}

impl World {
    /// Makes the folder, in `within` or among the temporary files.
    pub(super) fn make(within: Option<PathBuf>) -> anyhow::Result<Self> {
        // A relative one is no path in a database's URL.
        let within = std::path::absolute(within.unwrap_or_else(std::env::temp_dir))?;
        let folder = within.join(format!("payferry-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        Ok(Self { folder })
    }

    /// A new folder in it.
    pub(super) fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        for number in 1.. {
            let folder = self.folder.join(format!("{name}-{number}"));
            if !folder.exists() {
                std::fs::create_dir_all(&folder)?;
                return Ok(folder);
            }
        }
        bail!("there are too many folders")
    }

    /// A sandbox in a new folder.
    pub(super) fn setup(&self, name: &str) -> anyhow::Result<SandboxSetup> {
        Ok(SandboxSetup {
            folder: self.folder(name)?,
            database_url: None,
            block_time: BLOCK_TIME,
            bookkeeping: true,
            ledger: true,
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The database engine of a measurement.
#[derive(Debug, Clone)]
pub(super) enum Engine {
    /// The folder's own file.
    Sqlite,
    /// A server, on which databases are made and removed.
    Postgres(Url),
}

impl Engine {
    pub(super) fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    pub(super) fn name(&self) -> &'static str {
        if self.is_postgres() { "PostgreSQL" } else { "SQLite" }
    }

    /// What an answer promises.
    pub(super) fn promise(&self) -> &'static str {
        match self {
            Self::Sqlite => "WAL with synchronous=FULL: fdatasync in every commit",
            Self::Postgres(_) => "the server's own settings; see the first line for its fsync",
        }
    }

    /// An empty database for a measurement; `None` is the one of the sandbox's folder.
    pub(super) async fn database(&self, name: &str) -> anyhow::Result<Option<String>> {
        let Self::Postgres(server) = self else { return Ok(None) };
        let database = Database::open(server.as_str()).await.context("the PostgreSQL server cannot be reached")?;
        let name = format!("payferry_bench_{}_{name}", std::process::id());
        database.writer().execute_unprepared(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        database.writer().execute_unprepared(&format!("CREATE DATABASE {name}")).await?;
        database.close().await?;
        let mut url = server.clone();
        url.set_path(&name);
        Ok(Some(url.to_string()))
    }

    /// Removes the databases that were made.
    pub(super) async fn clean_up(&self, names: &[&str]) -> anyhow::Result<()> {
        let Self::Postgres(server) = self else { return Ok(()) };
        let database = Database::open(server.as_str()).await?;
        for name in names {
            let name = format!("payferry_bench_{}_{name}", std::process::id());
            database.writer().execute_unprepared(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        }
        Ok(database.close().await?)
    }

    /// The server's setting of `fsync`; `None` for the embedded database, which is opened with its own.
    pub(super) async fn fsync(&self) -> anyhow::Result<Option<String>> {
        let Self::Postgres(server) = self else { return Ok(None) };
        let database = Database::open(server.as_str()).await?;
        let statement = sea_orm::Statement::from_string(database.backend(), "SHOW fsync");
        let row = database.reader().query_one_raw(statement).await?.context("no answer")?;
        let setting = row.try_get_by_index(0)?;
        database.close().await?;
        Ok(Some(setting))
    }
}
