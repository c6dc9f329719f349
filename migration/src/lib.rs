//! Database schema, one file per change, the same for SQLite and PostgreSQL.
//!
//! The statements are plain SQL for both. The only difference, an auto-numbered key, is written as `{identity}` and
//! replaced when the statement runs.

use sea_orm_migration::prelude::*;
use sea_orm_migration::sea_orm::DatabaseConnection;

pub use sea_orm_migration::{MigrationStatus, MigratorTrait};

use change::Change;

mod change;
mod m0001_tenants;
mod m0002_payments;
mod m0003_chains;
mod m0004_webhooks;
mod m0005_customers;
mod m0006_live_payments;
mod m0007_money_out;
mod m0008_operation;
mod m0009_event_floors;
mod m0010_ledger_openings;
mod m0011_payment_lists;
mod m0012_by_time;
mod m0013_set_aside;
mod m0014_customers_by_time;
mod m0015_undelivered;
mod m0016_wallets;
mod m0017_audit_chain;
mod m0018_operators;
mod m0019_list_filters;
mod m0022_key_changes;
mod m0023_approvals;
mod m0025_refunds;
mod m0026_endpoints;
mod m0027_customer_events;

/// All migrations, oldest first.
pub struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        let changes = [
            Change::plain("m0001_tenants", m0001_tenants::UP),
            Change::plain("m0002_payments", m0002_payments::UP),
            Change::plain("m0003_chains", m0003_chains::UP),
            Change::plain("m0004_webhooks", m0004_webhooks::UP),
            m0005_customers::CHANGE,
            Change::plain("m0006_live_payments", m0006_live_payments::UP),
            m0007_money_out::CHANGE,
            Change::plain("m0008_operation", m0008_operation::UP),
            Change::plain("m0009_event_floors", m0009_event_floors::UP),
            Change::plain("m0010_ledger_openings", m0010_ledger_openings::UP),
            Change::plain("m0011_payment_lists", m0011_payment_lists::UP),
            Change::plain("m0012_by_time", m0012_by_time::UP),
            Change::plain("m0013_set_aside", m0013_set_aside::UP),
            Change::plain("m0014_customers_by_time", m0014_customers_by_time::UP),
            Change::plain("m0015_undelivered", m0015_undelivered::UP),
            m0016_wallets::CHANGE,
            m0017_audit_chain::CHANGE,
            Change::plain("m0018_operators", m0018_operators::UP),
            m0019_list_filters::CHANGE,
            Change::plain("m0022_key_changes", m0022_key_changes::UP),
            Change::plain("m0023_approvals", m0023_approvals::UP),
            m0025_refunds::CHANGE,
            m0026_endpoints::CHANGE,
            Change::plain("m0027_customer_events", m0027_customer_events::UP),
        ];
        changes.into_iter().map(|change| Box::new(change) as Box<dyn MigrationTrait>).collect()
    }
}

/// Returns the names of the migrations that the database lacks. Changes nothing.
pub async fn pending(database: &DatabaseConnection) -> Result<Vec<String>, DbErr> {
    let migrations = Migrator::get_migration_with_status_read_only(database).await?;
    let pending = migrations.into_iter().filter(|migration| migration.status() == MigrationStatus::Pending);
    Ok(pending.map(|migration| migration.name().to_owned()).collect())
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
