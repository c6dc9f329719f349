//! `/ops/psps`: PSPs and their policies.

pub mod keys;
pub(crate) mod page;
pub mod policies;
pub mod withdrawal;

use std::collections::BTreeMap;

use payferry_accounts::tenants::{
    self, DEFAULT_WORD, LimitChange, Name, OwnOrDefault, PolicyChange, PspRecord, Slice, TenantError,
};
use payferry_actors::chains::Chains;
use payferry_domain::payment::{OverpaymentPolicy, PayerRefunds};
use payferry_domain::{Amount, Chain, FeeBps, PspId, Timestamp};
use payferry_entities::Transaction;
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::lists::{DateTime, Page, PageParams};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{
    Answer, ApiError, Fault, Fields, JsonBody, Path, Problem, QueryFields, RequestBody as _, Rule, request, rule,
};
use payferry_journal::audit::Actor;
use payferry_journal::psps::{EventFamilies, PspPolicies};
use payferry_runtime::request;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::approvals;
use crate::approvals::ApprovalRecord;
use crate::approvals::action::ApprovalAction;
use crate::approvals::store::{Approval, Proposal};
use crate::input::{NAME, id_of, tenant_failure, unknown};
use crate::psps::policies as fields;
use crate::psps::policies::{BPS_MAX, FinalityChange, PolicyFields, Tier, basis_points, some_amount};

/// The treasury's share, in basis points.
const FEE: Rule<FeeBps> = Rule {
    read: |value| {
        let out = || Fault::new("out_of_range", format!("must be between 0 and {BPS_MAX}"));
        FeeBps::new(basis_points(value)?).ok_or_else(out)
    },
    schema: || (fields::BASIS_POINTS.schema)(),
};

/// An amount, or `default` for the configured limit.
const LIMIT: Rule<OwnOrDefault<Amount>> = Rule {
    read: |value| {
        if value == DEFAULT_WORD { Ok(OwnOrDefault::Default) } else { some_amount(value).map(OwnOrDefault::Own) }
    },
    schema: || rule::string().max_length(Some(20)).pattern(Some(r"^(default|(0|[1-9][0-9]*)(\.[0-9]{1,6})?)$")),
};

request! {
    /// Policies of a PSP.
    pub struct PspPolicyFields {
        ..own: PolicyFields,
        /// The treasury's share of each settlement, in basis points.
        fee_bps: Option<FeeBps> = optional(FEE),
        /// Maximum amount of a single outbound transfer; or `default`, the configured limit.
        send_max: Option<OwnOrDefault<Amount>> = optional(LIMIT).example("10000.00"),
        /// Maximum amount of outbound transfers in a token on one UTC day; or `default`.
        send_daily_max: Option<OwnOrDefault<Amount>> = optional(LIMIT).example("50000.00"),
        /// Maximum amount of refunds in a token to other addresses than the payer's on one UTC day; or `default`.
        refund_elsewhere_daily_max: Option<OwnOrDefault<Amount>> = optional(LIMIT).example("1000.00"),
    }
}

request! {
    /// A PSP to create.
    pub struct CreatePspRequest refusing(unknown::<CreatePspRequest>) {
        ..policies: PspPolicyFields,
        name: Name = required(NAME).example("Northern Pay"),
    }
}

request! {
    /// A change of a PSP. Absent and null fields stay unchanged.
    pub struct ChangePspRequest refusing(unknown::<ChangePspRequest>) {
        ..policies: PspPolicyFields,
        name: Option<Name> = optional(NAME).example("Northern Pay"),
    }
}

impl PspPolicyFields {
    fn change(self, finality: FinalityChange) -> PolicyChange {
        let Self { own, fee_bps, send_max, send_daily_max, refund_elsewhere_daily_max } = self;
        let limits = LimitChange { send_max, send_daily_max, refund_elsewhere_daily_max };
        PolicyChange { fee_bps, limits, ..own.change(finality) }
    }
}

record! {
    fn of(psp: PspRecord, operator: &Operator) {
        let policies = psp.policies;
        let ceilings = policies.ceilings(operator.system.psps().ceilings());
    }

