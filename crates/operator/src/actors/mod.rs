//! `/ops/actors`: the supervision tree, the payments of a shard, and one payment, payout or withdrawal.

pub(crate) mod journal;
pub(crate) mod list;
pub(crate) mod live;
pub(crate) mod messages;
pub(crate) mod page;
pub(crate) mod panel;
pub(crate) mod quarantine;
pub(crate) mod tree;

use payferry_actors::observe::{ActorSubject, PaymentLine, Quarantinable, Quarantine, QuarantinedSubject, TreeView};
use payferry_actors::system::{ActorView, SystemView};
use payferry_domain::{PaymentId, Timestamp};
use payferry_httpkit::extract::parameters::number;
use payferry_httpkit::lists::{CURSOR, Page};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Path, Problem, QueryFields, query, rule};
use payferry_runtime::observe::{ActorFailure, ActorFigures, Incident, KindView, LOG_ENTRIES_MAX, NodeState};
use serde::Serialize;
use utoipa::ToSchema;

use crate::input::{LINES_DEFAULT, LINES_MAX, id_of, payment_id_of};
use crate::openapi::FreeObject;
use crate::outbound::query::OutboundRecord;
use crate::payment::record::PaymentRecord;
use crate::{Operator, outbound, payment as facts};

/// Maximum number of quarantined subjects next to the tree. `/ops/stuck` lists all of them.
const QUARANTINED_MAX: usize = 100;

/// The supervision tree with its figures.
#[derive(Serialize, ToSchema)]
pub struct SupervisionView {
    #[serde(flatten)]
    system: SystemView,
    /// Quarantined for longest first.
    quarantined: Vec<QuarantinedSubject>,
    /// Supervision log, newest first.
    incidents: Vec<Incident>,
    /// Figures of every kind of actor.
    kinds: Vec<KindView>,
    /// Every permanent actor by name.
    tree: TreeView,
}

/// Read the supervision tree
#[utoipa::path(
    get, path = "/ops/actors", tag = "Service", operation_id = "getActors",
    responses((status = 200, description = "The tree.", body = SupervisionView)),
)]
pub(super) async fn tree(operator: Operator) -> Result<Answer, ApiError> {
    let system = &operator.system;
    Answer::ok(&SupervisionView {
        system: system.observe(),
        quarantined: system.given_up(None, QUARANTINED_MAX),
        incidents: system.log().latest(LOG_ENTRIES_MAX),
        kinds: system.kinds(),
        tree: system.tree(),
    })
}

query! {
    /// Page of the payments of a shard.
    pub struct ShardQuery {
        /// Only ids after this one: the `next_after` of the previous page.
        after: PaymentId = rule::id(),
        /// Maximum number of payments; 100 if absent.
        limit: u64 = number::<1, LINES_MAX>(),
        /// The `next_cursor` of the previous page. Not together with `after`.
        cursor: String = CURSOR,
    }
}

/// A page of the live payments of a shard.
#[derive(Serialize, ToSchema)]
pub struct ShardPage {
    /// Number of the shard.
    shard: usize,
    /// In the order of their ids.
    payments: Vec<PaymentLine>,
    /// Pass it as `after` to get the next page; null on the last page.
    next_after: Option<String>,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
}

/// List the live payments of a shard
#[utoipa::path(
    get, path = "/ops/shards/{shard}", tag = "Service", operation_id = "listShardPayments",
    params(("shard" = String, Path, description = "The number of the shard."), ShardQuery),
    responses(
        (status = 200, description = "A page of payments.", body = ShardPage),
        UnreadableQuery,
        (status = 404, description = "`shard_not_found`.", body = Problem),
    ),
)]
pub(super) async fn shard(
    operator: Operator,
    Path(shard): Path<String>,
    mut query: QueryFields,
) -> Result<Answer, ApiError> {
    let index: usize = id_of("shard", &shard)?;
    let ShardQuery { after, limit, .. } = ShardQuery::read(&mut query);
    let page = Page::of_limit("shard", query, limit.unwrap_or(LINES_DEFAULT), after.is_some())?;
    if index >= facts::shards(&operator.system) {
        return Err(ApiError::NotFound("shard"));
    }
    let mut payments = operator.system.payments_of_shard(index, after.or(page.after), page.lines_max());
    let next = page.cut(&mut payments).then(|| payments.last()).flatten().map(|line| line.id);
    let next_cursor = next.map(|id| page.cursor(&id)).transpose()?;
    Answer::ok(&ShardPage { shard: index, payments, next_after: next.map(|id| id.to_string()), next_cursor })
}

/// State of the actor of a payment, payout or withdrawal.
#[derive(Serialize, ToSchema)]
pub struct ActorRecord {
    /// Present for a payment.
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_id: Option<String>,
    /// Present for a payout or withdrawal.
    #[serde(skip_serializing_if = "Option::is_none")]
    sending_id: Option<String>,
    state: NodeState,
    /// Time of the last start, milliseconds since 1970; null while it is not running.
    since: Option<i64>,
    #[serde(flatten)]
    figures: ActorFigures,
    /// Restarts, as far as they are recorded.
    restarts: u64,
    /// Last failure, as far as it is recorded.
    last_failure: Option<ActorFailure>,
    /// Reason of the quarantine, if it is quarantined.
    quarantined: Option<Quarantine>,
    /// Its cached state; null if it is not running or does not reply in time.
    memory: Option<MemoryRecord>,
}

