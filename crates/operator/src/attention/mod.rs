//! What needs a person, or has waited too long: each with since when, why, and what to do.
//!
//! Every query goes by an index that holds only what is looked for, or little more; what is counted is counted in bounds.
//! A database that is away is itself the first thing that is stuck, and hides nothing that is known without it.

mod checks;
pub(crate) mod json;
mod kind;
mod look;
mod operations;
pub(crate) mod page;
mod part;
mod service;
mod trouble;

use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_domain::Timestamp;
use sea_orm::DbErr;
use serde::Serialize;

use crate::attention::look::Look;
use crate::attention::part::Part;
use crate::decisions::query::Possible;
use crate::query::{Count, answers};
use crate::webhooks::{self, Webhooks};

pub use kind::StuckKind;
pub(super) use part::Part as StuckPart;
pub use part::Position;

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
    /// Kinds of which nobody knows whether there is something, as the database does not say.
    pub unread: Vec<StuckKind>,
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
    /// Where the next page of them begins, if there is one.
    pub next_after: Option<Position>,
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
    /// Where it stands among those of its kind.
    #[serde(skip)]
    pub(super) position: Position,
}

impl StuckItem {
    pub(super) fn new(
        id: impl Into<String>,
        since: Option<Timestamp>,
        now: Timestamp,
        reason: impl Into<String>,
    ) -> Self {
        let id = id.into();
        Self {
            position: Position::new(since.unwrap_or(Timestamp(i64::MAX)), id.as_str()),
            id,
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

    /// Where it stands, if not since when it is stuck.
    pub(super) fn standing(self, at: i64, id: impl Into<String>) -> Self {
        Self { position: Position::new(Timestamp(at), id), ..self }
    }
}

/// What was found of one kind: how many there are, and a part of them with the first one behind it.
pub(super) type Found = (Count, Vec<StuckItem>);

/// What is stuck, `limit` of each kind.
pub async fn stuck(system: &System, limit: usize) -> Stuck {
    let part = Part { after: None, limit: limit.clamp(1, ITEMS_MAX) };
    let mut look = Look::begin(system).await;
    let mut kinds = Vec::new();
    for kind in StuckKind::ALL.into_iter().filter(|kind| *kind != StuckKind::Database) {
        let found = look.find(kind, part).await;
        kinds.extend(found.and_then(|found| group(kind, found, part)));
    }
    // Whether it answered to everything is known only now, and presses most.
    let away = look.away().and_then(|found| group(StuckKind::Database, found, part));
    kinds.splice(0..0, away);
    let total = kinds.iter().fold(Count::default(), |sum, group| sum.and(group.total));
    Stuck { total, kinds, unread: look.unread }
}

/// What is stuck of one kind, behind a position if one is given.
pub async fn stuck_of(
    system: &System,
    kind: StuckKind,
    after: Option<&Position>,
    limit: usize,
) -> Result<Stuck, DbErr> {
    let part = Part { after, limit: limit.clamp(1, ITEMS_MAX) };
    let undelivered = if kind.is_of_webhooks() { Some(webhooks::webhooks(system).await?) } else { None };
    let found = match kind {
        StuckKind::Database => service::database(system, answers(system).await.err(), &[]),
        kind => find(system, kind, part, undelivered.as_ref()).await?,
    };
    let kinds: Vec<StuckGroup> = group(kind, found, part).into_iter().collect();
    let total = kinds.first().map_or(Count::default(), |group| group.total);
    Ok(Stuck { total, kinds, unread: Vec::new() })
}

/// A part of one kind; of the webhooks' kinds, out of what is given.
async fn find(
    system: &System,
    kind: StuckKind,
    part: Part<'_>,
    undelivered: Option<&Webhooks>,
) -> Result<Found, DbErr> {
    if kind.is_of_payments() {
        trouble::of(system, kind, part).await
    } else if kind.is_of_sendings() {
        crate::outbound::query::stuck(system, kind, part).await
    } else if kind.is_of_operations() {
        operations::of(system, part).await
    } else if kind.is_of_checks() {
        checks::of(system, kind, part).await
    } else if let Some(webhooks) = undelivered {
        Ok(service::webhooks(system, kind, webhooks, part))
    } else {
        Ok(service::of(system, kind, part))
    }
}

/// The kind with its part; nothing if there is nothing of it.
fn group(kind: StuckKind, (total, mut items): Found, part: Part<'_>) -> Option<StuckGroup> {
    if total == Count::default() {
        return None;
    }
    let goes_on = items.len() > part.limit;
    items.truncate(part.limit);
    let next_after = items.last().filter(|_| goes_on).map(|last| last.position.clone());
    Some(StuckGroup { kind, total, meaning: kind.meaning(), advice: kind.advice(), items, next_after })
}
