//! SQL of nodes and leases, for both databases.

use payferry_entities::query_all;
use sea_orm::{ConnectionTrait, DbBackend, DbErr, QueryResult, Value};

/// Key of the lock that a joining node holds until its commit.
const JOINING: i32 = 7_303;

/// The clock of the database, in milliseconds since the epoch.
pub(crate) fn now_ms(backend: DbBackend) -> &'static str {
    if backend == DbBackend::Postgres {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
    } else {
        "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
    }
}

/// Runs a statement in which `{now}` is the clock of the database.
pub(crate) async fn run(
    connection: &impl ConnectionTrait,
    sql: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Vec<QueryResult>, DbErr> {
    let now = now_ms(connection.get_database_backend());
    query_all(connection, &sql.replace("{now}", now), values).await
}

/// Makes other nodes that join wait until this transaction ends.
pub(crate) async fn lock_joining(transaction: &impl ConnectionTrait) -> Result<(), DbErr> {
    if transaction.get_database_backend() == DbBackend::Postgres {
        let sql = format!("SELECT 1 FROM pg_advisory_xact_lock({JOINING}, 0)");
        query_all(transaction, &sql, []).await?;
    }
    Ok(())
}

const MEMBER: &str =
    "n.id, n.name, n.version, n.config_digest, n.api_url, n.operator_url, n.joined_at, n.drain_requested";

/// The nodes that are not gone.
pub(crate) fn members() -> String {
    format!(
        "SELECT {MEMBER}, n.state, n.seen_at, n.clock_offset_ms FROM nodes n WHERE n.state <> 'gone' ORDER BY n.name, n.id"
    )
}

/// A heartbeat of node `$1`, and the same rows as of [`members`]. Only PostgreSQL has heartbeats. `beaten` is false in each row if
/// the node was declared gone. The rows are those before the statement, except for the values that it sets.
pub(crate) fn beat() -> String {
    format!(
        "WITH beat AS (UPDATE nodes SET seen_at = {{now}}, state = $2, clock_offset_ms = $3 WHERE id = $1 AND state <> 'gone' \
         RETURNING id, seen_at, state, clock_offset_ms) \
         SELECT {MEMBER}, COALESCE(beat.state, n.state) AS state, COALESCE(beat.seen_at, n.seen_at) AS seen_at, \
         COALESCE(beat.clock_offset_ms, n.clock_offset_ms) AS clock_offset_ms, beat.id IS NOT NULL AS beaten \
         FROM nodes n LEFT JOIN beat ON beat.id = n.id WHERE n.state <> 'gone' ORDER BY n.name, n.id"
    )
}

/// Declares a node gone whose heartbeat has not changed.
pub(crate) const EXPIRE: &str =
    "UPDATE nodes SET state = 'gone' WHERE id = $1 AND state <> 'gone' AND seen_at = $2 RETURNING id";

pub(crate) const LEAVE: &str = "UPDATE nodes SET state = 'gone', left_at = {now} WHERE id = $1 RETURNING id";

/// Nodes that were declared gone in the last `$1` milliseconds and have not started again.
pub(crate) const LOST: &str = "SELECT n.name, n.seen_at FROM nodes n \
    WHERE n.state = 'gone' AND n.left_at IS NULL AND n.seen_at > {now} - $1 \
    AND NOT EXISTS (SELECT 1 FROM nodes later WHERE later.name = n.name AND later.joined_at > n.joined_at) \
    ORDER BY n.seen_at, n.id";

/// Free leases are those without an owner and those of a node that is gone.
pub(crate) const LEASES: &str = "SELECT l.name, l.owner, l.requested_by, l.epoch, l.changed_at, \
    CASE WHEN l.owner IS NULL OR n.state = 'gone' THEN 1 ELSE 0 END AS free \
    FROM leases l LEFT JOIN nodes n ON n.id = l.owner ORDER BY l.name";

/// Claims up to `$2` free leases of those with `names` names, from `$3` on.
pub(crate) fn claim(backend: DbBackend, names: usize) -> String {
    let lock = if backend == DbBackend::Postgres { "FOR UPDATE OF l SKIP LOCKED" } else { "" };
    let names = (3..names + 3).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ");
    format!(
        "WITH free AS (SELECT l.name FROM leases l LEFT JOIN nodes n ON n.id = l.owner \
         WHERE l.name IN ({names}) AND (l.owner IS NULL OR n.state = 'gone') ORDER BY l.name LIMIT $2 {lock}) \
         UPDATE leases SET owner = $1, requested_by = NULL, epoch = leases.epoch + 1, changed_at = {{now}} FROM free \
         WHERE leases.name = free.name \
         AND EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND state IN ('joining', 'ready')) \
         RETURNING leases.name, leases.epoch, leases.changed_at"
    )
}

/// Hands one lease over to another node.
pub(crate) const HAND_OVER: &str = "UPDATE leases SET owner = $2, requested_by = NULL, epoch = epoch + 1, changed_at = {now} \
    WHERE name = $3 AND owner = $1 AND epoch = $4 AND changed_at = $5 AND EXISTS (SELECT 1 FROM nodes WHERE id = $2 AND state = 'ready') \
    RETURNING name";
