//! Metrics of the ledger check. Labels are names of chains and tokens, never addresses or ids.

use std::collections::BTreeMap;

use payferry_domain::{Chain, Token};

use super::findings::Imbalance;
use crate::chains::Chains;

payferry_runtime::metrics! {
    Gauge IMBALANCE = "payferry_ledger_imbalance",
        "Base units (millionths of a token) of ledger imbalances, by chain and token; 0 without imbalances.";
    Gauge POSITION = "payferry_ledger_check_position", "Position of the last posting that the ledger check has read.";
    Gauge(Seconds) AGE = "payferry_ledger_check_age_seconds",
        "Time since the ledger check last reached the end of the ledger.";
    Counter CHECKED = "payferry_ledger_checked_total",
        "Payments, payouts and withdrawals that the ledger check compared with their postings.";
}

/// Label of all unsupported tokens: look-alikes, and tokens that are no longer configured.
const OTHER: &str = "other";

/// Sets the gauges of the imbalances, including zeros.
pub(super) fn found<'a>(imbalances: impl Iterator<Item = &'a Imbalance>, chains: &Chains) {
    let mut sums: BTreeMap<(Chain, &'static str), u64> = BTreeMap::new();
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
        IMBALANCE.set_count(&[("chain", chain.as_str()), ("token", token)], units);
    }
}

/// Sets the gauges of the position and of the time since the end was reached.
#[allow(clippy::cast_precision_loss, reason = "positions and ages are far below 2^52")]
pub(super) fn record_progress(position: i64, age_ms: Option<i64>) {
    POSITION.set(&[], position as f64);
    if let Some(age_ms) = age_ms {
        AGE.set(&[], age_ms.max(0) as f64 / 1_000.0);
    }
}
