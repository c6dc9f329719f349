//! Pages of lists: their parameters, cursors, times, and the reader of lists that begin with the newest
//! row.
//!
//! A cursor holds the key of the last row of a page in the order of its list. The next page begins after that key, so rows
//! that are inserted meanwhile neither repeat nor hide older ones.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use payferry_domain::Timestamp;
use payferry_entities::Database;
use sea_orm::sea_query::{Asterisk, Expr, ExprTrait as _, Query, SimpleExpr};
use sea_orm::{
    ConnectionTrait as _, DbErr, DeriveValueType, EntityTrait, FromQueryResult, PartialModelTrait, QueryFilter,
    QueryOrder, QueryResult, QuerySelect, QueryTrait as _, Select,
};
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use utoipa::IntoParams;

use crate::{ApiError, Fault, PageQuery, QueryFields, Rule, rule};

/// Version of the content of cursors.
const CURSOR_VERSION: u8 = 1;

/// The requested page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 200, default = 50)]
    pub limit: Option<u64>,
    /// Items to skip.
    #[param(minimum = 0, maximum = 1_000_000, default = 0)]
    pub offset: Option<u64>,
    /// The `next_cursor` of the previous page, with the same filters. Unlike with `offset`, new items move no page. Not
    /// together with `offset` or `after`.
    #[param(max_length = 255, pattern = "^[A-Za-z0-9_-]*$")]
    pub cursor: Option<String>,
}

/// Describes a cursor in a query; [`Page`] reads it.
pub const CURSOR: Rule<String> = Rule {
    read: |value| Ok(value.as_str().unwrap_or_default().to_owned()),
    schema: || rule::string().max_length(Some(255)).pattern(Some("^[A-Za-z0-9_-]*$")),
};

/// Key of a row in a list that begins with the newest row: when it was created, and its id.
pub type NewestKey = (i64, String);

/// The requested page of a list whose rows have keys of type `K`.
pub struct Page<K> {
    /// Name of the list. A cursor of another list is refused.
    list: &'static str,
    /// Maximum number of rows.
    pub limit: u64,
    /// Rows to skip.
    pub offset: u64,
    /// Key of the row after which the page begins.
    pub after: Option<K>,
}

impl<K: Serialize + DeserializeOwned> Page<K> {
    /// Reads the parameters of a page, the last ones of a request. Returns an error that names every fault, if there is one.
    pub fn read(list: &'static str, query: QueryFields) -> Result<Self, ApiError> {
        Self::read_after(list, query, false)
    }

    /// A page of `limit` rows at an offset.
    pub const fn at(list: &'static str, limit: u64, offset: u64) -> Self {
        Self { list, limit, offset, after: None }
    }

    /// Like [`Self::read`], for a list that also has the parameter `after`. `has_after`: the request has it.
    pub fn read_after(list: &'static str, mut query: QueryFields, has_after: bool) -> Result<Self, ApiError> {
        let PageQuery { limit, offset } = query.page();
        let after = Self::after(list, &mut query, has_after);
        if offset > 0 && has_after {
            query.fault("offset", Fault::new("not_with_after", "cannot be combined with `after`"));
        } else if offset > 0 && after.is_some() {
            query.fault("offset", Fault::new("not_with_cursor", "cannot be combined with `cursor`"));
        }
        query.finish()?;
        Ok(Self { list, limit, offset, after })
    }

    /// Like [`Self::read_after`], for a list without `offset` whose limit was read before.
    pub fn of_limit(list: &'static str, mut query: QueryFields, limit: u64, has_after: bool) -> Result<Self, ApiError> {
        let after = Self::after(list, &mut query, has_after);
        query.finish()?;
        Ok(Self { list, limit, offset: 0, after })
    }

    fn after(list: &str, query: &mut QueryFields, has_after: bool) -> Option<K> {
        let after = query.optional("cursor", |text| opened(list, text));
        if after.is_some() && has_after {
            query.fault("cursor", Fault::new("not_with_after", "cannot be combined with `after`"));
        }
        after
    }

    /// Number of rows to read: one more than the page has, which shows if there is a next page.
    pub fn rows_max(&self) -> u64 {
        self.limit + 1
    }

    /// As [`Self::rows_max`], for a list in memory.
    pub fn lines_max(&self) -> usize {
        self.rows_max().try_into().unwrap_or(usize::MAX)
    }

