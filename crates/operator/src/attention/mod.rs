//! Items that need attention: each with its age, reason and possible actions.
//!
//! Every query uses an index that holds only the matching rows, or little more, and every count has a limit. If the
//! database does not answer, that is the first item, and everything that is known without the database is still listed.

pub(crate) mod acknowledged;
mod alarms;
mod approvals;
pub(crate) mod feed;
mod kind;
mod outbound;
pub(crate) mod page;
mod payments;
mod service;

use std::str::FromStr;

use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_domain::{Amount, Timestamp};
use payferry_httpkit::extract::parameters::number;
use payferry_httpkit::lists::{CURSOR, Page};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Fault, QueryFields, Rule, query, rule};
use sea_orm::{DbErr, Value};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::attention::acknowledged::{Acknowledged, AcknowledgedEntry};
use crate::attention::kind::Source;
use crate::decisions::query::Possible;
use crate::query::{Count, answers, by, soon};
use crate::runbooks;
use crate::webhooks::{self, Webhooks};

pub use kind::AttentionKind;

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
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NeedsAttention {
    /// Total of all kinds.
    pub total: Count,
    /// Kinds with at least one item, most urgent first.
    pub kinds: Vec<AttentionGroup>,
    /// Kinds that could not be read because the database did not answer.
    #[schema(value_type = Vec<String>)]
    pub unread: Vec<AttentionKind>,
    /// Acknowledged entries, which are not counted. Empty if one kind is read.
    pub acknowledged: Vec<AcknowledgedEntry>,
}

/// Items of one kind.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AttentionGroup {
    #[schema(value_type = String)]
    pub kind: AttentionKind,
    pub total: Count,
    pub meaning: &'static str,
    pub advice: &'static str,
    /// Path of the page with its runbook.
    pub runbook: String,
    /// Items, oldest first.
    pub items: Vec<AttentionItem>,
    /// Pass it as `after`, with the kind, to get the next page; null on the last page.
    #[schema(value_type = Option<String>)]
    pub next_after: Option<Position>,
    /// Pass it as `cursor`, with the kind, to get the next page; null on the last page.
    pub next_cursor: Option<String>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AttentionItem {
    /// Id of a payment, payout, withdrawal, customer, PSP, transfer or operation, or the name of a chain or component.
    pub id: String,
    pub payment_id: Option<String>,
    pub psp_id: Option<String>,
    pub chain: Option<String>,
    /// Affected money, if it is known.
    #[schema(example = "10.00 USDC")]
    pub money: Option<String>,
    /// Start of the problem.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Moment>,
    /// Age of the problem, milliseconds.
    pub age_ms: Option<i64>,
    /// Reason, as far as it is known.
    pub reason: String,
    pub can: Vec<Possible>,
    /// Position among the items of its kind. Pass it to acknowledge the item.
    #[serde(rename = "item")]
    #[schema(value_type = String)]
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
            chain: None,
            money: None,
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

    /// Adds the affected money.
    fn of_money(self, chain: impl std::fmt::Display, amount: Amount, token: impl std::fmt::Display) -> Self {
        Self { chain: Some(chain.to_string()), money: Some(format!("{amount} {token}")), ..self }
    }

    fn on_chain(self, chain: impl std::fmt::Display) -> Self {
        Self { chain: Some(chain.to_string()), ..self }
    }

    fn with(self, can: Vec<Possible>) -> Self {
        Self { can, ..self }
    }

    /// Sets the position of an item whose position is not its start time.
    pub(super) fn at_position(self, at: i64, id: impl Into<String>) -> Self {
        Self { position: Position::new(Timestamp(at), id), ..self }
    }
}

/// Items of one kind: their number, and one page with the first item after it.
pub(super) type Found = (Count, Vec<AttentionItem>);

