//! Re-encrypts all sealed values under the current master key, so that older keys can be deleted.
//!
//! Walks through every sealed column in the order of the table's key, and through every stored document, in bounded
//! steps, beside a running service: a value is replaced only if it is unchanged since it was read. Values under the
//! current key are skipped, so an interrupted run can be repeated. Deliberately absent: hashes, whose key never
//! changes.

mod columns;

use payferry_accounts::documents::{DocumentLocation, DocumentStore};
use payferry_domain::DocumentId;
use payferry_entities::{Database, customer_documents};
use payferry_runtime::seal::{SealOpenError, Sealer};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

pub use columns::{SEALED, SealedColumn};

/// Rows read in one step, and replaced in one commit.
pub const STEP_ROWS: u64 = 200;
/// Documents read in one step.
const STEP_DOCUMENTS: u64 = 50;
/// Maximum number of attempts for a row that changes concurrently. After that, the row is reported.
const LOOKS_MAX: usize = 10;
/// Maximum number of values reported by name per column; further ones are only counted.
pub const UNOPENED_NAMED_MAX: usize = 20;

/// Result for one column or for the document store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Table and column, or the document store.
    pub place: String,
    /// Values that were re-encrypted.
    pub resealed: u64,
    /// Values already under the current key.
    pub current: u64,
    /// Values that cannot be decrypted, with the reason: the first [`UNOPENED_NAMED_MAX`].
    pub unopened: Vec<Unopened>,
    /// Number of values that cannot be decrypted.
    pub unopened_count: u64,
}

/// A value that cannot be decrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unopened {
    /// The row's key.
    pub row: String,
    /// The reason.
    pub why: String,
}

impl Outcome {
    fn of(place: String) -> Self {
        Self { place, ..Self::default() }
    }

    /// Number of values checked.
    pub fn checked_len(&self) -> u64 {
        self.resealed + self.current + self.unopened_count
    }

    fn unopened(&mut self, row: String, why: &impl ToString) {
        self.unopened_count += 1;
        if self.unopened.len() < UNOPENED_NAMED_MAX {
            self.unopened.push(Unopened { row, why: why.to_string() });
        }
    }
}

/// Re-encrypts every column of [`SEALED`] and every document. Calls `progress` after each step.
pub async fn rotate(
    database: &Database,
    sealer: &Sealer,
    documents: &DocumentStore,
    mut progress: impl FnMut(&Outcome),
) -> Result<Vec<Outcome>, DbErr> {
    let mut outcomes = Vec::new();
    for column in SEALED {
        outcomes.push(rotate_column(database, sealer, column, &mut progress).await?);
    }
    outcomes.push(rotate_documents(database, documents, &mut progress).await?);
    Ok(outcomes)
}

async fn rotate_column(
    database: &Database,
    sealer: &Sealer,
    column: &SealedColumn,
    progress: &mut impl FnMut(&Outcome),
) -> Result<Outcome, DbErr> {
    let mut outcome = Outcome::of(format!("{}.{}", column.table, column.column));
    let mut after = None;
    loop {
        let rows = column.after(database.reader(), after.as_deref(), STEP_ROWS).await?;
        let Some(last) = rows.last() else { return Ok(outcome) };
        after = Some(last.key.clone());
        // A step with only current values takes no lock.
        let mut due = Vec::new();
        for row in rows {
            match row.resealed(sealer, column) {
                Ok(None) => outcome.current += 1,
                Ok(Some(sealed)) => due.push((row, sealed)),
                Err(error) => outcome.unopened(row.name(), &error),
            }
        }
        if !due.is_empty() {
            let transaction = database.begin().await?;
            let mut changed = Vec::new();
            for (row, sealed) in due {
                if column.replace(&transaction, &row, &sealed).await? {
                    outcome.resealed += 1;
                } else {
                    changed.push(row.key);
                }
            }
            transaction.commit().await?;
            for key in changed {
                look_again(database, sealer, column, key, &mut outcome).await?;
            }
        }
        progress(&outcome);
    }
}

/// Retries a row that another writer changed meanwhile, probably sealing it with the current key.
async fn look_again(
    database: &Database,
    sealer: &Sealer,
    column: &SealedColumn,
    key: Vec<String>,
    outcome: &mut Outcome,
) -> Result<(), DbErr> {
    for _ in 0..LOOKS_MAX {
        // The row is gone, or its value is now null.
        let Some(row) = column.one(database.reader(), &key).await? else { return Ok(()) };
        match row.resealed(sealer, column) {
            Ok(None) => outcome.current += 1,
            Ok(Some(sealed)) if column.replace(database.writer(), &row, &sealed).await? => outcome.resealed += 1,
            Ok(Some(_)) => continue,
            Err(error) => outcome.unopened(row.name(), &error),
        }
        return Ok(());
    }
    outcome.unopened(key.join(" "), &"the row kept changing under an old key; run the command again");
    Ok(())
}

/// Documents never change, so no comparison is needed: an object is replaced by the same content.
async fn rotate_documents(
    database: &Database,
    documents: &DocumentStore,
    progress: &mut impl FnMut(&Outcome),
) -> Result<Outcome, DbErr> {
    use customer_documents::{Column, Entity};
    let mut outcome = Outcome::of("documents".to_owned());
    let mut after = String::new();
    loop {
        let step = Entity::find().select_only().column(Column::Id).column(Column::Path);
        let step = step.filter(Column::Id.gt(&after)).order_by_asc(Column::Id).limit(STEP_DOCUMENTS);
        let rows: Vec<(String, String)> = step.into_tuple().all(database.reader()).await?;
        let Some((last, _)) = rows.last() else { return Ok(outcome) };
        after.clone_from(last);
        for (id, path) in rows {
            let place =
                DocumentLocation::of_path(&path).filter(|place| id.parse() == Ok::<DocumentId, _>(place.document_id));
            let Some(place) = place else {
                outcome.unopened(id, &"the row's path is not the path of a document");
                continue;
            };
            match documents.reseal(place).await {
                Ok(true) => outcome.resealed += 1,
                Ok(false) => outcome.current += 1,
                Err(error) => outcome.unopened(id, &error),
            }
        }
        progress(&outcome);
    }
}

/// New value of a row: `None` if the value is current.
type Resealed = Result<Option<String>, SealOpenError>;
