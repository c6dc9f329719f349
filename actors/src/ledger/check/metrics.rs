//! What the auditor shows: every name with its unit and meaning. Labels are chains and tokens by name; never an address or id.

use std::collections::BTreeMap;

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use payferry_domain::{Chain, Token};

use super::findings::Imbalance;
use crate::chains::Chains;

const IMBALANCE: &str = "payferry_ledger_imbalance";
const POSITION: &str = "payferry_ledger_check_position";
const AGE: &str = "payferry_ledger_check_age_seconds";
const CHECKED: &str = "payferry_ledger_checked_total";
/// Every token that is not one of ours there: look-alikes, and tokens that are not configured any more.
const OTHER: &str = "other";

/// Says what the metrics mean.
pub(crate) fn describe() {
    describe_gauge!(
        IMBALANCE,
        "Base units (millionths of a token) by which the ledger does not add up, by chain and token; 0 when all is right."
    );
    describe_gauge!(POSITION, "Position of the last posting that the auditor has looked at.");
    describe_gauge!(AGE, Unit::Seconds, "Time since the auditor last looked at the ledger to its end.");
    describe_counter!(CHECKED, "Payments, payouts and withdrawals that the auditor held against their postings.");
}

/// What does not add up; zero is shown, too.
#[allow(clippy::cast_precision_loss, reason = "a gauge is a float; what matters is whether it is zero")]
pub(super) fn found<'a>(imbalances: impl Iterator<Item = &'a Imbalance>, chains: &Chains) {
    let mut sums: BTreeMap<(Chain, &str), u64> = BTreeMap::new();
    for chain in Chain::ALL {
        for name in Token::ALL.iter().map(|token| token.as_str()).chain([OTHER]) {
            sums.insert((chain, name), 0);
        }
    }
    for imbalance in imbalances {
        let chain = imbalance.asset.chain;
        let token =
            chains.spec(chain).and_then(|spec| spec.token_at(imbalance.asset.address)).map_or(OTHER, Token::as_str);
        let sum = sums.entry((chain, token)).or_default();
        *sum = sum.saturating_add(imbalance.units());
    }
    for ((chain, token), units) in sums {
        gauge!(IMBALANCE, "chain" => chain.as_str(), "token" => token).set(units as f64);
    }
}

/// How far it has come, and how long ago that was the end.
#[allow(clippy::cast_precision_loss, reason = "positions and ages are far below 2^52")]
pub(super) fn looked(position: i64, age_ms: Option<i64>) {
    gauge!(POSITION).set(position as f64);
    if let Some(age_ms) = age_ms {
        gauge!(AGE).set(age_ms.max(0) as f64 / 1_000.0);
    }
}

/// So many more were held against their postings.
pub(super) fn checked(count: usize) {
    counter!(CHECKED).increment(count as u64);
}
