//! Readers of policies, shared by the PSP's route and the operator's listener. Finality tiers are bands of amounts, each
//! with its required finality.

use std::collections::BTreeMap;

use payferry_accounts::tenants::{DEFAULT_WORD, OwnOrDefault, PolicyChange};
use payferry_actors::chains::Chains;
use payferry_domain::money::{AMOUNT_MAX, AmountError};
use payferry_domain::payment::{OverpaymentPolicy, PayerRefunds};
use payferry_domain::{Amount, Chain, Finality, FinalityPolicy};
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::extract::{Components, Field, RequestBody as _, closed};
use payferry_httpkit::{Fault, Fields, Rule, read, request, rule};
use payferry_journal::psps::{DUST_FLOOR_MAX, EventFamilies};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema as _, ToSchema};

/// 100 percent in basis points.
pub const BPS_MAX: i64 = 10_000;

request! {
    /// Settings that the PSP decides.
    pub struct PolicyFields {
        /// Accepted underpayment, as an amount.
        tolerance: Option<Amount> = optional(amount_up_to::<{ AMOUNT_MAX.units() }>()).example("0.05"),
        /// Accepted underpayment, in basis points of the due amount; the greater of the two applies.
        tolerance_bps: Option<u16> = optional(BASIS_POINTS),
        /// Surplus that is excess instead of an overpayment, as an amount.
        overpayment_tolerance: Option<Amount> = optional(amount_up_to::<{ AMOUNT_MAX.units() }>()).example("0.01"),
        /// Surplus that is excess instead of an overpayment, in basis points of the due amount; the greater of the two
        /// applies.
        overpayment_tolerance_bps: Option<u16> = optional(BASIS_POINTS),
        /// `hold`: the payment is mismatched and you decide. `accept`: everything is settled. `refund_excess`: the due
        /// amount is settled and the excess is refunded to the sender, if `refund_to_sender` is on and one plain account
        /// sent everything. `accept` and `refund_excess` notify `payment.mismatched`, then `payment.confirmed`.
        overpayment: Option<OverpaymentPolicy> = optional(OVERPAYMENT).example("accept"),
        /// True if refunds without an address may go to the sender.
        refund_to_sender: Option<bool> = optional(rule::flag()),
        /// Requests of payers for a refund of late, wrong or excess money. `off`: payers cannot ask. `approve`: every request
        /// waits for you. `sender`: a request that the sending account signed is carried out at once; others wait for you.
        payer_refunds: Option<PayerRefunds> = optional(rule::name::<PayerRefunds>()).example("approve"),
        /// True if every payment must name its customer.
        require_customer: Option<bool> = optional(rule::flag()),
        /// Transfers below this are ignored; at most 1.
        dust_floor: Option<Amount> = optional(amount_up_to::<{ DUST_FLOOR_MAX.units() }>()).example("0.001"),
        /// Which event names are sent. An event that only one of the families has is always sent.
        event_families: Option<EventFamilies> = optional(rule::name::<EventFamilies>()).example("payment"),
        /// Required finality, by chain: one to three bands of ascending amounts, nowhere weaker than the chain's `least`;
        /// or `"default"`, the operator's bands.
        finality: () = FinalityField,
    }
}

/// Reads the requested policy change; faults are recorded in `fields`.
pub fn policies(fields: &Fields<'_>, chains: &Chains) -> PolicyChange {
    let finality = finality(fields, chains);
    PolicyFields::read(fields).map(|asked| asked.change(finality)).unwrap_or_default()
}

/// Required finality by chain.
pub type FinalityChange = BTreeMap<Chain, OwnOrDefault<FinalityPolicy>>;

/// Reads the required finality; faults are recorded in `fields`.
pub fn finality(fields: &Fields<'_>, chains: &Chains) -> FinalityChange {
    fields.optional_object(FINALITY, |by_chain| Some(tiers(by_chain, chains))).unwrap_or_default()
}

