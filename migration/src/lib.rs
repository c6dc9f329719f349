//! Database schema, one migration per change, the same for SQLite and PostgreSQL.
//!
//! The statements are plain SQL for both. The only difference, an auto-numbered key, is written as `{identity}` and
//! replaced when the statement runs.

use sea_orm_migration::prelude::*;
use sea_orm_migration::sea_orm::{ConnectionTrait, DatabaseConnection, Statement};

pub use sea_orm_migration::{MigrationStatus, MigratorTrait};

mod change;
mod m0001_schema;

/// All migrations, oldest first.
pub struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(m0001_schema::CHANGE)]
    }
}

/// Returns the names of the migrations that the database lacks. Changes nothing. Fails if another version of Payferry, whose
/// migrations this version does not know, made the database.
pub async fn pending(database: &DatabaseConnection) -> Result<Vec<String>, DbErr> {
    let known: Vec<String> = Migrator::migrations().iter().map(|migration| migration.name().to_owned()).collect();
    if let Some(foreign) = applied(database).await?.into_iter().find(|name| !known.contains(name)) {
        return Err(DbErr::Custom(format!(
            "another version of Payferry made this database (migration {foreign}), and this version cannot open it: use a \
             new database, or that version"
        )));
    }
    let migrations = Migrator::get_migration_with_status_read_only(database).await?;
    let pending = migrations.into_iter().filter(|migration| migration.status() == MigrationStatus::Pending);
    Ok(pending.map(|migration| migration.name().to_owned()).collect())
}

/// Returns the names of the migrations that were applied to the database, oldest first.
async fn applied(database: &DatabaseConnection) -> Result<Vec<String>, DbErr> {
    if !SchemaManager::new(database).has_table("seaql_migrations").await? {
        return Ok(Vec::new());
    }
    let backend = ConnectionTrait::get_database_backend(database);
    let sql = Statement::from_string(backend, "SELECT version FROM seaql_migrations ORDER BY version");
    database.query_all_raw(sql).await?.iter().map(|row| row.try_get_by_index(0)).collect()
}

/// Applies the migrations that the database lacks, and returns their names. If it lacks none, the role needs no right to
/// change tables.
pub async fn migrate(database: &DatabaseConnection) -> Result<Vec<String>, DbErr> {
    let pending = pending(database).await?;
    if !pending.is_empty() {
        Migrator::up(database, None).await?;
    }
    Ok(pending)
}
