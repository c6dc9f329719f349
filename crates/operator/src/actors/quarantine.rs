//! Quarantine of a payment, payout or withdrawal: its release, and the error for decisions until then.

use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_actors::observe::ActorSubject;
use payferry_domain::PspId;
use payferry_entities::{payments, sendings};
use payferry_httpkit::ApiError;
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};
use serde_json::json;

use crate::Operator;

/// Error for a decision about a quarantined actor, which could not carry it out.
pub(crate) fn quarantined(of: impl Into<ActorSubject>) -> ApiError {
    let of = of.into();
    let word = match of {
        ActorSubject::Payment(_) => "payment",
        ActorSubject::OutboundTransfer(id) => id.kind().as_str(),
    };
    let detail = format!("The {word} {of} is quarantined: it has to be released first.");
    match of {
        ActorSubject::Payment(_) => ApiError::conflict("payment_quarantined", detail),
        ActorSubject::OutboundTransfer(_) => ApiError::conflict("sending_quarantined", detail),
    }
}

/// Releases the actor for the operator. Used by the API and the page. Returns whether it was quarantined.
pub(crate) async fn release(operator: &Operator, of: impl Into<ActorSubject>) -> Result<bool, DbErr> {
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
