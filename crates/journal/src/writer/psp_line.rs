//! The order of a PSP's events and postings, for consumers that read them `after` a position.
//!
//! The database assigns a position at the insert, and a transaction becomes visible at its commit. With several writers,
//! the row of a lower position could become visible later, and such a consumer would miss it. So a transaction that
//! publishes or posts for a PSP first takes the PSP's line, a lock that it holds until its commit: the positions of one PSP
//! are committed in order. This also holds for a transaction whose connection was lost and which may still be committed.
//!
//! Every transaction takes its lines before any other lock, in sorted order. Otherwise two transactions could wait for each
//! other, and the database would abort one of them. SQLite has one writer at a time and needs no line.

use std::collections::BTreeSet;

use payferry_entities::Transaction;
use sea_orm::{ConnectionTrait, DbBackend, DbErr, Statement};

use super::rows::{BlockRow, HeightRow};
use super::write::Writer;
use super::{JournalWrite, NewEvent};
use crate::lists::{text_list, texts_of};

/// First key of the lines among the advisory locks of the database. The second key is a hash of the PSP's id; two PSPs with
/// the same hash share a line.
const LINES: i32 = 7_301;

/// Takes the lines of these PSPs. A line that the transaction already holds is taken at once.
pub(crate) async fn take_lines<'p>(
    transaction: &Transaction,
    psp_ids: impl IntoIterator<Item = &'p str>,
) -> Result<(), DbErr> {
    let psp_ids: BTreeSet<&str> = psp_ids.into_iter().collect();
    if psp_ids.is_empty() || ConnectionTrait::get_database_backend(transaction) == DbBackend::Sqlite {
        return Ok(());
    }
    let sql = format!(
        "SELECT pg_advisory_xact_lock({LINES}, line.hash) FROM \
         (SELECT DISTINCT hashtext(psp_id) AS hash FROM ({}) AS psps (psp_id) ORDER BY 1) AS line",
        texts_of(DbBackend::Postgres, 1)
    );
    let values = [text_list(psp_ids)?];
    transaction.query_all_raw(Statement::from_sql_and_values(DbBackend::Postgres, sql, values)).await.map(drop)
}

impl Writer<'_> {
    /// Takes the lines of all PSPs for which the writes publish or post.
    pub(super) async fn take_lines(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        if self.backend == DbBackend::Sqlite {
            return Ok(());
        }
        let of_deposits = self.psps_of_deposits(writes).await?;
        let announced = writes.iter().flat_map(|write| write.announcements());
        let announced = announced.map(|NewEvent { event, .. }| event.psp_id.as_str());
        let posted = writes.iter().flat_map(|write| write.postings()).map(|posting| posting.psp_id.as_str());
        let of_deposits = of_deposits.iter().map(String::as_str);
        take_lines(self.transaction, announced.chain(posted).chain(of_deposits)).await
    }

    /// PSPs of the deposits that chain batches post, or whose posting they reverse.
    async fn psps_of_deposits(&self, writes: &[&JournalWrite]) -> Result<Vec<String>, DbErr> {
        let (mut final_below, mut orphaned) = (Vec::new(), Vec::new());
        for write in writes {
            let JournalWrite::ChainBatch(_, batch) = write else { continue };
            let chain = batch.cursor.chain.as_str();
            final_below.push(HeightRow { chain, number: batch.headers_keep_from });
            orphaned.extend(batch.orphaned_blocks.iter().map(|hash| BlockRow { chain, hash }));
        }
        if final_below.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = self.run(&self.statements.deposits_to_post, &final_below).await?;
        rows.extend(self.run(&self.statements.deposits_posted, &orphaned).await?);
        rows.iter().map(|row| row.try_get_by_index(0)).collect()
    }
}
