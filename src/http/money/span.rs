//! Maps a time to a position in the ledger.
//!
//! Postings are found by position. They have no index by time, because every payment would pay for it. Times grow with
//! positions up to a bounded disorder, so a binary search finds the position of a time.

use payferry_domain::{PspId, Timestamp};
use payferry_entities::Database;
use payferry_entities::ledger_postings::{Column, Entity};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

/// Seconds by which a posting's time may be earlier than that of a preceding posting: a decision may be written late,
/// and clocks are set back.
pub const DISORDER_SECS_MAX: i64 = 3_600;

/// Positions that enclose all postings of a period; other postings may be between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// The first position that may belong to the period.
    pub from: Option<i64>,
    /// The first position that is certainly after the period.
    pub to: Option<i64>,
}

impl Span {
    /// The span of the PSP's postings from `from` on and before `to`.
    pub async fn of(
        database: &Database,
        psp_id: PspId,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Self, DbErr> {
        let mut span = Self { from: None, to: None };
        if let Some(from) = from {
            span.from = Some(place(database, psp_id, from.plus_secs(-DISORDER_SECS_MAX)).await?);
        }
        if let Some(to) = to {
            span.to = Some(place(database, psp_id, to.plus_secs(DISORDER_SECS_MAX)).await?);
        }
        Ok(span)
    }
}

/// The position from which on the PSP's postings have this time or a later one.
async fn place(database: &Database, psp_id: PspId, at: Timestamp) -> Result<i64, DbErr> {
    let own = || Entity::find().filter(Column::PspId.eq(psp_id.to_string()));
    let found = |query: sea_orm::Select<Entity>| {
        let query = query.select_only().columns([Column::Position, Column::At]);
        async move { query.into_tuple::<(i64, i64)>().one(database.reader()).await }
    };
    let Some((last, _)) = found(own().order_by_desc(Column::Position)).await? else { return Ok(0) };
    let (mut low, mut high) = (0, last + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let next = own().filter(Column::Position.gte(middle)).order_by_asc(Column::Position);
        match found(next).await? {
            Some((position, time)) if time < at.as_millis() => low = position + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use payferry_accounts::tenants::psp_row;
    use payferry_entities::{ledger_postings, psps};
    use payferry_journal::psps::PspPolicies;
    use payferry_migration::migrate;
    use sea_orm::{ActiveValue, IntoActiveModel};

    use super::*;

    const HOUR: i64 = 3_600_000;
    const BEGUN: i64 = 1_000 * HOUR;

    async fn database(folder: &tempfile::TempDir) -> Database {
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("payferry.db").display());
        let database = Database::open(&url).await.unwrap();
        migrate(&database.long_timeout()).await.unwrap();
        database
    }

    async fn add_psp(database: &Database) -> PspId {
        let id = PspId::generate();
        let row = psp_row(id, "Test", &PspPolicies::default(), Timestamp(0));
        psps::Entity::insert(row.into_active_model()).exec_without_returning(database.writer()).await.unwrap();
        id
    }

    /// Writes postings with these times, in this order.
    async fn post(database: &Database, psp: PspId, times: impl IntoIterator<Item = i64>) {
        let row = |at: i64| {
            let mut row = ledger_postings::Model {
                position: 0,
                subject: payferry_domain::PaymentId::generate().to_string(),
                version: 1,
                line: 0,
                psp_id: psp.to_string(),
                kind: "received".to_owned(),
                debit: "external".to_owned(),
                credit: "payment".to_owned(),
                chain: "base".to_owned(),
                token_address: "0x".to_owned(),
                amount: 1,
                reference: String::new(),
                at,
            }
            .into_active_model();
            row.position = ActiveValue::NotSet;
            row
        };
        let rows: Vec<_> = times.into_iter().map(row).collect();
        for some in rows.chunks(500) {
            Entity::insert_many(some.to_vec()).exec_without_returning(database.writer()).await.unwrap();
        }
    }

    async fn times(database: &Database, psp: PspId, span: Option<Span>, from: i64, to: i64) -> Vec<(i64, i64)> {
        let mut wanted = Entity::find().filter(Column::PspId.eq(psp.to_string()));
        wanted = wanted.filter(Column::At.gte(from)).filter(Column::At.lt(to));
        if let Some(first) = span.and_then(|span| span.from) {
            wanted = wanted.filter(Column::Position.gte(first));
        }
        if let Some(end) = span.and_then(|span| span.to) {
            wanted = wanted.filter(Column::Position.lt(end));
        }
        let found = wanted.order_by_asc(Column::Position).select_only().columns([Column::Position, Column::At]);
        found.into_tuple().all(database.reader()).await.unwrap()
    }

    #[tokio::test]
    async fn binary_search_finds_all_postings_of_a_span_and_few_others() {
        let folder = tempfile::tempdir().unwrap();
        let database = database(&folder).await;
        let (psp, other) = (add_psp(&database).await, add_psp(&database).await);
        // Two accounts in turn, one posting every six minutes, each up to 50 minutes late.
        for n in 0..1_000 {
            let who = if n % 3 == 0 { other } else { psp };
            post(&database, who, [BEGUN + n * HOUR / 10 - ((n * 17) % 50) * 60_000]).await;
        }
        let ends = [-300, -5, 0, 1, 2, 3, 10, 50, 51, 99, 100, 200].map(|hours| BEGUN + hours * HOUR);
        for from in ends {
            for to in ends {
                let span = Span::of(&database, psp, Some(Timestamp(from)), Some(Timestamp(to))).await.unwrap();
                let (all, found) = (times(&database, psp, None, from, to), times(&database, psp, Some(span), from, to));
                assert_eq!(all.await, found.await, "{from} to {to}: {span:?}");
            }
        }
        // Of a hundred hours, it reads little more than the two requested.
        let (from, to) = (Timestamp(BEGUN + 50 * HOUR), Timestamp(BEGUN + 52 * HOUR));
        let span = Span::of(&database, psp, Some(from), Some(to)).await.unwrap();
        let read = times(&database, psp, Some(span), 0, i64::MAX).await;
        assert!(read.len() < 60, "{} of 866", read.len());
        assert_eq!(Span::of(&database, psp, None, None).await.unwrap(), Span { from: None, to: None });
        let nobody = Span::of(&database, PspId::generate(), Some(from), Some(to)).await.unwrap();
        assert_eq!(nobody, Span { from: Some(0), to: Some(0) });
    }
}