/// Reads the items that need attention, `limit` of each kind.
pub(crate) async fn needs_attention(operator: &Operator, limit: usize) -> NeedsAttention {
    let system = &operator.system;
    // First database error; no query follows it.
    let mut failure = answers(system).await.err();
    let (deadline, is_away) = (soon(), failure.is_some());
    let acknowledged = if is_away { None } else { by(deadline, Acknowledged::load(system)).await.ok() };
    let acknowledged = operator.attention.acknowledged(acknowledged);
    let is_cause_known = is_away || system.journal().commit_blocker().is_some();
    let part = Part { after: None, limit: limit.clamp(1, ITEMS_MAX), acknowledged: &acknowledged, is_cause_known };
    let mut undelivered = None;
    if !is_away {
        let webhooks = by(deadline, webhooks::webhooks(system)).await;
        undelivered = webhooks.map_err(|error| failure = Some(error)).ok();
    }
    let (mut kinds, mut unread) = (Vec::new(), Vec::new());
    for kind in AttentionKind::ALL.iter().copied().filter(|kind| *kind != AttentionKind::Database) {
        // Without a database, nothing can be written either.
        if is_away && kind == AttentionKind::JournalHindered {
            continue;
        }
        let is_missing = kind.source() == Source::Webhooks && undelivered.is_none();
        if is_missing || is_away && kind.is_read_from_the_database(system) {
            unread.push(kind);
            continue;
        }
        match by(deadline, find(system, kind, part, undelivered.as_ref())).await {
            Ok(found) => kinds.extend(group(kind, found, part)),
            Err(error) => {
                failure.get_or_insert(error);
                unread.push(kind);
            }
        }
    }
    // The database kind comes first but is checked last: only now is it known if every query was answered.
    if let Some(failure) = failure {
        tracing::warn!(error = %failure, "reading the items that need attention failed: {failure}");
        let away = service::database(system, Some(failure), &unread);
        kinds.splice(0..0, group(AttentionKind::Database, away, part));
    }
    let total = kinds.iter().fold(Count::default(), |sum, group| sum.and(group.total));
    let found = NeedsAttention { total, kinds, unread, acknowledged: acknowledged.entries() };
    operator.attention.store(&found);
    found
}

/// Reads the items of one kind, after a position if one is given.
pub(crate) async fn needs_attention_of(
    operator: &Operator,
    kind: AttentionKind,
    after: Option<&Position>,
    limit: usize,
) -> Result<NeedsAttention, DbErr> {
    let system = &operator.system;
    let acknowledged = match Acknowledged::load(system).await {
        Ok(read) => Some(read),
        Err(_) if !kind.is_read_from_the_database(system) => None,
        Err(error) => return Err(error),
    };
    let acknowledged = operator.attention.acknowledged(acknowledged);
    let part = Part { after, limit: limit.clamp(1, ITEMS_MAX), acknowledged: &acknowledged, is_cause_known: false };
    let undelivered = if kind.source() == Source::Webhooks { Some(webhooks::webhooks(system).await?) } else { None };
    let found = match kind {
        AttentionKind::Database => service::database(system, answers(system).await.err(), &[]),
        kind => find(system, kind, part, undelivered.as_ref()).await?,
    };
    let kinds: Vec<AttentionGroup> = group(kind, found, part).into_iter().collect();
    let total = kinds.first().map_or(Count::default(), |group| group.total);
    Ok(NeedsAttention { total, kinds, unread: Vec::new(), acknowledged: Vec::new() })
}

