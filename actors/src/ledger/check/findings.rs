//! What the auditor found and still finds: shared with whoever shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use payferry_domain::ledger::{Account, Asset};
use payferry_domain::{Amount, Timestamp, Token};
use serde::Serialize;

use super::metrics;
use crate::chains::Chains;

/// Imbalances of payments, payouts and withdrawals that are kept, of more the first found. Those of balances are all kept: there
/// are no more of them than PSPs and tokens.
pub const IMBALANCES_MAX: usize = 1_000;

/// In what way something does not add up. In the order in which they press.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImbalanceKind {
    /// A running balance is not the sum of its postings.
    Balance,
    /// An account holds less than nothing, and no reversal explains it.
    Negative,
    /// The postings about a payment, payout or withdrawal are not what its state says.
    State,
}

/// Where something does not add up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Where {
    pub kind: ImbalanceKind,
    pub psp_id: String,
    pub asset: Asset,
    pub account: Account,
    /// A payment's, payout's or withdrawal's id, if it is about one.
    pub subject: Option<String>,
}

/// Something that does not add up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Imbalance {
    /// In what way.
    pub kind: ImbalanceKind,
    /// Whose.
    pub psp_id: String,
    /// In which token, on which chain.
    #[serde(flatten)]
    pub asset: Asset,
    /// On which account.
    pub account: Account,
    /// About which payment, payout or withdrawal, where that is known.
    pub subject: Option<String>,
    /// What should stand there, base units: the sum of the postings, or what the state says.
    pub expected: i64,
    /// What stands there, base units: the running balance, or the sum of the postings.
    pub found: i64,
    /// When it was found, by the wall clock.
    pub since: Timestamp,
}

impl Imbalance {
    /// By how many base units.
    pub fn units(&self) -> u64 {
        self.expected.abs_diff(self.found)
    }

    /// What is wrong, for people; `token` if it is one of ours.
    pub fn words(&self, token: Option<Token>) -> String {
        let Self { account, asset, .. } = self;
        let (expected, found) = (Amount(self.expected), Amount(self.found));
        let token = token.map_or_else(|| asset.address.to_string(), |token| format!("{token} ({})", asset.address));
        let place = format!("{account} on {} in {token}", asset.chain);
        match self.kind {
            ImbalanceKind::Balance => {
                format!("{place}: the postings add up to {expected}, the running balance is {found}")
            }
            ImbalanceKind::Negative => format!("{place}: it holds {found}, and at least {expected} is explained"),
            ImbalanceKind::State => format!("{place}: its state says {expected}, its postings add up to {found}"),
        }
    }
}

/// What the auditor knows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LedgerView {
    /// The last posting that was looked at.
    pub position: i64,
    /// When the ledger was last looked at to its end, by the wall clock; `None` while there is more that was never read.
    pub checked_at: Option<Timestamp>,
    /// What does not add up now, the most pressing first; at most [`IMBALANCES_MAX`].
    pub imbalances: Vec<Imbalance>,
}

/// Shared: the auditor writes, others read. Outlives the auditor.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings(Arc<RwLock<Found>>);

#[derive(Debug, Default)]
struct Found {
    position: i64,
    checked_at: Option<Timestamp>,
    imbalances: BTreeMap<Where, Imbalance>,
}

/// One comparison: where, what should be there, and what is.
#[derive(Debug)]
pub(super) struct Compared {
    pub place: Where,
    pub expected: i64,
    pub found: i64,
}

impl Findings {
    /// As it is now.
    pub(crate) fn view(&self) -> LedgerView {
        let found = self.0.read();
        let imbalances = found.imbalances.values().cloned().collect();
        LedgerView { position: found.position, checked_at: found.checked_at, imbalances }
    }

    /// Gauges of what is found, and of how old that is.
    pub(crate) fn refresh_metrics(&self, now: Timestamp, chains: &Chains) {
        let found = self.0.read();
        metrics::found(found.imbalances.values(), chains);
        metrics::looked(found.position, found.checked_at.map(|at| now.millis_since(at)));
    }

    /// What is found about payments, payouts and withdrawals: to be looked at again.
    pub(super) fn subjects(&self, limit: usize) -> Vec<String> {
        let found = self.0.read();
        let subjects: BTreeSet<_> = found.imbalances.keys().filter_map(|place| place.subject.clone()).collect();
        subjects.into_iter().take(limit).collect()
    }

    /// Whether exactly this is known already.
    pub(super) fn knows(&self, compared: &Compared) -> bool {
        let found = self.0.read();
        let known = found.imbalances.get(&compared.place);
        known.is_some_and(|known| (known.expected, known.found) == (compared.expected, compared.found))
    }

    /// Takes in what was compared: what differs is kept and told once, what fits is forgotten. `about` says which places were
    /// looked at in whole, so that what is not among the comparisons any more is forgotten, too.
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
                tracing::info!(psp.id = %known.psp_id, "the ledger adds up again: {}", known.words(None));
            }
            stays
        });
        for (place, (expected, is)) in differing {
            if let Some(known) = found.imbalances.get_mut(&place) {
                (known.expected, known.found) = (expected, is);
            } else if place.subject.is_none() || found.imbalances.len() < IMBALANCES_MAX {
                let imbalance = Imbalance {
                    kind: place.kind,
                    psp_id: place.psp_id.clone(),
                    asset: place.asset,
                    account: place.account,
                    subject: place.subject.clone(),
                    expected,
                    found: is,
                    since: now,
                };
                tell(&imbalance);
                found.imbalances.insert(place, imbalance);
            }
        }
    }

    /// How far it has come; `caught_up_at`: the end was reached.
    pub(super) fn at(&self, position: i64, caught_up_at: Option<Timestamp>) {
        let mut found = self.0.write();
        found.position = position;
        found.checked_at = caught_up_at.or(found.checked_at);
    }
}

/// Once for each imbalance.
fn tell(imbalance: &Imbalance) {
    let Imbalance { psp_id, asset, subject, .. } = imbalance;
    let about = subject.as_deref().unwrap_or(psp_id);
    tracing::error!(
        psp.id = %psp_id,
        ledger.subject = %about,
        ledger.chain = %asset.chain,
        ledger.token_address = %asset.address,
        "the ledger does not add up, which wants the operator's attention: {about}, {}",
        imbalance.words(None)
    );
}
