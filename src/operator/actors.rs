//! `/ops/actors`: the tree, a shard's payments, and everything of one payment.

use axum::extract::State;
use axum::http::Uri;
use payferry_actors::SystemView;
use payferry_actors::observe::{KindView, PaymentLine, TreeView};
use payferry_domain::PaymentId;
use serde::Serialize;
use serde_json::json;

use super::Operator;
use super::admin::{id_of, payment_id_of};
use super::read::{overview, payment as facts};
use super::record::PaymentRecord;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::extract::{Fault, Path, QueryFields};

/// Payments of a shard that are listed at most.
const LINES_MAX: usize = 500;
/// Payments of a shard that are listed unless asked otherwise.
const LINES_DEFAULT: usize = 100;

/// The supervision tree as it shows itself.
#[derive(Serialize)]
struct Actors {
    #[serde(flatten)]
    system: SystemView,
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

/// The tree: every permanent actor by name, figures by kind, quarantined payments, the supervision log.
pub(super) async fn tree(State(operator): State<Operator>) -> Result<Answer, ApiError> {
    let system = &operator.system;
    Answer::ok(&Actors { system: system.observe(), kinds: system.kinds(), tree: system.tree() })
}

/// Everything at a glance, as the page shows it.
pub(super) async fn overview(State(operator): State<Operator>) -> Result<Answer, ApiError> {
    Answer::ok(&overview::overview(&operator.system).await?)
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
    let limit = query.optional("limit", |text| {
        let out = || Fault::new("out_of_range", format!("must be a whole number between 1 and {LINES_MAX}"));
        text.parse::<usize>().ok().filter(|limit| (1..=LINES_MAX).contains(limit)).ok_or_else(out)
    });
    query.finish()?;
    if index >= facts::shards(&operator.system) {
        return Err(ApiError::NotFound("shard"));
    }
    let limit = limit.unwrap_or(LINES_DEFAULT);
    let payments = operator.system.payments_of_shard(index, after, limit);
    let next_after = payments.last().filter(|_| payments.len() == limit).map(|line| line.id);
    Answer::ok(&ShardPage { shard: index, payments, next_after })
}

/// Everything of one payment.
pub(super) async fn payment(
    State(operator): State<Operator>,
    Path(payment_id): Path<String>,
) -> Result<Answer, ApiError> {
    let id = payment_id_of(&payment_id)?;
    let facts = facts::payment(&operator.system, id).await?.ok_or(ApiError::NotFound("payment"))?;
    Answer::ok(&PaymentRecord::of(facts)?)
}

/// Lets a quarantined payment run again.
pub(super) async fn release(
    State(operator): State<Operator>,
    Path(payment_id): Path<String>,
) -> Result<Answer, ApiError> {
    let id: PaymentId = payment_id_of(&payment_id)?;
    if !operator.system.release(id) {
        let detail = format!("The payment {id} is not quarantined.");
        return Err(ApiError::Conflict("payment_not_quarantined", detail, Vec::new()));
    }
    tracing::info!(payment.id = %id, "the operator released payment {id} from quarantine");
    Answer::ok(&json!({"message": "The payment runs again", "payment_id": id}))
}
