//! Templates: databases that have today's tables and no rows, migrated once and copied for every test.
//!
//! A template is named by a hash of the migrations' sources, so a changed migration makes another one. Several test processes may
//! need it at the same time: the first one makes it, under a name of its own, and gives it its name when it is complete.

use std::future::Future;
use std::path::{Path, PathBuf};

use sea_orm::{ConnectionTrait, DbErr, Statement};
use ulid::Ulid;
use url::Url;

use super::{administer, connect, with_database};

/// Hash of the migrations' sources.
const MIGRATIONS: &str = env!("PAYFERRY_MIGRATIONS");
/// Folder of SQLite templates, in cargo's target folder.
const FOLDER: &str = env!("OUT_DIR");
/// Key of the lock that a process holds on the server while it makes a template.
const LOCK: i64 = 0x7061_7966_6572_7279;

/// Writes a copy of the SQLite template to `file`.
pub(super) async fn copy_sqlite(file: &Path) {
    let template = PathBuf::from(FOLDER).join(format!("template-{MIGRATIONS}.db"));
    if !template.exists() {
        let new = PathBuf::from(FOLDER).join(format!("template-{}.new", Ulid::generate()));
        migrate(&format!("sqlite://{}?mode=rwc", new.display())).await.unwrap();
        std::fs::rename(&new, &template).unwrap();
    }
    std::fs::copy(&template, file).unwrap();
}

/// Creates a database on the server as a copy of the template. `options` follow in the statement.
pub(super) async fn copy_postgres(server: &Url, name: &str, options: &str) -> Result<(), DbErr> {
    let template = format!("payferry_template_{MIGRATIONS}");
    if !exists(server, &template).await? {
        make_postgres(server, &template).await?;
    }
    administer(server, &format!("CREATE DATABASE {name} TEMPLATE {template}{options}")).await
}

async fn exists(server: &Url, template: &str) -> Result<bool, DbErr> {
    let admin = connect(with_database(server, "postgres").as_str()).await?;
    let statement = "SELECT 1 FROM pg_database WHERE datname = $1";
    let statement = Statement::from_sql_and_values(admin.get_database_backend(), statement, [template.into()]);
    let found = admin.query_one_raw(statement).await?.is_some();
    admin.close().await?;
    Ok(found)
}

async fn make_postgres(server: &Url, template: &str) -> Result<(), DbErr> {
    // Held until this connection is closed.
    let lock = connect(with_database(server, "postgres").as_str()).await?;
    lock.execute_unprepared(&format!("SELECT pg_advisory_lock({LOCK})")).await?;
    if !exists(server, template).await? {
        let new = format!("{template}_new");
        lock.execute_unprepared(&format!("DROP DATABASE IF EXISTS {new} WITH (FORCE)")).await?;
        lock.execute_unprepared(&format!("CREATE DATABASE {new}")).await?;
        migrate(with_database(server, &new).as_str()).await?;
        lock.execute_unprepared(&format!("ALTER DATABASE {new} RENAME TO {template}")).await?;
    }
    lock.close().await
}

async fn migrate(url: &str) -> Result<(), DbErr> {
    let database = connect(url).await?;
    payferry_migration::migrate(&database).await?;
    database.close().await
}

/// Runs a future to its end on a thread of its own: the caller's runtime may be the one that is ending, or there is none.
pub(super) fn apart<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
        scope.spawn(run).join().unwrap()
    })
}
