//! `GET /merchants/{merchant_id}`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_domain::MerchantId;
use payferry_entities::merchants::{Column, Entity};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::Path;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde::Serialize;
use utoipa::ToSchema;

use super::Merchant;
use crate::http::state::AppState;

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
) -> Result<Response, ApiError> {
    let missing = || ApiError::NotFound("merchant");
    let merchant_id: MerchantId = merchant_id.parse().map_err(|_| missing())?;
    let row = Entity::find_by_id(merchant_id.to_string())
        .filter(Column::PspId.eq(caller.psp_id.to_string()))
        .one(app.database().reader())
        .await?
        .ok_or_else(missing)?;
    Ok(Answer::ok(&MerchantAnswer { message: "Merchant", merchant: row.into() })?.into_response())
}
