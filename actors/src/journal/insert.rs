//! Statements over many rows: on SQLite as lists of values, on PostgreSQL over one JSON array.
//!
//! Reading rows out of JSON costs SQLite more than storing them, so that the rows that come in the greatest numbers are
//! bound one value at a time. A list of varying length would defeat the statement cache: lists have a few constant
//! lengths, and what is not bound of the one that is taken is NULL and left out. So a table costs one statement a group,
//! each of which is a way to the thread that writes and back. Deliberately absent: what the statements do (`statements`).

use sea_orm::{DbBackend, DbErr, EntityTrait, IdenStatic, Iterable, ModelTrait, QueryResult, Statement, Value};
use serde::Serialize;

use super::table::Shape;
use super::write::Writer;

/// Rows that the lists have room for. The largest binds some 5,400 values, of the 32,766 that SQLite takes.
const LIST_ROWS: [usize; 8] = [4, 16, 32, 64, 96, 128, 192, 256];

/// A statement over rows of one shape, in the database's dialect.
#[derive(Debug)]
pub(super) enum Insert {
    /// One statement over a JSON array.
    Array(String),
    /// One statement for each length of a list.
    Lists(Box<[(usize, String)]>),
}

/// A row that is bound value by value.
pub(super) trait Bound: Serialize {
    /// Adds its values, in the order of its statement's columns.
    fn bind(&self, values: &mut Vec<Value>);
}

/// A whole row of a table.
impl<M: ModelTrait + Serialize> Bound for M {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend(<M::Entity as EntityTrait>::Column::iter().map(|column| self.get(column)));
    }
}

/// A row whose `position` the database gives.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Unplaced<'a, M>(pub(super) &'a M);

impl<M: ModelTrait + Serialize> Bound for Unplaced<'_, M> {
    fn bind(&self, values: &mut Vec<Value>) {
        let given = <M::Entity as EntityTrait>::Column::iter().filter(|column| column.as_str() != "position");
        values.extend(given.map(|column| self.0.get(column)));
    }
}

impl Insert {
    /// Whole rows into the table of `E`. `tail` follows the rows; its placeholders are those of [`Shape::statement`],
    /// `keys` its keys.
    pub(super) fn into<E: EntityTrait + Default>(backend: DbBackend, keys: &[&str], tail: &str) -> Self {
        let table = E::default().table_name().to_owned();
        let template = format!(
            "INSERT INTO {table} ({{columns}}) SELECT {{columns}} FROM {{rows}} WHERE true {{in_order}} {tail}"
        );
        Self::over(backend, &Shape::of::<E>(), keys, &template)
    }

    /// `template` over rows of this shape; its placeholders are those of [`Shape::statement`], `keys` its keys. The first
    /// column may not be NULL in any row.
    pub(super) fn over(backend: DbBackend, shape: &Shape, keys: &[&str], template: &str) -> Self {
        if backend != DbBackend::Sqlite {
            return Self::Array(shape.statement(backend, keys, template));
        }
        Self::Lists(LIST_ROWS.into_iter().map(|rows| (rows, shape.list_statement(rows, keys, template))).collect())
    }

    /// The shortest text of it, and the longest.
    #[cfg(test)]
    pub(super) fn texts(&self) -> [&str; 2] {
        match self {
            Self::Array(sql) => [sql, sql],
            Self::Lists(lists) => [&lists[0].1, &lists[lists.len() - 1].1],
        }
    }
}

impl Writer<'_> {
    /// Runs the statement over the rows; answers what it returns of them, if anything.
    pub(super) async fn insert<R: Bound>(&self, insert: &Insert, rows: &[&R]) -> Result<Vec<QueryResult>, DbErr> {
        let lists = match insert {
            Insert::Array(sql) => return self.query(sql, rows).await,
            Insert::Lists(lists) => lists,
        };
        let (longest, _) = &lists[lists.len() - 1];
        let mut returned = Vec::new();
        for part in rows.chunks(*longest) {
            let (_, sql) = lists.iter().find(|(room, _)| part.len() <= *room).expect("a part fits the longest list");
            let mut values = Vec::new();
            for row in part {
                row.bind(&mut values);
            }
            let statement = Statement::from_sql_and_values(DbBackend::Sqlite, sql, values);
            returned.extend(self.query_statement(statement).await?);
        }
        Ok(returned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use payferry_entities::payment_transitions;

    #[test]
    fn lists_have_constant_texts_and_lengths() {
        let insert = Insert::into::<payment_transitions::Entity>(DbBackend::Sqlite, &[], "RETURNING \"version\"");
        let Insert::Lists(lists) = insert else { panic!("SQLite takes values") };
        assert_eq!(lists.iter().map(|(rows, _)| *rows).collect::<Vec<_>>(), LIST_ROWS);
        assert_eq!(
            lists[0].1,
            "INSERT INTO payment_transitions (\"payment_id\", \"version\", \"at\", \"events\") SELECT \"payment_id\", \
             \"version\", \"at\", \"events\" FROM (SELECT column1 AS \"payment_id\", column2 AS \"version\", column3 AS \
             \"at\", column4 AS \"events\" FROM (VALUES (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?)) WHERE \
             column1 IS NOT NULL) AS x WHERE true  RETURNING \"version\""
        );
        assert_eq!(lists[7].1.matches('?').count(), 4 * 256);
    }
}
