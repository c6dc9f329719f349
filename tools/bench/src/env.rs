//! Environment of the measurements: a folder that is removed afterwards, and the databases.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use payferry_entities::Database;
use payferry_testkit::service::ChildSandboxOptions;
use sea_orm::sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, raw_sql};
use sea_orm::{ConnectionTrait, DbBackend, Statement};
use tempfile::TempDir;
use url::Url;

/// Time between blocks: the sandbox's default.
pub(super) const BLOCK_TIME: Duration = Duration::from_millis(500);

/// WAL that is written on a PostgreSQL server before a measurement, in MiB: a little more than the default of
/// `max_wal_size`.
pub(super) const WAL_MIB: u32 = 1_088;

/// Folder of one run. Dropping it removes the folder.
#[derive(Debug)]
pub(super) struct Env {
    folder: TempDir,
}

impl Env {
    /// Makes the folder in `within`, or in the temporary folder.
    pub(super) fn make(within: Option<PathBuf>) -> anyhow::Result<Self> {
        // The URL of a database needs an absolute path.
        let within = std::path::absolute(within.unwrap_or_else(std::env::temp_dir))?;
        let made = std::fs::create_dir_all(&within).and_then(|()| new_folder("payferry-bench-", &within));
        Ok(Self { folder: made.with_context(|| format!("a folder in {} cannot be made", within.display()))? })
    }

    pub(super) fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        // Removed with the folder that it is in.
        Ok(new_folder(&format!("{name}-"), self.folder.path())?.keep())
    }

    /// Returns the options of a sandbox in a new folder.
    pub(super) fn options(&self, name: &str) -> anyhow::Result<ChildSandboxOptions> {
        let folder = Some(self.folder(name)?);
        Ok(ChildSandboxOptions {
            folder,
            block_time: Some(BLOCK_TIME),
            ignores_env: true,
            ..ChildSandboxOptions::default()
        })
    }

    /// Returns the URL of a sandbox's database.
    pub(super) fn database_url(options: &ChildSandboxOptions) -> anyhow::Result<String> {
        if let Some(url) = &options.database_url {
            return Ok(url.clone());
        }
        let file = options.folder.as_deref().context("the sandbox has no folder")?.join("payferry.db");
        Ok(format!("sqlite://{}?mode=rw", file.display()))
    }
}

fn new_folder(prefix: &str, within: &Path) -> std::io::Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).tempdir_in(within)
}

#[derive(Debug, Clone)]
pub(super) enum Engine {
    /// The file in the sandbox's folder.
    Sqlite,
    /// A server on which databases are made and removed.
    Postgres(Url),
}

impl Engine {
    pub(super) fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    pub(super) fn name(&self) -> &'static str {
        if self.is_postgres() { "PostgreSQL" } else { "SQLite" }
    }

    /// Makes an empty database for a measurement. `None` means the SQLite file of the sandbox.
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

    /// Lets a server write `mib` MiB of WAL and keep the files (16 MiB each) for reuse. A server that has been in use
    /// has such files and overwrites them. A new server creates each file when it needs it, and blocks commits
    /// meanwhile. Returns a note for the table.
    ///
    /// The replication slot keeps the server from removing files meanwhile. It ends with the connection.
    pub(super) async fn make_wal_files(&self, mib: u32) -> anyhow::Result<Option<String>> {
        let Self::Postgres(server) = self else { return Ok(None) };
        let make = format!(
            "SELECT pg_create_physical_replication_slot('payferry_bench_{0}', true, true);
             SELECT count(pg_logical_emit_message(false, 'payferry-bench', repeat('-', 1048576)))
               FROM generate_series(1, {mib});
             SELECT pg_drop_replication_slot('payferry_bench_{0}')",
            std::process::id(),
        );
        // Opened without the service's settings: the statement is slow, and must not log a warning.
        let options = payferry_entities::postgres::options(server.as_str())?.disable_statement_logging();
        let mut connection = options.connect().await.map_err(cannot_be_reached)?;
        let mut made = connection.execute(raw_sql(AssertSqlSafe(make))).await;
        if made.is_ok() {
            // At a checkpoint the server keeps files that it no longer needs for reuse.
            made = connection.execute(raw_sql("CHECKPOINT")).await;
        }
        connection.close().await.map_err(cannot_be_reached)?;
        Ok(Some(match made {
            Ok(_) => {
                format!("{mib} MiB of WAL were written on the server before, so its files exist, as on a server in use")
            }
            Err(error) => {
                format!("the server may have to create WAL files, which takes time: {error}")
            }
        }))
    }

    /// Removes the databases that were made, if they exist.
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

