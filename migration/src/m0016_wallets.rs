//! Separate indexes for wallets of finished payments and for live payments.

use sea_orm_migration::prelude::*;
use sea_orm_migration::sea_orm::{ConnectionTrait, DbBackend};

use crate::statements;

/// Separate indexes for wallets of finished payments and for live payments.
///
/// Wallets are hashes, so each new payment writes another page of an index of wallets. On SQLite this is half of all
/// data written for a payment. The watcher caches live wallets in memory, so this index contains only finished
/// payments. For the same reason the index of live payments is ordered by id alone: new payments share the last page.
/// The index repeats the column `live`, because otherwise SQLite would look it up in each row.
///
/// PostgreSQL keeps every wallet in its index, because a process may not know everything that is committed: another
/// process may be active, or may have just ended.
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
