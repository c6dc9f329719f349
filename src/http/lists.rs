//! Pages of lists: their parameters, readers of filters, times, and the reader that all lists without a cursor share.

use std::str::FromStr;

use payferry_domain::ids::IdError;
use payferry_domain::{Chain, Timestamp, Token};
use payferry_entities::Database;
use payferry_httpkit::{Fault, PageQuery, read};
use sea_orm::{
    DbErr, DeriveValueType, EntityTrait, PaginatorTrait, PartialModelTrait, QueryOrder, QuerySelect, Select,
};
use serde::{Serialize, Serializer};
use utoipa::IntoParams;

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
}

/// Reads the id of a filter and returns it as columns store it.
pub(super) fn id<T: FromStr<Err = IdError> + ToString>(text: &str) -> Result<String, Fault> {
    read::id::<T>(&text.into()).map(|id| id.to_string())
}

/// Reads the text of a filter.
pub(super) fn text(text: &str) -> Result<String, Fault> {
    read::text(&text.into())
}

/// Reads the chain of a filter.
pub(super) fn chain(text: &str) -> Result<Chain, Fault> {
    read::name(&text.into(), "base, polygon, arbitrum")
}

/// Reads the token of a filter.
pub(super) fn token(text: &str) -> Result<Token, Fault> {
    read::name(&text.into(), "USDC, USDT")
}

/// Reads the time of a filter.
pub(super) fn moment(text: &str) -> Result<Timestamp, Fault> {
    read::moment(&text.into())
}

/// Reads a page of rows in the descending order of two columns, and the number of all rows. A page that is not full gives
/// the number without a count.
pub(super) async fn read_page<E: EntityTrait, M: PartialModelTrait + Send + Sync>(
    database: &Database,
    wanted: Select<E>,
    order: [E::Column; 2],
    page: PageQuery,
) -> Result<(u64, Vec<M>), DbErr>
where
    E::Model: Send + Sync,
{
    let [first, then] = order;
    let rows = wanted.clone().order_by_desc(first).order_by_desc(then).limit(page.limit).offset(page.offset);
    let rows: Vec<M> = rows.into_partial_model().all(database.reader()).await?;
    let read = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    let is_last = read < page.limit && (read > 0 || page.offset == 0);
    let total = if is_last { page.offset + read } else { wanted.count(database.reader()).await? };
    Ok((total, rows))
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