/// Reads a page of one kind. Webhook kinds are read from the given data.
async fn find(
    system: &System,
    kind: AttentionKind,
    part: Part<'_>,
    undelivered: Option<&Webhooks>,
) -> Result<Found, DbErr> {
    match (kind, kind.source(), undelivered) {
        (AttentionKind::OutboundInReview | AttentionKind::OutboundOverdue, ..) => {
            outbound::of(system, kind, part).await
        }
        (AttentionKind::ApprovalOpen, ..) => approvals::of(system, part).await,
        (AttentionKind::ReceivedMoneyOrphaned | AttentionKind::SettlementOrphaned | AttentionKind::Overdrawn, ..) => {
            alarms::of(system, kind, part).await
        }
        (AttentionKind::OperationOverdue, ..) => payments::operations(system, part).await,
        (AttentionKind::Node, ..) => service::nodes(system, part).await,
        (AttentionKind::IdentityProvider, ..) => service::provider(system, part).await,
        (AttentionKind::CheckOverdue, ..) => service::checks_overdue(system, part).await,
        (_, Source::Database, _) => payments::of(system, kind, part).await,
        (_, Source::Webhooks, Some(webhooks)) => Ok(service::webhooks(system, kind, webhooks, part)),
        (_, Source::Webhooks, None) | (_, Source::Memory, _) => Ok(service::of(system, kind, part)),
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
    Some(AttentionGroup {
        kind,
        total,
        meaning: kind.meaning(),
        advice: kind.advice(),
        runbook: runbooks::path_of(kind.runbook()),
        items,
        next_after,
        next_cursor: None,
    })
}

/// The start of a page.
const POSITION: Rule<Position> = Rule {
    read: |value| {
        let no_position = |_| Fault::new("invalid_cursor", "is not the next_after of an earlier page");
        value.as_str().unwrap_or_default().parse().map_err(no_position)
    },
    schema: || rule::string().max_length(Some(255)).pattern(Some(r"^-?[0-9]+\.")),
};

query! {
    /// Kind and page of the items.
    pub struct AttentionQuery {
        /// Only items of this kind.
        kind: AttentionKind = rule::name(),
        /// Only items after this position of the kind: the `next_after` of the previous page.
        after: Position = POSITION,
        /// Maximum number of items of each kind; 20 if absent.
        limit: u64 = number::<1, { ITEMS_MAX as u64 }>(),
        /// The `next_cursor` of the previous page of the kind. Not together with `after`.
        cursor: String = CURSOR,
    }
}

/// List the items that need attention
///
/// By kind, the most urgent first; oldest first within a kind.
#[utoipa::path(
    get, path = "/ops/stuck", tag = "Service", operation_id = "listNeedsAttention", params(AttentionQuery),
    responses((status = 200, description = "The items.", body = NeedsAttention), UnreadableQuery),
)]
pub(crate) async fn list(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let AttentionQuery { kind, after, limit, cursor } = AttentionQuery::read(&mut query);
    for (name, is_given) in [("after", after.is_some()), ("cursor", cursor.is_some())] {
        if is_given && kind.is_none() {
            query.fault(name, Fault::new("invalid_cursor", "requires the kind that it belongs to"));
        }
    }
    let list = kind.map_or("stuck", AttentionKind::as_str);
    let page = Page::<(i64, String)>::of_limit(list, query, limit.unwrap_or(ITEMS_DEFAULT as u64), after.is_some())?;
    let limit = page.limit.try_into().unwrap_or(ITEMS_MAX);
    let after = after.or(page.after.clone().map(|(at, id)| Position::new(Timestamp(at), id)));
    let mut found = match kind {
        Some(kind) => needs_attention_of(&operator, kind, after.as_ref(), limit).await?,
        None => needs_attention(&operator, limit).await,
    };
    for group in &mut found.kinds {
        let page = Page::at(group.kind.as_str(), page.limit, 0);
        let key = group.next_after.as_ref().map(|next| (next.at.as_millis(), next.id.clone()));
        group.next_cursor = key.map(|key| page.cursor(&key)).transpose()?;
    }
    Answer::ok(&found)
}

/// Position of an item among those of its kind: oldest first, items with the same time in order of id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, derive_more::Display, serde_with::SerializeDisplay)]
#[display("{}.{id}", at.as_millis())]
pub struct Position {
    pub(crate) at: Timestamp,
    pub(crate) id: String,
}

/// Error: the text is not a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPosition;

/// Page of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    /// Position after which the page starts.
    pub(crate) after: Option<&'a Position>,
    /// Items of the page. One more is read, to know if a next page exists.
    limit: usize,
    acknowledged: &'a Acknowledged,
    /// True if the database is known to fail, so that its symptoms are left out.
    is_cause_known: bool,
}

