//! Statements over many rows: on SQLite as lists of values, on PostgreSQL as an array for each column.
//!
//! Reading rows out of JSON costs SQLite more than storing them, and PostgreSQL a quarter of what it spends on a new
//! payment; so the rows that come in the greatest numbers are bound as values. On SQLite a list of varying length would
//! defeat the statement cache: lists have a few constant lengths, and what is not bound of the one that is taken is NULL
//! and left out. PostgreSQL's arrays have one text for any length. So a table costs one statement a group, each of which is
//! a way to whoever writes and back. Deliberately absent: what the statements do (`statements`).

use sea_orm::{DbBackend, DbErr, EntityTrait, IdenStatic, Iterable, ModelTrait, QueryResult, Statement, Value};

use super::table::{Column, Kind, Shape};
use super::write::Writer;

/// Rows that the lists have room for. The largest binds some 5,400 values, of the 32,766 that SQLite takes.
pub(super) const LIST_ROWS: [usize; 8] = [4, 16, 32, 64, 96, 128, 192, 256];

/// A statement over rows of one shape, in the database's dialect.
#[derive(Debug)]
pub(super) enum Insert {
    /// One statement over an array for each column.
    Arrays { sql: String, columns: Box<[Column]> },
    /// One statement for each length of a list.
    Lists(Box<[(usize, String)]>),
}

/// A row that is bound value by value.
pub(super) trait Bound {
    /// Adds its values, in the order of its statement's columns.
    fn bind(&self, values: &mut Vec<Value>);
}

/// A whole row of a table.
impl<M: ModelTrait> Bound for M {
    fn bind(&self, values: &mut Vec<Value>) {
        values.extend(<M::Entity as EntityTrait>::Column::iter().map(|column| self.get(column)));
    }
}

/// A row whose `position` the database gives.
pub(super) struct Unplaced<'a, M>(pub(super) &'a M);

impl<M: ModelTrait> Bound for Unplaced<'_, M> {
    fn bind(&self, values: &mut Vec<Value>) {
        let given = <M::Entity as EntityTrait>::Column::iter().filter(|column| column.as_str() != "position");
        values.extend(given.map(|column| self.0.get(column)));
    }
}

impl Insert {
    /// Whole rows into the table of `E`. `tail` follows the rows; its placeholders are those of [`Shape::statement`],
    /// `keys` its keys.
    pub(super) fn into<E: EntityTrait + Default>(backend: DbBackend, keys: &[&str], tail: &str) -> Self {
        Self::over(backend, &Shape::of::<E>(), keys, &into_table::<E>(tail))
    }

    /// `template` over rows of this shape; its placeholders are those of [`Shape::statement`], `keys` its keys. The first
    /// column may not be NULL in any row.
    pub(super) fn over(backend: DbBackend, shape: &Shape, keys: &[&str], template: &str) -> Self {
        if backend != DbBackend::Sqlite {
            return Self::Arrays { sql: shape.array_statement(1, keys, template), columns: shape.columns().into() };
        }
        Self::Lists(LIST_ROWS.into_iter().map(|rows| (rows, shape.list_statement(rows, keys, template))).collect())
    }

    /// The shortest text of it, and the longest.
    #[cfg(test)]
    pub(super) fn texts(&self) -> [&str; 2] {
        match self {
            Self::Arrays { sql, .. } => [sql, sql],
            Self::Lists(lists) => [&lists[0].1, &lists[lists.len() - 1].1],
        }
    }
}

/// The template of whole rows into the table of `E`; `tail` follows them.
pub(super) fn into_table<E: EntityTrait + Default>(tail: &str) -> String {
    let table = E::default().table_name().to_owned();
    format!("INSERT INTO {table} ({{columns}}) SELECT {{columns}} FROM {{rows}} WHERE true {{in_order}} {tail}")
}

impl Writer<'_> {
    /// Runs the statement over the rows; answers what it returns of them, if anything.
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

/// An array for each column of these rows.
pub(super) fn arrays<R: Bound>(columns: &[Column], rows: &[&R]) -> Result<Vec<Value>, DbErr> {
    let mut arrays: Vec<Array> = columns.iter().map(|column| Array::of(*column, rows.len())).collect();
    let mut values = Vec::with_capacity(columns.len());
    for row in rows {
        row.bind(&mut values);
        // A column without its value would be NULL in the database, in silence.
        if values.len() != columns.len() {
            return Err(DbErr::Type("a row that does not have its statement's columns".to_owned()));
        }
        for (array, value) in arrays.iter_mut().zip(values.drain(..)) {
            array.push(value)?;
        }
    }
    Ok(arrays.into_iter().map(Value::from).collect())
}

/// One column of many rows. An array that is bound as such holds no NULL: a column that may be NULL is written as the text
/// of an array, which the database reads.
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
                    _ => return Err(DbErr::Type("a column of a kind that no table here has".to_owned())),
                }
            }
            _ => return Err(DbErr::Type("a value that is not of its column's kind, or NULL".to_owned())),
        }
        Ok(())
    }
}

/// Between quotes everything stands for itself but the quote and the backslash.
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

    const COLUMNS: [(&str, Kind); 3] = [("id", Kind::Text), ("number", Kind::Int), ("bit", Kind::Bool)];

    struct Row(&'static str, Option<i64>, Option<bool>);

    impl Bound for Row {
        fn bind(&self, values: &mut Vec<Value>) {
            values.extend([self.0.into(), self.1.into(), self.2.into()]);
        }
    }

    #[test]
    fn a_column_that_may_be_null_is_written_as_the_text_of_an_array() {
        let shape = Shape::new(&COLUMNS, &["id", "number", "bit"]);
        let rows = [
            &Row("", Some(-1), None),
            &Row("NULL", None, Some(true)),
            &Row("a \"b\" {c, d} \\e\n", Some(2), Some(false)),
        ];
        let written = arrays(shape.columns(), &rows).expect("their kinds are their columns'");
        let texts =
            [r#"{"","NULL","a \"b\" {c, d} \\e"#.to_owned() + "\n\"}", "{-1,NULL,2}".into(), "{NULL,t,f}".into()];
        assert_eq!(written, texts.map(Value::from));
    }

    #[test]
    fn a_null_where_none_may_be_or_a_value_without_a_column_is_refused() {
        let shape = Shape::new(&COLUMNS, &["bit"]);
        let bound = arrays(shape.columns(), &[&Row("a", Some(1), None), &Row("b", Some(2), Some(true))]);
        assert_eq!(
            bound.expect("only what may be is NULL"),
            [vec!["a".to_owned(), "b".to_owned()].into(), vec![1_i64, 2].into(), "{NULL,t}".into()]
        );
        assert!(matches!(arrays(shape.columns(), &[&Row("a", None, None)]), Err(DbErr::Type(_))));
        assert!(matches!(arrays(&shape.columns()[1..], &[&Row("a", Some(1), None)]), Err(DbErr::Type(_))));
    }
}
