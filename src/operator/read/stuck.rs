//! What needs a person, or has waited too long: each with since when, why, and what to do.
//!
//! Every query goes by an index that holds only what is looked for, or little more; what is counted is counted in bounds.

mod checks;
mod kind;
mod operations;
mod service;
mod trouble;

use payferry_actors::System;
use payferry_domain::Timestamp;
use sea_orm::DbErr;
use serde::Serialize;

use super::decisions::Possible;
use super::{Count, Moment};

pub use kind::StuckKind;

/// Seconds that a payment may be confirmed and not settled. Settlements wait for the chain's finality.
pub const UNSETTLED_AFTER_SECS: i64 = 15 * 60;
/// Seconds that a payment may be pending after its deadline: money that came in time may still have to become final.
pub const OVERDUE_AFTER_SECS: i64 = 30 * 60;
/// Seconds that a recorded transfer may not be taken in by its payment.
pub const UNAPPLIED_AFTER_SECS: i64 = 60;
/// Seconds that an event may not be delivered; the schedule of retries is over before.
pub const UNDELIVERED_AFTER_SECS: i64 = 15 * 60;
/// Seconds that a payout or withdrawal may be pending: the settler sends it within a block, finality takes minutes.
pub const SENDING_OVERDUE_AFTER_SECS: i64 = 30 * 60;
/// Seconds that a refund, or a settlement that is done again, may stand where it is: finality takes minutes.
pub const OPERATION_OVERDUE_AFTER_SECS: i64 = 30 * 60;
/// Transactions that an operation may have been put into without being looked at: one that came to nothing is tried again.
pub const OPERATION_ATTEMPTS_USUAL_MAX: i64 = 3;
/// Things of each kind that are listed unless asked otherwise.
pub const ITEMS_DEFAULT: usize = 20;
/// Things of each kind that are listed at most.
pub const ITEMS_MAX: usize = 200;

/// What needs a person, or has waited too long.
#[derive(Debug, Clone, Serialize)]
pub struct Stuck {
    /// All kinds together.
    pub total: Count,
    /// Each kind of which there is something, the most pressing first.
    pub kinds: Vec<StuckGroup>,
}

/// Everything of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct StuckGroup {
    /// Which.
    pub kind: StuckKind,
    /// How many there are.
    pub total: Count,
    /// What is the matter, in words.
    pub meaning: &'static str,
    /// What to do about it.
    pub advice: &'static str,
    /// The longest waiting of them.
    pub items: Vec<StuckItem>,
}

/// One thing that is stuck.
#[derive(Debug, Clone, Serialize)]
pub struct StuckItem {
    /// A payment's, payout's, withdrawal's, PSP's, transfer's or operation's id, or the name of a chain or of a part of the service.
    pub id: String,
    /// The payment that it is about, if it is about one.
    pub payment_id: Option<String>,
    /// The PSP that it is about, if it is about one.
    pub psp_id: Option<String>,
    /// Since when.
    pub since: Option<Moment>,
    /// How long that is.
    pub age_ms: Option<i64>,
    /// Why, as far as it is known.
    pub reason: String,
    /// What an operator can do about it here.
    pub can: Vec<Possible>,
}

impl StuckItem {
    pub(super) fn new(
        id: impl Into<String>,
        since: Option<Timestamp>,
        now: Timestamp,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            payment_id: None,
            psp_id: None,
            since: since.map(Moment),
            age_ms: since.map(|since| now.millis_since(since).max(0)),
            reason: reason.into(),
            can: Vec::new(),
        }
    }

    fn of_payment(mut self, payment_id: &str, psp_id: Option<&str>) -> Self {
        self.payment_id = Some(payment_id.to_owned());
        self.psp_id = psp_id.map(str::to_owned);
        self
    }

    fn with(self, can: Vec<Possible>) -> Self {
        Self { can, ..self }
    }
}

/// What was found of one kind: how many there are, and the first of them.
pub(super) type Found = (Count, Vec<StuckItem>);

/// What is stuck: of `only` this kind, if one is named; `limit` of each.
pub async fn stuck(system: &System, only: Option<StuckKind>, limit: usize) -> Result<Stuck, DbErr> {
    let limit = limit.clamp(1, ITEMS_MAX);
    let mut kinds = Vec::new();
    let mut total = Count::default();
    let wanted = |kind: &StuckKind| only.is_none_or(|only| only == *kind);
    let needs_webhooks = StuckKind::ALL.iter().any(|kind| wanted(kind) && kind.is_of_webhooks());
    let webhooks = if needs_webhooks { Some(super::webhooks::webhooks(system).await?) } else { None };
    for kind in StuckKind::ALL.into_iter().filter(wanted) {
        let (count, items) = if let Some(webhooks) = webhooks.as_ref().filter(|_| kind.is_of_webhooks()) {
            service::webhooks(system, kind, webhooks, limit)
        } else if kind.is_of_payments() {
            trouble::of(system, kind, limit).await?
        } else if kind.is_of_sendings() {
            super::sendings::stuck(system, kind, limit).await?
        } else if kind.is_of_operations() {
            operations::of(system, limit).await?
        } else if kind.is_of_checks() {
            checks::of(system, kind, limit).await?
        } else {
            service::of(system, kind, limit)
        };
        if count != Count::default() {
            total = total.and(count);
            kinds.push(StuckGroup { kind, total: count, meaning: kind.meaning(), advice: kind.advice(), items });
        }
    }
    Ok(Stuck { total, kinds })
}
