//! Statements over many rows: lists of values on SQLite, one array per column on PostgreSQL.
//!
//! Reading rows from JSON costs SQLite more than storing them, and costs PostgreSQL a quarter of the time for a new
//! payment. Therefore the most frequent rows are bound as values. On SQLite a list of varying length would defeat the
//! statement cache, so lists have a few constant lengths, and unused entries are NULL and ignored. PostgreSQL's arrays
//! have the same text for any length. A table therefore costs one statement per group, which is one round trip per
//! table. Not here: the statements (`statements`).

use sea_orm::{DbBackend, DbErr, EntityTrait, IdenStatic, Iterable, ModelTrait, QueryResult, Statement, Value};

use super::table::{Column, Kind, Shape};
use super::write::Writer;

/// Lengths of the lists, in rows. The longest binds about 5,400 values; SQLite allows 32,766.
pub(super) const LIST_ROWS: [usize; 8] = [4, 16, 32, 64, 96, 128, 192, 256];

/// A statement over rows of one shape, in the dialect of the database.
#[derive(Debug)]
pub(super) enum Insert {
    /// One statement with an array for each column.
    Arrays { sql: String, columns: Box<[Column]> },
    /// One statement for each length of a list.
    Lists(Box<[(usize, String)]>),
}

/// A row that is bound value by value.
pub(super) trait Bound {
    /// Appends its values, in the order of the columns of the statement.
    fn bind(&self, values: &mut Vec<Value>);
}

/// A complete row of a table.
impl<M: ModelTrait> Bound for M {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend(<M::Entity as EntityTrait>::Column::iter().map(|column| self.get(column)));
    }
}

/// A row whose `position` is assigned by the database.
pub(super) struct Unplaced<'a, M>(pub(super) &'a M);

impl<M: ModelTrait> Bound for Unplaced<'_, M> {
    fn bind(&self, values: &mut Vec<Value>) {
        let given = <M::Entity as EntityTrait>::Column::iter().filter(|column| column.as_str() != "position");
        values.extend(given.map(|column| self.0.get(column)));
    }
}

impl Insert {
    /// Creates an insert of complete rows into the table of `E`. `tail` follows the rows. Placeholders and `keys` are
    /// those of [`Shape::statement`].
    pub(super) fn into<E: EntityTrait + Default>(backend: DbBackend, keys: &[&str], tail: &str) -> Self {
        Self::over(backend, &Shape::of::<E>(), keys, &into_table::<E>(tail))
    }

    /// Creates a statement from `template` over rows of this shape. Placeholders and `keys` are those of
    /// [`Shape::statement`]. The first column must not be NULL in any row.
    pub(super) fn over(backend: DbBackend, shape: &Shape, keys: &[&str], template: &str) -> Self {
        if backend != DbBackend::Sqlite {
            return Self::Arrays { sql: shape.array_statement(1, keys, template), columns: shape.columns().into() };
        }
        Self::Lists(LIST_ROWS.into_iter().map(|rows| (rows, shape.list_statement(rows, keys, template))).collect())
    }

    /// Returns the shortest and the longest text.
    #[cfg(test)]
    pub(super) fn texts(&self) -> [&str; 2] {
        match self {
            Self::Arrays { sql, .. } => [sql, sql],
            Self::Lists(lists) => [&lists[0].1, &lists[lists.len() - 1].1],
        }
    }
}

/// Returns the template of an insert of complete rows into the table of `E`, followed by `tail`.
pub(super) fn into_table<E: EntityTrait + Default>(tail: &str) -> String {
    let table = E::default().table_name().to_owned();
    format!("INSERT INTO {table} ({{columns}}) SELECT {{columns}} FROM {{rows}} WHERE true {{in_order}} {tail}")
}

impl Writer<'_> {
    /// Runs the statement over the rows and returns its results.
    pub(super) async fn insert<R: Bound>(&self, insert: &Insert, rows: &[&R]) -> Result<Vec<QueryResult>, DbErr> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let lists = match insert {
            Insert::Arrays { sql, columns } => {
                let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, arrays(columns, rows)?);
                return self.query_statement(statement).await;
            }
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

/// Returns an array for each column of these rows.
pub(super) fn arrays<R: Bound>(columns: &[Column], rows: &[&R]) -> Result<Vec<Value>, DbErr> {
    let mut arrays: Vec<Array> = columns.iter().map(|column| Array::of(*column, rows.len())).collect();
    let mut values = Vec::with_capacity(columns.len());
    for row in rows {
        row.bind(&mut values);
        // A missing value would silently become NULL in the database.
        if values.len() != columns.len() {
            return Err(DbErr::Type("the row does not match the columns of the statement".to_owned()));
        }
        for (array, value) in arrays.iter_mut().zip(values.drain(..)) {
            array.push(value)?;
        }
    }
    Ok(arrays.into_iter().map(Value::from).collect())
}

