//! Statements over rows: lists of values on SQLite, one array per column on PostgreSQL.
//!
//! A statement is written once, with placeholders; the columns and their types come from the type of its rows. Reading
//! rows from JSON costs SQLite more than storing them, and costs PostgreSQL a quarter of the time for a new payment.
//! Therefore rows are bound as values. On SQLite a list of varying length would defeat the statement cache, so lists
//! have a few constant lengths, and unused entries are NULL and ignored. PostgreSQL's arrays have the same text for any
//! length. A table therefore costs one statement per group, which is one round trip per table. Not here: the statements
//! and their order (`statements`, `write`).

use std::borrow::Borrow;
use std::marker::PhantomData;

use sea_orm::sea_query::ColumnType;
use sea_orm::{
    ColumnTrait, DbBackend, DbErr, EntityName, EntityTrait, IdenStatic, Iterable, ModelTrait, PrimaryKeyToColumn,
    PrimaryKeyTrait, Value,
};

/// Lengths of the lists, in rows. The longest binds about 5,400 values; SQLite allows 32,766.
pub(super) const LIST_ROWS: [usize; 8] = [4, 16, 32, 64, 96, 128, 192, 256];

/// A row of a statement.
pub(super) trait Row {
    /// Returns the columns. The first is not NULL in any row.
    fn columns() -> Vec<Column>;

    /// Appends the values, in the order of the columns.
    fn bind(&self, values: &mut Vec<Value>);
}

/// A complete row of a table, without a key that the database assigns.
impl<M: ModelTrait> Row for M {
    fn columns() -> Vec<Column> {
        let column = |column: <M::Entity as EntityTrait>::Column| {
            let def = column.def();
            let kind = match def.get_column_type() {
                ColumnType::BigInteger => Kind::Int,
                ColumnType::Boolean => Kind::Bool,
                _ => Kind::Text,
            };
            Column { name: column.as_str(), kind, is_nullable: def.is_null() }
        };
        given_columns::<M::Entity>().map(column).collect()
    }

    fn bind(&self, values: &mut Vec<Value>) {
        values.extend(given_columns::<M::Entity>().map(|column| self.get(column)));
    }
}

fn given_columns<E: EntityTrait>() -> impl Iterator<Item = E::Column> {
    let is_assigned = |column| E::PrimaryKey::auto_increment() && E::PrimaryKey::from_column(column).is_some();
    E::Column::iter().filter(move |column| !is_assigned(*column))
}

/// Type of a column, as needed for binding.
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

/// A column of the rows of one statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    kind: Kind,
    is_nullable: bool,
}

impl Column {
    /// Returns the column for a field of this type.
    pub(super) const fn of<F: Field>(name: &'static str) -> Self {
        Self { name, kind: F::KIND, is_nullable: F::IS_NULLABLE }
    }
}

/// Type of a field of a row.
pub(super) trait Field {
    const KIND: Kind;
    const IS_NULLABLE: bool = false;
}

impl Field for &str {
    const KIND: Kind = Kind::Text;
}

impl Field for i64 {
    const KIND: Kind = Kind::Int;
}

impl Field for bool {
    const KIND: Kind = Kind::Bool;
}

impl<F: Field> Field for Option<F> {
    const KIND: Kind = F::KIND;
    const IS_NULLABLE: bool = true;
}

/// A statement over rows of one type, in the dialect of the database.
#[derive(Debug)]
pub(super) struct RowStatement<R> {
    /// Texts by the maximum number of rows. On PostgreSQL there is one text for any number.
    pub(super) texts: Box<[(usize, String)]>,
    rows: PhantomData<R>,
}

impl<R: Row> RowStatement<R> {
    /// Creates a statement from a template; see [`text`].
    pub(super) fn new(backend: DbBackend, template: &str) -> Self {
        let texts = if backend == DbBackend::Sqlite {
            LIST_ROWS.map(|rows| (rows, text::<R>(backend, rows, 1, template))).into()
        } else {
            [(usize::MAX, text::<R>(backend, usize::MAX, 1, template))].into()
        };
        Self { texts, rows: PhantomData }
    }
}

impl<M: ModelTrait> RowStatement<M> {
    /// Creates an insert of complete rows into their table. `tail` follows the rows.
    pub(super) fn insert(backend: DbBackend, tail: &str) -> Self {
        Self::new(backend, &insert_template::<M>(tail))
    }
}

