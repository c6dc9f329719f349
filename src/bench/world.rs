//! Where measurements take place: a folder that is removed afterwards, and the databases.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use payferry_entities::Database;
use sea_orm::{ConnectionTrait, DbBackend, Statement};
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
}

/// Settings that decide whether what was committed survives a power cut, and the values with which it does: a sync of the
/// log in every commit, before its answer.
const SQLITE_SYNCS: [(&str, &[&str]); 2] = [("journal_mode", &["wal"]), ("synchronous", &["2", "3"])];
const POSTGRES_SYNCS: [(&str, &[&str]); 2] =
    [("fsync", &["on"]), ("synchronous_commit", &["on", "local", "remote_write", "remote_apply"])];

/// What a database says of such settings.
#[derive(Debug)]
pub(super) struct Durability {
    settings: Vec<Setting>,
}

#[derive(Debug)]
struct Setting {
    name: &'static str,
    value: String,
    is_durable: bool,
}

impl Durability {
    /// Asks over a connection that writes, opened as the service opens it.
    pub(super) async fn of(url: &str) -> anyhow::Result<Self> {
        let database = Database::open(url).await?;
        let is_sqlite = database.backend() == DbBackend::Sqlite;
        let (ask, wanted) = if is_sqlite { ("PRAGMA", SQLITE_SYNCS) } else { ("SHOW", POSTGRES_SYNCS) };
        let mut settings = Vec::new();
        for (name, durable) in wanted {
            let statement = Statement::from_string(database.backend(), format!("{ask} {name}"));
            let row =
                database.writer().query_one_raw(statement).await?.with_context(|| format!("{name} is not told"))?;
            // SQLite tells some of them as numbers.
            let number = row.try_get_by_index::<i64>(0).map(|number| number.to_string());
            let value = number.or_else(|_| row.try_get_by_index::<String>(0))?;
            settings.push(Setting::of(name, value, durable));
        }
        database.close().await?;
        Ok(Self { settings })
    }

    /// In words, for a note.
    pub(super) fn told(&self) -> String {
        let told: Vec<String> = self.settings.iter().map(Setting::told).collect();
        let promise =
            if self.lacks().is_empty() { "a commit is on disk before its answer" } else { "commits may be lost" };
        format!("the database says {}: {promise}", told.join(", "))
    }

    /// Why what was acknowledged could be lost; empty if it could not.
    pub(super) fn lacks(&self) -> Vec<String> {
        let lacking = self.settings.iter().filter(|setting| !setting.is_durable);
        lacking.map(|setting| format!("not durable: {}", setting.told())).collect()
    }
}

impl Setting {
    fn of(name: &'static str, value: String, durable: &[&str]) -> Self {
        let is_durable = durable.contains(&value.as_str());
        Self { name, value, is_durable }
    }

    fn told(&self) -> String {
        format!("{} = {}", self.name, self.value)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_the_service_opens_is_durable_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
        let durability = Durability::of(&url).await.unwrap();
        let says = "the database says journal_mode = wal, synchronous = 2: a commit is on disk before its answer";
        assert_eq!((durability.told().as_str(), durability.lacks()), (says, vec![]));
    }

    #[test]
    fn a_server_that_does_not_sync_is_named() {
        let of = |values: [&str; 2]| {
            let settings = POSTGRES_SYNCS.into_iter().zip(values);
            Durability { settings: settings.map(|((name, on), is)| Setting::of(name, is.to_owned(), on)).collect() }
        };
        assert_eq!(of(["on", "local"]).lacks(), Vec::<String>::new());
        assert_eq!(of(["on", "off"]).lacks(), ["not durable: synchronous_commit = off"]);
        let neither = of(["off", "off"]);
        assert_eq!(neither.lacks(), ["not durable: fsync = off", "not durable: synchronous_commit = off"]);
        assert_eq!(neither.told(), "the database says fsync = off, synchronous_commit = off: commits may be lost");
    }
}
