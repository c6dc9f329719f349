//! Items that need attention: each with its age, reason and possible actions.
//!
//! Every query uses an index that holds only the matching rows, or little more, and every count has a limit. If the
//! database does not answer, that is the first item, and everything that is known without the database is still listed.

mod checks;
mod kind;
mod operations;
pub(crate) mod page;
mod part;
mod service;
mod trouble;

use axum::extract::State;
use axum::http::Uri;
use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_domain::Timestamp;
use payferry_httpkit::Answer;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Fault, QueryFields};
use sea_orm::DbErr;
use serde::Serialize;

use crate::Operator;
use crate::attention::part::{AttentionRead, Part};
use crate::decisions::query::Possible;
use crate::query::{Count, answers};
use crate::webhooks::{self, Webhooks};

pub use kind::AttentionKind;
pub(super) use part::Part as StuckPart;
pub use part::Position;

/// Seconds for which a payment may be confirmed and not settled. Settlements wait for the chain's finality.
pub const UNSETTLED_AFTER_SECS: i64 = 15 * 60;
/// Seconds for which a payment may be pending after its deadline: transfers that arrived in time may not be final yet.
pub const OVERDUE_AFTER_SECS: i64 = 30 * 60;
/// Seconds for which a payment may not have applied a recorded transfer.
pub const UNAPPLIED_AFTER_SECS: i64 = 60;
/// Seconds for which an event may be undelivered. The retry schedule ends earlier.
pub const UNDELIVERED_AFTER_SECS: i64 = 15 * 60;
/// Seconds for which a payout or withdrawal may be pending: the settler sends it within a block, finality takes
/// minutes.
pub const OUTBOUND_OVERDUE_AFTER_SECS: i64 = 30 * 60;
/// Seconds for which a refund, or a repeated settlement, may make no progress: finality takes minutes.
pub const OPERATION_OVERDUE_AFTER_SECS: i64 = 30 * 60;
/// Normal maximum number of transactions of an operation. An operation is retried after a transaction without effect.
pub const OPERATION_ATTEMPTS_USUAL_MAX: i64 = 3;
/// Items of each kind if the request sets no limit.
pub const ITEMS_DEFAULT: usize = 20;
/// Maximum number of items of each kind.
pub const ITEMS_MAX: usize = 200;

/// Items that need attention.
#[derive(Debug, Clone, Serialize)]
pub struct NeedsAttention {
    /// Total of all kinds.
    pub total: Count,
    /// Kinds with at least one item, most urgent first.
    pub kinds: Vec<AttentionGroup>,
    /// Kinds that could not be read because the database did not answer.
    pub unread: Vec<AttentionKind>,
}

/// Items of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct AttentionGroup {
    /// Kind.
    pub kind: AttentionKind,
    /// Number of items.
    pub total: Count,
    /// Description of the problem.
    pub meaning: &'static str,
    /// Recommended action.
    pub advice: &'static str,
    /// Items, oldest first.
    pub items: Vec<AttentionItem>,
    /// Start of the next page, if there is one.
    pub next_after: Option<Position>,
}

/// One item.
#[derive(Debug, Clone, Serialize)]
pub struct AttentionItem {
    /// Id of a payment, payout, withdrawal, PSP, transfer or operation, or the name of a chain or component.
    pub id: String,
    /// Payment that the item is about, if any.
    pub payment_id: Option<String>,
    /// PSP that the item is about, if any.
    pub psp_id: Option<String>,
    /// Start of the problem.
    pub since: Option<Moment>,
    /// Age of the problem, milliseconds.
    pub age_ms: Option<i64>,
    /// Reason, as far as it is known.
    pub reason: String,
    /// Possible actions of the operator.
    pub can: Vec<Possible>,
    /// Position among the items of its kind.
    #[serde(skip)]
    pub(super) position: Position,
}

impl AttentionItem {
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

    /// Sets the position of an item whose position is not its start time.
    pub(super) fn standing(self, at: i64, id: impl Into<String>) -> Self {
        Self { position: Position::new(Timestamp(at), id), ..self }
    }
}

