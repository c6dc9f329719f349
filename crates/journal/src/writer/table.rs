//! Generates statements over rows in both dialects from one template.
//!
//! A statement is written once, with placeholders; the columns and their types come from the entity. With one JSON
//! array, or one array per column, the text is constant for any number of rows, so that the statement cache works. For
//! the same reason SQLite's lists of values have only a few lengths. Not here: the statements and their order
//! (`statements`, `write`), and the binding of rows (`insert`).

use sea_orm::sea_query::ColumnType;
use sea_orm::{ColumnTrait, DbBackend, EntityTrait, IdenStatic, Iterable};

/// Follows a complete `SELECT`, so that rows keep the order of their arrays.
const POSTGRES_ORDER: &str = "ORDER BY x.\"ordinality\"";

/// Type of a column, as needed for binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Int,
    Bool,
}

impl Kind {
    pub(super) const fn postgres(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Int => "bigint",
            Self::Bool => "boolean",
        }
    }
}

/// A column of the rows of one statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    pub(super) kind: Kind,
    pub(super) is_nullable: bool,
}

/// The columns of the rows of one statement.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    columns: Vec<Column>,
}

impl Shape {
    /// Returns all columns of a table.
    pub(super) fn of<E: EntityTrait>() -> Self {
        let columns = E::Column::iter()
            .map(|column| {
                let def = column.def();
                let kind = match def.get_column_type() {
                    ColumnType::BigInteger => Kind::Int,
                    ColumnType::Boolean => Kind::Bool,
                    _ => Kind::Text,
                };
                Column { name: column.as_str(), kind, is_nullable: def.is_null() }
            })
            .collect();
        Self { columns }
    }

    /// Creates a shape of columns that do not belong to one table. Those in `nullable` may be NULL.
    pub(super) fn new(columns: &[(&'static str, Kind)], nullable: &[&str]) -> Self {
        let column =
            |&(name, kind): &(&'static str, Kind)| Column { name, kind, is_nullable: nullable.contains(&name) };
        Self { columns: columns.iter().map(column).collect() }
    }

    /// Removes columns.
    pub(super) fn without(mut self, names: &[&str]) -> Self {
        self.columns.retain(|column| !names.contains(&column.name));
        self
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the statement for `backend`. `$1` is the JSON array of objects. Placeholders:
    ///
    /// - `{columns}`: the columns, quoted and separated by commas
    /// - `{rows}`: the array as rows `x` with these columns
    /// - `{in_order}`: follows a complete `SELECT`, so that the rows are inserted in their order
    /// - `{set}`, `{set_excluded}`: sets every column that is not in `keys` from `x`, or from the conflicting row
    pub(super) fn statement(&self, backend: DbBackend, keys: &[&str], template: &str) -> String {
        let (rows, in_order) = if backend == DbBackend::Postgres {
            let typed = self.list(&|name, kind| format!("\"{name}\" {}", kind.postgres()), &[]);
            let rows = self.ordered(&format!("ROWS FROM (jsonb_to_recordset($1::jsonb) AS ({typed}))"));
            (rows, POSTGRES_ORDER)
        } else {
            // json_each returns the elements in their order, and INSERT ... SELECT inserts in that order.
            let extracted = self.list(&|name, _| format!("json_extract(value, '$.{name}') AS \"{name}\""), &[]);
            (format!("(SELECT {extracted} FROM json_each($1)) AS x"), "")
        };
        self.filled(template, &rows, in_order, keys)
    }

    /// Returns the statement for PostgreSQL with an array for each column, in the order of the columns, starting at
    /// parameter `$first`. The placeholders are those of [`Self::statement`].
    pub(super) fn array_statement(&self, first: usize, keys: &[&str], template: &str) -> String {
        let arrays = self.columns.iter().zip(first..);
        let arrays: Vec<_> = arrays.map(|(column, n)| format!("${n}::{}[]", column.kind.postgres())).collect();
        let rows = self.ordered(&format!("unnest({})", arrays.join(", ")));
        self.filled(template, &rows, POSTGRES_ORDER, keys)
    }

    /// Returns the result of a PostgreSQL function as numbered rows `x` with these columns.
    fn ordered(&self, function: &str) -> String {
        format!("(SELECT * FROM {function} WITH ORDINALITY AS r({}, \"ordinality\")) AS x", self.names())
    }

    /// Returns the statement for SQLite with a list of `rows` rows of values, in the order of the columns. Rows whose
    /// first column is NULL are ignored. The placeholders are those of [`Self::statement`].
    pub(super) fn list_statement(&self, rows: usize, keys: &[&str], template: &str) -> String {
        // Without parameter numbers, because the driver looks up the position of each number, which takes SQLite linear
        // time.
        let row = format!("({})", vec!["?"; self.columns.len()].join(", "));
        let list = vec![row; rows].join(", ");
        let columns = self.columns.iter().zip(1..);
        let named: Vec<_> = columns.map(|(column, place)| format!("column{place} AS \"{}\"", column.name)).collect();
        let named = named.join(", ");
        // The rows keep the order of the list, and INSERT ... SELECT inserts in that order.
        let rows = format!("(SELECT {named} FROM (VALUES {list}) WHERE column1 IS NOT NULL) AS x");
        self.filled(template, &rows, "", keys)
    }

    fn filled(&self, template: &str, rows: &str, in_order: &str, keys: &[&str]) -> String {
        template
            .replace("{columns}", &self.names())
            .replace("{rows}", rows)
            .replace("{in_order}", in_order)
            .replace("{set}", &self.list(&|name, _| format!("\"{name}\" = x.\"{name}\""), keys))
            .replace("{set_excluded}", &self.list(&|name, _| format!("\"{name}\" = excluded.\"{name}\""), keys))
    }

    fn names(&self) -> String {
        self.list(&|name, _| format!("\"{name}\""), &[])
    }

    fn list(&self, each: &dyn Fn(&str, Kind) -> String, skipped: &[&str]) -> String {
        let columns = self.columns.iter().filter(|column| !skipped.contains(&column.name));
        columns.map(|column| each(column.name, column.kind)).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use payferry_entities::payments;

    #[test]
    fn one_template_generates_both_dialects() {
        let shape = Shape::new(&[("id", Kind::Text), ("amount", Kind::Int)], &[]);
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
        assert_eq!(
            shape.array_statement(1, &[], template),
            "INSERT INTO t (\"id\", \"amount\") SELECT \"id\", \"amount\" FROM (SELECT * FROM unnest($1::text[], \
             $2::bigint[]) WITH ORDINALITY AS r(\"id\", \"amount\", \"ordinality\")) AS x WHERE true ORDER BY \
             x.\"ordinality\""
        );
        assert_eq!(shape.statement(DbBackend::Sqlite, &["id"], "{set}"), "\"amount\" = x.\"amount\"");
    }

    #[test]
    fn column_types_come_from_the_entity() {
        let shape = Shape::of::<payments::Entity>();
        let column = |wanted: &str| *shape.columns.iter().find(|column| column.name == wanted).unwrap();
        assert_eq!(column("live").kind, Kind::Bool);
        assert_eq!(column("amount").kind, Kind::Int);
        assert_eq!(column("state").kind, Kind::Text);
        assert!(column("reference").is_nullable && !column("state").is_nullable);
        assert_eq!(shape.columns.len(), 21);
    }
}
