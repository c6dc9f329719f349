//! Setup of a row: the chains that it mentions, and the PSP's policies.

use payferry_domain::payment::OverpaymentPolicy;
use payferry_domain::{Amount, Chain, FeeBps, Finality, FinalityPolicy};
use payferry_journal::psps::{EventFamilies, PspPolicies};

use super::script::Row;

/// Chains that a row mentions, and always Base.
pub fn chains_of(row: &Row) -> Vec<Chain> {
    let spoken = |chain: &Chain| row.steps.iter().any(|step| step.words.iter().any(|word| word == chain.as_str()));
    Chain::ALL.into_iter().filter(|chain| *chain == Chain::Base || spoken(chain)).collect()
}

/// The PSP's policies: every `policy` step, wherever it is.
pub fn policies_of(row: &Row) -> PspPolicies {
    let mut policies = PspPolicies::default();
    for step in row.steps.iter().filter(|step| step.words[0] == "policy") {
        let value = step.words.get(2).map_or("", String::as_str);
        match step.words[1].as_str() {
            "tolerance" => policies.tolerance.absolute = value.parse().unwrap(),
            "tolerance_bps" => policies.tolerance.bps = value.parse().unwrap(),
            "overpayment" => {
                policies.overpayment = match value {
                    "accept" => OverpaymentPolicy::Accept,
                    "refund_excess" => OverpaymentPolicy::RefundExcess,
                    _ => panic!("{}: unknown policy value: {value}", row.place),
                }
            }
            "refund_to_sender" => policies.refund_to_sender = true,
            "require_customer" => policies.require_customer = true,
            "fee_bps" => policies.fee_bps = FeeBps::new(value.parse().unwrap()).unwrap(),
            "families" => policies.event_families = value.parse::<EventFamilies>().unwrap(),
            "send_max" => policies.send_max = Some(value.parse().unwrap()),
            "send_daily_max" => policies.send_daily_max = Some(value.parse().unwrap()),
            "refund_elsewhere_daily_max" => policies.refund_elsewhere_daily_max = Some(value.parse().unwrap()),
            // Two blocks below the amount; from the amount on, the chain's `finalized` block.
            "finalized_from" => {
                let below: Amount = value.parse().unwrap();
                let tiers = FinalityPolicy {
                    small_below: below,
                    small: Finality::Blocks(2),
                    medium_below: below,
                    medium: Finality::Finalized,
                    large: Finality::Finalized,
                };
                policies.finality.insert(Chain::Base, tiers);
            }
            other => panic!("{}: unknown policy: {other}", row.place),
        }
    }
    policies
}
