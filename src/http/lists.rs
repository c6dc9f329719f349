//! Pages of lists: their parameters, and the reader that all lists without a cursor share.

use payferry_entities::Database;
use payferry_httpkit::PageQuery;
use sea_orm::{DbErr, EntityTrait, PaginatorTrait, PartialModelTrait, QueryOrder, QuerySelect, Select};
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
