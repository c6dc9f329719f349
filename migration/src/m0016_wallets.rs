//! Wallets of payments that are over in an index of their own, and those of live ones beside their ids.

use sea_orm_migration::prelude::*;
use sea_orm_migration::sea_orm::{ConnectionTrait, DbBackend};

use crate::statements;

/// Wallets of payments that are over in an index of their own, and those of live ones beside their ids.
///
/// Wallets are hashes: an index of them has another page written by each new payment, on SQLite half of all that is written of
/// it. Whoever looks for transfers knows the wallets of live payments by heart; the index is entered when a payment is over.
/// For the same reason live payments stand by id alone: new ones share the last page. That all of them are `live` is in the index
/// once more, or SQLite would look for it in each row.
///
/// PostgreSQL, whose transactions may end behind the back of whoever asked for them, keeps every wallet in its index.
#[derive(DeriveMigrationName)]
pub struct Migration;

const LIVE: &[&str] =
    &["DROP INDEX payments_live", "CREATE INDEX payments_live ON payments (id, shard, wallet, live) WHERE live"];

const OVER_SQLITE: &[&str] = &["CREATE INDEX payments_over ON payments (wallet) WHERE NOT live"];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        statements::run(manager, LIVE).await?;
        if ConnectionTrait::get_database_backend(manager.get_connection()) == DbBackend::Sqlite {
            let unique = ("UNIQUE (wallet),\n         UNIQUE (link_token)", "UNIQUE (link_token)");
            statements::rebuild_sqlite(manager, "payments", unique).await?;
            statements::run(manager, OVER_SQLITE).await?;
        }
        Ok(())
    }
}
