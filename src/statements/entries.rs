//! The second pass: reads an account's entries page by page.

use std::collections::{BTreeSet, HashMap};

use payferry_entities::Database;
use payferry_entities::ledger_postings::{Column, Entity, Model};
use payferry_journal::lists::{text_list, texts_of};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, ExprTrait, QueryFilter, QueryOrder};

use super::summary::{Summary, is_vault, query, step_end};
use super::{StatementEntry, Wanted};

/// Postings of the PSP per page; about a third of them are entries.
const STEP: i64 = 3_000;

/// Progress in an account.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    after: i64,
    last: i64,
    balance: i64,
}

impl Reading {
    pub fn of(summary: &Summary) -> Self {
        Self { after: summary.after, last: summary.last, balance: summary.opening }
    }

    /// The vault's balance after the entries read so far.
    pub fn balance(&self) -> i64 {
        self.balance
    }

    /// Reads the next entries. A page may be empty; `None` is the end.
    pub async fn page(
        &mut self,
        database: &Database,
        wanted: &Wanted,
        account: &Summary,
    ) -> Result<Option<Vec<StatementEntry>>, DbErr> {
        let Some(to) = step_end(database, wanted, self.after, self.last, STEP).await? else { return Ok(None) };
        let rows = rows(database, wanted, account, self.after, to).await?;
        let own = own_references(database, &rows).await?;
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            let (takes, gives) = (is_vault(&row.debit), is_vault(&row.credit));
            if takes == gives {
                continue;
            }
            self.balance += if gives { row.amount } else { -row.amount };
            let own_reference = own.get(&row.subject).cloned();
            entries.push(StatementEntry::of(row, own_reference, gives, self.balance));
        }
        self.after = to;
        Ok(Some(entries))
    }
}

async fn rows(
    database: &Database,
    wanted: &Wanted,
    account: &Summary,
    after: i64,
    to: i64,
) -> Result<Vec<Model>, DbErr> {
    let (from, to_time) = (wanted.period.from().as_millis(), wanted.period.to().as_millis());
    Entity::find()
        .filter(Column::PspId.eq(wanted.psp_id.to_string()))
        .filter(Column::Position.gt(after).and(Column::Position.lte(to)))
        .filter(Column::Chain.eq(account.chain.as_str()).and(Column::TokenAddress.eq(account.address.to_string())))
        .filter(Column::At.gte(from).and(Column::At.lt(to_time)))
        .order_by_asc(Column::Position)
        .all(database.reader())
        .await
}

/// The PSP's own references of the subjects of these postings.
async fn own_references(database: &Database, rows: &[Model]) -> Result<HashMap<String, String>, DbErr> {
    let subjects: BTreeSet<&str> = rows.iter().map(|row| row.subject.as_str()).collect();
    // The ledger uses the prefix `tr_` for a transfer to a customer, and the payment's row `pay_`.
    let rows_of =
        |subject: &&str| subject.strip_prefix("tr_").map_or_else(|| (*subject).to_owned(), |id| format!("pay_{id}"));
    let ids: HashMap<String, &str> = subjects.iter().map(|subject| (rows_of(subject), *subject)).collect();
    let list = texts_of(database.backend(), 1);
    let wanted = text_list(ids.keys())?;
    let mut own = HashMap::new();
    for table in ["payments", "sendings"] {
        let sql = format!("SELECT id, reference FROM {table} WHERE id IN ({list}) AND reference IS NOT NULL");
        for row in query(database, &sql, [wanted.clone()]).await? {
            let id: String = row.try_get_by_index(0)?;
            if let Some(subject) = ids.get(&id) {
                own.insert((*subject).to_owned(), row.try_get_by_index(1)?);
            }
        }
    }
    Ok(own)
}
