//! The columns that hold sealed values; reading and replacing one value.

use payferry_runtime::seal::Sealer;
use sea_orm::{ConnectionTrait, DbErr, QueryResult, Statement, Value};

use super::Resealed;

/// A column of sealed text.
#[derive(Debug, Clone, Copy)]
pub struct SealedColumn {
    /// Its table.
    pub table: &'static str,
    /// The table's key, in order.
    pub key: &'static [&'static str],
    /// The column; it may be null.
    pub column: &'static str,
    /// The place a value is sealed for, given the row's key.
    place: fn(&[String]) -> [&str; 3],
}

/// All sealed columns. A new sealed column needs a line here; a test scans the whole database for sealed values.
pub const SEALED: &[SealedColumn] = &[
    SealedColumn {
        table: "webhook_endpoints",
        key: &["psp_id"],
        column: "secret",
        place: |key| ["webhook_endpoints", &key[0], "secret"],
    },
    SealedColumn {
        table: "webhook_endpoints",
        key: &["psp_id"],
        column: "previous_secret",
        // A secret keeps its sealing place when it becomes the previous one.
        place: |key| ["webhook_endpoints", &key[0], "secret"],
    },
    SealedColumn {
        table: "idempotency_keys",
        key: &["psp_id", "route", "key"],
        column: "response_body",
        place: |key| ["idempotency_keys", &key[1], &key[2]],
    },
    SealedColumn {
        table: "customers",
        key: &["id"],
        column: "particulars",
        place: |key| ["customers", &key[0], "particulars"],
    },
    SealedColumn {
        table: "payment_details",
        key: &["customer_id"],
        column: "details",
        place: |key| ["payment_details", &key[0], "details"],
    },
    SealedColumn { table: "checks", key: &["id"], column: "url", place: |key| ["checks", &key[0], "url"] },
];

/// One value as read.
pub(super) struct Row {
    pub(super) key: Vec<String>,
    sealed: String,
}

impl Row {
    /// Returns the value sealed with the current key, or `None` if it already is.
    pub(super) fn resealed(&self, sealer: &Sealer, column: &SealedColumn) -> Resealed {
        if sealer.is_current(&self.sealed) {
            return Ok(None);
        }
        let place = (column.place)(&self.key);
        sealer.open(&place, &self.sealed).map(|plaintext| Some(sealer.seal(&place, &plaintext)))
    }

    /// Name of the row in messages.
    pub(super) fn name(&self) -> String {
        self.key.join(" ")
    }
}

impl SealedColumn {
    /// Reads the next rows with a value, in the order of the key.
    pub(super) async fn after(
        &self,
        connection: &impl ConnectionTrait,
        after: Option<&[String]>,
        rows_max: u64,
    ) -> Result<Vec<Row>, DbErr> {
        let keys = self.key.join(", ");
        let given = after.unwrap_or_default();
        let later = if given.is_empty() { String::new() } else { format!("AND ({keys}) > ({})", numbered(1, given)) };
        let sql = format!(
            "SELECT {keys}, {} FROM {} WHERE {} IS NOT NULL {later} ORDER BY {keys} LIMIT {rows_max}",
            self.column, self.table, self.column
        );
        self.read(connection, sql, given).await
    }

    /// Reads one row, if it has a value.
    pub(super) async fn one(&self, connection: &impl ConnectionTrait, key: &[String]) -> Result<Option<Row>, DbErr> {
        let sql = format!(
            "SELECT {}, {} FROM {} WHERE ({}) = ({}) AND {} IS NOT NULL",
            self.key.join(", "),
            self.column,
            self.table,
            self.key.join(", "),
            numbered(1, key),
            self.column
        );
        Ok(self.read(connection, sql, key).await?.pop())
    }

    /// Replaces the value by `sealed` if it is unchanged since it was read.
    pub(super) async fn replace(
        &self,
        connection: &impl ConnectionTrait,
        row: &Row,
        sealed: &str,
    ) -> Result<bool, DbErr> {
        let sql = format!(
            "UPDATE {} SET {} = $1 WHERE {} = $2 AND ({}) = ({})",
            self.table,
            self.column,
            self.column,
            self.key.join(", "),
            numbered(3, &row.key)
        );
        let values = [sealed, &row.sealed].into_iter().chain(row.key.iter().map(String::as_str)).map(Value::from);
        let backend = ConnectionTrait::get_database_backend(connection);
        let replaced = connection.execute_raw(Statement::from_sql_and_values(backend, sql, values)).await?;
        Ok(replaced.rows_affected() == 1)
    }

    async fn read(&self, connection: &impl ConnectionTrait, sql: String, key: &[String]) -> Result<Vec<Row>, DbErr> {
        let values = key.iter().map(|part| Value::from(part.as_str()));
        let backend = ConnectionTrait::get_database_backend(connection);
        let rows = connection.query_all_raw(Statement::from_sql_and_values(backend, sql, values)).await?;
        let row = |row: &QueryResult| {
            let key = (0..self.key.len()).map(|index| row.try_get_by_index(index)).collect::<Result<_, _>>()?;
            Ok(Row { key, sealed: row.try_get_by_index(self.key.len())? })
        };
        rows.iter().map(row).collect()
    }
}

/// `$1, $2, ...` for the parts of a key.
fn numbered(first: usize, key: &[String]) -> String {
    (first..first + key.len()).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}