    /// Removes the row that belongs to the next page. Returns that page's cursor; `None` on the last page.
    pub fn next_cursor<T>(&self, rows: &mut Vec<T>, key: impl FnOnce(&T) -> K) -> Result<Option<String>, ApiError> {
        let last = if self.cut(rows) { rows.last() } else { None };
        last.map(|last| self.cursor(&key(last))).transpose()
    }

    /// Removes the row that belongs to the next page. Returns true if there is one.
    pub fn cut<T>(&self, rows: &mut Vec<T>) -> bool {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let has_next = rows.len() > limit;
        rows.truncate(limit);
        has_next
    }

    /// The cursor of the page after the row with this key.
    pub fn cursor(&self, key: &K) -> Result<String, ApiError> {
        let content = serde_json::to_vec(&(CURSOR_VERSION, self.list, key))?;
        Ok(BASE64_URL_SAFE_NO_PAD.encode(content))
    }
}

/// The key in a cursor of this list.
fn opened<K: DeserializeOwned>(list: &str, cursor: &str) -> Result<K, Fault> {
    // Keys are numbers and ids, which need no escapes. PostgreSQL refuses some escaped characters.
    let is_plain = |content: &Vec<u8>| content.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\');
    let content = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok().filter(is_plain);
    let content = content.and_then(|content| serde_json::from_slice::<(u8, String, K)>(&content).ok());
    match content {
        Some((CURSOR_VERSION, of, key)) if of == list => Ok(key),
        _ => Err(Fault::new("invalid_cursor", "must be the `next_cursor` of a page of this list")),
    }
}

/// Condition for the rows after this key, in the descending order of two columns.
pub fn older<E: EntityTrait>([first, then]: [E::Column; 2], (at, id): NewestKey) -> SimpleExpr {
    let columns = Expr::tuple([Expr::col(first), Expr::col(then)]);
    columns.lt(Expr::tuple([Expr::value(at), Expr::value(id)]))
}

/// A page that was read.
pub struct Found<M> {
    /// Number of all rows.
    pub total: u64,
    /// The rows of the page.
    pub rows: Vec<M>,
    /// Cursor of the next page; `None` on the last page.
    pub next_cursor: Option<String>,
}

/// Reads a page of rows, newest first by two columns, whose values `key` returns, and counts the list.
pub async fn read_page<E: EntityTrait, M: PartialModelTrait>(
    database: &Database,
    wanted: Select<E>,
    order: [E::Column; 2],
    page: &Page<NewestKey>,
    key: impl FnOnce(&M) -> NewestKey,
) -> Result<Found<M>, ApiError> {
    let total = count(&wanted, order[0]);
    read_counted_page(database, wanted, order, page, key, total).await
}

/// Like [`read_page`], for a list whose rows the SQL expression `total` counts. The same statement reads the rows and `total`,
/// so they are of one state of the database.
pub async fn read_counted_page<E: EntityTrait, M: PartialModelTrait>(
    database: &Database,
    wanted: Select<E>,
    order: [E::Column; 2],
    page: &Page<NewestKey>,
    key: impl FnOnce(&M) -> NewestKey,
    total: Expr,
) -> Result<Found<M>, ApiError> {
    let [first, then] = order;
    let mut rows = wanted.order_by_desc(first).order_by_desc(then).limit(page.rows_max()).offset(page.offset);
    if let Some(after) = &page.after {
        rows = rows.filter(older::<E>(order, after.clone()));
    }
    let rows = M::select_cols(rows.select_only()).expr_as(total.clone(), Total::COLUMN);
    let mut rows: Vec<Counted<M>> = rows.into_model().all(database.reader()).await?;
    let next_cursor = page.next_cursor(&mut rows, |counted| key(&counted.row))?;
    let total = match rows.first() {
        Some(counted) => counted.total,
        None if page.offset == 0 && page.after.is_none() => Total::default(),
        // The page begins after the last row.
        None => {
            let counted = database.reader().query_one(Query::select().expr_as(total, Total::COLUMN)).await?;
            counted.map(|row| Total::from_query_result(&row, "")).transpose()?.unwrap_or_default()
        }
    };
    Ok(Found { total: total.0, rows: rows.into_iter().map(|counted| counted.row).collect(), next_cursor })
}