/// Returns the template of an insert of complete rows into their table, followed by `tail`.
pub(super) fn insert_template<M: ModelTrait>(tail: &str) -> String {
    let table = M::Entity::default().table_name().to_owned();
    format!("INSERT INTO {table} ({{columns}}) SELECT {{columns}} FROM {{rows}} WHERE true {{in_order}} {tail}")
}

/// Returns the statement over at most `rows_max` rows. On PostgreSQL the arrays start at parameter `$first`; on SQLite
/// the parameters have no numbers, because the driver looks up the position of each number, which takes SQLite linear
/// time. Placeholders of the template:
///
/// - `{columns}`: the columns, quoted and separated by commas
/// - `{rows}`: the rows as `x` with these columns; on SQLite without rows whose first column is NULL
/// - `{in_order}`: follows a complete `SELECT`, so that the rows are inserted in their order
/// - `{set except KEYS}`, `{set_excluded except KEYS}`: sets every other column from `x`, or from the conflicting row
pub(super) fn text<R: Row>(backend: DbBackend, rows_max: usize, first: usize, template: &str) -> String {
    let columns = R::columns();
    let list =
        |each: &dyn Fn((usize, &Column)) -> String| columns.iter().enumerate().map(each).collect::<Vec<_>>().join(", ");
    let names = list(&|(_, column)| format!("\"{}\"", column.name));
    let (rows, in_order) = if backend == DbBackend::Sqlite {
        let row = format!("({})", list(&|_| "?".to_owned()));
        let named = list(&|(place, column)| format!("column{} AS \"{}\"", place + 1, column.name));
        // The rows keep the order of the list, and INSERT ... SELECT inserts in that order.
        let values = vec![row; rows_max].join(", ");
        (format!("(SELECT {named} FROM (VALUES {values}) WHERE column1 IS NOT NULL) AS x"), "")
    } else {
        let arrays = list(&|(place, column)| format!("${}::{}[]", first + place, column.kind.postgres()));
        let numbered = format!("unnest({arrays}) WITH ORDINALITY AS r({names}, \"ordinality\")");
        (format!("(SELECT * FROM {numbered}) AS x"), "ORDER BY x.\"ordinality\"")
    };
    let text = template.replace("{columns}", &names).replace("{rows}", &rows).replace("{in_order}", in_order);
    set(set(text, "{set except ", "x", &columns), "{set_excluded except ", "excluded", &columns)
}

fn set(text: String, placeholder: &str, source: &str, columns: &[Column]) -> String {
    let Some((before, rest)) = text.split_once(placeholder) else { return text };
    let (keys, after) = rest.split_once('}').expect("a placeholder has an end");
    let is_key = |column: &&Column| keys.split(',').any(|key| key.trim() == column.name);
    let columns = columns.iter().filter(|column| !is_key(column));
    let changed: Vec<_> = columns.map(|Column { name, .. }| format!("\"{name}\" = {source}.\"{name}\"")).collect();
    format!("{before}{}{after}", changed.join(", "))
}

/// Returns the values of these rows: row by row on SQLite, as an array for each column on PostgreSQL.
pub(super) fn values_of<R: Row>(backend: DbBackend, rows: &[impl Borrow<R>]) -> Result<Vec<Value>, DbErr> {
    if backend != DbBackend::Sqlite {
        return arrays::<R>(&R::columns(), rows);
    }
    let mut values = Vec::new();
    for row in rows {
        row.borrow().bind(&mut values);
    }
    Ok(values)
}