    /// A PSP with its policies.
    pub struct PspView {
        #[schema(example = "psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = psp.id.to_string(),
        /// The same as `id`.
        psp_id: String = psp.id.to_string(),
        name: String = psp.name,
        /// The treasury's share of each settlement, in basis points.
        fee_bps: u16 = policies.fee_bps.get(),
        /// Accepted underpayment, as an amount.
        tolerance: String = policies.tolerance.absolute.to_string(),
        /// Accepted underpayment, in basis points of the due amount.
        tolerance_bps: u16 = policies.tolerance.bps,
        /// Surplus that is excess instead of an overpayment, as an amount.
        overpayment_tolerance: String = policies.overpayment_tolerance.absolute.to_string(),
        /// Surplus that is excess instead of an overpayment, in basis points of the due amount.
        overpayment_tolerance_bps: u16 = policies.overpayment_tolerance.bps,
        /// hold, accept or refund_excess.
        #[schema(value_type = String)]
        overpayment: OverpaymentPolicy = policies.overpayment,
        refund_to_sender: bool = policies.refund_to_sender,
        /// off, approve or sender.
        #[schema(value_type = String)]
        payer_refunds: PayerRefunds = policies.payer_refunds,
        require_customer: bool = policies.require_customer,
        dust_floor: String = policies.dust_floor.to_string(),
        /// both, payment or payin.
        #[schema(value_type = String)]
        event_families: EventFamilies = policies.event_families,
        /// Finality tiers that the PSP has overridden, by chain.
        #[schema(value_type = BTreeMap<String, Vec<Tier>>)]
        finality: BTreeMap<Chain, Vec<Tier>> =
            policies.finality.iter().map(|(chain, own)| (*chain, fields::shown(own))).collect(),
        send_max: String = ceilings.send_max.to_string(),
        send_daily_max: String = ceilings.send_daily_max.to_string(),
        refund_elsewhere_daily_max: String = ceilings.refund_elsewhere_daily_max.to_string(),
        created_at: DateTime = psp.created_at.into(),
        updated_at: DateTime = psp.updated_at.into(),
    }
}

/// A page of PSPs.
#[derive(Serialize, ToSchema)]
pub struct PspList {
    total: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Oldest first.
    psps: Vec<PspView>,
}

/// List PSPs
///
/// Oldest first.
#[utoipa::path(
    get, path = "/ops/psps", tag = "Administration", operation_id = "listPsps", params(PageParams),
    responses((status = 200, description = "A page of PSPs.", body = PspList), UnreadableQuery),
)]
pub(crate) async fn list(operator: Operator, query: QueryFields) -> Result<Answer, ApiError> {
    let page = Page::read("psps", query)?;
    let slice = Slice { limit: page.rows_max(), offset: page.offset, after: page.after.clone() };
    let (total, mut psps) = tenants::list_psps(operator.system.database(), slice).await.map_err(tenant_failure)?;
    let next_cursor = page.next_cursor(&mut psps, |psp| (psp.created_at.as_millis(), psp.id.to_string()))?;
    Answer::ok(&PspList { total, next_cursor, psps: psps.into_iter().map(|psp| PspView::of(psp, &operator)).collect() })
}

/// Read a PSP
///
/// Returns the record itself.
#[utoipa::path(
    get, path = "/ops/psps/{psp_id}", tag = "Administration", operation_id = "getPsp",
    params(("psp_id" = String, Path, description = "The id of the PSP.")),
    responses((status = 200, description = "The PSP.", body = PspView)),
)]
pub(crate) async fn get(operator: Operator, Path(psp_id): Path<String>) -> Result<Answer, ApiError> {
    let psp = tenants::find_psp(operator.system.database(), id_of("psp_id", &psp_id)?).await.map_err(tenant_failure)?;
    Answer::ok(&PspView::of(psp, &operator))
}

/// Create a PSP
///
/// There is no idempotency key: after a lost response, check the list first.
#[utoipa::path(
    post, path = "/ops/psps", tag = "Administration", operation_id = "createPsp", request_body = CreatePspRequest,
    responses(
        (status = 201, description = "The PSP.", body = PspView),
        (status = 409, description = "`approval_required`: a limit above the configured one needs a second operator.",
            body = Problem),
    ),
)]
pub(crate) async fn create(operator: Operator, body: JsonBody) -> Result<Answer, ApiError> {
    let (name, change) = body.read(|fields| read_new(fields, operator.system.chains()))?;
    Answer::created(&PspView::of(make(&operator, &name, change).await?, &operator))
}

pub(crate) fn read_new(fields: &Fields<'_>, chains: &Chains) -> Option<(Name, PolicyChange)> {
    let (asked, finality) = (CreatePspRequest::read(fields), fields::finality(fields, chains));
    asked.map(|asked| (asked.name, asked.policies.change(finality)))
}

