//! Pages of stored histories, each read in one snapshot.

use std::collections::HashMap;

use payferry_entities::{Database, Transaction, ledger_postings, query_all};
use sea_orm::{DbErr, QueryResult, Value};

use crate::lists::{text_list, texts_of};

/// Payments in a page.
const PAYMENTS_MAX: usize = 500;

/// Everything stored about one payment.
#[derive(Debug, Default)]
pub(super) struct StoredHistory {
    pub(super) id: String,
    /// Subject of its events and postings.
    pub(super) public_id: String,
    pub(super) state: String,
    pub(super) transitions: Vec<TransitionRow>,
    /// Sequence and name of its events, in their order. Old events are deleted from the feed.
    pub(super) announced: Vec<(i64, String)>,
    /// In their order.
    pub(super) posted: Vec<ledger_postings::Model>,
}

#[derive(Debug)]
pub(super) struct TransitionRow {
    pub(super) version: i64,
    pub(super) at: i64,
    pub(super) events: String,
    pub(super) command: Option<String>,
}

/// Reads all payments in the order of their ids.
#[derive(Default)]
pub(super) struct Pages {
    after: String,
    has_ended: bool,
}

impl Pages {
    /// The next page; `None` at the end.
    pub(super) async fn next(&mut self, database: &Database) -> Result<Option<Vec<StoredHistory>>, DbErr> {
        if self.has_ended {
            return Ok(None);
        }
        let snapshot = database.snapshot().await?;
        let page = self.read(database, &snapshot).await?;
        snapshot.rollback().await?;
        self.has_ended = page.len() < PAYMENTS_MAX;
        if let Some(last) = page.last() {
            self.after.clone_from(&last.id);
        }
        Ok(Some(page).filter(|page| !page.is_empty()))
    }

    async fn read(&self, database: &Database, snapshot: &Transaction) -> Result<Vec<StoredHistory>, DbErr> {
        let sql = format!("SELECT id, purpose, state FROM payments WHERE id > $1 ORDER BY id LIMIT {PAYMENTS_MAX}");
        let mut page = Vec::new();
        for row in query_all(snapshot, &sql, [self.after.as_str().into()]).await? {
            let (id, purpose, state): (String, String, String) = row.try_get_many_by_index()?;
            let public_id = if purpose == "transfer" { id.replacen("pay_", "tr_", 1) } else { id.clone() };
            page.push(StoredHistory { id, public_id, state, ..StoredHistory::default() });
        }
        let Some(last) = page.last() else { return Ok(page) };
        let sql = "SELECT payment_id, version, at, events, command FROM payment_transitions \
                   WHERE payment_id > $1 AND payment_id <= $2 ORDER BY payment_id, version";
        let values = [self.after.as_str().into(), last.id.as_str().into()];
        let transitions = by_subject(snapshot, sql, values, |row| {
            let (version, at, events, command) = (
                row.try_get_by_index(1)?,
                row.try_get_by_index(2)?,
                row.try_get_by_index(3)?,
                row.try_get_by_index(4)?,
            );
            Ok(TransitionRow { version, at, events, command })
        });
        let mut transitions = transitions.await?;
        let subjects = || Ok::<_, DbErr>([text_list(page.iter().map(|payment| &payment.public_id))?]);
        let listed = texts_of(database.backend(), 1);
        let sql = format!(
            "SELECT payment_id, sequence, name FROM events WHERE payment_id IN ({listed}) ORDER BY payment_id, sequence"
        );
        let events =
            by_subject(snapshot, &sql, subjects()?, |row| Ok((row.try_get_by_index(1)?, row.try_get_by_index(2)?)));
        let mut events = events.await?;
        let sql = format!(
            "SELECT subject, version, line, psp_id, kind, debit, credit, chain, token_address, amount, reference, at \
             FROM ledger_postings WHERE subject IN ({listed}) ORDER BY subject, version, line"
        );
        let mut postings = by_subject(snapshot, &sql, subjects()?, posting).await?;
        for payment in &mut page {
            payment.transitions = transitions.remove(&payment.id).unwrap_or_default();
            payment.announced = events.remove(&payment.public_id).unwrap_or_default();
            payment.posted = postings.remove(&payment.public_id).unwrap_or_default();
        }
        Ok(page)
    }
}

fn posting(row: &QueryResult) -> Result<ledger_postings::Model, DbErr> {
    Ok(ledger_postings::Model {
        position: 0,
        subject: row.try_get_by_index(0)?,
        version: row.try_get_by_index(1)?,
        line: row.try_get_by_index(2)?,
        psp_id: row.try_get_by_index(3)?,
        kind: row.try_get_by_index(4)?,
        debit: row.try_get_by_index(5)?,
        credit: row.try_get_by_index(6)?,
        chain: row.try_get_by_index(7)?,
        token_address: row.try_get_by_index(8)?,
        amount: row.try_get_by_index(9)?,
        reference: row.try_get_by_index(10)?,
        at: row.try_get_by_index(11)?,
    })
}

/// Rows by the subject in their first column, in the order of the query.
async fn by_subject<T, const N: usize>(
    snapshot: &Transaction,
    sql: &str,
    values: [Value; N],
    read: impl Fn(&QueryResult) -> Result<T, DbErr>,
) -> Result<HashMap<String, Vec<T>>, DbErr> {
    let mut found: HashMap<String, Vec<T>> = HashMap::new();
    for row in query_all(snapshot, sql, values).await? {
        found.entry(row.try_get_by_index(0)?).or_default().push(read(&row)?);
    }
    Ok(found)
}
