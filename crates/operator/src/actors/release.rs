//! Release from quarantine, for the API and for the page's buttons.
//!
//! The audit entry is written before the release. Deliberately absent: a reason, because the release decides nothing.

use axum::extract::State;
use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_actors::observe::Ferried;
use payferry_domain::PspId;
use payferry_entities::{payments, sendings};
use payferry_httpkit::Answer;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::Path;
use payferry_journal::audit;
use payferry_journal::audit::{Actor, Entry};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};
use serde_json::json;

use crate::Operator;
use crate::actors::ferried_of;

/// Releases a quarantined payment, payout or withdrawal.
pub(crate) async fn release(State(operator): State<Operator>, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let of = ferried_of(&id)?;
    let (word, code) = match of {
        Ferried::Payment(_) => ("payment", "payment_not_quarantined"),
        Ferried::Sending(id) => (id.kind().as_str(), "sending_not_quarantined"),
    };
    if !let_run(&operator, of).await? {
        return Err(ApiError::Conflict(code, format!("The {word} {of} is not quarantined."), Vec::new()));
    }
    let message = format!("The {word} is released");
    Answer::ok(&match of {
        Ferried::Payment(id) => json!({ "message": message, "payment_id": id }),
        Ferried::Sending(id) => json!({ "message": message, "sending_id": id }),
    })
}

/// Releases the actor for the operator. Used by the API and the page. Returns whether it was quarantined.
pub(crate) async fn let_run(operator: &Operator, of: impl Into<Ferried>) -> Result<bool, ApiError> {
    let (system, of) = (&operator.system, of.into());
    // Of two concurrent requests, only one releases it and writes an entry.
    let _turn = operator.releasing.lock().await;
    let Some(quarantined) = system.quarantine_of(of) else { return Ok(false) };
    let entry = Entry {
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
async fn psp_of(system: &System, of: Ferried) -> Result<Option<PspId>, DbErr> {
    let reader = system.database().reader();
    let found: Option<String> = match of {
        Ferried::Payment(id) => {
            let query = payments::Entity::find().filter(payments::Column::Id.eq(id.to_string()));
            query.select_only().column(payments::Column::PspId).into_tuple().one(reader).await?
        }
        Ferried::Sending(id) => {
            let query = sendings::Entity::find().filter(sendings::Column::Id.eq(id.to_string()));
            query.select_only().column(sendings::Column::PspId).into_tuple().one(reader).await?
        }
    };
    Ok(found.and_then(|id| id.parse().ok()))
}
