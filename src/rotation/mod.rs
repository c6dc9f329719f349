//! Re-seals everything that is encrypted under the current master key, so that older keys can be thrown away.
//!
//! Goes through every sealed column in the order of its table's key and through every stored document, a bounded step at
//! a time, beside a running service: a value is replaced only if it is still the one that was read. What is current is
//! left alone, so that a run that was cut off is simply started again. Deliberately absent: hashes, whose key never
//! changes.

mod columns;

use payferry_accounts::documents::{DocumentStore, Place};
use payferry_actors::seal::{OpenError, Sealer};
use payferry_domain::DocumentId;
use payferry_entities::{Database, customer_documents};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

pub use columns::{SEALED, SealedColumn};

/// Rows looked at in one step, and replaced in one commit.
pub const STEP_ROWS: u64 = 200;
/// Documents looked up in one step.
const STEP_DOCUMENTS: u64 = 50;
/// How often a row that keeps changing is looked at again in one step; the step itself is repeated after that.
const LOOKS_MAX: usize = 10;
/// Names of what does not open that are kept; the rest is counted.
pub const UNOPENED_NAMED_MAX: usize = 20;

/// What became of a table's values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Table and column, or the document store.
    pub place: String,
    /// Sealed anew.
    pub resealed: u64,
    /// Already under the current key.
    pub current: u64,
    /// Which do not open, and why: the first [`UNOPENED_NAMED_MAX`].
    pub unopened: Vec<Unopened>,
    /// How many do not open.
    pub unopened_count: u64,
}

/// Something that does not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unopened {
    /// The row's key.
    pub row: String,
    /// Why.
    pub why: String,
}

impl Outcome {
    fn of(place: String) -> Self {
        Self { place, ..Self::default() }
    }

    /// Everything that was looked at.
    pub fn looked_at(&self) -> u64 {
        self.resealed + self.current + self.unopened_count
    }

    fn unopened(&mut self, row: String, why: &impl ToString) {
        self.unopened_count += 1;
        if self.unopened.len() < UNOPENED_NAMED_MAX {
            self.unopened.push(Unopened { row, why: why.to_string() });
        }
    }
}

/// Re-seals every column of [`SEALED`] and every document. `progress` is told after each step.
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
        // A step of nothing but current values takes no lock.
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

/// A row that somebody else changed meanwhile, probably sealing it with the current key.
async fn look_again(
    database: &Database,
    sealer: &Sealer,
    column: &SealedColumn,
    key: Vec<String>,
    outcome: &mut Outcome,
) -> Result<(), DbErr> {
    for _ in 0..LOOKS_MAX {
        // Gone, or nothing is sealed there any more.
        let Some(row) = column.one(database.reader(), &key).await? else { return Ok(()) };
        match row.resealed(sealer, column) {
            Ok(None) => outcome.current += 1,
            Ok(Some(sealed)) if column.replace(database.writer(), &row, &sealed).await? => outcome.resealed += 1,
            Ok(Some(_)) => continue,
            Err(error) => outcome.unopened(row.name(), &error),
        }
        return Ok(());
    }
    outcome.unopened(key.join(" "), &"it kept changing under an old key; run this again");
    Ok(())
}

/// Documents are never changed, so that nothing has to be compared: an object is replaced by the same content.
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
            let place = Place::of_path(&path).filter(|place| id.parse() == Ok::<DocumentId, _>(place.document_id));
            let Some(place) = place else {
                outcome.unopened(id, &"its path is not that of a document");
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

/// What a row's value becomes: nothing if it is current.
type Resealed = Result<Option<String>, OpenError>;
