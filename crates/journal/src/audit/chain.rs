//! The hash chain of the audit log: every position holds a hash of the previous position's hash and of one entry.
//!
//! A background task adds the entries to the chain after their commit, so that chaining delays no write. The order of
//! the chain is the order in which the task saw the entries; each entry is in it once. [`verify`] finds entries that
//! were changed, moved or deleted later. A person who can rewrite the database can also rewrite the whole chain;
//! a hash that was copied elsewhere before proves it.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use payferry_entities::{Database, audit_chain, audit_log};
use sea_orm::sea_query::Query;
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect, Statement,
};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Maximum number of entries that are chained at once.
pub const BATCH_MAX: u64 = 500;
/// Number of newest positions whose entries bound the search for entries that are not chained yet: an entry of a slow
/// commit has a lower number than entries that were chained before.
const OVERLAP: u64 = 20_000;
/// Interval at which new entries are chained.
const CHAIN_EVERY: Duration = Duration::from_secs(1);
/// Interval at which the newest hash is logged.
const LOG_EVERY: Duration = Duration::from_hours(1);
/// Positions that are verified in one step.
const VERIFY_PAGE: u64 = 1_000;
/// Hash before position 1.
const FIRST: &str = "";

/// Chains new entries and logs the newest hash once an hour, while the future is polled.
pub async fn chain_on(database: Database) {
    let database = database.api_pool();
    let mut ticks = interval(CHAIN_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut log_at = Instant::now();
    loop {
        ticks.tick().await;
        let chained = async {
            while extend(&database).await? == BATCH_MAX {}
            newest(database.reader()).await
        };
        match chained.await {
            Ok(Some(newest)) if Instant::now() >= log_at => {
                log_at = Instant::now() + LOG_EVERY;
                let audit_chain::Model { position, hash, .. } = newest;
                tracing::info!(position, hash, "newest hash of the audit log");
            }
            Ok(_) => {}
            // Another node may have chained the same entries.
            Err(error) => tracing::debug!(%error, "new audit entries were not chained; the next run tries again"),
        }
    }
}

/// Appends up to [`BATCH_MAX`] entries that are not chained yet and returns their number. Fails without effect if another
/// node does the same.
pub async fn extend(database: &Database) -> Result<u64, DbErr> {
    let (mut position, mut previous) = match newest(database.reader()).await? {
        Some(newest) => (newest.position, newest.hash),
        None => (0, FIRST.to_owned()),
    };
    let mut links = Vec::new();
    for entry in unchained(database.reader(), position).await? {
        position += 1;
        previous = hash(&previous, &entry);
        links.push(audit_chain::Model { position, number: entry.number, hash: previous.clone() });
    }
    let count = links.len() as u64;
    if count > 0 {
        let links = links.into_iter().map(audit_chain::Model::into_active_model);
        audit_chain::Entity::insert_many(links).exec_without_returning(database.writer()).await?;
    }
    Ok(count)
}

/// Returns the positions of these entries, by number. Entries that are not chained yet are missing.
pub async fn links(
    connection: &impl ConnectionTrait,
    numbers: impl Iterator<Item = i64>,
) -> Result<HashMap<i64, audit_chain::Model>, DbErr> {
    let links = audit_chain::Entity::find().filter(audit_chain::Column::Number.is_in(numbers)).all(connection).await?;
    Ok(links.into_iter().map(|link| (link.number, link)).collect())
}

/// Returns the end of the chain.
pub async fn newest(connection: &impl ConnectionTrait) -> Result<Option<audit_chain::Model>, DbErr> {
    audit_chain::Entity::find().order_by_desc(audit_chain::Column::Position).one(connection).await
}

async fn unchained(connection: &impl ConnectionTrait, newest: i64) -> Result<Vec<audit_log::Model>, DbErr> {
    let sql = "SELECT entry.* FROM audit_log AS entry \
        WHERE entry.number > COALESCE((SELECT MIN(number) FROM audit_chain WHERE position > $1), 0) \
        AND NOT EXISTS (SELECT 1 FROM audit_chain WHERE audit_chain.number = entry.number) \
        ORDER BY entry.number LIMIT $2";
    // From the start while the chain is short: its first entry need not be the oldest.
    let from = newest.saturating_sub_unsigned(OVERLAP);
    let from = if from <= 0 { i64::MAX } else { from };
    let values = [from.into(), BATCH_MAX.cast_signed().into()];
    audit_log::Entity::find()
        .from_raw_sql(Statement::from_sql_and_values(connection.get_database_backend(), sql, values))
        .all(connection)
        .await
}

/// Hash of an entry behind the one whose hash is `previous`. A JSON list separates the fields unambiguously.
fn hash(previous: &str, entry: &audit_log::Model) -> String {
    let audit_log::Model { number, at, actor_kind, actor, action, psp_id, subject, detail, address, request_id } =
        entry;
    let fields = json!([previous, number, at, actor_kind, actor, action, psp_id, subject, detail, address, request_id]);
    hex::encode(Sha256::digest(fields.to_string()))
}

/// Result of [`verify`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainReport {
    /// Number of chained entries.
    pub chained: u64,
    /// Number of entries that are not chained yet. A running service chains them within seconds.
    pub unchained: u64,
    /// Newest hash; `None` if nothing is chained.
    pub newest: Option<String>,
    /// Every sign of a change.
    pub findings: Vec<ChainFinding>,
}

