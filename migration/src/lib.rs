//! Database schema, one migration per change, the same for SQLite and PostgreSQL.
//!
//! The statements are plain SQL for both. The only differences, an auto-numbered key and the type of bytes, are written as
//! `{identity}` and `{bytes}`, and replaced when the statement runs.

use sea_orm_migration::prelude::*;
use sea_orm_migration::sea_orm::{
    ConnectionTrait, DatabaseConnection, DbBackend, SqliteTransactionMode, Statement, TransactionOptions,
    TransactionTrait,
};

pub use sea_orm_migration::MigratorTrait;

mod change;
mod m0001_schema;
mod m0002_nodes;
mod m0003_leases;
mod m0004_customer_search;
mod m0005_console;
mod m0006_left_nodes;
mod m0007_traces;
mod m0008_checkout;
mod m0009_refund_requests;

/// Key of the lock of a migration: "migrate" in ASCII. PostgreSQL keeps advisory locks of each database apart.
const LOCK: i64 = 0x006d_6967_7261_7465;

/// All migrations, oldest first.
pub struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m0001_schema::CHANGE),
            Box::new(m0002_nodes::CHANGE),
            Box::new(m0003_leases::CHANGE),
            Box::new(m0004_customer_search::CHANGE),
            Box::new(m0005_console::CHANGE),
            Box::new(m0006_left_nodes::CHANGE),
            Box::new(m0007_traces::CHANGE),
            Box::new(m0008_checkout::CHANGE),
            Box::new(m0009_refund_requests::CHANGE),
        ]
    }
}

/// Returns the names of the migrations that the database lacks. Changes nothing. Fails if another version of Payferry made
/// the database, unless that version permits this one (`schema_floor`).
pub async fn pending(database: &DatabaseConnection) -> Result<Vec<String>, DbErr> {
    pending_of(&SchemaManager::new(database)).await
}

async fn pending_of(database: &SchemaManager<'_>) -> Result<Vec<String>, DbErr> {
    let known: Vec<String> = Migrator::migrations().iter().map(|migration| migration.name().to_owned()).collect();
    let applied = texts(database, "seaql_migrations", "version").await?;
    let pending: Vec<String> = known.iter().filter(|name| !applied.contains(name)).cloned().collect();
    let Some(foreign) = applied.iter().find(|name| !known.contains(name)) else { return Ok(pending) };
    let floor = texts(database, "schema_floor", "migration").await?;
    if pending.is_empty() && floor.iter().any(|floor| known.contains(floor)) {
        return Ok(pending);
    }
    Err(DbErr::Custom(format!(
        "another version of Payferry made this database (migration {foreign}), and this version cannot open it: use a new \
         database, or that version"
    )))
}

/// Returns a column of a table; empty if there is no such table.
async fn texts(database: &SchemaManager<'_>, table: &str, column: &str) -> Result<Vec<String>, DbErr> {
    if !database.has_table(table).await? {
        return Ok(Vec::new());
    }
    let sql = format!("SELECT {column} FROM {table} ORDER BY {column}");
    let rows = database.get_connection().query_all_raw(Statement::from_string(database.get_database_backend(), sql));
    rows.await?.iter().map(|row| row.try_get_by_index(0)).collect()
}

/// Applies the migrations that the database lacks, and returns their names: all of them or, after an error, none. If it
/// lacks none, the role needs no right to change tables. A second process that migrates meanwhile waits, and then finds
/// nothing to do.
pub async fn migrate(database: &DatabaseConnection) -> Result<Vec<String>, DbErr> {
    if pending(database).await?.is_empty() {
        return Ok(Vec::new());
    }
    let is_postgres = ConnectionTrait::get_database_backend(database) == DbBackend::Postgres;
    let mode = (!is_postgres).then_some(SqliteTransactionMode::Immediate);
    let options = TransactionOptions { sqlite_transaction_mode: mode, ..TransactionOptions::default() };
    let transaction = database.begin_with_options(options).await?;
    if is_postgres {
        transaction.execute_unprepared(&format!("SELECT pg_advisory_xact_lock({LOCK})")).await?;
    }
    let pending = pending_of(&SchemaManager::new(&transaction)).await?;
    if !pending.is_empty() {
        Migrator::up(&transaction, None).await?;
    }
    transaction.commit().await?;
    Ok(pending)
}