fn cannot_be_reached(error: sea_orm::sqlx::Error) -> anyhow::Error {
    anyhow::Error::new(error).context("the PostgreSQL server cannot be reached")
}

/// Settings that decide whether a commit survives a power cut, and the durable values: with them, every commit syncs
/// the log before it returns.
const SQLITE_SYNCS: [(&str, &[&str]); 2] = [("journal_mode", &["wal"]), ("synchronous", &["2", "3"])];
const POSTGRES_SYNCS: [(&str, &[&str]); 2] =
    [("fsync", &["on"]), ("synchronous_commit", &["on", "local", "remote_write", "remote_apply"])];

/// File systems in memory, where a sync costs nothing and is not durable.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// Values of these settings, and the file system of the database.
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
    /// Reads them over a writing connection that is opened as the service opens it.
    pub(super) async fn of(url: &str) -> anyhow::Result<Self> {
        let database = Database::open(url).await?;
        let is_sqlite = database.backend() == DbBackend::Sqlite;
        let (ask, wanted) = if is_sqlite { ("PRAGMA", SQLITE_SYNCS) } else { ("SHOW", POSTGRES_SYNCS) };
        let mut settings = Vec::new();
        for (name, durable) in wanted {
            let statement = Statement::from_string(database.backend(), format!("{ask} {name}"));
            let row =
                database.writer().query_one_raw(statement).await?.with_context(|| format!("{name} has no value"))?;
            // SQLite returns some of them as numbers.
            let number = row.try_get_by_index::<i64>(0).map(|number| number.to_string());
            let value = number.or_else(|_| row.try_get_by_index::<String>(0))?;
            settings.push(Setting::of(name, value, durable));
        }
        // Known only if the database is on this machine.
        let folder = if is_sqlite { file_of(url) } else { data_directory(&database).await };
        settings.extend(folder.and_then(|folder| file_system_of(&folder)).map(Setting::of_file_system));
        database.close().await?;
        Ok(Self { settings })
    }

    pub(super) fn note(&self) -> String {
        let texts: Vec<String> = self.settings.iter().map(Setting::text).collect();
        let promise =
            if self.lacks().is_empty() { "a commit is on disk before its answer" } else { "commits may be lost" };
        format!("the database says {}: {promise}", texts.join(", "))
    }

    /// Returns why acknowledged commits could be lost. Empty if they are durable.
    pub(super) fn lacks(&self) -> Vec<String> {
        let lacking = self.settings.iter().filter(|setting| !setting.is_durable);
        lacking.map(|setting| format!("not durable: {}", setting.text())).collect()
    }
}

impl Setting {
    fn of(name: &'static str, value: String, durable: &[&str]) -> Self {
        let is_durable = durable.contains(&value.as_str());
        Self { name, value, is_durable }
    }

    fn of_file_system(value: String) -> Self {
        let is_durable = !IN_MEMORY.contains(&value.as_str());
        Self { name: "file_system", value, is_durable }
    }

    fn text(&self) -> String {
        format!("{} = {}", self.name, self.value)
    }
}

/// Returns the file of a SQLite database.
fn file_of(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("sqlite://")?;
    Some(path.split_once('?').map_or(path, |(path, _)| path).into())
}

