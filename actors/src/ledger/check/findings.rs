//! Current findings of the ledger check, shared with their readers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use payferry_domain::ledger::{Account, Asset};
use payferry_domain::{Amount, Timestamp, Token};
use serde::Serialize;

use super::metrics;
use crate::chains::Chains;

/// Maximum number of stored imbalances of payments, payouts, and withdrawals; the first ones found are kept. Imbalances
/// of balances are all kept, because there are at most as many as PSPs and tokens.
pub const IMBALANCES_MAX: usize = 1_000;

/// Kind of an imbalance, in order of urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImbalanceKind {
    /// A running balance differs from the sum of its postings.
    Balance,
    /// An account is negative, and no reversal explains it.
    Negative,
    /// The postings of a payment, payout, or withdrawal do not match its state.
    State,
}

/// Location of an imbalance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Where {
    /// Kind.
    pub kind: ImbalanceKind,
    /// PSP that owns the account.
    pub psp_id: String,
    /// Token and chain.
    #[serde(flatten)]
    pub asset: Asset,
    /// Account.
    pub account: Account,
    /// Id of the payment, payout, or withdrawal, if the imbalance is about one.
    pub subject: Option<String>,
}

/// An imbalance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, derive_more::Deref)]
pub struct Imbalance {
    /// Location.
    #[deref]
    #[serde(flatten)]
    pub place: Where,
    /// Expected amount in base units: the sum of the postings, or the amount according to the state.
    pub expected: i64,
    /// Actual amount in base units: the running balance, or the sum of the postings.
    pub found: i64,
    /// Time of detection, by the wall clock.
    pub since: Timestamp,
}

impl Imbalance {
    /// Returns the difference in base units.
    pub fn units(&self) -> u64 {
        self.expected.abs_diff(self.found)
    }

    /// Describes the imbalance; `token` is set for a supported token.
    pub fn words(&self, token: Option<Token>) -> String {
        let Where { account, asset, .. } = &self.place;
        let (expected, found) = (Amount(self.expected), Amount(self.found));
        let token = token.map_or_else(|| asset.address.to_string(), |token| format!("{token} ({})", asset.address));
        let place = format!("{account} on {} in {token}", asset.chain);
        match self.kind {
            ImbalanceKind::Balance => {
                format!("{place}: the postings add up to {expected}, the running balance is {found}")
            }
            ImbalanceKind::Negative => format!("{place}: the balance is {found}, at least {expected} was expected"),
            ImbalanceKind::State => format!("{place}: the state requires {expected}, the postings add up to {found}"),
        }
    }
}

/// Findings of the ledger check.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LedgerView {
    /// Position of the last checked posting.
    pub position: i64,
    /// Time at which the check last reached the end of the ledger, by the wall clock; `None` until it has read
    /// everything once.
    pub checked_at: Option<Timestamp>,
    /// Current imbalances, the most urgent first; at most [`IMBALANCES_MAX`].
    pub imbalances: Vec<Imbalance>,
}

/// Shared findings: the auditor writes, others read. They outlive the auditor.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings(Arc<RwLock<Found>>);

#[derive(Debug, Default)]
struct Found {
    position: i64,
    checked_at: Option<Timestamp>,
    imbalances: BTreeMap<Where, Imbalance>,
}

/// One comparison: location, expected amount, and actual amount.
#[derive(Debug)]
pub(super) struct Compared {
    pub place: Where,
    pub expected: i64,
    pub found: i64,
}

impl Findings {
    /// Returns the current findings.
    pub(crate) fn view(&self) -> LedgerView {
        let found = self.0.read();
        let imbalances = found.imbalances.values().cloned().collect();
        LedgerView { position: found.position, checked_at: found.checked_at, imbalances }
    }

    /// Updates the gauges of the findings and of their age.
    pub(crate) fn refresh_metrics(&self, now: Timestamp, chains: &Chains) {
        let found = self.0.read();
        metrics::found(found.imbalances.values(), chains);
        metrics::record_progress(found.position, found.checked_at.map(|at| now.millis_since(at)));
    }

    /// Forgets the findings, because another node checks the ledger from now on.
    pub(crate) fn forget(&self, now: Timestamp, chains: &Chains) {
        *self.0.write() = Found::default();
        self.refresh_metrics(now, chains);
    }

    /// Returns the payments, payouts, and withdrawals with imbalances, to be checked again.
    pub(super) fn subjects(&self, limit: usize) -> Vec<String> {
        let found = self.0.read();
        let subjects: BTreeSet<_> = found.imbalances.keys().filter_map(|place| place.subject.clone()).collect();
        subjects.into_iter().take(limit).collect()
    }

    /// Returns true if exactly this difference is already known.
    pub(super) fn knows(&self, compared: &Compared) -> bool {
        let found = self.0.read();
        let known = found.imbalances.get(&compared.place);
        known.is_some_and(|known| (known.expected, known.found) == (compared.expected, compared.found))
    }

    /// Applies comparisons: a difference is stored and logged once, a match removes it. `about` selects the locations
    /// that were checked completely; findings there without a comparison are removed too.
    pub(super) fn take(&self, about: impl Fn(&Where) -> bool, compared: Vec<Compared>, now: Timestamp) {
        let differing: BTreeMap<Where, (i64, i64)> = compared
            .into_iter()
            .filter(|one| one.expected != one.found)
            .map(|one| (one.place, (one.expected, one.found)))
            .collect();
        let mut found = self.0.write();
        found.imbalances.retain(|place, known| {
            let stays = !about(place) || differing.contains_key(place);
            if !stays {
                tracing::info!(psp.id = %known.psp_id, "ledger imbalance resolved: {}", known.words(None));
            }
            stays
        });
        for (place, (expected, is)) in differing {
            if let Some(known) = found.imbalances.get_mut(&place) {
                (known.expected, known.found) = (expected, is);
            } else if place.subject.is_none() || found.imbalances.len() < IMBALANCES_MAX {
                let imbalance = Imbalance { place: place.clone(), expected, found: is, since: now };
                log_new(&imbalance);
                found.imbalances.insert(place, imbalance);
            }
        }
    }

    /// Sets the position. `caught_up_at` is set if the end was reached.
    pub(super) fn at(&self, position: i64, caught_up_at: Option<Timestamp>) {
        let mut found = self.0.write();
        found.position = position;
        found.checked_at = caught_up_at.or(found.checked_at);
    }
}

/// Logs a new imbalance, once.
fn log_new(imbalance: &Imbalance) {
    let Where { psp_id, asset, subject, .. } = &imbalance.place;
    let about = subject.as_deref().unwrap_or(psp_id);
    tracing::error!(
        psp.id = %psp_id,
        ledger.subject = %about,
        ledger.chain = %asset.chain,
        ledger.token_address = %asset.address,
        "ledger imbalance needs the operator's attention: {about}, {}",
        imbalance.words(None)
    );
}
