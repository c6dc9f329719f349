//! Quarantine of a payment, payout, withdrawal or customer: its release, and the error for decisions until then.

use axum::response::Response;
use maud::{Markup, Render};
use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_actors::observe::{ActorSubject, Quarantinable};
use payferry_domain::PspId;
use payferry_entities::{customers, payments, sendings};
use payferry_httpkit::ApiError;
use payferry_journal::audit::NewAuditEntry;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};
use serde_json::json;

use crate::Operator;
use crate::page::form::{ChangeButton, Filled, answer_button};
use crate::page::{Refused, path};

/// Error for a decision about a quarantined subject, which could not carry it out.
pub(crate) fn quarantined(of: impl Into<Quarantinable>) -> ApiError {
    let of = of.into();
    let detail = format!("The {} {of} is quarantined: it has to be released first.", word(of));
    match of {
        Quarantinable::Actor(ActorSubject::Payment(_)) => ApiError::conflict("payment_quarantined", detail),
        Quarantinable::Actor(ActorSubject::OutboundTransfer(_)) => ApiError::conflict("sending_quarantined", detail),
        Quarantinable::Customer(_) => ApiError::conflict("customer_quarantined", detail),
    }
}

/// Word for the subject in a sentence.
pub(crate) fn word(of: Quarantinable) -> &'static str {
    match of {
        Quarantinable::Actor(ActorSubject::Payment(_)) => "payment",
        Quarantinable::Actor(ActorSubject::OutboundTransfer(id)) => id.kind().as_str(),
        Quarantinable::Customer(_) => "customer",
    }
}

/// Releases the subject for the operator. Used by the API and the page. Returns whether it was quarantined.
pub(crate) async fn release(operator: &Operator, of: impl Into<Quarantinable>) -> Result<bool, DbErr> {
    let (system, of) = (&operator.system, of.into());
    let Some(quarantined) = system.quarantine_of(of) else { return Ok(false) };
    let kind = match of {
        Quarantinable::Actor(actor) => actor.kind().as_str(),
        Quarantinable::Customer(_) => "customer",
    };
    let entry = NewAuditEntry {
        action: format!("{kind}.released"),
        psp_id: psp_of(system, of).await?,
        subject: of.to_string(),
        detail: json!({ "quarantined_at": Moment(quarantined.since) }),
    };
    // Of two concurrent requests, only one releases it and writes an entry.
    let released = system.release(of, vec![entry]).await?;
    if released {
        tracing::info!(actor.kind = kind, actor.name = %of, "operator released {of} from quarantine");
    }
    Ok(released)
}

/// Releases the subject for a form of its page.
pub(crate) async fn release_by_form(
    operator: &Operator,
    filled: &Filled,
    of: impl Into<Quarantinable>,
) -> Result<Response, Refused> {
    let of = of.into();
    // The page shows the current state, so the result is not needed.
    let change = async { Ok(release(operator, of).await.map(drop)?) };
    answer_button(filled, &page_of(of), change).await
}

/// Path of the subject's page.
pub(crate) fn page_of(of: Quarantinable) -> String {
    let pages = match of {
        Quarantinable::Actor(ActorSubject::Payment(_)) => "payments",
        Quarantinable::Actor(ActorSubject::OutboundTransfer(_)) => "sendings",
        Quarantinable::Customer(_) => "customers",
    };
    format!("{}/{of}", path(pages))
}

/// Button that releases the subject.
pub(crate) fn release_button(of: Quarantinable) -> Markup {
    let (subject, action) = (of.to_string(), format!("{}/release", page_of(of)));
    let statement = "The cause of the failure is fixed";
    ChangeButton { label: "Release", subject: &subject, action: &action, hidden: &[], statement }.render()
}

/// Reads the PSP of the subject's row and nothing else, because the subject may be quarantined for a row that cannot be
/// read.
pub(crate) async fn psp_of(system: &System, of: Quarantinable) -> Result<Option<PspId>, DbErr> {
    let reader = system.database().reader();
    let found: Option<String> = match of {
        Quarantinable::Actor(ActorSubject::Payment(id)) => {
            let query = payments::Entity::find().filter(payments::Column::Id.eq(id.to_string()));
            query.select_only().column(payments::Column::PspId).into_tuple().one(reader).await?
        }
        Quarantinable::Actor(ActorSubject::OutboundTransfer(id)) => {
            let query = sendings::Entity::find().filter(sendings::Column::Id.eq(id.to_string()));
            query.select_only().column(sendings::Column::PspId).into_tuple().one(reader).await?
        }
        Quarantinable::Customer(id) => {
            let query = customers::Entity::find().filter(customers::Column::Id.eq(id.to_string()));
            query.select_only().column(customers::Column::PspId).into_tuple().one(reader).await?
        }
    };
    Ok(found.and_then(|id| id.parse().ok()))
}
