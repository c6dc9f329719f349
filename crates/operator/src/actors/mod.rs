//! `/ops/actors`: the supervision tree, the payments of a shard, and one payment, payout or withdrawal.

pub(crate) mod page;
pub(crate) mod panel;
pub(crate) mod tree;

use axum::http::Uri;
use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_actors::observe::ActorSubject;
use payferry_domain::PspId;
use payferry_entities::{payments, sendings};
use payferry_httpkit::{Answer, ApiError, Fault, Path, QueryFields};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_runtime::observe::LOG_ENTRIES_MAX;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};
use serde_json::json;

use crate::input::{id_of, limit, payment_id_of};
use crate::{Operator, outbound, payment as facts};

/// Maximum number of listed payments of a shard, or payouts and withdrawals.
pub(super) const LINES_MAX: usize = 500;
/// Number of listed items if the request sets no limit.
pub(super) const LINES_DEFAULT: usize = 100;

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
pub(super) async fn shard(operator: Operator, Path(shard): Path<String>, uri: Uri) -> Result<Answer, ApiError> {
    let index: usize = id_of("shard", &shard)?;
    let mut query = QueryFields::of(&uri);
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

/// Error for a decision about a quarantined actor, which could not carry it out.
pub(super) fn quarantined(of: impl Into<ActorSubject>) -> ApiError {
    let of = of.into();
    let (word, code) = match of {
        ActorSubject::Payment(_) => ("payment", "payment_quarantined"),
        ActorSubject::OutboundTransfer(id) => (id.kind().as_str(), "sending_quarantined"),
    };
    let detail = format!("The {word} {of} is quarantined: it has to be released first.");
    ApiError::Conflict(code, detail, Vec::new())
}

/// Releases a quarantined payment, payout or withdrawal.
pub(crate) async fn release(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let of = actor_subject_of(&id)?;
    let (word, code) = match of {
        ActorSubject::Payment(_) => ("payment", "payment_not_quarantined"),
        ActorSubject::OutboundTransfer(id) => (id.kind().as_str(), "sending_not_quarantined"),
    };
    if !let_run(&operator, of).await? {
        return Err(ApiError::Conflict(code, format!("The {word} {of} is not quarantined."), Vec::new()));
    }
    let message = format!("The {word} is released");
    Answer::ok(&match of {
        ActorSubject::Payment(id) => json!({ "message": message, "payment_id": id }),
        ActorSubject::OutboundTransfer(id) => json!({ "message": message, "sending_id": id }),
    })
}

/// Releases the actor for the operator. Used by the API and the page. Returns whether it was quarantined.
pub(crate) async fn let_run(operator: &Operator, of: impl Into<ActorSubject>) -> Result<bool, ApiError> {
    let (system, of) = (&operator.system, of.into());
    // Of two concurrent requests, only one releases it and writes an entry.
    let _turn = operator.releasing.lock().await;
    let Some(quarantined) = system.quarantine_of(of) else { return Ok(false) };
    let entry = NewAuditEntry {
        action: format!("{}.released", of.kind().as_str()),
        psp_id: psp_of(system, of).await?,
        subject: of.to_string(),
        detail: json!({ "quarantined_at": Moment(quarantined.since) }),
    };
    audit::append(system.database().writer(), &Actor::Operator, system.clock().now(), vec![entry]).await?;
    system.release(of);
    tracing::info!(actor.kind = of.kind().as_str(), actor.name = %of, "operator released {of} from quarantine");
    Ok(true)
}

/// Reads the PSP of the actor's row and nothing else, because the actor may be quarantined for a row that cannot be
/// read.
async fn psp_of(system: &System, of: ActorSubject) -> Result<Option<PspId>, DbErr> {
    let reader = system.database().reader();
    let found: Option<String> = match of {
        ActorSubject::Payment(id) => {
            let query = payments::Entity::find().filter(payments::Column::Id.eq(id.to_string()));
            query.select_only().column(payments::Column::PspId).into_tuple().one(reader).await?
        }
        ActorSubject::OutboundTransfer(id) => {
            let query = sendings::Entity::find().filter(sendings::Column::Id.eq(id.to_string()));
            query.select_only().column(sendings::Column::PspId).into_tuple().one(reader).await?
        }
    };
    Ok(found.and_then(|id| id.parse().ok()))
}
