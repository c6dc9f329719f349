//! `GET /merchants`.

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use payferry_entities::merchants::{Column, Entity};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::QueryFields;
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Serialize;
use utoipa::ToSchema;

use super::Merchant;
use crate::http::openapi::PageParams;
use crate::http::state::AppState;

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
pub async fn list(State(app): State<AppState>, caller: Caller<Read>, uri: Uri) -> Result<Response, ApiError> {
    let mut query = QueryFields::of(&uri);
    let page = query.page();
    query.finish()?;
    let own = Entity::find().filter(Column::PspId.eq(caller.psp_id.to_string()));
    let total = own.clone().count(app.database().reader()).await?;
    let rows = own
        .order_by_desc(Column::CreatedAt)
        .order_by_desc(Column::Id)
        .limit(page.limit)
        .offset(page.offset)
        .all(app.database().reader())
        .await?;
    let merchants = rows.into_iter().map(Merchant::from).collect();
    let list = MerchantList { message: "Merchants", total, limit: page.limit, offset: page.offset, merchants };
    Ok(Answer::ok(&list)?.into_response())
}
