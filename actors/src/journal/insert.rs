//! Inserts of whole rows of a table: on SQLite as lists of values, on PostgreSQL over one JSON array.
//!
//! Reading rows out of JSON costs SQLite as much as storing them, so that the rows that come in the greatest numbers are
//! bound one value at a time. A list of varying length would defeat the statement cache: lists have a few constant
//! lengths, and what is not bound of the one that is taken is NULL and left out. So a table costs one statement a group,
//! each of which is a way to the thread that writes and back. Deliberately absent: statements that join the array with a
//! table (`statements`).

use sea_orm::{DbBackend, DbErr, EntityTrait, Iterable, ModelTrait, QueryResult, Statement, Value};
use serde::Serialize;

use super::table::Shape;
use super::write::Writer;

/// Rows that the lists have room for. The largest binds some 5,400 values, of the 32,766 that SQLite takes.
const LIST_ROWS: [usize; 8] = [4, 16, 32, 64, 96, 128, 192, 256];

/// An insert of whole rows of one table.
#[derive(Debug)]
pub(super) enum Insert {
    /// One statement over a JSON array.
    Array(String),
    /// One statement for each length of a list.
    Lists(Box<[(usize, String)]>),
}

impl Insert {
    /// Into the table of `E`. `tail` follows the rows; its placeholders are those of [`Shape::statement`], `keys` its keys.
    pub(super) fn into<E: EntityTrait + Default>(backend: DbBackend, keys: &[&str], tail: &str) -> Self {
        let (table, shape) = (E::default().table_name().to_owned(), Shape::of::<E>());
        let statement = |source: &str| {
            let template = format!("INSERT INTO {table} ({{columns}}) {source} {tail}");
            shape.statement(backend, keys, &template)
        };
        if backend != DbBackend::Sqlite {
            return Self::Array(statement("SELECT {columns} FROM {rows} WHERE true {in_order}"));
        }
        let width = E::Column::iter().count();
        let list = |rows| {
            // Without numbers: the driver asks for each number's place, which SQLite looks for from the first on.
            let row = format!("({})", vec!["?"; width].join(", "));
            let list = vec![row; rows].join(", ");
            // The first column of every table here is a part of its key and never NULL.
            (rows, statement(&format!("SELECT * FROM (VALUES {list}) WHERE column1 IS NOT NULL")))
        };
        Self::Lists(LIST_ROWS.into_iter().map(list).collect())
    }
}

impl Writer<'_> {
    /// Inserts the rows; answers what the statement's tail returns of them, if anything.
    pub(super) async fn insert<M>(&self, insert: &Insert, rows: &[&M]) -> Result<Vec<QueryResult>, DbErr>
    where
        M: ModelTrait + Serialize,
    {
        let lists = match insert {
            Insert::Array(sql) => return self.query(sql, rows).await,
            Insert::Lists(lists) => lists,
        };
        let (longest, _) = &lists[lists.len() - 1];
        let mut returned = Vec::new();
        for part in rows.chunks(*longest) {
            let (_, sql) = lists.iter().find(|(room, _)| part.len() <= *room).expect("a part fits the longest list");
            let statement = Statement::from_sql_and_values(DbBackend::Sqlite, sql, values(part));
            returned.extend(self.query_statement(statement).await?);
        }
        Ok(returned)
    }
}

fn values<M: ModelTrait>(rows: &[&M]) -> Vec<Value> {
    rows.iter().flat_map(|row| <M::Entity as EntityTrait>::Column::iter().map(|column| row.get(column))).collect()
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
            "INSERT INTO payment_transitions (\"payment_id\", \"version\", \"at\", \"events\") SELECT * FROM (VALUES \
             (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?)) WHERE column1 IS NOT NULL RETURNING \"version\""
        );
        assert_eq!(lists[7].1.matches('?').count(), 4 * 256);
    }
}
