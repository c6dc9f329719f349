//! Readers of policies, shared by the PSP's route and the operator's listener.

use payferry_accounts::tenants::PolicyChange;
use payferry_actors::chains::Chains;
use payferry_domain::Amount;
use payferry_domain::money::{AMOUNT_MAX, AmountError};
use payferry_domain::payment::OverpaymentPolicy;
use payferry_httpkit::extract::{Fault, Fields, read};
use payferry_journal::psps::DUST_FLOOR_MAX;
use serde_json::Value;

use crate::psps::tiers;

/// Settings that the PSP decides.
pub const POLICIES: [&str; 8] = [
    "tolerance",
    "tolerance_bps",
    "overpayment",
    "refund_to_sender",
    "require_customer",
    "dust_floor",
    "event_families",
    "finality",
];
/// 100 percent in basis points.
pub const BPS_MAX: i64 = 10_000;

/// Reads the requested policy change; faults are recorded in `fields`.
pub fn policies(fields: &Fields<'_>, chains: &Chains) -> PolicyChange {
    PolicyChange {
        tolerance: fields.optional("tolerance", |value| amount_up_to(value, AMOUNT_MAX)),
        tolerance_bps: fields.optional("tolerance_bps", basis_points),
        overpayment: fields.optional("overpayment", overpayment),
        refund_to_sender: fields.optional("refund_to_sender", flag),
        require_customer: fields.optional("require_customer", flag),
        dust_floor: fields.optional("dust_floor", |value| amount_up_to(value, DUST_FLOOR_MAX)),
        event_families: fields.optional("event_families", |value| read::name(value, "both, payment, payin")),
        finality: fields
            .optional_object("finality", |by_chain| Some(tiers::read(by_chain, chains)))
            .unwrap_or_default(),
        ..PolicyChange::default()
    }
}

/// Reads the overpayment policy. The names are listed here, because the domain has another policy, for transfers, that
/// a PSP may not choose.
fn overpayment(value: &Value) -> Result<OverpaymentPolicy, Fault> {
    match value.as_str() {
        Some("hold") => Ok(OverpaymentPolicy::Hold),
        Some("accept") => Ok(OverpaymentPolicy::Accept),
        Some("refund_excess") => Ok(OverpaymentPolicy::RefundExcess),
        _ => Err(Fault::new("unknown_value", "must be one of hold, accept, refund_excess")),
    }
}

/// Reads a whole number of basis points.
pub fn basis_points(value: &Value) -> Result<u16, Fault> {
    read::whole(value, 0, BPS_MAX).map(|bps| u16::try_from(bps).unwrap_or(u16::MAX))
}

/// Reads an amount that may be zero or below a payment's minimum.
pub fn some_amount(value: &Value) -> Result<Amount, Fault> {
    let wrong = || Fault::new("wrong_type", "must be a string, such as \"0.05\"");
    let text = value.as_str().ok_or_else(wrong)?;
    text.parse().map_err(|error: AmountError| Fault::new("amount_malformed", error.to_string()))
}

fn amount_up_to(value: &Value, max: Amount) -> Result<Amount, Fault> {
    let amount = some_amount(value)?;
    if amount > max { Err(Fault::new("amount_too_large", format!("must be at most {max}"))) } else { Ok(amount) }
}

fn flag(value: &Value) -> Result<bool, Fault> {
    value.as_bool().ok_or_else(|| Fault::new("wrong_type", "must be true or false"))
}
