//! `PATCH /api/v1/settings`.

use axum::extract::State;
use axum::response::Response;
use payferry_accounts::tenants;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Full;
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Fault, Fields, Submission};
use payferry_journal::audit::Actor;
use payferry_operator::psps::policies::{self as fields, TiersRequest};
use payferry_operator::tenant_failure;
use utoipa::ToSchema;

use super::SettingsRecord;
use super::show::SettingsAnswer;
use crate::http::state::AppState;

/// Settings that only the operator can set.
const READ_ONLY: [&str; 6] =
    ["fee_bps", "limits", "send_max", "send_daily_max", "withdrawal_wallets", "withdrawal_wallet"];

/// Settings to change; the others stay. No other field is accepted.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it describes the body; `fields` reads it")]
pub struct SettingsRequest {
    /// Accepted underpayment, as an amount.
    #[schema(example = "0.05")]
    tolerance: Option<String>,
    /// Accepted underpayment, in basis points of the due amount; the greater of the two applies.
    #[schema(minimum = 0, maximum = 10_000)]
    tolerance_bps: Option<u16>,
    /// `hold`: the payment is mismatched and you decide. `accept`: everything is settled. `refund_excess`: the due
    /// amount is settled and the excess is refunded to the sender, if `refund_to_sender` is on and one plain account
    /// sent everything. `accept` and `refund_excess` notify `payment.mismatched`, then `payment.confirmed`.
    #[schema(example = "accept")]
    overpayment: Option<String>,
    /// True if refunds without an address may go to the sender.
    refund_to_sender: Option<bool>,
    /// True if every payment must name its customer.
    require_customer: Option<bool>,
    /// Transfers below this are ignored; at most 1.
    #[schema(example = "0.001")]
    dust_floor: Option<String>,
    /// `both`, `payment` or `payin`. An event that only one of the families has is always sent.
    #[schema(example = "payment")]
    event_families: Option<String>,
    /// Required finality, by chain: one to three bands of ascending amounts, nowhere weaker than the chain's `least`;
    /// or `"default"`, the operator's bands.
    #[schema(value_type = Option<Object>, example = json!({"base": [{"below": "500", "wait": 10}, {"wait": "finalized"}]}))]
    finality: Option<std::collections::BTreeMap<String, TiersRequest>>,
}

/// Change the settings
///
/// They apply to payments created from then on (`event_families` to all), at once on this node and within a second on
/// others. Each change is written to the audit log. Requires a key with full scope.
#[utoipa::path(
    patch, path = "/api/v1/settings", tag = "Settings", operation_id = "changeSettings", request_body = SettingsRequest,
    responses(
        (status = 200, description = "All settings after the change.", body = SettingsAnswer),
        (status = 422, description = "A value is refused, or a setting is unknown or can only be set by the operator: \
            all are named.",
            body = Problem),
    ),
)]
pub async fn change(State(app): State<AppState>, request: Submission<Full>) -> Result<Response, ApiError> {
    let change = request.read(|body| {
        refuse_others(body);
        Some(fields::policies(body, app.system.chains()))
    })?;
    let transaction = app.database().begin().await?;
    let (by, now) = (Actor::ApiKey(request.key_id), app.clock().real_now());
    let (psp, is_changed) =
        tenants::change_psp_in(&transaction, request.psp_id, None, change, &by, now).await.map_err(tenant_failure)?;
    let message = if is_changed { "Settings changed" } else { "Settings unchanged" };
    let answer = Answer::ok(&SettingsAnswer { message, settings: SettingsRecord::of(&app, &psp).await? })?;
    let answered = request.idempotency.commit(&app, transaction, answer).await?;
    // Applies here at once. Other nodes see it when their cached record expires.
    app.system.psps().forget(request.psp_id).await;
    Ok(answered)
}

/// Refuses other fields: silently ignoring one would mislead the caller.
fn refuse_others(body: &Fields<'_>) {
    for name in body.names().filter(|name| !fields::POLICIES.contains(name)) {
        let fault = if READ_ONLY.contains(&name) {
            Fault::new("read_only", "is set by the operator")
        } else {
            Fault::new(
                "unknown_field",
                format!("is not a known setting; known settings are {}", fields::POLICIES.join(", ")),
            )
        };
        body.fault(name, fault);
    }
}