impl Position {
    pub(crate) fn new(at: Timestamp, id: impl Into<String>) -> Self {
        Self { at, id: id.into() }
    }

    /// Splits the id into parts. Parts that a made-up id lacks are empty.
    pub(crate) fn parts<const N: usize>(&self) -> [&str; N] {
        let mut parts = self.id.splitn(N, ':');
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }
}

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (at, id) = text.split_once('.').ok_or(NoPosition)?;
        Ok(Self::new(Timestamp(at.parse().map_err(|_| NoPosition)?), id))
    }
}

impl Part<'_> {
    /// Number of items to read.
    pub(crate) const fn read_max(&self) -> usize {
        self.limit + 1
    }

    /// Query for the entries that are not acknowledged. `from` is the query from its FROM on, and `order` has the columns of
    /// their position.
    pub(crate) fn open(&self, kind: AttentionKind, from: &str, order: &[&str]) -> String {
        if self.acknowledged.is_empty(kind) {
            return from.to_owned();
        }
        let text = |column: &&str| format!("CAST({column} AS TEXT)");
        let (at, id): (String, Vec<String>) = (text(&order[0]), order[1..].iter().map(text).collect());
        format!(
            "{from} AND NOT EXISTS (SELECT 1 FROM acknowledgements WHERE acknowledgements.kind = '{kind}' \
             AND acknowledgements.item = {at} || '.' || {})",
            id.join(" || ':' || ")
        )
    }

    /// Query of a page. `from` is its start with one value, and `order` has the columns of the order. `$1` is the
    /// value, the next parameters are the position.
    pub(crate) fn sql(&self, from: &str, order: &[&str]) -> String {
        let columns = order.join(", ");
        let behind = match self.after {
            Some(_) => {
                let values: Vec<String> = (2..order.len() + 2).map(|number| format!("${number}")).collect();
                format!(" AND ({columns}) > ({})", values.join(", "))
            }
            None => String::new(),
        };
        format!("SELECT * {from}{behind} ORDER BY {columns} LIMIT {}", self.read_max())
    }

    /// Values of such a query if the last column is the id.
    pub(crate) fn values(&self, value: Value) -> Vec<Value> {
        self.values_with(value, |position| vec![position.id.as_str().into()])
    }

    /// The same if several columns are the id.
    fn values_with(&self, value: Value, id: impl Fn(&Position) -> Vec<Value>) -> Vec<Value> {
        let mut values = vec![value];
        if let Some(after) = self.after {
            values.push(after.at.as_millis().into());
            values.extend(id(after));
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_round_trips_and_other_text_is_refused() {
        for id in ["pay_1", "base:0xab.cd:7", ""] {
            let position = Position::new(Timestamp(1_732_175_655_007), id);
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for text in ["", "pay_1", "x.pay_1", "1"] {
            assert_eq!(text.parse::<Position>(), Err(NoPosition), "{text}");
        }
        let position: Position = "5.base:0xab:7".parse().unwrap();
        assert_eq!(position.parts::<3>(), ["base", "0xab", "7"]);
        assert_eq!(position.parts::<4>(), ["base", "0xab", "7", ""]);
    }

    #[test]
    fn the_next_page_starts_after_the_last_item() {
        let position = Position::new(Timestamp(5), "pay_1");
        let acknowledged = Acknowledged::default();
        let first = Part { after: None, limit: 2, acknowledged: &acknowledged, is_cause_known: false };
        let next = Part { after: Some(&position), ..first };
        let (from, order) = ("FROM things WHERE a = $1", ["b", "id"]);
        assert_eq!(first.sql(from, &order), "SELECT * FROM things WHERE a = $1 ORDER BY b, id LIMIT 3");
        let behind = "SELECT * FROM things WHERE a = $1 AND (b, id) > ($2, $3) ORDER BY b, id LIMIT 3";
        assert_eq!(next.sql(from, &order), behind);
        assert_eq!((first.values(1.into()).len(), next.values(1.into()).len()), (1, 3));
    }
}
