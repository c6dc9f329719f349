//! `/ops/actors`: the supervision tree, the payments of a shard, and one payment, payout or withdrawal.

pub(crate) mod journal;
pub(crate) mod live;
pub(crate) mod page;
pub(crate) mod panel;
pub(crate) mod quarantine;
pub(crate) mod tree;

use payferry_actors::observe::ActorSubject;
use payferry_httpkit::{Answer, ApiError, Fault, Path, QueryFields};
use payferry_runtime::observe::LOG_ENTRIES_MAX;
use serde_json::json;

use crate::input::{LINES_DEFAULT, LINES_MAX, id_of, limit, payment_id_of};
use crate::{Operator, outbound, payment as facts};

/// Maximum number of quarantined actors next to the tree. `/ops/stuck` lists all of them.
const QUARANTINED_MAX: usize = 100;

/// Returns the tree: every permanent actor by name, figures by kind, quarantined actors, and the supervision log.
pub(super) async fn tree(operator: Operator) -> Result<Answer, ApiError> {
    let system = &operator.system;
    Answer::ok(&record! {
        #[serde(flatten)]
        system: system.observe(),
        // Quarantined for longest first.
        quarantined: system.given_up(None, QUARANTINED_MAX),
        // Newest first.
        incidents: system.log().latest(LOG_ENTRIES_MAX),
        kinds: system.kinds(),
        tree: system.tree(),
    })
}

/// Returns the live payments of a shard in order of id, and the start of the next page if there may be one. `?after=`
/// starts after an id, `?limit=` sets the page size.
pub(super) async fn shard(
    operator: Operator,
    Path(shard): Path<String>,
    mut query: QueryFields,
) -> Result<Answer, ApiError> {
    let index: usize = id_of("shard", &shard)?;
    let after = query
        .optional("after", |text| text.parse().map_err(|_| Fault::new("invalid_id", "is not the id of a payment")));
    let limit = limit(&mut query, LINES_DEFAULT, LINES_MAX);
    query.finish()?;
    if index >= facts::shards(&operator.system) {
        return Err(ApiError::NotFound("shard"));
    }
    let payments = operator.system.payments_of_shard(index, after, limit);
    let next_after = payments.last().filter(|_| payments.len() == limit).map(|line| line.id);
    Answer::ok(&record! { shard: index, payments: payments, next_after: next_after })
}

/// Parses the id of a payout or withdrawal, or else of a payment.
pub(super) fn actor_subject_of(text: &str) -> Result<ActorSubject, ApiError> {
    text.parse().map(ActorSubject::OutboundTransfer).or_else(|_| payment_id_of(text).map(ActorSubject::Payment))
}

/// Returns all data of one payment, payout or withdrawal.
pub(super) async fn one(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let id = match actor_subject_of(&id)? {
        ActorSubject::Payment(id) => id,
        ActorSubject::OutboundTransfer(id) => return Answer::ok(&outbound::find(&operator, id).await?.record()),
    };
    let facts = facts::payment(&operator.system, id).await?.ok_or(ApiError::NotFound("payment"))?;
    Answer::ok(&facts::record::payment(facts)?)
}

/// Releases a quarantined payment, payout or withdrawal.
pub(crate) async fn release(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let of = actor_subject_of(&id)?;
    let (word, code) = match of {
        ActorSubject::Payment(_) => ("payment", "payment_not_quarantined"),
        ActorSubject::OutboundTransfer(id) => (id.kind().as_str(), "sending_not_quarantined"),
    };
    if !quarantine::release(&operator, of).await? {
        return Err(ApiError::Conflict(code, format!("The {word} {of} is not quarantined."), Vec::new()));
    }
    let message = format!("The {word} is released");
    Answer::ok(&match of {
        ActorSubject::Payment(id) => json!({ "message": message, "payment_id": id }),
        ActorSubject::OutboundTransfer(id) => json!({ "message": message, "sending_id": id }),
    })
}