/// Returns the data folder of a PostgreSQL server, if it shows it.
async fn data_directory(database: &Database) -> Option<PathBuf> {
    let statement = Statement::from_string(database.backend(), "SHOW data_directory");
    let row = database.writer().query_one_raw(statement).await.ok()??;
    row.try_get_by_index::<String>(0).ok().map(PathBuf::from)
}

/// Returns the type of the file system of a path on this machine. `None` without such a path or GNU `stat`.
fn file_system_of(path: &Path) -> Option<String> {
    let output = Command::new("stat").args(["-f", "-c", "%T"]).arg(path).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use payferry_harness::database::TestDatabase;

    use super::*;

    #[tokio::test]
    async fn a_server_creates_wal_files_and_keeps_no_slot() {
        let database = TestDatabase::postgres().await;
        let url: Url = database.url().parse().unwrap();
        let made = Engine::Postgres(url.clone()).make_wal_files(32).await.unwrap().unwrap();
        assert!(made.starts_with("32 MiB of WAL were written"), "{made}");

        let administrator = database.connect().await;
        let count = |what: &str| {
            let statement = format!("SELECT count(*) FROM {what}");
            administrator.query_one_raw(Statement::from_string(DbBackend::Postgres, statement))
        };
        let slots = count("pg_replication_slots WHERE slot_name LIKE 'payferry_bench_%'").await.unwrap().unwrap();
        assert_eq!(slots.try_get_by_index::<i64>(0).unwrap(), 0);

        let name = format!("bench_{}", std::process::id());
        administrator.execute_unprepared(&format!("CREATE ROLE {name} LOGIN")).await.unwrap();
        let mut other = url;
        other.set_username(&name).unwrap();
        let refused = Engine::Postgres(other).make_wal_files(32).await;
        administrator.execute_unprepared(&format!("DROP ROLE {name}")).await.unwrap();
        let refused = refused.unwrap().unwrap();
        assert!(refused.contains("may have to create") && refused.contains("replication slot"), "{refused}");

        assert_eq!(Engine::Sqlite.make_wal_files(32).await.unwrap(), None);
    }

    #[tokio::test]
    async fn the_services_own_database_is_durable() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
        let Durability { mut settings } = Durability::of(&url).await.unwrap();
        // The temporary folder may be in memory.
        let file_system = settings.pop().unwrap();
        assert_eq!((file_system.name, file_system.value), ("file_system", file_system_of(folder.path()).unwrap()));
        let durability = Durability { settings };
        let says = "the database says journal_mode = wal, synchronous = 2: a commit is on disk before its answer";
        assert_eq!((durability.note().as_str(), durability.lacks()), (says, vec![]));
    }

    #[test]
    fn a_file_system_in_memory_is_not_durable() {
        for (file_system, lacks) in
            [("ext2/ext3", vec![]), ("tmpfs", vec!["not durable: file_system = tmpfs".to_owned()])]
        {
            let durability = Durability { settings: vec![Setting::of_file_system(file_system.to_owned())] };
            assert_eq!(durability.lacks(), lacks);
        }
        assert_eq!(file_of("sqlite:///a/b.db?mode=rw"), Some("/a/b.db".into()));
        assert_eq!(file_of("postgres://127.0.0.1/payferry"), None);
        assert_eq!(file_system_of(Path::new("/there/is/no/such/file")), None);
    }

    #[test]
    fn names_settings_that_do_not_sync() {
        let of = |values: [&str; 2]| {
            let settings = POSTGRES_SYNCS.into_iter().zip(values);
            Durability { settings: settings.map(|((name, on), is)| Setting::of(name, is.to_owned(), on)).collect() }
        };
        assert_eq!(of(["on", "local"]).lacks(), Vec::<String>::new());
        assert_eq!(of(["on", "off"]).lacks(), ["not durable: synchronous_commit = off"]);
        let neither = of(["off", "off"]);
        assert_eq!(neither.lacks(), ["not durable: fsync = off", "not durable: synchronous_commit = off"]);
        assert_eq!(neither.note(), "the database says fsync = off, synchronous_commit = off: commits may be lost");
    }
}
