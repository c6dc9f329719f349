//! Separate indexes for wallets of finished payments and for live payments.
//!
//! Wallets are hashes, so each new payment writes another page of an index of wallets. On SQLite this is half of all
//! data written for a payment. The watcher caches live wallets in memory, so this index contains only finished
//! payments. For the same reason the index of live payments is ordered by id alone: new payments share the last page.
//! The index repeats the column `live`, because otherwise SQLite would look it up in each row.
//!
//! PostgreSQL keeps every wallet in its index, because a process may not know everything that is committed: another
//! process may be active, or may have just ended.

use crate::change::{Change, Rebuild};

pub(crate) const CHANGE: Change = Change {
    sqlite_rebuilds: &[Rebuild {
        table: "payments",
        from: "UNIQUE (wallet),\n         UNIQUE (link_token)",
        to: "UNIQUE (link_token)",
        indexes: &[
            ("payments_live", "ON payments (id, shard, wallet, live) WHERE live"),
            ("payments_over", "ON payments (wallet) WHERE NOT live"),
        ],
    }],
    postgres: &[
        "DROP INDEX payments_live",
        "CREATE INDEX payments_live ON payments (id, shard, wallet, live) WHERE live",
    ],
    ..Change::plain("m0016_wallets", &[])
};
