//! `GET /api/v1/settings`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_accounts::tenants;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::ApiError;
use payferry_operator::tenant_failure;
use serde::Serialize;
use utoipa::ToSchema;

use super::SettingsRecord;
use crate::http::state::AppState;

/// The account's settings.
#[derive(Serialize, ToSchema)]
pub struct SettingsAnswer {
    pub(super) message: &'static str,
    pub(super) settings: SettingsRecord,
}

/// Read the settings
///
/// The account's own policies, and the settings that the operator decided for the account.
#[utoipa::path(
    get, path = "/api/v1/settings", tag = "Settings", operation_id = "getSettings",
    responses((status = 200, description = "The settings.", body = SettingsAnswer)),
)]
pub async fn show(State(app): State<AppState>, caller: Caller<Read>) -> Result<Response, ApiError> {
    let psp = tenants::find_psp(app.database(), caller.psp_id).await.map_err(tenant_failure)?;
    Ok(Answer::ok(&SettingsAnswer { message: "Settings", settings: SettingsRecord::of(&app, &psp).await? })?
        .into_response())
}