/// SQL expression for the number of rows of a list. `column` can be any column of the list.
pub fn count<E: EntityTrait>(wanted: &Select<E>, column: E::Column) -> Expr {
    let rows = wanted.clone().select_only().column(column).into_query();
    Query::select().expr(Expr::col(Asterisk).count()).from_subquery(rows, "list").take().into()
}

/// A row of a page, with the number of rows in the whole list.
struct Counted<M> {
    row: M,
    total: Total,
}

impl<M: FromQueryResult> FromQueryResult for Counted<M> {
    fn from_query_result(result: &QueryResult, prefix: &str) -> Result<Self, DbErr> {
        let total = Total::from_query_result(result, prefix)?;
        Ok(Self { row: M::from_query_result(result, prefix)?, total })
    }
}

/// Number of rows in a list.
#[derive(Clone, Copy, Default)]
struct Total(u64);

impl Total {
    /// Its name in a statement.
    const COLUMN: &str = "rows_in_list";
}

impl FromQueryResult for Total {
    fn from_query_result(result: &QueryResult, prefix: &str) -> Result<Self, DbErr> {
        let total: i64 = result.try_get(prefix, Self::COLUMN)?;
        let error = |_| DbErr::Custom(format!("a list has {total} rows, which is negative"));
        u64::try_from(total).map(Self).map_err(error)
    }
}

/// A time in an answer: milliseconds in a row, ISO 8601 in JSON. The API description knows it by its name, which is that
/// of chrono's type.
#[derive(Debug, Clone, Copy, DeriveValueType)]
pub struct DateTime(pub i64);

impl From<Timestamp> for DateTime {
    fn from(at: Timestamp) -> Self {
        Self(at.as_millis())
    }
}

impl Serialize for DateTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Timestamp(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Page<NewestKey>, ApiError> {
        Page::read_after("payments", QueryFields::of(&format!("/?{query}").parse().unwrap()), query.contains("after="))
    }

    fn cursor(list: &'static str) -> String {
        let page = Page { list, limit: 1, offset: 0, after: None };
        page.next_cursor(&mut vec![1, 2], |row| (i64::from(*row), "pay_1".to_owned())).unwrap().unwrap()
    }

    #[test]
    fn a_cursor_is_read_by_its_list_alone() {
        let page = read(&format!("cursor={}", cursor("payments"))).unwrap();
        assert_eq!((page.limit, page.offset, page.after), (50, 0, Some((1, "pay_1".to_owned()))));
        let another_version = BASE64_URL_SAFE_NO_PAD.encode(r#"[2,"payments",[1,"pay_1"]]"#);
        let another_key = BASE64_URL_SAFE_NO_PAD.encode(r#"[1,"payments",7]"#);
        let escaped = BASE64_URL_SAFE_NO_PAD.encode(r#"[1,"payments",[1,"\u0000"]]"#);
        for (query, faults) in [
            (format!("cursor={}", cursor("payouts")), "cursor: invalid_cursor"),
            (format!("cursor={another_version}"), "cursor: invalid_cursor"),
            (format!("cursor={another_key}"), "cursor: invalid_cursor"),
            (format!("cursor={escaped}"), "cursor: invalid_cursor"),
            ("cursor=!".to_owned(), "cursor: invalid_cursor"),
            (format!("cursor={}&offset=1", cursor("payments")), "offset: not_with_cursor"),
            (format!("cursor={}&after=pay_1", cursor("payments")), "cursor: not_with_after"),
            ("after=pay_1&offset=1".to_owned(), "offset: not_with_after"),
        ] {
            let Err(ApiError::BadParameters(errors)) = read(&query) else { panic!("accepted {query}") };
            let found: Vec<_> = errors.iter().map(|error| format!("{}: {}", error.field, error.code)).collect();
            assert_eq!(found.join(", "), faults, "{query}");
        }
    }

    #[test]
    fn the_last_page_has_no_cursor() {
        let page: Page<i64> = Page { list: "payments", limit: 2, offset: 0, after: None };
        let mut rows = vec![1, 2];
        assert_eq!(page.next_cursor(&mut rows, |row| *row).unwrap(), None);
        rows.push(3);
        assert!(page.next_cursor(&mut rows, |row| *row).unwrap().is_some());
        assert_eq!(rows, [1, 2]);
    }
}
