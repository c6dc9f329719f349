//! `/ops/psps`: PSPs and their policies.

pub(crate) mod keys;
pub(crate) mod page;
pub mod policies;
pub mod withdrawal;

use std::collections::BTreeMap;

use axum::http::Uri;
use payferry_accounts::Moment;
use payferry_accounts::tenants::{self, DEFAULT_WORD, Name, OwnOrDefault, PolicyChange, PspRecord, Slice, TenantError};
use payferry_actors::chains::Chains;
use payferry_domain::{Amount, FeeBps, PspId};
use payferry_httpkit::{Answer, ApiError, Fault, Fields, JsonBody, Path, QueryFields};
use serde::Serialize;
use serde_json::Value;

use crate::Operator;
use crate::input::{id_of, name, only, tenant_failure};
use crate::psps::policies as fields;
use crate::psps::policies::{BPS_MAX, basis_points, some_amount};

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
pub(crate) async fn list(operator: Operator, uri: Uri) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
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
    Answer::created(&shown(make(&operator, &name, change).await.map_err(tenant_failure)?, &operator))
}

pub(crate) fn read_new(fields: &Fields<'_>, chains: &Chains) -> Option<(Name, PolicyChange)> {
    only(fields, &[FIELDS.as_slice(), &fields::POLICIES].concat());
    let (name, change) = (fields.required("name", name), policies(fields, chains));
    Some((name?, change))
}

/// Creates a PSP for the operator. Used by the API and the page.
pub(crate) async fn make(operator: &Operator, name: &Name, change: PolicyChange) -> Result<PspRecord, TenantError> {
    let system = &operator.system;
    let psp = tenants::create_psp(system.database(), name, change, system.clock().real_now()).await?;
    tracing::info!(psp.id = %psp.id, "operator created PSP {}", psp.id);
    Ok(psp)
}

/// Changes a PSP. Fields that are not given stay unchanged.
pub(crate) async fn change(operator: Operator, Path(psp_id): Path<String>, body: JsonBody) -> Result<Answer, ApiError> {
    let id = id_of("psp_id", &psp_id)?;
    let (name, change) = body.read(|fields| Some(read_change(fields, operator.system.chains())))?;
    Answer::ok(&shown(set(&operator, id, name.as_ref(), change).await.map_err(tenant_failure)?, &operator))
}

/// Reads the fields of a changed PSP. Fields that are not given stay unchanged.
pub(crate) fn read_change(fields: &Fields<'_>, chains: &Chains) -> (Option<Name>, PolicyChange) {
    only(fields, &[FIELDS.as_slice(), &fields::POLICIES].concat());
    (fields.optional("name", name), policies(fields, chains))
}

/// Changes a PSP for the operator. Used by the API and the page.
pub(crate) async fn set(
    operator: &Operator,
    id: PspId,
    name: Option<&Name>,
    change: PolicyChange,
) -> Result<PspRecord, TenantError> {
    let system = &operator.system;
    let psp = tenants::change_psp(system.database(), id, name, change, system.clock().real_now()).await?;
    // Takes effect here at once. Other nodes see the change when their cached copy expires.
    system.psps().forget(id).await;
    tracing::info!(psp.id = %id, "operator changed PSP {id}");
    Ok(psp)
}

/// Policies that the PSP sets itself, and those that only the operator sets.
fn policies(fields: &Fields<'_>, chains: &Chains) -> PolicyChange {
    let fee = |value: &Value| {
        let out = || Fault::new("out_of_range", format!("must be between 0 and {BPS_MAX}"));
        FeeBps::new(basis_points(value)?).ok_or_else(out)
    };
    PolicyChange {
        fee_bps: fields.optional("fee_bps", fee),
        send_max: fields.optional("send_max", ceiling),
        send_daily_max: fields.optional("send_daily_max", ceiling),
        refund_elsewhere_daily_max: fields.optional("refund_elsewhere_daily_max", ceiling),
        ..fields::policies(fields, chains)
    }
}

/// An amount, or `default` for the configured limit.
fn ceiling(value: &Value) -> Result<OwnOrDefault<Amount>, Fault> {
    if value == DEFAULT_WORD { Ok(OwnOrDefault::Default) } else { some_amount(value).map(OwnOrDefault::Own) }
}
