//! `GET /api/v1/customers`.

use std::str::FromStr;

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use payferry_accounts::search::contains;
use payferry_domain::{PspId, Timestamp};
use payferry_entities::Database;
use payferry_entities::customers::{Column, Entity};
use payferry_httpkit::{Answer, ApiError, Caller, PageQuery, Problem, QueryFields, Read, read};
use sea_orm::{
    ColumnTrait, DbBackend, DbErr, EntityTrait, FromQueryResult, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect,
    Select,
};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::view::CustomerSummary;
use crate::http::lists::PageParams;
use crate::http::state::AppState;

/// Filters of the list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CustomerFilters {
    /// Text that the email address contains, ignoring case.
    #[param(max_length = 255)]
    pub search: Option<String>,
    /// active or inactive.
    pub status: Option<String>,
}

/// A page of customers.
#[derive(Serialize, ToSchema)]
pub struct CustomerList {
    message: &'static str,
    /// Number of customers in the whole list.
    total: u64,
    limit: u64,
    offset: u64,
    /// Newest first.
    customers: Vec<CustomerSummary>,
}

/// List customers
///
/// Newest first.
#[utoipa::path(
    get, path = "/api/v1/customers", tag = "Customers", operation_id = "listCustomers",
    params(CustomerFilters, PageParams),
    responses(
        (status = 200, description = "A page of customers.", body = CustomerList),
        (status = 400, description = "Parameters that cannot be read, all named.", body = Problem),
    ),
)]
pub async fn list(State(app): State<AppState>, caller: Caller<Read>, uri: Uri) -> Result<Response, ApiError> {
    let mut query = QueryFields::of(&uri);
    let search = query.optional("search", |text| read::text(&text.into()));
    let status = query.optional("status", |text| read::name::<Status>(&text.into(), "active, inactive"));
    let page = query.page();
    query.finish()?;
    let wanted = wanted(app.database().backend(), caller.psp_id, search.as_deref(), status);
    let (total, rows) = read_page(app.database(), wanted, page).await?;
    let customers = rows.into_iter().map(CustomerSummary::from).collect();
    let list = CustomerList { message: "Customers", total, limit: page.limit, offset: page.offset, customers };
    Ok(Answer::ok(&list)?.into_response())
}

/// The values of the parameter `status`.
#[derive(Clone, Copy)]
enum Status {
    Active,
    Inactive,
}

impl FromStr for Status {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "active" => Ok(Self::Active),
            "inactive" => Ok(Self::Inactive),
            _ => Err(()),
        }
    }
}

/// The columns of a summary, without the encrypted ones.
#[derive(FromQueryResult)]
struct Row {
    id: String,
    psp_id: String,
    kind: String,
    email: String,
    country: String,
    kyc_status: String,
    is_active: bool,
    created_at: i64,
    updated_at: i64,
}

const COLUMNS: [Column; 9] = [
    Column::Id,
    Column::PspId,
    Column::Kind,
    Column::Email,
    Column::Country,
    Column::KycStatus,
    Column::IsActive,
    Column::CreatedAt,
    Column::UpdatedAt,
];

fn wanted(backend: DbBackend, psp_id: PspId, search: Option<&str>, status: Option<Status>) -> Select<Entity> {
    let mut wanted = Entity::find().filter(Column::PspId.eq(psp_id.to_string()));
    if let Some(search) = search {
        wanted = wanted.filter(contains(backend, Column::EmailSearch, search.to_lowercase()));
    }
    match status {
        Some(Status::Active) => wanted = wanted.filter(Column::IsActive.eq(true)),
        Some(Status::Inactive) => wanted = wanted.filter(Column::IsActive.eq(false)),
        None => {}
    }
    wanted
}

/// Reads a page and the total. A page that is not full gives the total without a count.
async fn read_page(database: &Database, wanted: Select<Entity>, page: PageQuery) -> Result<(u64, Vec<Row>), DbErr> {
    let rows: Vec<Row> = wanted
        .clone()
        .order_by_desc(Column::CreatedAt)
        .order_by_desc(Column::Id)
        .limit(page.limit)
        .offset(page.offset)
        .select_only()
        .columns(COLUMNS)
        .into_model()
        .all(database.reader())
        .await?;
    let read = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    let is_last = read < page.limit && (read > 0 || page.offset == 0);
    let total = if is_last { page.offset + read } else { wanted.count(database.reader()).await? };
    Ok((total, rows))
}

impl From<Row> for CustomerSummary {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            created_at: Timestamp(row.created_at).to_string(),
            updated_at: Timestamp(row.updated_at).to_string(),
            country: row.country,
            email: row.email,
            r#type: row.kind,
            is_active: row.is_active,
            kyc_status: row.kyc_status,
            psp_id: row.psp_id,
        }
    }
}
