//! Handle to the settler of a chain: what others ask of it and what it shows, across its restarts and on other nodes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use payferry_domain::{OperationId, Timestamp};
use payferry_entities::{OperationStatus, operations};
use payferry_journal::chain::Role;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::collect::is_authorization;

/// Handle to a chain's settler that stays valid across restarts. Clones are equivalent.
#[derive(Clone, Debug, Default)]
pub struct SettlerHandle {
    inner: Arc<HandleInner>,
}

#[derive(Debug, Default)]
struct HandleInner {
    nudged: Notify,
    settle_paused: AtomicBool,
    send_paused: AtomicBool,
    /// True if outcomes are to be sent again.
    repeats_outcomes: AtomicBool,
    submitted: AtomicU64,
    blocked_reason: RwLock<Option<(Timestamp, String)>>,
    gas_balance_wei: RwLock<Option<u128>>,
    /// Authorizations in a transaction: true if it is mined.
    authorizations: RwLock<HashMap<String, bool>>,
    /// How long operations of these roles have waited for a place in a batch.
    queue_delays: RwLock<HashMap<Role, Duration>>,
}

impl SettlerHandle {
    /// Announces queued operations, which are then sent within the batch window. Without a nudge, the next poll finds
    /// them.
    pub fn nudge(&self) {
        self.inner.nudged.notify_one();
    }

    /// Pauses or resumes new transactions of a role. Transactions already sent are still tracked.
    pub fn set_paused(&self, role: Role, paused: bool) {
        self.flag(role).store(paused, Ordering::Release);
        self.nudge();
    }

    /// True if new transactions of the role are paused.
    pub fn is_paused(&self, role: Role) -> bool {
        self.flag(role).load(Ordering::Acquire)
    }

    /// Number of transactions signed by all incarnations of the settler.
    pub fn submitted_total(&self) -> u64 {
        self.inner.submitted.load(Ordering::Relaxed)
    }

    /// Reason why settling is blocked, if it is, from the last pass of any incarnation.
    pub fn blocked_reason(&self) -> Option<String> {
        self.inner.blocked_reason.read().as_ref().map(|(_, why)| why.clone())
    }

    /// Wall-clock time since when settling is blocked, even if the reason has changed since.
    pub fn blocked_since(&self) -> Option<Timestamp> {
        self.inner.blocked_reason.read().as_ref().map(|(since, _)| *since)
    }

    /// How long operations have waited for a place in a batch, if more are due than a batch takes. Zero if none could be sent,
    /// and on nodes without the chain's lease.
    pub(crate) fn queue_delay(&self) -> Duration {
        self.inner.queue_delays.read().values().copied().max().unwrap_or_default()
    }

    /// Sets the delay of a role; zero if all operations that can be sent are in batches.
    pub(super) fn set_queue_delay(&self, role: Role, delay: Duration) {
        self.inner.queue_delays.write().insert(role, delay);
    }

    /// Forgets the delays: something else than the settler's speed holds operations up.
    pub(super) fn forget_queue_delays(&self) {
        self.inner.queue_delays.write().clear();
    }

    /// Native coin balance of the signing account in wei; of two accounts, the lower balance. The last value read;
    /// `None` before the first read.
    pub fn gas_balance_wei(&self) -> Option<u128> {
        *self.inner.gas_balance_wei.read()
    }

    /// Resolves at the next nudge.
    pub(super) async fn nudged(&self) {
        self.inner.nudged.notified().await;
    }

    pub(super) fn set_gas_balance(&self, wei: u128) {
        *self.inner.gas_balance_wei.write() = Some(wei);
    }

    pub(super) fn set_blocked_reason(&self, blocked_reason: Option<&str>, now: Timestamp) {
        let mut shown = self.inner.blocked_reason.write();
        let since = shown.as_ref().map_or(now, |(since, _)| *since);
        *shown = blocked_reason.map(|why| (since, why.to_owned()));
    }

    /// State of the settler that other nodes show.
    pub(super) fn published(&self) -> PublishedSettler {
        PublishedSettler {
            blocked_reason: self.inner.blocked_reason.read().clone(),
            gas_balance_wei: self.gas_balance_wei(),
            authorizations: self.inner.authorizations.read().iter().map(|(id, mined)| (id.clone(), *mined)).collect(),
        }
    }

    /// Shows what the settler on another node has published.
    pub(super) fn show(&self, published: PublishedSettler) {
        let PublishedSettler { blocked_reason, gas_balance_wei, authorizations } = published;
        *self.inner.blocked_reason.write() = blocked_reason;
        *self.inner.gas_balance_wei.write() = gas_balance_wei;
        *self.inner.authorizations.write() = authorizations.into_iter().collect();
    }

    /// How far the settler is with a queued authorization: `queued`, `submitted`, or `collected` in a block that is not
    /// final.
    pub fn authorization_progress(&self, operation: OperationId) -> &'static str {
        match self.inner.authorizations.read().get(&operation.to_string()) {
            None => OperationStatus::Queued.as_str(),
            Some(false) => OperationStatus::Submitted.as_str(),
            Some(true) => "collected",
        }
    }

    /// Notes the new state of operations.
    pub(super) fn note_progress<'a>(&self, rows: impl IntoIterator<Item = (&'a operations::Model, OperationStatus)>) {
        let mut authorizations = self.inner.authorizations.write();
        for (row, status) in rows.into_iter().filter(|(row, _)| is_authorization(row)) {
            match status {
                OperationStatus::Submitted => drop(authorizations.insert(row.id.clone(), false)),
                OperationStatus::Mined => drop(authorizations.insert(row.id.clone(), true)),
                _ => drop(authorizations.remove(&row.id)),
            }
        }
    }

    /// Forgets authorizations that are not in a transaction any more.
    pub(super) fn keep_progress(&self, in_tx: &HashSet<&str>) {
        self.inner.authorizations.write().retain(|id, _| in_tx.contains(id.as_str()));
    }

    pub(super) fn count_submitted(&self) {
        self.inner.submitted.fetch_add(1, Ordering::Relaxed);
    }

    /// Has outcomes sent again at the next poll, except those that were applied.
    pub(crate) fn repeat_outcomes(&self) {
        self.inner.repeats_outcomes.store(true, Ordering::Release);
    }

    pub(super) fn take_repeat_request(&self) -> bool {
        self.inner.repeats_outcomes.swap(false, Ordering::AcqRel)
    }

    fn flag(&self, role: Role) -> &AtomicBool {
        match role {
            Role::Settle | Role::Collect => &self.inner.settle_paused,
            Role::Send => &self.inner.send_paused,
        }
    }
}

/// State of a settler that other nodes show.
#[serde_with::serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PublishedSettler {
    /// Why and since when settling is blocked, if it is.
    blocked_reason: Option<(Timestamp, String)>,
    // JSON has no 128-bit numbers.
    #[serde_as(as = "Option<serde_with::DisplayFromStr>")]
    gas_balance_wei: Option<u128>,
    /// Authorizations in a transaction: true if it is mined.
    authorizations: BTreeMap<String, bool>,
}
