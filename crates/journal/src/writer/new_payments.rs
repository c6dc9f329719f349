//! Groups that consist only of new payments. They are the most frequent groups under load, and are written in one round
//! trip.
//!
//! The only precondition (each idempotency key is new) almost never fails. Therefore the rows are written from the
//! begin to the commit without reading any answer. If anything fails, the database rolls back everything, and the group
//! is attempted again with separate preconditions (`write`), which determine the affected writes. Not here: all other
//! groups.

use payferry_entities::{Batch, Database, Failure, NotCommitted, idempotency_keys, payment_transitions, payments};
use sea_orm::{DbBackend, DbErr, Value};

use super::insert::{Bound, LIST_ROWS, arrays, into_table};
use super::table::Shape;
use super::write::Attempt;
use super::{GROUP_UNITS_MAX, Initiation, JournalWrite, Receipt};

const _: () = assert!(GROUP_UNITS_MAX <= LIST_ROWS[LIST_ROWS.len() - 1], "a group fits the longest list");

/// The statements, in the dialect of the database.
#[derive(Debug)]
pub(super) struct NewPayments {
    tables: [Shape; 3],
    texts: Texts,
}

/// Statements of the tables in the order of `NewPayments::tables`.
#[derive(Debug)]
enum Texts {
    /// With an array for each column; the arrays of the keys may be empty.
    Arrays(Batch),
    /// With lists of this many rows, without and with keys.
    Lists(Box<[(usize, [Batch; 2])]>),
}

impl NewPayments {
    pub(super) fn new(backend: DbBackend) -> Self {
        // The keys come first, so that little was written if one already exists.
        let templates = [
            into_table::<idempotency_keys::Entity>(""),
            into_table::<payments::Entity>(""),
            into_table::<payment_transitions::Entity>(""),
        ];
        let tables = [
            Shape::of::<idempotency_keys::Entity>(),
            Shape::of::<payments::Entity>(),
            Shape::of::<payment_transitions::Entity>(),
        ];
        let of_tables = || tables.iter().zip(&templates);
        let texts = if backend == DbBackend::Sqlite {
            let lists = LIST_ROWS.map(|rows| {
                let all: Vec<_> = of_tables().map(|(shape, into)| shape.list_statement(rows, &[], into)).collect();
                (rows, [&all[1..], &all].map(|statements| Batch::new(backend, statements)))
            });
            Texts::Lists(lists.into())
        } else {
            let mut first = 1;
            let all = of_tables().map(|(shape, into)| {
                let statement = shape.array_statement(first, &[], into);
                first += shape.columns().len();
                statement
            });
            Texts::Arrays(Batch::new(backend, &all.collect::<Vec<_>>()))
        };
        Self { tables, texts }
    }

    /// Attempts `writes`. Returns `None`, with nothing written, if some do not create payments or if something failed.
    pub(super) async fn attempt(&self, database: &Database, writes: &[&JournalWrite]) -> Option<Attempt> {
        let initiations: Vec<_> = writes
            .iter()
            .map(|write| if let JournalWrite::Initiation(initiation) = write { Some(&**initiation) } else { None })
            .collect::<Option<_>>()?;
        let (batch, values) = match self.bind(&initiations) {
            Ok(bound) => bound,
            Err(error) => return Some(Attempt::Failed(Failure::of(&error), error)),
        };
        match database.commit_in_one_statement(batch, values).await {
            Ok(()) => Some(Attempt::Committed(writes.iter().map(|_| Receipt::default()).collect())),
            Err(NotCommitted::Unknown(error)) => Some(Attempt::Unknown(error)),
            Err(NotCommitted::RolledBack(error)) => match Failure::of(&error) {
                Failure::Request => None,
                failure => Some(Attempt::Failed(failure, error)),
            },
        }
    }

    /// Returns the statements for this many payments, and the values.
    fn bind(&self, initiations: &[&Initiation]) -> Result<(&Batch, Vec<Value>), DbErr> {
        let keys: Vec<_> = initiations.iter().filter_map(|initiation| initiation.idempotency.as_ref()).collect();
        let payments: Vec<_> = initiations.iter().map(|initiation| &initiation.payment).collect();
        let transitions: Vec<_> = initiations.iter().map(|initiation| &initiation.transition).collect();
        let [of_keys, of_payments, of_transitions] = &self.tables;
        match &self.texts {
            Texts::Arrays(batch) => {
                let mut values = arrays(of_keys.columns(), &keys)?;
                values.extend(arrays(of_payments.columns(), &payments)?);
                values.extend(arrays(of_transitions.columns(), &transitions)?);
                Ok((batch, values))
            }
            Texts::Lists(lists) => {
                let found = lists.iter().find(|(room, _)| initiations.len() <= *room);
                let (room, batches) = found.expect("a group fits the longest list");
                let mut values =
                    Vec::with_capacity(room * self.tables.iter().map(|table| table.columns().len()).sum::<usize>());
                if !keys.is_empty() {
                    fill(&mut values, of_keys, *room, &keys);
                }
                fill(&mut values, of_payments, *room, &payments);
                fill(&mut values, of_transitions, *room, &transitions);
                Ok((&batches[usize::from(!keys.is_empty())], values))
            }
        }
    }
}

/// Binds the rows, and NULL for the unused rows of the list.
fn fill<R: Bound>(values: &mut Vec<Value>, shape: &Shape, room: usize, rows: &[&R]) {
    let end = values.len() + room * shape.columns().len();
    for row in rows {
        row.bind(values);
    }
    values.resize(end, Value::BigInt(None));
}
