//! `/ops/psps`: who uses the service, and on what terms.

use axum::extract::State;
use axum::http::Uri;
use payferry_domain::payment::OverpaymentPolicy;
use payferry_domain::{Amount, FeeBps, PspId};
use serde::Serialize;
use serde_json::Value;

use super::{name, only, psp_id_of};
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::extract::{Fault, Fields, JsonBody, Path, QueryFields, read};
use crate::operator::Operator;
use crate::operator::read::Moment;
use crate::tenants::{self, Name, PolicyChange, PspRecord, Slice};

/// The fields of a PSP that can be set.
const FIELDS: [&str; 8] = [
    "name",
    "fee_bps",
    "tolerance",
    "tolerance_bps",
    "overpayment",
    "refund_to_sender",
    "require_customer",
    "dust_floor",
];
/// A whole in basis points.
const BPS_MAX: i64 = 10_000;

/// A PSP as it is shown.
#[derive(Debug, Serialize)]
struct PspLine {
    psp_id: PspId,
    name: String,
    fee_bps: u16,
    tolerance: String,
    tolerance_bps: u16,
    overpayment: OverpaymentPolicy,
    refund_to_sender: bool,
    require_customer: bool,
    dust_floor: String,
    created_at: Moment,
    updated_at: Moment,
}

impl From<PspRecord> for PspLine {
    fn from(psp: PspRecord) -> Self {
        let policies = psp.policies;
        Self {
            psp_id: psp.id,
            name: psp.name,
            fee_bps: policies.fee_bps.get(),
            tolerance: policies.tolerance.absolute.to_string(),
            tolerance_bps: policies.tolerance.bps,
            overpayment: policies.overpayment,
            refund_to_sender: policies.refund_to_sender,
            require_customer: policies.require_customer,
            dust_floor: policies.dust_floor.to_string(),
            created_at: psp.created_at.into(),
            updated_at: psp.updated_at.into(),
        }
    }
}

#[derive(Serialize)]
struct PspList {
    total: u64,
    psps: Vec<PspLine>,
}

/// The PSPs, the oldest first.
pub(in crate::operator) async fn list(State(operator): State<Operator>, uri: Uri) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
    let page = query.page();
    query.finish()?;
    let slice = Slice { limit: page.limit, offset: page.offset };
    let (total, psps) = tenants::list_psps(operator.system.database(), slice).await?;
    Answer::ok(&PspList { total, psps: psps.into_iter().map(PspLine::from).collect() })
}

/// One PSP.
pub(in crate::operator) async fn get(
    State(operator): State<Operator>,
    Path(psp_id): Path<String>,
) -> Result<Answer, ApiError> {
    let psp = tenants::find_psp(operator.system.database(), psp_id_of(&psp_id)?).await?;
    Answer::ok(&PspLine::from(psp))
}

/// Makes a PSP.
pub(in crate::operator) async fn create(State(operator): State<Operator>, body: JsonBody) -> Result<Answer, ApiError> {
    let (name, change) = body.read(read_new)?;
    Answer::created(&PspLine::from(make(&operator, &name, change).await?))
}

/// The fields of a new PSP.
pub(in crate::operator) fn read_new(fields: &Fields<'_>) -> Option<(Name, PolicyChange)> {
    only(fields, &FIELDS);
    let (name, change) = (fields.required("name", name), policies(fields));
    Some((name?, change))
}

/// Makes a PSP, whoever asks for the operator.
pub(in crate::operator) async fn make(
    operator: &Operator,
    name: &Name,
    change: PolicyChange,
) -> Result<PspRecord, ApiError> {
    let system = &operator.system;
    let psp = tenants::create_psp(system.database(), name, change, system.clock().real_now()).await?;
    tracing::info!(psp.id = %psp.id, "the operator made PSP {}", psp.id);
    Ok(psp)
}

/// Changes a PSP; what is not named stays.
pub(in crate::operator) async fn change(
    State(operator): State<Operator>,
    Path(psp_id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let id = psp_id_of(&psp_id)?;
    let (name, change) = body.read(|fields| Some(read_change(fields)))?;
    Answer::ok(&PspLine::from(set(&operator, id, name.as_ref(), change).await?))
}

/// The fields of a changed PSP: what is not named stays.
pub(in crate::operator) fn read_change(fields: &Fields<'_>) -> (Option<Name>, PolicyChange) {
    only(fields, &FIELDS);
    (fields.optional("name", name), policies(fields))
}

/// Changes a PSP, whoever asks for the operator.
pub(in crate::operator) async fn set(
    operator: &Operator,
    id: PspId,
    name: Option<&Name>,
    change: PolicyChange,
) -> Result<PspRecord, ApiError> {
    let system = &operator.system;
    let psp = tenants::change_psp(system.database(), id, name, change, system.clock().real_now()).await?;
    // Here at once; other nodes see it when what they remember is too old.
    system.psps().forget(id).await;
    tracing::info!(psp.id = %id, ?change, "the operator changed PSP {id}");
    Ok(psp)
}

fn policies(fields: &Fields<'_>) -> PolicyChange {
    let basis_points = |value: &Value| read::whole(value, 0, BPS_MAX).map(|bps| u16::try_from(bps).unwrap_or(u16::MAX));
    let fee = |value: &Value| {
        let out = || Fault::new("out_of_range", format!("must be between 0 and {BPS_MAX}"));
        FeeBps::new(basis_points(value)?).ok_or_else(out)
    };
    let overpayment = |value: &Value| {
        let unknown = |_| Fault::new("unknown_value", "must be one of hold, accept, refund_excess");
        serde_json::from_value::<OverpaymentPolicy>(value.clone()).map_err(unknown)
    };
    PolicyChange {
        fee_bps: fields.optional("fee_bps", fee),
        tolerance: fields.optional("tolerance", some_amount),
        tolerance_bps: fields.optional("tolerance_bps", basis_points),
        overpayment: fields.optional("overpayment", overpayment),
        refund_to_sender: fields.optional("refund_to_sender", flag),
        require_customer: fields.optional("require_customer", flag),
        dust_floor: fields.optional("dust_floor", some_amount),
    }
}

/// An amount that may be nothing, or less than a payment's.
fn some_amount(value: &Value) -> Result<Amount, Fault> {
    let wrong = || Fault::new("wrong_type", "must be a string, such as \"0.05\"");
    let text = value.as_str().ok_or_else(wrong)?;
    text.parse().map_err(|error: payferry_domain::money::AmountError| Fault::new("amount_malformed", error.to_string()))
}

fn flag(value: &Value) -> Result<bool, Fault> {
    value.as_bool().ok_or_else(|| Fault::new("wrong_type", "must be true or false"))
}
