//! Where measurements take place: a folder that is removed afterwards, and the databases.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use payferry_entities::Database;
use sea_orm::sqlx::postgres::PgConnectOptions;
use sea_orm::sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, raw_sql};
use sea_orm::{ConnectionTrait, DbBackend, Statement};
use url::Url;

use super::service::SandboxSetup;

/// The time between blocks, as a sandbox has it unless asked otherwise.
const BLOCK_TIME: Duration = Duration::from_millis(crate::sandbox::BLOCK_TIME_MS_DEFAULT);

/// Log that is written to a PostgreSQL server, MiB: a little more than it keeps files for unless set otherwise
/// (`max_wal_size`).
pub(super) const LOG_MIB: u32 = 1_088;

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

    /// Has a server write so much log, MiB, and keep its files, of 16 MiB each, for use again: one that has been in use for a while has
    /// them and writes over them, a new one makes each one when it is needed, and nobody commits meanwhile. Answers what is to
    /// be known of it.
    ///
    /// The slot keeps the server from removing files before they are so many; it goes with the connection.
    pub(super) async fn make_log_files(&self, mib: u32) -> anyhow::Result<Option<String>> {
        let Self::Postgres(server) = self else { return Ok(None) };
        let make = format!(
            "SELECT pg_create_physical_replication_slot('payferry_bench_{0}', true, true);
             SELECT count(pg_logical_emit_message(false, 'payferry-bench', repeat('-', 1048576)))
               FROM generate_series(1, {mib});
             SELECT pg_drop_replication_slot('payferry_bench_{0}')",
            std::process::id(),
        );
        // Not as the service opens it: it may take longer than a statement of the service's, and nobody is to be warned of that.
        let options = PgConnectOptions::from_url(server).map_err(cannot_be_reached)?.disable_statement_logging();
        let mut connection = options.connect().await.map_err(cannot_be_reached)?;
        let mut made = connection.execute(raw_sql(AssertSqlSafe(make))).await;
        if made.is_ok() {
            // What is not needed any more is kept for use again with a checkpoint.
            made = connection.execute(raw_sql("CHECKPOINT")).await;
        }
        connection.close().await.map_err(cannot_be_reached)?;
        Ok(Some(match made {
            Ok(_) => {
                format!("{mib} MiB of the server's log were written before, as by a server in use: its files are there")
            }
            Err(error) => {
                format!("the files of the server's log may be new, which takes time as they are made: {error}")
            }
        }))
    }

    /// Removes the databases that were made, as far as they are there.
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

/// Settings that decide whether what was committed survives a power cut, and the values with which it does: a sync of the
/// log in every commit, before its answer.
const SQLITE_SYNCS: [(&str, &[&str]); 2] = [("journal_mode", &["wal"]), ("synchronous", &["2", "3"])];
const POSTGRES_SYNCS: [(&str, &[&str]); 2] =
    [("fsync", &["on"]), ("synchronous_commit", &["on", "local", "remote_write", "remote_apply"])];

/// File systems that are memory, where a sync costs nothing and saves nothing.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// What a database says of such settings, and what its files are on.
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
        // Only where it is on this machine, and says where.
        let folder = if is_sqlite { file_of(url) } else { data_directory(&database).await };
        settings.extend(folder.and_then(|folder| file_system_of(&folder)).map(Setting::of_file_system));
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

    fn of_file_system(value: String) -> Self {
        let is_durable = !IN_MEMORY.contains(&value.as_str());
        Self { name: "file_system", value, is_durable }
    }

    fn told(&self) -> String {
        format!("{} = {}", self.name, self.value)
    }
}

/// The file of a SQLite database.
fn file_of(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("sqlite://")?;
    Some(path.split_once('?').map_or(path, |(path, _)| path).into())
}

/// Where a PostgreSQL server keeps its data, if it tells.
async fn data_directory(database: &Database) -> Option<PathBuf> {
    let statement = Statement::from_string(database.backend(), "SHOW data_directory");
    let row = database.writer().query_one_raw(statement).await.ok()??;
    row.try_get_by_index::<String>(0).ok().map(PathBuf::from)
}

/// The kind of file system that a file or folder of this machine is on; none where there is no such file, or no GNU `stat`.
fn file_system_of(path: &Path) -> Option<String> {
    let told = Command::new("stat").args(["-f", "-c", "%T"]).arg(path).output().ok()?;
    told.status.success().then(|| String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use payferry_harness::database::TestDatabase;

    use super::*;

    #[tokio::test]
    async fn a_server_makes_files_of_its_log_and_keeps_no_slot_or_says_why_not() {
        let database = TestDatabase::postgres().await;
        let url: Url = database.url().parse().unwrap();
        let made = Engine::Postgres(url.clone()).make_log_files(32).await.unwrap().unwrap();
        assert!(made.starts_with("32 MiB of the server's log were written"), "{made}");

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
        let refused = Engine::Postgres(other).make_log_files(32).await;
        administrator.execute_unprepared(&format!("DROP ROLE {name}")).await.unwrap();
        let refused = refused.unwrap().unwrap();
        assert!(refused.contains("may be new") && refused.contains("replication slot"), "{refused}");

        assert_eq!(Engine::Sqlite.make_log_files(32).await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_the_service_opens_is_durable_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
        let Durability { mut settings } = Durability::of(&url).await.unwrap();
        // The temporary folder may be memory.
        let file_system = settings.pop().unwrap();
        assert_eq!((file_system.name, file_system.value), ("file_system", file_system_of(folder.path()).unwrap()));
        let durability = Durability { settings };
        let says = "the database says journal_mode = wal, synchronous = 2: a commit is on disk before its answer";
        assert_eq!((durability.told().as_str(), durability.lacks()), (says, vec![]));
    }

    #[test]
    fn what_is_in_memory_is_not_durable() {
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
