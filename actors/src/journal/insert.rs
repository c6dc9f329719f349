//! Inserts of whole rows of a table: on SQLite as lists of values, on PostgreSQL over one JSON array.
//!
//! Reading rows out of JSON costs SQLite as much as storing them, so that the rows that come in the greatest numbers are
//! bound one value at a time. A list of varying length would defeat the statement cache: rows go in blocks of a few
//! constant sizes. Deliberately absent: statements that join the array with a table (`statements`).

use sea_orm::{DbBackend, DbErr, EntityTrait, Iterable, ModelTrait, QueryResult, Statement, Value};
use serde::Serialize;

use super::table::Shape;
use super::write::Writer;

/// Rows of the blocks, the largest first. The largest binds some 1,300 values, of the 32,766 that SQLite takes.
const BLOCK_SIZES: [usize; 4] = [64, 16, 4, 1];

/// An insert of whole rows of one table.
#[derive(Debug)]
pub(super) enum Insert {
    /// One statement over a JSON array.
    Array(String),
    /// One statement for each block size.
    Blocks([(usize, String); BLOCK_SIZES.len()]),
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
        Self::Blocks(BLOCK_SIZES.map(|size| {
            let row = |row: usize| {
                let values: Vec<String> = (1..=width).map(|column| format!("${}", row * width + column)).collect();
                format!("({})", values.join(", "))
            };
            let rows: Vec<String> = (0..size).map(row).collect();
            (size, statement(&format!("VALUES {}", rows.join(", "))))
        }))
    }
}

impl Writer<'_> {
    /// Inserts the rows; answers what the statement's tail returns of them, if anything.
    pub(super) async fn insert<M>(&self, insert: &Insert, rows: &[&M]) -> Result<Vec<QueryResult>, DbErr>
    where
        M: ModelTrait + Serialize,
    {
        let blocks = match insert {
            Insert::Array(sql) => return self.query(sql, rows).await,
            Insert::Blocks(blocks) => blocks,
        };
        let (mut returned, mut left) = (Vec::new(), rows);
        for (size, sql) in blocks {
            while let Some((block, rest)) = left.split_at_checked(*size) {
                let statement = Statement::from_sql_and_values(DbBackend::Sqlite, sql, values(block));
                returned.extend(self.query_statement(statement).await?);
                left = rest;
            }
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
    fn blocks_have_constant_texts_and_sizes() {
        let insert = Insert::into::<payment_transitions::Entity>(DbBackend::Sqlite, &[], "RETURNING \"version\"");
        let Insert::Blocks(blocks) = insert else { panic!("SQLite takes values") };
        assert_eq!(blocks.each_ref().map(|(size, _)| *size), BLOCK_SIZES);
        assert_eq!(blocks[0].1.matches('(').count(), 1 + BLOCK_SIZES[0]);
        assert_eq!(
            blocks[3].1,
            "INSERT INTO payment_transitions (\"payment_id\", \"version\", \"at\", \"events\") VALUES ($1, $2, $3, $4) \
             RETURNING \"version\""
        );
        assert!(blocks[2].1.contains("($13, $14, $15, $16) RETURNING"), "{}", blocks[2].1);
    }
}