/// State that an actor caches.
#[derive(Serialize, ToSchema)]
pub struct MemoryRecord {
    /// Number of transitions.
    version: u32,
    /// Status of the payment, payout or withdrawal.
    status: &'static str,
    /// True if it may be behind the row.
    stale: bool,
    /// Pending effects; `effect` names the kind of each.
    owes: Vec<FreeObject>,
}

impl ActorRecord {
    pub(crate) fn of<E: Serialize>(view: ActorView<E>) -> Result<Self, ApiError> {
        let (payment_id, sending_id) = ids_of(view.id);
        let memory = view.memory.map(|memory| {
            let owes = effects(&memory.owes)?;
            Ok::<_, ApiError>(MemoryRecord {
                version: memory.version,
                status: memory.status,
                stale: memory.stale,
                owes,
            })
        });
        Ok(Self {
            payment_id,
            sending_id,
            state: view.state,
            since: view.since.map(Timestamp::as_millis),
            figures: view.figures,
            restarts: view.restarts,
            last_failure: view.last_failure,
            quarantined: view.quarantined,
            memory: memory.transpose()?,
        })
    }
}

/// The id in the field of its kind: `payment_id` or `sending_id`.
fn ids_of(of: ActorSubject) -> (Option<String>, Option<String>) {
    match of {
        ActorSubject::Payment(id) => (Some(id.to_string()), None),
        ActorSubject::OutboundTransfer(id) => (None, Some(id.to_string())),
    }
}

/// Effects in a response.
pub(crate) fn effects(all: &[impl Serialize]) -> Result<Vec<FreeObject>, ApiError> {
    let each = all.iter().map(|one| Ok(serde_json::to_value(one)?.into()));
    each.collect()
}

/// Parses the id of a payout or withdrawal, or else of a payment.
pub(super) fn actor_subject_of(text: &str) -> Result<ActorSubject, ApiError> {
    text.parse().map(ActorSubject::OutboundTransfer).or_else(|_| payment_id_of(text).map(ActorSubject::Payment))
}

/// A payment, or a payout or withdrawal.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum SubjectRecord {
    /// A payment.
    Payment(Box<PaymentRecord>),
    /// A payout or withdrawal.
    OutboundTransfer(Box<OutboundRecord>),
}

/// Read a payment, payout or withdrawal with its actor
///
/// Returns the record itself: everything about a payment, or a payout or withdrawal as in `GET /ops/sendings/{sending_id}`.
#[utoipa::path(
    get, path = "/ops/actors/{actor_id}", tag = "Money", operation_id = "getActor",
    params(("actor_id" = String, Path, description = "The id of the payment, payout or withdrawal.")),
    responses(
        (status = 200, description = "The record.", body = SubjectRecord),
        (status = 404, description = NO_SUBJECT, body = Problem),
    ),
)]
pub(super) async fn one(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    Answer::ok(&match actor_subject_of(&id)? {
        ActorSubject::Payment(id) => {
            let facts = facts::payment(&operator.system, id).await?.ok_or(ApiError::NotFound("payment"))?;
            SubjectRecord::Payment(Box::new(PaymentRecord::of(facts)?))
        }
        ActorSubject::OutboundTransfer(id) => {
            let facts = outbound::find(&operator, id).await?;
            SubjectRecord::OutboundTransfer(Box::new(OutboundRecord::of(facts)?))
        }
    })
}

/// Description of an unknown id.
const NO_SUBJECT: &str = "`payment_not_found` or `sending_not_found`.";

/// A released subject.
#[derive(Serialize, ToSchema)]
pub struct ReleasedActor {
    message: String,
    /// Present for a payment.
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_id: Option<String>,
    /// Present for a payout or withdrawal.
    #[serde(skip_serializing_if = "Option::is_none")]
    sending_id: Option<String>,
    /// Present for a customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    customer_id: Option<String>,
}

/// Release a quarantined payment, payout, withdrawal or customer
#[utoipa::path(
    post, path = "/ops/actors/{actor_id}/release", tag = "Money", operation_id = "releaseActor",
    params(("actor_id" = String, Path, description = "The id of the payment, payout, withdrawal or customer.")),
    responses(
        (status = 200, description = "It is released.", body = ReleasedActor),
        (status = 404, description = NO_SUBJECT, body = Problem),
        (
            status = 409, body = Problem,
            description = "`payment_not_quarantined`, `sending_not_quarantined` or `customer_not_quarantined`.",
        ),
    ),
)]
pub(crate) async fn release(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let of = match id.parse() {
        Ok(customer) => Quarantinable::Customer(customer),
        Err(_) => actor_subject_of(&id)?.into(),
    };
    let word = quarantine::word(of);
    if !quarantine::release(&operator, of).await? {
        let detail = format!("The {word} {of} is not quarantined.");
        return Err(match of {
            Quarantinable::Actor(ActorSubject::Payment(_)) => ApiError::conflict("payment_not_quarantined", detail),
            Quarantinable::Actor(ActorSubject::OutboundTransfer(_)) => {
                ApiError::conflict("sending_not_quarantined", detail)
            }
            Quarantinable::Customer(_) => ApiError::conflict("customer_not_quarantined", detail),
        });
    }
    let message = format!("The {word} is released");
    let ((payment_id, sending_id), customer_id) = match of {
        Quarantinable::Actor(actor) => (ids_of(actor), None),
        Quarantinable::Customer(id) => ((None, None), Some(id.to_string())),
    };
    Answer::ok(&ReleasedActor { message, payment_id, sending_id, customer_id })
}
