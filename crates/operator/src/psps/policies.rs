//! Readers of policies, shared by the PSP's route and the operator's listener. Finality tiers are bands of amounts, each
//! with its required finality.

use std::collections::BTreeMap;

use payferry_accounts::tenants::{DEFAULT_WORD, OwnOrDefault, PolicyChange};
use payferry_actors::chains::Chains;
use payferry_domain::money::{AMOUNT_MAX, AmountError};
use payferry_domain::payment::OverpaymentPolicy;
use payferry_domain::{Amount, Chain, Finality, FinalityPolicy};
use payferry_httpkit::{Fault, Fields, read};
use payferry_journal::psps::DUST_FLOOR_MAX;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

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
        finality: fields.optional_object("finality", |by_chain| Some(tiers(by_chain, chains))).unwrap_or_default(),
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

/// Maximum number of bands of one chain.
const BANDS_MAX: usize = 3;
/// Maximum number of blocks that a band may require: half an hour on the slowest chain. For more certainty, use `safe`
/// or `finalized`.
pub const FINALITY_BLOCKS_MAX: u32 = 1_000;

/// One band of amounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Tier {
    /// Amounts below this, and not in the band before; absent in the last band.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "1000.00")]
    below: Option<String>,
    /// Number of blocks (1 is the transfer's own), `safe` or `finalized`.
    wait: Wait,
}

