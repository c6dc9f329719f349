//! `PATCH /api/v1/settings`.

use axum::extract::State;
use axum::response::Response;
use payferry_accounts::tenants;
use payferry_actors::customers::audit::Actor;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Full;
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Fault, Fields, Submission};
use payferry_operator::psps::policies as fields;
use payferry_operator::psps::tiers::TiersRequest;
use payferry_operator::tenant_failure;
use utoipa::ToSchema;

use super::SettingsRecord;
use super::show::SettingsAnswer;
use crate::http::state::AppState;

/// Settings that the operator sets.
const READ_ONLY: [&str; 6] =
    ["fee_bps", "limits", "send_max", "send_daily_max", "withdrawal_wallets", "withdrawal_wallet"];

/// Settings to change; the others stay. No other field is accepted.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it describes the body; `fields` reads it")]
pub struct SettingsRequest {
    /// How much less than due still pays, as an amount.
    #[schema(example = "0.05")]
    tolerance: Option<String>,
    /// How much less than due still pays, in basis points; the greater of the two holds.
    #[schema(minimum = 0, maximum = 10_000)]
    tolerance_bps: Option<u16>,
    /// `hold`: the payment is mismatched and you decide. `accept`: all of it is settled. `refund_excess`: the amount is
    /// settled and the rest goes back to the sender, if `refund_to_sender` is on and one plain account sent everything. Both
    /// are told as `payment.mismatched`, then `payment.confirmed`.
    #[schema(example = "accept")]
    overpayment: Option<String>,
    /// Whether refunds may go to the sender when no address is given.
    refund_to_sender: Option<bool>,
    /// Whether every payment must name its customer.
    require_customer: Option<bool>,
    /// Transfers below this are ignored; at most 1.
    #[schema(example = "0.001")]
    dust_floor: Option<String>,
    /// `both`, `payment` or `payin`. What only one of the families has a name for is always sent.
    #[schema(example = "payment")]
    event_families: Option<String>,
    /// What "final" means, by chain: one to three bands of amounts, rising, nowhere looser than `least` of the chain; or
    /// `"default"`, the operator's.
    #[schema(value_type = Option<Object>, example = json!({"base": [{"below": "500", "wait": 10}, {"wait": "finalized"}]}))]
    finality: Option<std::collections::BTreeMap<String, TiersRequest>>,
}

/// Change the settings
///
/// They hold for payments made from then on (`event_families` for all), at once on this node and within a second on others.
/// Each change is written to the audit log. Needs a key with full scope.
#[utoipa::path(
    patch, path = "/api/v1/settings", tag = "Settings", operation_id = "changeSettings", request_body = SettingsRequest,
    responses(
        (status = 200, description = "All settings, as they are now.", body = SettingsAnswer),
        (status = 422, description = "A value is refused, or there is no such setting, or it is the operator's to set: all are named.",
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
    // Here at once; other nodes see it when what they remember is too old.
    app.system.psps().forget(request.psp_id).await;
    Ok(answered)
}

/// A change that silently does nothing is worse than none.
fn refuse_others(body: &Fields<'_>) {
    for name in body.names().filter(|name| !fields::POLICIES.contains(name)) {
        let fault = if READ_ONLY.contains(&name) {
            Fault::new("read_only", "is set by the operator")
        } else {
            Fault::new("unknown_field", format!("is no setting; there are {}", fields::POLICIES.join(", ")))
        };
        body.fault(name, fault);
    }
}
