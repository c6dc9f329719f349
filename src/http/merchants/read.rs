//! `GET /merchants` and `GET /merchants/{merchant_id}`.

use axum::extract::State;
use axum::http::Uri;
use payferry_domain::MerchantId;
use payferry_entities::merchants::{Column, Entity};
use payferry_httpkit::{Answer, ApiError, Caller, Path, Problem, QueryFields, Read};
use sea_orm::{ColumnTrait, DerivePartialModel, EntityTrait, QueryFilter};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::lists::{PageParams, iso, read_page};
use crate::http::state::AppState;

/// A merchant.
#[derive(Debug, Serialize, ToSchema, DerivePartialModel)]
#[sea_orm(entity = "Entity")]
pub struct Merchant {
    /// Permanent id, assigned by the service.
    #[schema(example = "merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    #[sea_orm(from_col = "id")]
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
    #[serde(serialize_with = "iso")]
    #[schema(value_type = String, format = "date-time")]
    pub created_at: i64,
    /// ISO 8601.
    #[serde(serialize_with = "iso")]
    #[schema(value_type = String, format = "date-time")]
    pub updated_at: i64,
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
    let (total, merchants) = read_page(app.database(), own, [Column::CreatedAt, Column::Id], page).await?;
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
    let merchant = Entity::find_by_id(merchant_id.to_string())
        .filter(Column::PspId.eq(caller.psp_id.to_string()))
        .into_partial_model()
        .one(app.database().reader())
        .await?
        .ok_or_else(missing)?;
    Answer::ok(&MerchantAnswer { message: "Merchant", merchant })
}