/// A sign that the audit log was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "finding")]
pub enum ChainFinding {
    /// The entry differs from the one that was chained.
    Changed {
        /// Position in the chain.
        position: i64,
        /// Number of the entry.
        number: i64,
    },
    /// The entry does not exist any more.
    Deleted {
        /// Position in the chain.
        position: i64,
        /// Number of the entry.
        number: i64,
    },
    /// These positions of the chain do not exist any more.
    Missing {
        /// First missing position.
        from: i64,
        /// Last missing position.
        to: i64,
    },
    /// The expected hash is not in the chain: the end of the log was cut off, or the chain was rewritten.
    NotFound {
        /// The expected hash.
        hash: String,
    },
}

impl fmt::Display for ChainFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { position, number } => {
                write!(f, "entry {number} (position {position}) was changed or moved")
            }
            Self::Deleted { position, number } => write!(f, "entry {number} (position {position}) was deleted"),
            Self::Missing { from, to } => write!(f, "positions {from} to {to} of the chain were deleted"),
            Self::NotFound { hash } => {
                write!(f, "the expected hash {hash} is not in the chain: its end was cut off, or it was rewritten")
            }
        }
    }
}

/// Recomputes the whole chain on one snapshot of the database. `expected` is a hash that was noted before.
pub async fn verify(database: &Database, expected: Option<&str>) -> Result<ChainReport, DbErr> {
    let snapshot = database.snapshot().await?;
    let mut report = ChainReport { chained: 0, unchained: 0, newest: None, findings: Vec::new() };
    let mut is_expected_found = expected.is_none();
    let mut position = 0;
    loop {
        let links = audit_chain::Entity::find()
            .filter(audit_chain::Column::Position.gt(position))
            .order_by_asc(audit_chain::Column::Position)
            .limit(VERIFY_PAGE)
            .all(&snapshot)
            .await?;
        if links.is_empty() {
            break;
        }
        let numbers = links.iter().map(|link| link.number);
        let entries = audit_log::Entity::find().filter(audit_log::Column::Number.is_in(numbers)).all(&snapshot).await?;
        let entries: HashMap<i64, audit_log::Model> = entries.into_iter().map(|entry| (entry.number, entry)).collect();
        for audit_chain::Model { position: at, number, hash: stored } in links {
            if at != position + 1 {
                report.findings.push(ChainFinding::Missing { from: position + 1, to: at - 1 });
            }
            // Continues with the stored hash, so that only changed entries are found. Behind a gap the entry cannot be checked.
            let previous = report.newest.as_deref().unwrap_or(FIRST);
            match entries.get(&number) {
                None => report.findings.push(ChainFinding::Deleted { position: at, number }),
                Some(entry) if at == position + 1 && hash(previous, entry) != stored => {
                    report.findings.push(ChainFinding::Changed { position: at, number });
                }
                Some(_) => {}
            }
            is_expected_found |= expected == Some(stored.as_str());
            (position, report.newest) = (at, Some(stored));
            report.chained += 1;
        }
    }
    if let (false, Some(hash)) = (is_expected_found, expected) {
        report.findings.push(ChainFinding::NotFound { hash: hash.to_owned() });
    }
    let chained = Query::select().column(audit_chain::Column::Number).from(audit_chain::Entity).to_owned();
    let unchained = audit_log::Entity::find().filter(audit_log::Column::Number.not_in_subquery(chained));
    report.unchained = unchained.count(&snapshot).await?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use payferry_domain::Timestamp;
    use payferry_harness::database::TestDatabase;
    use payferry_migration::migrate;

    use super::*;
    use crate::audit::{Actor, NewAuditEntry, append};

    /// A log with entries about the subjects `a`, `b`, `c`, ... that are chained, and the service's database.
    async fn chained(entries: u8) -> (Database, TestDatabase) {
        let test = TestDatabase::create().await;
        let database = Database::open(test.url()).await.unwrap();
        migrate(&database.long_timeout()).await.unwrap();
        write(&database, entries).await;
        while extend(&database).await.unwrap() > 0 {}
        (database, test)
    }

    async fn write(database: &Database, entries: u8) {
        let entry = |index: u8| NewAuditEntry {
            action: "payout.created".to_owned(),
            psp_id: None,
            subject: char::from(b'a' + index).to_string(),
            detail: json!({"amount": "10.00"}),
        };
        let entries = (0..entries).map(entry).collect();
        append(database.writer(), &Actor::Operator, Timestamp(1_700_000_000_000), entries).await.unwrap();
    }

    /// Changes the log as the owner of the database: without the triggers that keep it append-only.
    async fn tamper(database: &Database, sql: &str) {
        let (without, with) = match database.backend() {
            sea_orm::DbBackend::Sqlite => (
                "DROP TRIGGER audit_log_stays; DROP TRIGGER audit_log_is_kept; DROP TRIGGER audit_chain_stays;
                 DROP TRIGGER audit_chain_is_kept",
                "",
            ),
            _ => ("SET session_replication_role = replica", "SET session_replication_role = origin"),
        };
        let connection = database.begin().await.unwrap();
        connection.execute_unprepared(&format!("{without}; {sql}; {with}")).await.unwrap();
        connection.commit().await.unwrap();
    }

    async fn found(database: &Database, expected: Option<&str>) -> Vec<String> {
        verify(database, expected).await.unwrap().findings.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn an_untouched_log_is_intact_and_grows() {
        let (database, _test) = chained(5).await;
        let first = verify(&database, None).await.unwrap();
        assert_eq!((first.chained, first.unchained, first.findings.len()), (5, 0, 0));
        let hash = first.newest.unwrap();
        write(&database, 2).await;
        let more = verify(&database, Some(&hash)).await.unwrap();
        assert_eq!((more.chained, more.unchained, more.findings.len()), (5, 2, 0));
        assert_eq!(extend(&database).await.unwrap(), 2);
        assert_eq!(extend(&database).await.unwrap(), 0, "each entry is chained once");
        let more = verify(&database, Some(&hash)).await.unwrap();
        assert_eq!((more.chained, more.unchained, more.findings.len()), (7, 0, 0));
        assert_ne!(more.newest, Some(hash));
    }

    #[tokio::test]
    async fn a_changed_moved_or_deleted_entry_is_found() {
        for (sql, expected) in [
            ("UPDATE audit_log SET detail = '{}' WHERE subject = 'b'", vec!["entry 2 (position 2) was changed or moved"]),
            ("UPDATE audit_log SET at = at + 1 WHERE subject = 'e'", vec!["entry 5 (position 5) was changed or moved"]),
            (
                "UPDATE audit_log SET number = 99 WHERE number = 2; UPDATE audit_log SET number = 2 WHERE number = 3;
                 UPDATE audit_log SET number = 3 WHERE number = 99",
                vec!["entry 2 (position 2) was changed or moved", "entry 3 (position 3) was changed or moved"],
            ),
            ("DELETE FROM audit_log WHERE subject = 'c'", vec!["entry 3 (position 3) was deleted"]),
            (
                "DELETE FROM audit_log WHERE number = 3; DELETE FROM audit_chain WHERE number = 3",
                vec!["positions 3 to 3 of the chain were deleted"],
            ),
            (
                "DELETE FROM audit_log WHERE number = 3; DELETE FROM audit_chain WHERE number = 3;
                 UPDATE audit_chain SET position = 3 WHERE position = 4; UPDATE audit_chain SET position = 4 WHERE position = 5",
                vec!["entry 4 (position 3) was changed or moved"],
            ),
        ] {
            let (database, _test) = chained(5).await;
            tamper(&database, sql).await;
            assert_eq!(found(&database, None).await, expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn a_cut_or_rewritten_log_lacks_the_expected_hash() {
        let (database, _test) = chained(5).await;
        let hash = newest(database.reader()).await.unwrap().unwrap().hash;
        assert_eq!(found(&database, Some(&hash)).await, [""; 0]);
        tamper(&database, "DELETE FROM audit_log WHERE number > 3; DELETE FROM audit_chain WHERE number > 3").await;
        assert_eq!(found(&database, None).await, [""; 0], "the rest is intact");
        let told = format!("the expected hash {hash} is not in the chain: its end was cut off, or it was rewritten");
        assert_eq!(found(&database, Some(&hash)).await, [told]);
    }

    #[tokio::test]
    async fn an_entry_of_a_slow_commit_is_chained_behind_later_numbers() {
        let (database, _test) = chained(2).await;
        // Entry 3 is not committed yet when entry 4 is chained.
        let row = |number: i64| {
            format!(
                "INSERT INTO audit_log (number, at, actor_kind, actor, action, subject, detail)
                 VALUES ({number}, 0, 'service', '', 'x', 'x', '{{}}')"
            )
        };
        database.writer().execute_unprepared(&row(4)).await.unwrap();
        assert_eq!(extend(&database).await.unwrap(), 1);
        database.writer().execute_unprepared(&row(3)).await.unwrap();
        assert_eq!(extend(&database).await.unwrap(), 1);
        let report = verify(&database, None).await.unwrap();
        assert_eq!((report.chained, report.unchained, report.findings.len()), (4, 0, 0));
    }

    #[tokio::test]
    async fn two_nodes_chain_each_entry_once() {
        let (database, test) = chained(0).await;
        let other = Database::open(test.url()).await.unwrap();
        write(&database, 26).await;
        // One of them may fail, because the other one was faster.
        let _ = tokio::join!(extend(&database), extend(&other));
        while extend(&other).await.unwrap() > 0 {}
        let report = verify(&database, None).await.unwrap();
        assert_eq!((report.chained, report.unchained, report.findings.len()), (26, 0, 0));
    }
}
