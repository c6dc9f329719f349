//! The PSP's policies: those it decides, and those the operator has set for it. `GET` and `PATCH /api/v1/settings`.
//!
//! `payferry_domain` applies policies to payments, and `payferry_accounts::tenants` stores them.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use payferry_accounts::tenants::{self, PolicyChange, PspRecord};
use payferry_domain::Chain;
use payferry_domain::payment::{OverpaymentPolicy, PayerRefunds};
use payferry_evm::ChainSpec;
use payferry_httpkit::extract::RequestBody as _;
use payferry_httpkit::extract::field::optional_object;
use payferry_httpkit::lists::DateTime;
use payferry_httpkit::{Answer, ApiError, Caller, Fault, Full, Problem, Read, Submission, request};
use payferry_journal::audit::Actor;
use payferry_journal::psps::wallets::Wallets;
use payferry_journal::psps::{Ceilings, EventFamilies, PspPolicies};
use payferry_operator::psps::policies::{self as fields, PolicyFields, Tier};
use payferry_operator::psps::withdrawal::{self, WalletRecord};
use payferry_operator::tenant_failure;
use serde::Serialize;
use utoipa::ToSchema;

use super::checkout::{CheckoutRecord, CheckoutRequest};
use super::state::{AppShared, AppState};

record! {
    fn of(app: &AppShared, psp: &PspRecord, wallets: &Wallets) {
        let policies = &psp.policies;
        let finality = app.system.chains().running().map(|spec| (spec.chain, FinalityRecord::of(policies, spec)));
    }

    /// Settings of the PSP's payments, as decided by the PSP and the operator.
    #[derive(Debug)]
    pub struct SettingsRecord {
        /// The account.
        #[schema(example = "psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = psp.id.to_string(),
        /// Accepted underpayment, as an amount; never more than the due amount.
        #[schema(example = "0.05")]
        tolerance: String = policies.tolerance.absolute.to_string(),
        /// Accepted underpayment, in basis points of the due amount; the greater of the two applies.
        tolerance_bps: u16 = policies.tolerance.bps,
        /// Surplus that is excess instead of an overpayment, as an amount.
        #[schema(example = "0.01")]
        overpayment_tolerance: String = policies.overpayment_tolerance.absolute.to_string(),
        /// Surplus that is excess instead of an overpayment, in basis points of the due amount; the greater of the two
        /// applies.
        overpayment_tolerance_bps: u16 = policies.overpayment_tolerance.bps,
        /// Treatment of overpayments: `hold`, `accept` or `refund_excess`.
        #[schema(value_type = String, example = "hold")]
        overpayment: OverpaymentPolicy = policies.overpayment,
        /// True if refunds without an address may go to the sender.
        refund_to_sender: bool = policies.refund_to_sender,
        /// Requests of payers for refunds: `off`, `approve` (every request waits for you) or `sender` (signed ones are carried
        /// out at once).
        #[schema(value_type = String, example = "approve")]
        payer_refunds: PayerRefunds = policies.payer_refunds,
        /// True if every payment must name its customer.
        require_customer: bool = policies.require_customer,
        /// Transfers below this are ignored.
        #[schema(example = "0.001")]
        dust_floor: String = policies.dust_floor.to_string(),
        /// Which event names are sent: `both`, `payment` or `payin`. `payment.*` and `payin.*` are two names of the same
        /// event.
        #[schema(value_type = String, example = "both")]
        event_families: EventFamilies = policies.event_families,
        /// Required finality on each running chain.
        #[schema(value_type = BTreeMap<String, FinalityRecord>)]
        finality: BTreeMap<Chain, FinalityRecord> = finality.collect(),
        /// Appearance of the payer's page.
        checkout: CheckoutRecord = CheckoutRecord::of(app, &policies.checkout),
        /// The treasury's share of each settlement, in basis points. Set by the operator.
        fee_bps: u16 = policies.fee_bps.get(),
        /// Limits of outbound transfers. Set by the operator.
        limits: LimitsRecord = LimitsRecord::of(policies.ceilings(app.system.psps().ceilings())),
        /// The account's current and pending withdrawal wallets. Set by the operator.
        withdrawal_wallets: Vec<WalletRecord> = WalletRecord::of_all(wallets),
        /// When the account was created.
        created_at: DateTime = psp.created_at.into(),
        updated_at: DateTime = psp.updated_at.into(),
    }
}

record! {
    fn of(policies: &PspPolicies, spec: &ChainSpec) {}

    /// Required finality on one chain.
    #[derive(Debug)]
    pub struct FinalityRecord {
        /// Bands of ascending amounts; the last has no upper bound.
        tiers: Vec<Tier> = fields::shown(&policies.finality_on(spec.chain, spec.finality, spec.finality_least)),
        /// True if these are the operator's bands, which apply until the account sets its own.
        is_default: bool = !policies.finality.contains_key(&spec.chain),
        /// The minimum that the account's own bands must require.
        least: Vec<Tier> = fields::shown(&spec.finality_least),
    }
}