impl PolicyFields {
    /// The change, with the finality that [`finality`] has read.
    pub fn change(self, finality: FinalityChange) -> PolicyChange {
        PolicyChange {
            tolerance: self.tolerance,
            tolerance_bps: self.tolerance_bps,
            overpayment_tolerance: self.overpayment_tolerance,
            overpayment_tolerance_bps: self.overpayment_tolerance_bps,
            overpayment: self.overpayment,
            refund_to_sender: self.refund_to_sender,
            payer_refunds: self.payer_refunds,
            require_customer: self.require_customer,
            dust_floor: self.dust_floor,
            event_families: self.event_families,
            finality,
            ..PolicyChange::default()
        }
    }
}

/// The field with the finality by chain.
const FINALITY: &str = "finality";

/// Describes the finality by chain. [`tiers`] reads it, because it depends on the running chains.
struct FinalityField;

impl Field for FinalityField {
    type Value = ();

    fn read(&self, _: &str, _: &Fields<'_>) -> Option<()> {
        Some(())
    }

    fn schema(&self) -> RefOr<Schema> {
        let object = ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::Object, Type::Null]));
        let by_chain = Chain::ALL.iter().fold(object, |object, chain| {
            let bands = ArrayBuilder::new().items(Ref::from_schema_name(TierRequest::name()));
            let bands = bands.min_items(Some(1)).max_items(Some(BANDS_MAX));
            let absent = ObjectBuilder::new().schema_type(Type::Null);
            let either = OneOfBuilder::new().item(rule::one_of([DEFAULT_WORD])).item(bands).item(absent);
            object.property(chain.as_str(), either)
        });
        let example = json!({"base": [{"below": "500", "wait": 10}, {"wait": "finalized"}]});
        closed(by_chain).examples([example]).build().into()
    }

    fn components(&self, schemas: &mut Components) {
        schemas.push((TierRequest::name().into_owned(), TierRequest::schema()));
    }
}

request! {
    /// One band of amounts.
    pub struct TierRequest {
        /// Amounts below this, and not in the band before; absent in the last band.
        below: Option<Amount> = optional(amount_up_to::<{ i64::MAX }>()).example("1000.00"),
        /// Number of blocks (1 is the transfer's own), `safe` or `finalized`.
        wait: Finality = required(WAIT).example("finalized"),
    }
}

/// A required finality.
const WAIT: Rule<Finality> = Rule {
    read: wait,
    schema: || {
        let kinds = SchemaType::from_iter([Type::Integer, Type::String]);
        let either = ObjectBuilder::new().schema_type(kinds).pattern(Some("^(safe|finalized)$"));
        either.minimum(Some(1)).maximum(Some(FINALITY_BLOCKS_MAX))
    },
};

/// The overpayment policy.
const OVERPAYMENT: Rule<OverpaymentPolicy> =
    Rule { read: overpayment, schema: || rule::one_of(["hold", "accept", "refund_excess"]) };

/// A whole number of basis points.
pub const BASIS_POINTS: Rule<u16> = Rule { read: basis_points, schema: || (rule::whole::<0, BPS_MAX>().schema)() };

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

/// An amount that may be zero, of at most `UNITS_MAX` base units.
fn amount_up_to<const UNITS_MAX: i64>() -> Rule<Amount> {
    let read = |value: &Value| {
        let (amount, max) = (some_amount(value)?, Amount::from_units(UNITS_MAX));
        if amount > max { Err(Fault::new("amount_too_large", format!("must be at most {max}"))) } else { Ok(amount) }
    };
    Rule { read, schema: rule::amount_up_to::<UNITS_MAX>().schema }
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
fn tiers(by_chain: &Fields<'_>, chains: &Chains) -> FinalityChange {
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
        let Some(bands) = by_chain.objects(name, BANDS_MAX, TierRequest::read) else { continue };
        let bands: Vec<_> = bands.into_iter().map(|band| (band.below, band.wait)).collect();
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