/// Creates a PSP for the operator. Used by the API and the page.
pub(crate) async fn make(operator: &Operator, name: &Name, change: PolicyChange) -> Result<PspRecord, ApiError> {
    let system = &operator.system;
    let (raised, _) = change.limits.split_raised(&PspPolicies::default(), system.psps().ceilings());
    if operator.config.four_eyes && !raised.is_empty() {
        return Err(ApiError::conflict(
            "approval_required",
            "A limit above the configured one needs a second operator: create the PSP without it, then raise it.",
        ));
    }
    let psp = tenants::create_psp(system.database(), name, change, system.clock().real_now()).await;
    let psp = psp.map_err(tenant_failure)?;
    tracing::info!(psp.id = %psp.id, "operator created PSP {}", psp.id);
    Ok(psp)
}

/// A changed PSP whose raised limits wait for a second operator. Everything else is changed.
#[derive(Serialize, ToSchema)]
pub struct PartlyChangedPsp {
    #[serde(flatten)]
    psp: PspView,
    /// The raised limits.
    approval: ApprovalRecord,
}

/// Change a PSP
///
/// Effective at once on this node, within a second on others.
#[utoipa::path(
    patch, path = "/ops/psps/{psp_id}", tag = "Administration", operation_id = "changePsp",
    request_body = ChangePspRequest,
    params(("psp_id" = String, Path, description = "The id of the PSP.")),
    responses(
        (status = 200, description = "The PSP.", body = PspView),
        (status = 202, description = "Raised limits wait for approval.", body = PartlyChangedPsp),
        (status = 409, description = "`approval_open`: raised limits wait for approval already.", body = Problem),
    ),
)]
pub(crate) async fn change(operator: Operator, Path(psp_id): Path<String>, body: JsonBody) -> Result<Answer, ApiError> {
    let id = id_of("psp_id", &psp_id)?;
    let (name, change) = body.read(|fields| read_change(fields, operator.system.chains()))?;
    let (psp, approval) = set(&operator, id, name.as_ref(), change).await?;
    let psp = PspView::of(psp, &operator);
    let Some(approval) = approval else { return Answer::ok(&psp) };
    let approval = ApprovalRecord::of(&approval, operator.system.clock().real_now());
    Answer::accepted(&PartlyChangedPsp { psp, approval })
}

/// Reads the fields of a changed PSP.
pub(crate) fn read_change(fields: &Fields<'_>, chains: &Chains) -> Option<(Option<Name>, PolicyChange)> {
    let (asked, finality) = (ChangePspRequest::read(fields), fields::finality(fields, chains));
    asked.map(|asked| (asked.name, asked.policies.change(finality)))
}

/// Changes a PSP for the operator, and proposes limits that it raises if they need a second one. Used by the API and the
/// page.
pub(crate) async fn set(
    operator: &Operator,
    id: PspId,
    name: Option<&Name>,
    mut change: PolicyChange,
) -> Result<(PspRecord, Option<Approval>), ApiError> {
    let system = &operator.system;
    let now = system.clock().real_now();
    let transaction = system.database().begin().await?;
    let mut raised = LimitChange::default();
    if operator.config.four_eyes {
        let before = tenants::lock_psp(&transaction, id).await.map_err(tenant_failure)?;
        (raised, change.limits) = change.limits.split_raised(&before.policies, system.psps().ceilings());
    }
    let psp = set_in(&transaction, id, name, change, now).await.map_err(tenant_failure)?;
    let mut approval = None;
    if !raised.is_empty() {
        let action = ApprovalAction::RaiseLimits { psp_id: id, limits: raised };
        let subject_state = approvals::action::limits_state(operator, &psp);
        let proposal = Proposal { action, psp_id: id, subject_state, reason: request::reason() };
        approval = Some(approvals::store::propose(&transaction, proposal, now).await?);
    }
    transaction.commit().await?;
    changed(operator, id).await;
    approval.iter().for_each(approvals::announce);
    Ok((psp, approval))
}

/// Changes a PSP for the operator in a transaction that the caller commits. [`changed`] follows the commit.
pub(crate) async fn set_in(
    transaction: &Transaction,
    id: PspId,
    name: Option<&Name>,
    change: PolicyChange,
    now: Timestamp,
) -> Result<PspRecord, TenantError> {
    Ok(tenants::change_psp_in(transaction, id, name, change, &Actor::Operator, now).await?.0)
}

/// Lets a change of a PSP take effect here at once. Other nodes see it when their cached copy expires.
pub(crate) async fn changed(operator: &Operator, id: PspId) {
    operator.system.psps().forget(id).await;
    tracing::info!(psp.id = %id, "operator changed PSP {id}");
}