record! {
    fn of(ceilings: Ceilings) {}

    /// Limits of outbound transfers.
    #[derive(Debug)]
    #[allow(clippy::struct_field_names, reason = "the names of the interface")]
    pub struct LimitsRecord {
        /// Maximum amount of a single payout, withdrawal or transfer.
        #[schema(example = "10000.00")]
        send_max: String = ceilings.send_max.to_string(),
        /// Maximum amount of payouts and withdrawals in a token on one UTC day, over all chains.
        #[schema(example = "50000.00")]
        send_daily_max: String = ceilings.send_daily_max.to_string(),
        /// Maximum amount of refunds in a token to other addresses than the payer's on one UTC day, over all chains.
        /// Refunds above it, or above `send_max`, wait for the operator's approval.
        #[schema(example = "1000.00")]
        refund_elsewhere_daily_max: String = ceilings.refund_elsewhere_daily_max.to_string(),
    }
}

/// The account's settings.
#[derive(Serialize, ToSchema)]
pub struct SettingsAnswer {
    message: &'static str,
    #[serde(flatten)]
    record: SettingsRecord,
    /// The same fields once more, under their earlier name.
    settings: SettingsRecord,
}

impl SettingsAnswer {
    /// The settings as they apply on this node.
    pub(super) async fn read(app: &AppShared, psp: &PspRecord, message: &'static str) -> Result<Self, ApiError> {
        let wallets = withdrawal::list(app.database(), psp.id, app.clock().real_now()).await?;
        let record = || SettingsRecord::of(app, psp, &wallets);
        Ok(Self { message, record: record(), settings: record() })
    }

    /// The message after a change.
    pub(super) const fn message(is_changed: bool) -> &'static str {
        if is_changed { "Settings changed" } else { "Settings unchanged" }
    }
}

/// Read the settings
///
/// The account's own policies, and the settings that the operator decided for the account. Returns the record itself,
/// and once more in `settings`.
#[utoipa::path(
    get, path = "/api/v1/settings", tag = "Settings", operation_id = "getSettings",
    responses((status = 200, description = "The settings.", body = SettingsAnswer)),
)]
pub async fn show(State(app): State<AppState>, caller: Caller<Read>) -> Result<Answer, ApiError> {
    let psp = tenants::find_psp(app.database(), caller.psp_id).await.map_err(tenant_failure)?;
    Answer::ok(&SettingsAnswer::read(&app, &psp, "Settings").await?)
}

/// The field with the appearance of the payer's page.
const CHECKOUT: &str = "checkout";

/// Settings that only the operator can set.
const READ_ONLY: [&str; 7] = [
    "fee_bps",
    "limits",
    "send_max",
    "send_daily_max",
    "refund_elsewhere_daily_max",
    "withdrawal_wallets",
    "withdrawal_wallet",
];

request! {
    /// Settings to change; the others stay. No other field is accepted.
    pub struct SettingsRequest refusing(not_settable) {
        ..policies: PolicyFields,
        /// Appearance of the payer's page.
        checkout: Option<CheckoutRequest> = optional_object(),
    }
}

/// Change the settings
///
/// They apply to payments created from then on (`event_families` and `checkout` to all), at once on this node and within a
/// second on others. Each change is written to the audit log. Requires a key with full scope.
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
        body.only(&SettingsRequest::names(), not_settable);
        let policies = fields::policies(body, app.system.chains());
        let checkout = body.optional_object(CHECKOUT, CheckoutRequest::read).map(CheckoutRequest::change);
        Some(PolicyChange { checkout: checkout.unwrap_or_default(), ..policies })
    })?;
    let transaction = app.database().begin().await?;
    let (by, now) = (Actor::ApiKey(request.key_id), app.clock().real_now());
    let (psp, is_changed) =
        tenants::change_psp_in(&transaction, request.psp_id, None, change, &by, now).await.map_err(tenant_failure)?;
    let answer = Answer::ok(&SettingsAnswer::read(&app, &psp, SettingsAnswer::message(is_changed)).await?)?;
    let answered = request.idempotency.commit(transaction, answer).await?;
    // Applies here at once. Other nodes see it when their cached record expires.
    app.system.psps().forget(request.psp_id).await;
    Ok(answered)
}

/// The fault of another field: silently ignoring one would mislead the caller.
fn not_settable(name: &str) -> Fault {
    if READ_ONLY.contains(&name) {
        return Fault::new("read_only", "is set by the operator");
    }
    let known = SettingsRequest::names().join(", ");
    Fault::new("unknown_field", format!("is not a known setting; known settings are {known}"))
}
