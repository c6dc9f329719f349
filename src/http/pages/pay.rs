//! `GET /pay/{token}`: the payer's page. Whoever has the link sees it; it shows nothing of any person.

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::payment::store;
use payferry_actors::wallet::checksummed;
use payferry_domain::payment::{FailureReason, Payment, Status};
use payferry_entities::payments::{Column, Entity};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use crate::http::error::ApiError;
use crate::http::payments::payment_uri;
use crate::http::state::{AppState, Shared};

/// Characters of a link's token, far above what they have.
const TOKEN_CHARS_MAX: usize = 128;

/// A request that was within the limit of its address.
pub(crate) struct Admitted;

impl FromRequestParts<AppState> for Admitted {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, Response> {
        app.limiters.page(parts).map(|()| Self).map_err(|error| failure(&error))
    }
}

/// The page.
pub(in crate::http) async fn serve(
    _: Admitted,
    State(app): State<AppState>,
    token: Result<Path<String>, PathRejection>,
) -> Response {
    // What is not even text is no link's token.
    let token = token.map_or_else(|_| String::new(), |Path(token)| token);
    match find(&app, &token).await {
        Ok(payment) => super::respond(StatusCode::OK, render(&app, &payment).into_string()),
        Err(error) => failure(&error),
    }
}

async fn find(app: &Shared, token: &str) -> Result<Payment, ApiError> {
    let spelled = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if token.len() > TOKEN_CHARS_MAX || !spelled {
        return Err(ApiError::NotFound("payment"));
    }
    let row = Entity::find().filter(Column::LinkToken.eq(token)).one(app.database().reader()).await?;
    Ok(store::payment_of(&row.ok_or(ApiError::NotFound("payment"))?)?)
}

fn render(app: &Shared, payment: &Payment) -> Markup {
    let terms = &payment.terms;
    let (headline, explanation) = words(payment);
    let uri = payment_uri(app.system.chains(), payment);
    let shown = if uri.is_some() { payment.amount_due() } else { terms.amount };
    super::page(
        headline,
        &html! {
            main.narrow {
                h1 { (headline) }
                p { (explanation) }
                div.box {
                    div.amount { (shown) " " (terms.token) }
                    div.soft { "on " (chain_name(terms.chain)) }
                }
                dl {
                    @if uri.is_some() {
                        dt { "Send to" }
                        dd.mono { (checksummed(terms.wallet)) }
                        dt { "Token contract" }
                        dd.mono { (checksummed(terms.token_address)) }
                        dt { "Until" }
                        dd { (payment.expires_at) }
                    }
                    dt { "Status" }
                    dd { (payment.status) }
                    @if !payment.amount_received().is_zero() {
                        dt { "Received" }
                        dd { (payment.amount_received()) " " (terms.token) }
                    }
                }
                @if let Some(uri) = &uri {
                    a.pay href=(uri) { "Open in a wallet" }
                    p.soft {
                        "Send exactly this amount of " (terms.token) ", on " (chain_name(terms.chain))
                        " only. Another token or chain does not pay."
                    }
                }
                p.soft { a href="" { "Reload" } " to see whether it has arrived." }
            }
        },
    )
}

/// What the payer is told.
fn words(payment: &Payment) -> (&'static str, &'static str) {
    match payment.status {
        Status::Pending if payment.transfers.iter().any(payferry_domain::payment::Transfer::is_present) => {
            ("Payment seen", "A transfer has arrived and is being confirmed.")
        }
        Status::Pending => ("Payment requested", "Send the amount to the address below."),
        Status::Confirmed | Status::Settled => ("Payment received", "Thank you; there is nothing more to do."),
        Status::Mismatched if payment.is_completable() => {
            ("Payment incomplete", "Less than the amount has arrived. Send the rest to the same address.")
        }
        Status::Mismatched => {
            ("Payment does not match", "What arrived is not what was asked for. The merchant has been told.")
        }
        Status::Failed => match payment.failure_reason {
            Some(FailureReason::Expired) => {
                ("Payment expired", "Do not send anything; ask the merchant for a new link.")
            }
            Some(FailureReason::Cancelled) => ("Payment cancelled", "Do not send anything."),
            _ => ("Payment failed", "Do not send anything; ask the merchant."),
        },
    }
}

fn chain_name(chain: payferry_domain::Chain) -> &'static str {
    match chain {
        payferry_domain::Chain::Base => "Base",
        payferry_domain::Chain::Polygon => "Polygon",
        payferry_domain::Chain::Arbitrum => "Arbitrum One",
    }
}

/// A page instead of a document: people read it.
fn failure(error: &ApiError) -> Response {
    if let Some((_, reason)) = error.for_log() {
        tracing::error!(error = reason, "a payer's page failed: {reason}");
    }
    let (status, retry_after) = (error.status(), error.retry_after_secs());
    let (headline, explanation) = match status {
        StatusCode::NOT_FOUND => ("No such payment", "This link leads to no payment. Ask the merchant for a new one."),
        StatusCode::TOO_MANY_REQUESTS => ("Too many requests", "Wait a minute, then reload."),
        _ => ("Not available", "The page cannot be shown at the moment. Reload in a little while."),
    };
    let body = html! { main.narrow { h1 { (headline) } p { (explanation) } } };
    let mut response = super::respond(status, super::page(headline, &body).into_string());
    response.headers_mut().extend(retry_after.map(|secs| (RETRY_AFTER, secs.into())));
    response
}
