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
/// PostgreSQL, where whoever runs may not know of all that is committed (another process may be the one, or one that has just
/// ended), keeps every wallet in its index.
#[derive(DeriveMigrationName)]
pub struct Migration;

const LIVE: (&str, &str) = ("payments_live", "ON payments (id, shard, wallet, live) WHERE live");
const OVER: (&str, &str) = ("payments_over", "ON payments (wallet) WHERE NOT live");

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        if ConnectionTrait::get_database_backend(manager.get_connection()) == DbBackend::Sqlite {
            let unique = ("UNIQUE (wallet),\n         UNIQUE (link_token)", "UNIQUE (link_token)");
            return statements::rebuild_sqlite(manager, "payments", unique, &[LIVE, OVER]).await;
        }
        let (name, definition) = LIVE;
        let drop = format!("DROP INDEX {name}");
        statements::run(manager, &[&drop, &format!("CREATE INDEX {name} {definition}")]).await
    }
}
