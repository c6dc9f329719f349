//! `/ops/psps`: PSPs and their policies.

pub(crate) mod keys;
pub(crate) mod page;
pub mod policies;
pub mod withdrawal;

use std::collections::BTreeMap;

use payferry_accounts::Moment;
use payferry_accounts::tenants::{
    self, DEFAULT_WORD, LimitChange, Name, OwnOrDefault, PolicyChange, PspRecord, Slice, TenantError,
};
use payferry_actors::chains::Chains;
use payferry_domain::{Amount, FeeBps, PspId, Timestamp};
use payferry_entities::Transaction;
use payferry_httpkit::extract::RequestBody as _;
use payferry_httpkit::{Answer, ApiError, Fault, Fields, JsonBody, Path, QueryFields};
use payferry_journal::audit::Actor;
use payferry_journal::psps::PspPolicies;
use serde::Serialize;
use serde_json::Value;

use crate::Operator;
use crate::approvals;
use crate::approvals::action::ApprovalAction;
use crate::approvals::store::{Approval, Proposal};
use crate::input::{id_of, name, only, tenant_failure};
use crate::psps::policies as fields;
use crate::psps::policies::{BPS_MAX, PolicyFields, basis_points, some_amount};

/// Fields of a PSP that only the operator sets.
const FIELDS: [&str; 5] = ["name", "fee_bps", "send_max", "send_daily_max", "refund_elsewhere_daily_max"];

/// A PSP in a response.
fn shown(psp: PspRecord, operator: &Operator) -> impl Serialize + use<> {
    let policies = psp.policies;
    let ceilings = policies.ceilings(operator.system.psps().ceilings());
    record! {
        id: psp.id,
        psp_id: psp.id,
        name: psp.name,
        fee_bps: policies.fee_bps.get(),
        tolerance: policies.tolerance.absolute.to_string(),
        tolerance_bps: policies.tolerance.bps,
        overpayment: policies.overpayment,
        refund_to_sender: policies.refund_to_sender,
        require_customer: policies.require_customer,
        dust_floor: policies.dust_floor.to_string(),
        event_families: policies.event_families,
        // Finality tiers that the PSP has overridden.
        finality: policies.finality.iter().map(|(chain, own)| (*chain, fields::shown(own))).collect::<BTreeMap<_, _>>(),
        send_max: ceilings.send_max.to_string(),
        send_daily_max: ceilings.send_daily_max.to_string(),
        refund_elsewhere_daily_max: ceilings.refund_elsewhere_daily_max.to_string(),
        created_at: Moment(psp.created_at),
        updated_at: Moment(psp.updated_at),
    }
}

/// Returns the PSPs, oldest first.
pub(crate) async fn list(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let page = query.page();
    query.finish()?;
    let slice = Slice { limit: page.limit, offset: page.offset };
    let (total, psps) = tenants::list_psps(operator.system.database(), slice).await.map_err(tenant_failure)?;
    let psps: Vec<_> = psps.into_iter().map(|psp| shown(psp, &operator)).collect();
    Answer::ok(&record! { total: total, psps: psps })
}

pub(crate) async fn get(operator: Operator, Path(psp_id): Path<String>) -> Result<Answer, ApiError> {
    let psp = tenants::find_psp(operator.system.database(), id_of("psp_id", &psp_id)?).await.map_err(tenant_failure)?;
    Answer::ok(&shown(psp, &operator))
}

pub(crate) async fn create(operator: Operator, body: JsonBody) -> Result<Answer, ApiError> {
    let (name, change) = body.read(|fields| read_new(fields, operator.system.chains()))?;
    Answer::created(&shown(make(&operator, &name, change).await?, &operator))
}

pub(crate) fn read_new(fields: &Fields<'_>, chains: &Chains) -> Option<(Name, PolicyChange)> {
    only(fields, &[FIELDS.as_slice(), &PolicyFields::names()].concat());
    let (name, change) = (fields.required("name", name), policies(fields, chains));
    Some((name?, change))
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

/// Changes a PSP. Fields that are not given stay unchanged.
pub(crate) async fn change(operator: Operator, Path(psp_id): Path<String>, body: JsonBody) -> Result<Answer, ApiError> {
    let id = id_of("psp_id", &psp_id)?;
    let (name, change) = body.read(|fields| Some(read_change(fields, operator.system.chains())))?;
    let (psp, approval) = set(&operator, id, name.as_ref(), change).await?;
    let psp = shown(psp, &operator);
    match approval {
        None => Answer::ok(&psp),
        Some(approval) => Answer::accepted(&record! {
            #[serde(flatten)]
            psp: psp,
            // The raised limits, which wait for a second operator. Everything else is changed.
            approval: approval.record(operator.system.clock().real_now()),
        }),
    }
}

/// Reads the fields of a changed PSP. Fields that are not given stay unchanged.
pub(crate) fn read_change(fields: &Fields<'_>, chains: &Chains) -> (Option<Name>, PolicyChange) {
    only(fields, &[FIELDS.as_slice(), &PolicyFields::names()].concat());
    (fields.optional("name", name), policies(fields, chains))
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
        let proposal = Proposal { action, psp_id: id, subject_state, reason: None };
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

/// Policies that the PSP sets itself, and those that only the operator sets.
fn policies(fields: &Fields<'_>, chains: &Chains) -> PolicyChange {
    let fee = |value: &Value| {
        let out = || Fault::new("out_of_range", format!("must be between 0 and {BPS_MAX}"));
        FeeBps::new(basis_points(value)?).ok_or_else(out)
    };
    PolicyChange {
        fee_bps: fields.optional("fee_bps", fee),
        limits: LimitChange {
            send_max: fields.optional("send_max", ceiling),
            send_daily_max: fields.optional("send_daily_max", ceiling),
            refund_elsewhere_daily_max: fields.optional("refund_elsewhere_daily_max", ceiling),
        },
        ..fields::policies(fields, chains)
    }
}

/// An amount, or `default` for the configured limit.
fn ceiling(value: &Value) -> Result<OwnOrDefault<Amount>, Fault> {
    if value == DEFAULT_WORD { Ok(OwnOrDefault::Default) } else { some_amount(value).map(OwnOrDefault::Own) }
}
