//! `GET /merchants` and `GET /merchants/{merchant_id}`.

use axum::extract::State;
use axum::http::Uri;
use payferry_domain::{MerchantId, Timestamp};
use payferry_entities::merchants::{Column, Entity, Model};
use payferry_httpkit::{Answer, ApiError, Caller, Path, Problem, QueryFields, Read};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::lists::{PageParams, read_page};
use crate::http::state::AppState;

/// A merchant.
#[derive(Debug, Serialize, ToSchema)]
pub struct Merchant {
    /// Permanent id, assigned by the service.
    #[schema(example = "merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    pub merchant_id: String,
    /// The PSP's own reference, unique per PSP.
    pub external_id: String,
    /// Business name.
    pub name: String,
    /// Contact email address.
    pub email: String,
    /// Legal or tax registration; cannot change.
    pub business_id: String,
    /// ISO 8601.
    #[schema(format = "date-time")]
    pub created_at: String,
    /// ISO 8601.
    #[schema(format = "date-time")]
    pub updated_at: String,
}

impl From<Model> for Merchant {
    fn from(row: Model) -> Self {
        Self {
            merchant_id: row.id,
            external_id: row.external_id,
            name: row.name,
            email: row.email,
            business_id: row.business_id,
            created_at: Timestamp(row.created_at).to_string(),
            updated_at: Timestamp(row.updated_at).to_string(),
        }
    }
}

/// A page of merchants.
#[derive(Serialize, ToSchema)]
pub struct MerchantList {
    message: &'static str,
    /// Number of merchants in the whole list.
    total: u64,
    limit: u64,
    offset: u64,
    /// Newest first.
    merchants: Vec<Merchant>,
}

/// List merchants
///
/// Newest first.
#[utoipa::path(
    get, path = "/merchants", tag = "Merchants", operation_id = "listMerchants", params(PageParams),
    responses(
        (status = 200, description = "A page of merchants.", body = MerchantList),
        (status = 400, description = "Parameters that cannot be read, all named.", body = Problem),
    ),
)]
pub async fn list(State(app): State<AppState>, caller: Caller<Read>, uri: Uri) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
    let page = query.page();
    query.finish()?;
    let own = Entity::find().filter(Column::PspId.eq(caller.psp_id.to_string()));
    let (total, rows) = read_page(app.database(), own, [Column::CreatedAt, Column::Id], page).await?;
    let merchants = rows.into_iter().map(|row: Model| row.into()).collect();
    Answer::ok(&MerchantList { message: "Merchants", total, limit: page.limit, offset: page.offset, merchants })
}

/// One merchant.
#[derive(Serialize, ToSchema)]
pub struct MerchantAnswer {
    message: &'static str,
    merchant: Merchant,
}

/// Read a merchant
#[utoipa::path(
    get, path = "/merchants/{merchant_id}", tag = "Merchants", operation_id = "getMerchant",
    params(("merchant_id" = String, Path, description = "The id from `sync`.")),
    responses(
        (status = 200, description = "The merchant.", body = MerchantAnswer),
        (status = 404, description = "There is none with this id.", body = Problem),
    ),
)]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path(merchant_id): Path<String>,
) -> Result<Answer, ApiError> {
    let missing = || ApiError::NotFound("merchant");
    let merchant_id: MerchantId = merchant_id.parse().map_err(|_| missing())?;
    let row = Entity::find_by_id(merchant_id.to_string())
        .filter(Column::PspId.eq(caller.psp_id.to_string()))
        .one(app.database().reader())
        .await?
        .ok_or_else(missing)?;
    Answer::ok(&MerchantAnswer { message: "Merchant", merchant: row.into() })
}
