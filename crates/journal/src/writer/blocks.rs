//! Blocks that were read completely: their headers, transfers, deposits and outages, and what a reorganisation undoes. Marks the
//! transfers that payments have applied.
//!
//! Not here: the precondition that the cursor has not moved (`preconditions`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use payferry_entities::{chain_headers, chain_outages, deposits, ledger_postings, transfers};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, FromQueryResult, QueryFilter, QueryResult, QuerySelect};

use super::bind::RowStatement;
use super::psp_line::take_lines;
use super::rows::{AppliedRow, BlockRow, HeightRow, MinedRow, OutagesToForget};
use super::write::Writer;
use super::{JournalWrite, Receipt};
use crate::postings;

/// Milliseconds for which an outage is kept. A payment waits for a transfer for at most a day, and for the outages in it.
const OUTAGES_KEPT_MS: i64 = 30 * 86_400_000;
/// Deposits per query of their last versions.
const DEPOSITS_MAX: usize = 1_000;

impl Writer<'_> {
    /// Writes the blocks, and returns the changed transfers in the receipts.
    pub(super) async fn write_chain(&self, writes: &[&JournalWrite], receipts: &mut [Receipt]) -> Result<(), DbErr> {
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut orphaned = BTreeSet::new();
        let mut headers: BTreeMap<(&str, i64), &chain_headers::Model> = BTreeMap::new();
        let mut forgotten = Vec::new();
        let mut found: BTreeMap<TransferId<'_>, transfers::Model> = BTreeMap::new();
        let mut deposits: Vec<&deposits::Model> = Vec::new();
        let mut outages: Vec<&chain_outages::Model> = Vec::new();
        let mut forgotten_outages = Vec::new();
        for (place, write) in writes.iter().enumerate() {
            let JournalWrite::ChainBatch(_, batch) = write else { continue };
            let chain = batch.cursor.chain.as_str();
            places.insert(chain, place);
            orphaned.extend(batch.orphaned_blocks.iter().map(|hash| (chain.to_owned(), hash.clone())));
            headers.extend(batch.headers.iter().map(|header| ((header.chain.as_str(), header.number), header)));
            forgotten.push(HeightRow { chain, number: batch.headers_keep_from });
            deposits.extend(&batch.deposits);
            outages.extend(&batch.outages);
            // Old rows are deleted when others are added, so that most batches have one statement less.
            if !batch.outages.is_empty() || !batch.orphaned_blocks.is_empty() {
                let (above, ended_before) = (batch.cursor.block_number, batch.cursor.block_time - OUTAGES_KEPT_MS);
                forgotten_outages.push(OutagesToForget { chain, above, ended_before });
            }
            // PostgreSQL rejects two rows with the same key in one statement. The later row is the newer one.
            found.extend(batch.transfers.iter().map(|row| {
                let fresh = transfers::Model { revision: 1, applied_revision: 0, applied_version: 0, ..row.clone() };
                (transfer_id(row), fresh)
            }));
        }
        if places.is_empty() {
            return Ok(());
        }
        let found: Vec<_> = found.into_values().collect();
        let mined = found.iter().map(|row| (&row.chain, &row.tx_hash, &row.block_hash));
        orphaned.extend(self.elsewhere(&self.statements.transfers_elsewhere, mined).await?);
        let mined = deposits.iter().map(|row| (&row.chain, &row.tx_hash, &row.block_hash));
        orphaned.extend(self.elsewhere(&self.statements.deposits_elsewhere, mined).await?);
        let orphaned: Vec<_> = orphaned.iter().map(|(chain, hash)| BlockRow { chain, hash }).collect();
        let mut gone: Vec<transfers::Model> = models(&self.run(&self.statements.transfers_orphan, &orphaned).await?)?;
        let undone: Vec<deposits::Model> = models(&self.run(&self.statements.deposits_orphan, &orphaned).await?)?;
        self.post_deposits(undone.into_iter().filter(|deposit| deposit.posted).collect(), true).await?;
        self.run(&self.statements.headers_drop, &orphaned).await?;
        self.run(&self.statements.headers_upsert, &headers.into_values().collect::<Vec<_>>()).await?;
        self.run(&self.statements.headers_forget, &forgotten).await?;
        self.run(&self.statements.outages_forget, &forgotten_outages).await?;
        self.run(&self.statements.outages_upsert, &outages).await?;
        self.run(&self.statements.deposits_insert, &deposits).await?;
        let posted = models(&self.run(&self.statements.deposits_post, &forgotten).await?)?;
        self.post_deposits(posted, false).await?;
        let mut changed: Vec<transfers::Model> = models(&self.run(&self.statements.transfers_upsert, &found).await?)?;
        gone.sort_by_key(|row| (row.block_number, row.log_index));
        changed.sort_by_key(|row| (row.block_number, row.log_index));
        for row in gone.into_iter().chain(changed) {
            if let Some(&place) = places.get(row.chain.as_str()) {
                receipts[place].transfers.push(row);
            }
        }
        Ok(())
    }

    /// Blocks, with their chains, that have these transactions although other blocks have them now.
    async fn elsewhere<'a>(
        &self,
        statement: &RowStatement<MinedRow<'static>>,
        mined: impl Iterator<Item = (&'a String, &'a String, &'a String)>,
    ) -> Result<Vec<(String, String)>, DbErr> {
        let rows: Vec<_> = mined.map(|(chain, tx_hash, block_hash)| MinedRow { chain, tx_hash, block_hash }).collect();
        let found = self.run(statement, &rows).await?;
        found.iter().map(|row| Ok((row.try_get_by_index(0)?, row.try_get_by_index(1)?))).collect()
    }

    /// Posts deposits, or their reversals, each as the next version of its subject.
    async fn post_deposits(&self, mut deposits: Vec<deposits::Model>, is_orphaned: bool) -> Result<(), DbErr> {
        // Held already, unless a transaction of a final block was mined again elsewhere.
        take_lines(self.transaction, deposits.iter().map(|deposit| deposit.psp_id.as_str())).await?;
        while !deposits.is_empty() {
            let part: Vec<_> = deposits.drain(..deposits.len().min(DEPOSITS_MAX)).collect();
            let subject = |row: &deposits::Model| postings::deposit_subject(&row.chain, &row.tx_hash, row.log_index);
            let versions = ledger_postings::Entity::find()
                .select_only()
                .column(ledger_postings::Column::Subject)
                .column_as(ledger_postings::Column::Version.max(), "version")
                .filter(ledger_postings::Column::Subject.is_in(part.iter().map(subject)))
                .group_by(ledger_postings::Column::Subject)
                .into_tuple()
                .all(self.transaction)
                .await?;
            let versions: HashMap<String, i64> = versions.into_iter().collect();
            let next = |row: &deposits::Model| versions.get(&subject(row)).map_or(1, |version| version + 1);
            let postings = part.into_iter().map(|row| (next(&row), row));
            let postings: Vec<_> =
                postings.map(|(version, row)| postings::of_deposit(row, version, is_orphaned)).collect();
            self.run(&self.statements.ledger_postings_insert, &postings).await?;
        }
        Ok(())
    }

    /// Marks the transfers that payments have applied.
    pub(super) async fn mark_applied(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        // Of two marks of one row the later revision counts, in any join order of the database.
        let mut marks: BTreeMap<TransferId<'_>, (i64, i64)> = BTreeMap::new();
        for write in writes {
            let (version, applied) = match write {
                JournalWrite::Transition(transition) => (transition.payment.version, &transition.applied),
                JournalWrite::TransfersApplied(applied) => (applied.version, &applied.transfers),
                _ => continue,
            };
            for row in applied {
                let mark = marks.entry((&row.chain, &row.tx_hash, row.log_index, &row.block_hash)).or_default();
                *mark = (*mark).max((row.revision, version));
            }
        }
        let marks =
            marks.into_iter().map(|((chain, tx_hash, log_index, block_hash), (applied_revision, applied_version))| {
                AppliedRow { chain, block_hash, tx_hash, log_index, applied_revision, applied_version }
            });
        let marks: Vec<_> = marks.collect();
        self.run(&self.statements.transfers_apply, &marks).await.map(|_| ())
    }
}

fn models<M: FromQueryResult>(rows: &[QueryResult]) -> Result<Vec<M>, DbErr> {
    rows.iter().map(|row| M::from_query_result(row, "")).collect()
}

type TransferId<'a> = (&'a str, &'a str, i64, &'a str);

fn transfer_id(row: &transfers::Model) -> TransferId<'_> {
    (&row.chain, &row.tx_hash, row.log_index, &row.block_hash)
}