/// Items of one kind: their number, and one page with the first item after it.
pub(super) type Found = (Count, Vec<AttentionItem>);

/// Reads the items that need attention, `limit` of each kind.
pub async fn stuck(system: &System, limit: usize) -> NeedsAttention {
    let part = Part { after: None, limit: limit.clamp(1, ITEMS_MAX) };
    let mut look = AttentionRead::begin(system).await;
    let mut kinds = Vec::new();
    for kind in AttentionKind::ALL.into_iter().filter(|kind| *kind != AttentionKind::Database) {
        let found = look.find(kind, part).await;
        kinds.extend(found.and_then(|found| group(kind, found, part)));
    }
    // The database kind comes first but is checked last: only now is it known if every query was answered.
    let away = look.away().and_then(|found| group(AttentionKind::Database, found, part));
    kinds.splice(0..0, away);
    let total = kinds.iter().fold(Count::default(), |sum, group| sum.and(group.total));
    NeedsAttention { total, kinds, unread: look.unread }
}

/// Reads the items of one kind, after a position if one is given.
pub async fn stuck_of(
    system: &System,
    kind: AttentionKind,
    after: Option<&Position>,
    limit: usize,
) -> Result<NeedsAttention, DbErr> {
    let part = Part { after, limit: limit.clamp(1, ITEMS_MAX) };
    let undelivered = if kind.is_of_webhooks() { Some(webhooks::webhooks(system).await?) } else { None };
    let found = match kind {
        AttentionKind::Database => service::database(system, answers(system).await.err(), &[]),
        kind => find(system, kind, part, undelivered.as_ref()).await?,
    };
    let kinds: Vec<AttentionGroup> = group(kind, found, part).into_iter().collect();
    let total = kinds.first().map_or(Count::default(), |group| group.total);
    Ok(NeedsAttention { total, kinds, unread: Vec::new() })
}

/// Reads a page of one kind. Webhook kinds are read from the given data.
async fn find(
    system: &System,
    kind: AttentionKind,
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

/// Group of one kind, or `None` if it has no items.
fn group(kind: AttentionKind, (total, mut items): Found, part: Part<'_>) -> Option<AttentionGroup> {
    if total == Count::default() {
        return None;
    }
    let goes_on = items.len() > part.limit;
    items.truncate(part.limit);
    let next_after = items.last().filter(|_| goes_on).map(|last| last.position.clone());
    Some(AttentionGroup { kind, total, meaning: kind.meaning(), advice: kind.advice(), items, next_after })
}

/// Returns the items that need attention by kind. `?kind=` selects one kind, `?limit=` sets the items of each, and
/// `?after=` selects a page of one kind.
pub(crate) async fn list(State(operator): State<Operator>, uri: Uri) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
    let kind = query.optional("kind", |text| {
        let names: Vec<_> = AttentionKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let unknown = |_| Fault::new("unknown_value", format!("must be one of {}", names.join(", ")));
        text.parse::<AttentionKind>().map_err(unknown)
    });
    let limit = query.optional("limit", |text| {
        let out = || Fault::new("out_of_range", format!("must be a whole number between 1 and {ITEMS_MAX}"));
        text.parse::<usize>().ok().filter(|limit| (1..=ITEMS_MAX).contains(limit)).ok_or_else(out)
    });
    let no_position = |_| Fault::new("invalid_cursor", "is not the next_after of an earlier page");
    let after = query.optional("after", |text| text.parse::<Position>().map_err(no_position));
    if after.is_some() && kind.is_none() {
        query.fault("after", Fault::new("invalid_cursor", "requires the kind that it belongs to"));
    }
    query.finish()?;
    let (system, limit) = (&operator.system, limit.unwrap_or(ITEMS_DEFAULT));
    Answer::ok(&match kind {
        Some(kind) => stuck_of(system, kind, after.as_ref(), limit).await?,
        None => stuck(system, limit).await,
    })
}