/// The required finality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
enum Wait {
    /// A number of blocks.
    Blocks(u32),
    /// A block tag.
    Tag(&'static str),
}

/// Bands of a chain, or `"default"`.
#[derive(ToSchema)]
#[schema(value_type = Object)]
#[allow(dead_code, reason = "it describes the body; `tiers` reads it")]
pub struct TiersRequest(Value);

impl From<Finality> for Wait {
    fn from(finality: Finality) -> Self {
        match finality {
            Finality::Blocks(blocks) => Self::Blocks(blocks),
            Finality::Safe => Self::Tag("safe"),
            Finality::Finalized => Self::Tag("finalized"),
        }
    }
}

/// The bands of a policy, with equal neighbours merged.
pub fn shown(policy: &FinalityPolicy) -> Vec<Tier> {
    let bands =
        [(Some(policy.small_below), policy.small), (Some(policy.medium_below), policy.medium), (None, policy.large)];
    let mut tiers: Vec<(Option<Amount>, Finality)> = Vec::with_capacity(BANDS_MAX);
    for (below, wait) in bands {
        match tiers.last_mut() {
            // Same finality as the band before: extend that one.
            Some(last) if last.1 == wait => last.0 = below,
            // An empty band.
            Some(last) if below.is_some() && below <= last.0 => {}
            _ => tiers.push((below, wait)),
        }
    }
    let tier =
        |(below, wait): (Option<Amount>, Finality)| Tier { below: below.map(|it| it.to_string()), wait: wait.into() };
    tiers.into_iter().map(tier).collect()
}

/// Reads tiers by chain; faults are recorded in the fields.
fn tiers(by_chain: &Fields<'_>, chains: &Chains) -> BTreeMap<Chain, OwnOrDefault<FinalityPolicy>> {
    let mut change = BTreeMap::new();
    for name in by_chain.names().filter(|name| by_chain.has(name)) {
        let Some(spec) = name.parse().ok().and_then(|chain: Chain| chains.spec(chain)) else {
            let running: Vec<_> = chains.running().map(|spec| spec.chain.as_str()).collect();
            by_chain.fault(
                name,
                Fault::new("unknown_chain", format!("is not a known chain; known chains are {}", running.join(", "))),
            );
            continue;
        };
        if by_chain.is(name, DEFAULT_WORD) {
            change.insert(spec.chain, OwnOrDefault::Default);
            continue;
        }
        let Some(bands) = by_chain.objects(name, BANDS_MAX, band) else { continue };
        match policy(&bands) {
            Err(fault) => by_chain.fault(name, fault),
            Ok(own) if own.at_least(spec.finality_least) == own => {
                change.insert(spec.chain, OwnOrDefault::Own(own));
            }
            Ok(_) => {
                let least = serde_json::to_string(&shown(&spec.finality_least)).unwrap_or_default();
                by_chain.fault(name, Fault::new("below_least", format!("must not be weaker than {least}")));
            }
        }
    }
    change
}

type Band = (Option<Amount>, Finality);

fn band(fields: &Fields<'_>) -> Option<Band> {
    let below = fields.optional("below", some_amount);
    let wait = fields.required("wait", wait);
    Some((below, wait?))
}

fn wait(text: &Value) -> Result<Finality, Fault> {
    match text.as_str() {
        Some("safe") => Ok(Finality::Safe),
        Some("finalized") => Ok(Finality::Finalized),
        Some(_) => Err(Fault::new("unknown_value", "must be a number of blocks, \"safe\" or \"finalized\"")),
        None => {
            let blocks = read::whole(text, 1, FINALITY_BLOCKS_MAX.into())?;
            Ok(Finality::Blocks(u32::try_from(blocks).unwrap_or(FINALITY_BLOCKS_MAX)))
        }
    }
}

/// Converts one to three bands to a policy of three.
fn policy(bands: &[Band]) -> Result<FinalityPolicy, Fault> {
    let disorder = || Fault::new("bands_disordered", "must be bands of rising amounts, the last without `below`");
    let (last, lower) = bands.split_last().ok_or_else(disorder)?;
    let below: Vec<Amount> = lower.iter().map(|(below, _)| *below).collect::<Option<_>>().ok_or_else(disorder)?;
    if last.0.is_some() || below.first().is_some_and(|first| first.is_zero()) || !below.is_sorted_by(|a, b| a < b) {
        return Err(disorder());
    }
    let large = last.1;
    Ok(match (lower, below.as_slice()) {
        ([small, medium], [small_below, medium_below]) => FinalityPolicy {
            small_below: *small_below,
            small: small.1,
            medium_below: *medium_below,
            medium: medium.1,
            large,
        },
        ([small], [below]) => {
            FinalityPolicy { small_below: *below, small: small.1, medium_below: *below, medium: large, large }
        }
        _ => FinalityPolicy::flat(large),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn upto(whole: i64, wait: Finality) -> Band {
        (Some(Amount::from_tokens(whole)), wait)
    }

    #[test]
    fn bands_are_shown_as_they_were_read() {
        let two = vec![upto(500, Finality::Blocks(10)), (None, Finality::Finalized)];
        let three = vec![upto(5, Finality::Blocks(3)), upto(50, Finality::Safe), (None, Finality::Finalized)];
        for bands in [vec![(None, Finality::Safe)], two, three] {
            let shown = shown(&policy(&bands).unwrap());
            let expected: Vec<Tier> =
                bands.iter().map(|(b, w)| Tier { below: b.map(|b| b.to_string()), wait: (*w).into() }).collect();
            assert_eq!(shown, expected);
        }
        let base = serde_json::to_value(shown(&FinalityPolicy::default_for(Chain::Base))).unwrap();
        let expected =
            json!([{"below": "1000.00", "wait": 2}, {"below": "50000.00", "wait": "safe"}, {"wait": "finalized"}]);
        assert_eq!(base, expected);
    }

    #[test]
    fn bands_ascend_and_the_last_is_unbounded() {
        let safe = Finality::Safe;
        for bad in [
            vec![upto(5, safe)],
            vec![(None, safe), (None, safe)],
            vec![upto(5, safe), upto(5, safe), (None, safe)],
            vec![upto(50, safe), upto(5, safe), (None, safe)],
            vec![upto(0, safe), (None, safe)],
            vec![upto(5, safe), upto(50, safe)],
        ] {
            assert_eq!(policy(&bad).unwrap_err().code, "bands_disordered", "{bad:?}");
        }
        assert_eq!(wait(&json!(0)).unwrap_err().code, "out_of_range");
        assert_eq!(wait(&json!("soon")).unwrap_err().code, "unknown_value");
        assert_eq!(wait(&json!(1_000)).unwrap(), Finality::Blocks(1_000));
    }
}