/// One column of many rows. A bound array cannot contain NULL, so a nullable column is written as the text of an array,
/// which the database parses.
enum Array {
    Texts(Vec<String>),
    Ints(Vec<i64>),
    Bools(Vec<bool>),
    Written(String),
}

impl Array {
    fn of(column: Column, rows: usize) -> Self {
        match column.kind {
            _ if column.is_nullable => Self::Written("{".to_owned()),
            Kind::Text => Self::Texts(Vec::with_capacity(rows)),
            Kind::Int => Self::Ints(Vec::with_capacity(rows)),
            Kind::Bool => Self::Bools(Vec::with_capacity(rows)),
        }
    }

    fn push(&mut self, value: Value) -> Result<(), DbErr> {
        match (self, value) {
            (Self::Texts(texts), Value::String(Some(text))) => texts.push(text),
            (Self::Ints(numbers), Value::BigInt(Some(number))) => numbers.push(number),
            (Self::Bools(bits), Value::Bool(Some(bit))) => bits.push(bit),
            (Self::Written(array), value) => {
                if array.len() > 1 {
                    array.push(',');
                }
                match value {
                    Value::String(Some(text)) => write_element(array, &text),
                    Value::BigInt(Some(number)) => array.push_str(&number.to_string()),
                    Value::Bool(Some(bit)) => array.push(if bit { 't' } else { 'f' }),
                    Value::String(None) | Value::BigInt(None) | Value::Bool(None) => array.push_str("NULL"),
                    _ => return Err(DbErr::Type("unsupported column type".to_owned())),
                }
            }
            _ => return Err(DbErr::Type("the value does not match the type of the column, or is NULL".to_owned())),
        }
        Ok(())
    }
}

/// Inside quotes only the quote and the backslash need an escape.
fn write_element(array: &mut String, text: &str) {
    array.push('"');
    for part in text.split_inclusive(['"', '\\']) {
        match part.strip_suffix(['"', '\\']) {
            Some(before) => {
                array.push_str(before);
                array.push('\\');
                array.push_str(&part[before.len()..]);
            }
            None => array.push_str(part),
        }
    }
    array.push('"');
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        match array {
            Array::Texts(texts) => texts.into(),
            Array::Ints(numbers) => numbers.into(),
            Array::Bools(bits) => bits.into(),
            Array::Written(mut array) => {
                array.push('}');
                array.into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use payferry_entities::payment_transitions;

    #[test]
    fn lists_have_constant_texts_and_lengths() {
        let insert = Insert::into::<payment_transitions::Entity>(DbBackend::Sqlite, &[], "RETURNING \"version\"");
        let Insert::Lists(lists) = insert else { panic!("SQLite uses lists") };
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

    const COLUMNS: [(&str, Kind); 3] = [("id", Kind::Text), ("number", Kind::Int), ("bit", Kind::Bool)];

    struct Row(&'static str, Option<i64>, Option<bool>);

    impl Bound for Row {
        fn bind(&self, values: &mut Vec<Value>) {
            values.extend([self.0.into(), self.1.into(), self.2.into()]);
        }
    }

    #[test]
    fn a_nullable_column_is_written_as_array_text() {
        let shape = Shape::new(&COLUMNS, &["id", "number", "bit"]);
        let rows = [
            &Row("", Some(-1), None),
            &Row("NULL", None, Some(true)),
            &Row("a \"b\" {c, d} \\e\n", Some(2), Some(false)),
        ];
        let written = arrays(shape.columns(), &rows).expect("the values match the columns");
        let texts =
            [r#"{"","NULL","a \"b\" {c, d} \\e"#.to_owned() + "\n\"}", "{-1,NULL,2}".into(), "{NULL,t,f}".into()];
        assert_eq!(written, texts.map(Value::from));
    }

    #[test]
    fn rejects_a_null_or_a_missing_column() {
        let shape = Shape::new(&COLUMNS, &["bit"]);
        let bound = arrays(shape.columns(), &[&Row("a", Some(1), None), &Row("b", Some(2), Some(true))]);
        assert_eq!(
            bound.expect("only the nullable column is NULL"),
            [vec!["a".to_owned(), "b".to_owned()].into(), vec![1_i64, 2].into(), "{NULL,t}".into()]
        );
        assert!(matches!(arrays(shape.columns(), &[&Row("a", None, None)]), Err(DbErr::Type(_))));
        assert!(matches!(arrays(&shape.columns()[1..], &[&Row("a", Some(1), None)]), Err(DbErr::Type(_))));
    }
}