fn arrays<R: Row>(columns: &[Column], rows: &[impl Borrow<R>]) -> Result<Vec<Value>, DbErr> {
    let mut arrays: Vec<Array> = columns.iter().map(|column| Array::of(*column, rows.len())).collect();
    let mut values = Vec::with_capacity(columns.len());
    for row in rows {
        row.borrow().bind(&mut values);
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
    use payferry_entities::{payment_transitions, payments};

    use super::*;

    #[test]
    fn lists_have_constant_texts_and_lengths() {
        let insert = RowStatement::<payment_transitions::Model>::insert(DbBackend::Sqlite, "RETURNING \"version\"");
        assert_eq!(insert.texts.iter().map(|(rows, _)| *rows).collect::<Vec<_>>(), LIST_ROWS);
        assert_eq!(
            insert.texts[0].1,
            "INSERT INTO payment_transitions (\"payment_id\", \"version\", \"at\", \"events\", \"command\", \"decided_us\") \
             SELECT \"payment_id\", \"version\", \"at\", \"events\", \"command\", \"decided_us\" FROM (SELECT column1 AS \
             \"payment_id\", column2 AS \"version\", column3 AS \"at\", column4 AS \"events\", column5 AS \"command\", column6 \
             AS \"decided_us\" FROM (VALUES (?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?)) \
             WHERE column1 IS NOT NULL) AS x WHERE true  RETURNING \"version\""
        );
        assert_eq!(insert.texts[7].1.matches('?').count(), 6 * 256);
    }

    struct Sample(&'static str, Option<i64>, Option<bool>);

    impl Row for Sample {
        fn columns() -> Vec<Column> {
            vec![Column::of::<&str>("id"), Column::of::<i64>("number"), Column::of::<Option<bool>>("bit")]
        }

        fn bind(&self, values: &mut Vec<Value>) {
            values.extend([self.0.into(), self.1.into(), self.2.into()]);
        }
    }

    #[test]
    fn one_template_generates_both_dialects() {
        let template = "INSERT INTO t ({columns}) SELECT {columns} FROM {rows} WHERE true {in_order}";
        assert_eq!(
            text::<Sample>(DbBackend::Sqlite, 2, 1, template).trim_end(),
            "INSERT INTO t (\"id\", \"number\", \"bit\") SELECT \"id\", \"number\", \"bit\" FROM (SELECT column1 AS \
             \"id\", column2 AS \"number\", column3 AS \"bit\" FROM (VALUES (?, ?, ?), (?, ?, ?)) WHERE column1 IS NOT \
             NULL) AS x WHERE true"
        );
        assert_eq!(
            text::<Sample>(DbBackend::Postgres, 2, 4, template),
            "INSERT INTO t (\"id\", \"number\", \"bit\") SELECT \"id\", \"number\", \"bit\" FROM (SELECT * FROM \
             unnest($4::text[], $5::bigint[], $6::boolean[]) WITH ORDINALITY AS r(\"id\", \"number\", \"bit\", \
             \"ordinality\")) AS x WHERE true ORDER BY x.\"ordinality\""
        );
        let set = "{set except id}; {set_excluded except id, bit}";
        assert_eq!(
            text::<Sample>(DbBackend::Sqlite, 2, 1, set),
            "\"number\" = x.\"number\", \"bit\" = x.\"bit\"; \"number\" = excluded.\"number\""
        );
    }

    #[test]
    fn column_types_come_from_the_entity() {
        let columns = payments::Model::columns();
        let column = |wanted: &str| *columns.iter().find(|column| column.name == wanted).expect("the column exists");
        assert_eq!(column("live").kind, Kind::Bool);
        assert_eq!(column("amount").kind, Kind::Int);
        assert_eq!(column("state").kind, Kind::Text);
        assert!(column("reference").is_nullable && !column("state").is_nullable);
        assert_eq!(columns.len(), 22);
    }

    #[test]
    fn a_nullable_column_is_written_as_array_text() {
        let columns = Sample::columns().into_iter().map(|column| Column { is_nullable: true, ..column });
        let rows = [
            Sample("", Some(-1), None),
            Sample("NULL", None, Some(true)),
            Sample("a \"b\" {c, d} \\e\n", Some(2), Some(false)),
        ];
        let written = arrays::<Sample>(&columns.collect::<Vec<_>>(), &rows).expect("the values match the columns");
        let texts =
            [r#"{"","NULL","a \"b\" {c, d} \\e"#.to_owned() + "\n\"}", "{-1,NULL,2}".into(), "{NULL,t,f}".into()];
        assert_eq!(written, texts.map(Value::from));
    }

    #[test]
    fn rejects_a_null_or_a_missing_column() {
        let columns = Sample::columns();
        let bound = arrays::<Sample>(&columns, &[Sample("a", Some(1), None), Sample("b", Some(2), Some(true))]);
        assert_eq!(
            bound.expect("only the nullable column is NULL"),
            [vec!["a".to_owned(), "b".to_owned()].into(), vec![1_i64, 2].into(), "{NULL,t}".into()]
        );
        assert!(matches!(arrays::<Sample>(&columns, &[Sample("a", None, None)]), Err(DbErr::Type(_))));
        assert!(matches!(arrays::<Sample>(&columns[1..], &[Sample("a", Some(1), None)]), Err(DbErr::Type(_))));
    }
}
