//! The columns that hold sealed values; reading and replacing one value.

use payferry_runtime::seal::Sealer;
use payferry_webhook::endpoints::sealed_for;
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
    place: SealContext,
    /// The place that earlier versions sealed for.
    former_place: Option<SealContext>,
}

type SealContext = for<'a> fn(&SealedColumn, &'a [String]) -> Vec<&'a str>;

/// All sealed columns. A new sealed column needs a line here; a test scans the whole database for sealed values.
pub const SEALED: &[SealedColumn] = &[
    SealedColumn {
        place: |_, key| sealed_for(&key[0], &key[1]).to_vec(),
        ..SealedColumn::of("webhook_endpoints", &["psp_id", "id"], "secret")
    },
    SealedColumn {
        // A secret keeps its sealing place when it becomes the previous one.
        place: |_, key| sealed_for(&key[0], &key[1]).to_vec(),
        ..SealedColumn::of("webhook_endpoints", &["psp_id", "id"], "previous_secret")
    },
    SealedColumn {
        place: |column, key| vec![column.table, &key[0], &key[1], &key[2]],
        former_place: Some(|column, key| vec![column.table, &key[1], &key[2]]),
        ..SealedColumn::of("idempotency_keys", &["psp_id", "route", "key"], "response_body")
    },
    SealedColumn::of("customers", &["id"], "particulars"),
    SealedColumn::of("payment_details", &["customer_id"], "details"),
    SealedColumn::of("checks", &["id"], "url"),
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
        let place = (column.place)(column, &self.key);
        let opened = sealer.open(&place, &self.sealed).or_else(|error| match column.former_place {
            Some(former) => sealer.open(&former(column, &self.key), &self.sealed),
            None => Err(error),
        });
        opened.map(|plaintext| Some(sealer.seal(&place, &plaintext)))
    }

    /// Name of the row in messages.
    pub(super) fn name(&self) -> String {
        self.key.join(" ")
    }
}

impl SealedColumn {
    /// A column whose values are sealed for the table, the first part of the row's key, and the column.
    const fn of(table: &'static str, key: &'static [&'static str], column: &'static str) -> Self {
        let place: SealContext = |column, key| vec![column.table, &key[0], column.column];
        Self { table, key, column, place, former_place: None }
    }

    /// Reads the next rows with a value, in the order of the key.
    pub(super) async fn after(
        &self,
        connection: &impl ConnectionTrait,
        after: Option<&[String]>,
        rows_max: u64,
    ) -> Result<Vec<Row>, DbErr> {
        let (keys, given) = (self.key.join(", "), after.unwrap_or_default());
        let later = if given.is_empty() { String::new() } else { format!("AND ({keys}) > ({})", numbered(1, given)) };
        self.read(connection, &format!("{later} ORDER BY {keys} LIMIT {rows_max}"), given).await
    }

    /// Reads one row, if it has a value.
    pub(super) async fn one(&self, connection: &impl ConnectionTrait, key: &[String]) -> Result<Option<Row>, DbErr> {
        let this = format!("AND ({}) = ({})", self.key.join(", "), numbered(1, key));
        Ok(self.read(connection, &this, key).await?.pop())
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

    /// Reads the rows with a value that `rest` of the statement selects; `key` has its parameters.
    async fn read(&self, connection: &impl ConnectionTrait, rest: &str, key: &[String]) -> Result<Vec<Row>, DbErr> {
        let Self { table, column, .. } = self;
        let sql = format!("SELECT {}, {column} FROM {table} WHERE {column} IS NOT NULL {rest}", self.key.join(", "));
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

#[cfg(test)]
mod tests {
    use payferry_runtime::seal::MasterKeys;

    use super::*;

    #[test]
    fn answers_sealed_without_their_psp_are_sealed_again_with_it() {
        let mut keys = MasterKeys::one([7; 32]);
        let before = Sealer::of(&keys);
        keys.add([8; 32]);
        let sealer = Sealer::of(&keys);
        let column = SEALED.iter().find(|column| column.table == "idempotency_keys").unwrap();
        let key = ["psp_1", "POST /payouts", "k"].map(str::to_owned).to_vec();
        for place in
            [&["idempotency_keys", "POST /payouts", "k"][..], &["idempotency_keys", "psp_1", "POST /payouts", "k"]]
        {
            let row = Row { key: key.clone(), sealed: before.seal(place, b"answer") };
            let resealed = row.resealed(&sealer, column).unwrap().unwrap();
            let now = ["idempotency_keys", "psp_1", "POST /payouts", "k"];
            assert_eq!(
                (sealer.open(&now, &resealed).unwrap().to_vec(), sealer.is_current(&resealed)),
                (b"answer".to_vec(), true)
            );
        }
        let other = Row { key, sealed: before.seal(&["idempotency_keys", "psp_2", "POST /payouts", "k"], b"answer") };
        assert!(other.resealed(&sealer, column).is_err());
    }
}
