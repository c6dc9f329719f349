//! `/ops/actors`: the tree, a shard's payments, and everything of one payment, payout or withdrawal.

pub(crate) mod incidents;
pub(crate) mod page;
pub(crate) mod panel;
pub(crate) mod release;
pub(crate) mod shard;
pub(crate) mod tree;

use axum::extract::State;
use axum::http::Uri;
use payferry_actors::SystemView;
use payferry_actors::observe::{Ferried, GivenUp, Incident, KindView, LOG_ENTRIES_MAX, PaymentLine, TreeView};
use payferry_domain::PaymentId;
use payferry_httpkit::Answer;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Fault, Path, QueryFields};
use serde::Serialize;

use crate::input::{id_of, payment_id_of};
use crate::payment::record::PaymentRecord;
use crate::{Operator, outbound as sendings, overview, payment as facts};

/// Payments of a shard, or payouts and withdrawals, that are listed at most.
pub(super) const LINES_MAX: usize = 500;
/// Those that are listed unless asked otherwise.
pub(super) const LINES_DEFAULT: usize = 100;

/// Quarantined ones that stand beside the tree; `/ops/stuck` has them all.
const QUARANTINED_MAX: usize = 100;

/// The supervision tree as it shows itself.
#[derive(Serialize)]
struct Actors {
    #[serde(flatten)]
    system: SystemView,
    /// The longest given up.
    quarantined: Vec<GivenUp>,
    /// Newest first.
    incidents: Vec<Incident>,
    kinds: Vec<KindView>,
    tree: TreeView,
}

#[derive(Serialize)]
struct ShardPage {
    shard: usize,
    payments: Vec<PaymentLine>,
    /// Where the next page begins, if there may be one.
    next_after: Option<PaymentId>,
}

/// The tree: every permanent actor by name, figures by kind, what is quarantined, the supervision log.
pub(super) async fn tree(State(operator): State<Operator>) -> Result<Answer, ApiError> {
    let system = &operator.system;
    Answer::ok(&Actors {
        system: system.observe(),
        quarantined: system.given_up(None, QUARANTINED_MAX),
        incidents: system.latest_incidents(LOG_ENTRIES_MAX),
        kinds: system.kinds(),
        tree: system.tree(),
    })
}

/// Everything at a glance, as the page shows it.
pub(super) async fn overview(State(operator): State<Operator>) -> Result<Answer, ApiError> {
    Answer::ok(&overview::overview(&operator.system).await)
}

/// The live payments of a shard, in the order of their ids; `?after=` an id, `?limit=` so many.
pub(super) async fn shard(
    State(operator): State<Operator>,
    Path(shard): Path<String>,
    uri: Uri,
) -> Result<Answer, ApiError> {
    let index: usize = id_of("shard", &shard)?;
    let mut query = QueryFields::of(&uri);
    let after =
        query.optional("after", |text| text.parse().map_err(|_| Fault::new("invalid_id", "is no payment's id")));
    let limit = query.optional("limit", limit);
    query.finish()?;
    if index >= facts::shards(&operator.system) {
        return Err(ApiError::NotFound("shard"));
    }
    let limit = limit.unwrap_or(LINES_DEFAULT);
    let payments = operator.system.payments_of_shard(index, after, limit);
    let next_after = payments.last().filter(|_| payments.len() == limit).map(|line| line.id);
    Answer::ok(&ShardPage { shard: index, payments, next_after })
}

/// How many lines are asked for.
pub(super) fn limit(text: &str) -> Result<usize, Fault> {
    let out = || Fault::new("out_of_range", format!("must be a whole number between 1 and {LINES_MAX}"));
    text.parse::<usize>().ok().filter(|limit| (1..=LINES_MAX).contains(limit)).ok_or_else(out)
}

/// Whose actor a path names: a payout's or withdrawal's, or else a payment's.
pub(super) fn ferried_of(text: &str) -> Result<Ferried, ApiError> {
    text.parse().map(Ferried::Sending).or_else(|_| payment_id_of(text).map(Ferried::Payment))
}

/// Everything of one payment, payout or withdrawal.
pub(super) async fn one(State(operator): State<Operator>, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let id = match ferried_of(&id)? {
        Ferried::Payment(id) => id,
        Ferried::Sending(id) => return Answer::ok(&sendings::find(&operator, id).await?),
    };
    let facts = facts::payment(&operator.system, id).await?.ok_or(ApiError::NotFound("payment"))?;
    Answer::ok(&PaymentRecord::of(facts)?)
}

/// That nothing is decided about one that is quarantined: its actor would have to carry it out.
pub(super) fn quarantined(of: impl Into<Ferried>) -> ApiError {
    let of = of.into();
    let (word, code) = match of {
        Ferried::Payment(_) => ("payment", "payment_quarantined"),
        Ferried::Sending(id) => (id.kind().as_str(), "sending_quarantined"),
    };
    let detail = format!("The {word} {of} is quarantined: it has to be released before anything is decided about it.");
    ApiError::Conflict(code, detail, Vec::new())
}
