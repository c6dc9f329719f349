//! A group of nothing but new payments: the commonest under load, and written in one way to the database and back.
//!
//! Its one gate (no idempotency key was used before) is almost never lost, so the rows are written as if nobody could lose
//! it, from the beginning to the commit, without a look at any answer. Where anything is in the way the database rolls all of
//! it back, and the group is attempted again gate by gate (`write`), which finds out whom it concerns. Deliberately absent:
//! every other group.

use payferry_entities::{Batch, Database, Failure, NotCommitted, idempotency_keys, payment_transitions, payments};
use sea_orm::{DbBackend, DbErr, Value};

use super::insert::{Bound, LIST_ROWS, arrays, into_table};
use super::table::Shape;
use super::write::Attempt;
use super::{GROUP_UNITS_MAX, Initiation, Receipt, Unit};

const _: () = assert!(GROUP_UNITS_MAX <= LIST_ROWS[LIST_ROWS.len() - 1], "a group fits the longest list");

/// The statements, in the database's dialect.
#[derive(Debug)]
pub(super) struct NewPayments {
    tables: [Shape; 3],
    texts: Texts,
}

/// Of the tables in the order of `NewPayments::tables`.
#[derive(Debug)]
enum Texts {
    /// Over an array for each column; there may be nothing in the keys'.
    Arrays(Batch),
    /// Over lists of so many rows each, with keys and without.
    Lists(Box<[(usize, [Batch; 2])]>),
}

impl NewPayments {
    pub(super) fn new(backend: DbBackend) -> Self {
        // The keys first: where one is in the way, little was written.
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

    /// One attempt at `units`; `None` if there is something else among them, or something in the way: then nothing is written.
    pub(super) async fn attempt(&self, database: &Database, units: &[&Unit]) -> Option<Attempt> {
        let initiations: Vec<_> = units
            .iter()
            .map(|unit| if let Unit::Initiation(initiation) = unit { Some(&**initiation) } else { None })
            .collect::<Option<_>>()?;
        let (batch, values) = match self.bind(&initiations) {
            Ok(bound) => bound,
            Err(error) => return Some(Attempt::Failed(Failure::of(&error), error)),
        };
        match database.commit_at_once(batch, values).await {
            Ok(()) => Some(Attempt::Committed(units.iter().map(|_| Receipt::default()).collect())),
            Err(NotCommitted::Unknown(error)) => Some(Attempt::Unknown(error)),
            Err(NotCommitted::RolledBack(error)) => match Failure::of(&error) {
                Failure::Request => None,
                failure => Some(Attempt::Failed(failure, error)),
            },
        }
    }

    /// The text for so many, and its values.
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

/// Binds the rows, and NULL where the list has room for more.
fn fill<R: Bound>(values: &mut Vec<Value>, shape: &Shape, room: usize, rows: &[&R]) {
    let end = values.len() + room * shape.columns().len();
    for row in rows {
        row.bind(values);
    }
    values.resize(end, Value::BigInt(None));
}
