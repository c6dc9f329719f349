//! Statements over one JSON array, in both dialects from one text.
//!
//! A statement is written once, with placeholders: the columns and their types come from the entity. So its text is
//! constant however many rows it writes, and the database's statement cache holds it. Deliberately absent: what is
//! written and in which order (`statements`, `write`).

use sea_orm::sea_query::ColumnType;
use sea_orm::{ColumnTrait, DbBackend, EntityTrait, IdenStatic, Iterable};

/// What a column holds, as far as the way out of JSON depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Int,
    Bool,
}

impl Kind {
    const fn postgres(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Int => "bigint",
            Self::Bool => "boolean",
        }
    }
}

/// The columns of the rows that one statement takes.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    columns: Vec<(&'static str, Kind)>,
}

impl Shape {
    /// All columns of a table.
    pub(super) fn of<E: EntityTrait>() -> Self {
        let columns = E::Column::iter()
            .map(|column| {
                let kind = match column.def().get_column_type() {
                    ColumnType::BigInteger => Kind::Int,
                    ColumnType::Boolean => Kind::Bool,
                    _ => Kind::Text,
                };
                (column.as_str(), kind)
            })
            .collect();
        Self { columns }
    }

    /// Columns that are no table's own.
    pub(super) fn new(columns: &[(&'static str, Kind)]) -> Self {
        Self { columns: columns.to_vec() }
    }

    /// These without some.
    pub(super) fn without(mut self, names: &[&str]) -> Self {
        self.columns.retain(|(name, _)| !names.contains(name));
        self
    }

    /// The statement for `backend`. `$1` is the JSON array of objects. Placeholders:
    ///
    /// - `{columns}`: the columns, quoted, with commas between
    /// - `{rows}`: the array as rows `x` of these columns
    /// - `{in_order}`: put after a whole `SELECT`, so that the rows are inserted in the array's order
    /// - `{set}`, `{set_excluded}`: every column not among `keys` from `x`, or from the row that was refused
    pub(super) fn statement(&self, backend: DbBackend, keys: &[&str], template: &str) -> String {
        let list = |each: &dyn Fn(&str, Kind) -> String, skipped: &[&str]| {
            let columns = self.columns.iter().filter(|(name, _)| !skipped.contains(name));
            columns.map(|(name, kind)| each(name, *kind)).collect::<Vec<_>>().join(", ")
        };
        let columns = list(&|name, _| format!("\"{name}\""), &[]);
        let (rows, in_order) = if backend == DbBackend::Postgres {
            let typed = list(&|name, kind| format!("\"{name}\" {}", kind.postgres()), &[]);
            let rows = format!(
                "(SELECT * FROM ROWS FROM (jsonb_to_recordset($1::jsonb) AS ({typed})) WITH ORDINALITY AS \
                 r({columns}, \"ordinality\")) AS x"
            );
            (rows, "ORDER BY x.\"ordinality\"")
        } else {
            // json_each yields the elements in their order, and INSERT ... SELECT inserts in that order.
            let extracted = list(&|name, _| format!("json_extract(value, '$.{name}') AS \"{name}\""), &[]);
            (format!("(SELECT {extracted} FROM json_each($1)) AS x"), "")
        };
        template
            .replace("{columns}", &columns)
            .replace("{rows}", &rows)
            .replace("{in_order}", in_order)
            .replace("{set}", &list(&|name, _| format!("\"{name}\" = x.\"{name}\""), keys))
            .replace("{set_excluded}", &list(&|name, _| format!("\"{name}\" = excluded.\"{name}\""), keys))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use payferry_entities::payments;

    #[test]
    fn one_text_becomes_both_dialects() {
        let shape = Shape::new(&[("id", Kind::Text), ("amount", Kind::Int)]);
        let template = "INSERT INTO t ({columns}) SELECT {columns} FROM {rows} WHERE true {in_order}";
        assert_eq!(
            shape.statement(DbBackend::Sqlite, &[], template).trim_end(),
            "INSERT INTO t (\"id\", \"amount\") SELECT \"id\", \"amount\" FROM (SELECT json_extract(value, '$.id') AS \
             \"id\", json_extract(value, '$.amount') AS \"amount\" FROM json_each($1)) AS x WHERE true"
        );
        assert_eq!(
            shape.statement(DbBackend::Postgres, &[], template),
            "INSERT INTO t (\"id\", \"amount\") SELECT \"id\", \"amount\" FROM (SELECT * FROM ROWS FROM \
             (jsonb_to_recordset($1::jsonb) AS (\"id\" text, \"amount\" bigint)) WITH ORDINALITY AS r(\"id\", \
             \"amount\", \"ordinality\")) AS x WHERE true ORDER BY x.\"ordinality\""
        );
        assert_eq!(shape.statement(DbBackend::Sqlite, &["id"], "{set}"), "\"amount\" = x.\"amount\"");
    }

    #[test]
    fn the_entities_say_what_their_columns_hold() {
        let shape = Shape::of::<payments::Entity>();
        let kind = |wanted: &str| shape.columns.iter().find(|(name, _)| *name == wanted).unwrap().1;
        assert_eq!(kind("live"), Kind::Bool);
        assert_eq!(kind("amount"), Kind::Int);
        assert_eq!(kind("state"), Kind::Text);
        assert_eq!(shape.columns.len(), 20);
    }
}
