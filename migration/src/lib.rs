//! Database schema, one file per change, the same for SQLite and PostgreSQL.
//!
//! The statements are plain SQL for both. The only difference, an auto-numbered key, is written as `{identity}` and
//! replaced when the statement runs.

use sea_orm_migration::prelude::*;

pub use sea_orm_migration::{MigrationStatus, MigratorTrait};

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
mod statements;

/// All migrations, oldest first.
pub struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m0001_tenants::Migration),
            Box::new(m0002_payments::Migration),
            Box::new(m0003_chains::Migration),
            Box::new(m0004_webhooks::Migration),
            Box::new(m0005_customers::Migration),
            Box::new(m0006_live_payments::Migration),
            Box::new(m0007_money_out::Migration),
            Box::new(m0008_operation::Migration),
            Box::new(m0009_event_floors::Migration),
            Box::new(m0010_ledger_openings::Migration),
            Box::new(m0011_payment_lists::Migration),
            Box::new(m0012_by_time::Migration),
            Box::new(m0013_set_aside::Migration),
            Box::new(m0014_customers_by_time::Migration),
            Box::new(m0015_undelivered::Migration),
            Box::new(m0016_wallets::Migration),
        ]
    }
}
