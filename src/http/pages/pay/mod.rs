//! `GET /pay/{token}`: the payer's page. Anyone who has the link can open it, so it shows no personal data.
//!
//! `scene` decides the content, `view` renders it, `qr` draws the code. The page is complete without JavaScript. With
//! it, `GET /pay/{token}/events` sends the content again whenever it changes.

mod qr;
mod scene;
mod view;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use axum::response::sse::Event;
use payferry_domain::payment::Payment;
use payferry_entities::payments::{Column, Entity};
use payferry_httpkit::limits::network_prefix;
use payferry_httpkit::live::StreamOwner;
use payferry_httpkit::pages::{PageAdmitted, ScriptAdmitted};
use payferry_httpkit::{Answer, ApiError, ClientAddress, JsonBody};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::json;

use crate::http::live;
use crate::http::payments::authorize::{AuthorizationRequest, accept};
use crate::http::state::{AppShared, AppState};

/// Upper bound for a token's length in characters; real tokens are shorter.
const TOKEN_CHARS_MAX: usize = 128;

/// The page.
pub(in crate::http) async fn serve(
    _: PageAdmitted,
    State(app): State<AppState>,
    token: Result<Path<String>, PathRejection>,
) -> Response {
    match find(&app, token).await {
        Ok(payment) => view::page(&app, &payment),
        Err(error) => failure(&error),
    }
}

/// Streams the page's content whenever it changes.
pub(in crate::http) async fn events(
    _: PageAdmitted,
    State(app): State<AppState>,
    token: Result<Path<String>, PathRejection>,
    parts: Parts,
) -> Response {
    let begin = async || {
        let payment = find(&app, token).await?;
        let holder = StreamOwner::Address(network_prefix(ClientAddress::of(&parts)));
        Ok((payment, app.stream_limits.take(holder, app.config.limits.streams_per_address)?))
    };
    match begin().await {
        Ok((payment, place)) => live::follow(app.clone(), payment, place, event),
        Err(error) => failure(&error),
    }
}

/// Takes what the payer signed on the page. Answers as the API does, because a script reads it.
pub(in crate::http) async fn authorize(
    _: ScriptAdmitted,
    State(app): State<AppState>,
    token: Result<Path<String>, PathRejection>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let payment = find(&app, token).await?;
    let payment = accept(&app, &payment, &body.parse::<AuthorizationRequest>()?.terms()).await?;
    let state = payment.authorization.as_deref().map(|authorization| authorization.state.as_str());
    Answer::accepted(&json!({"message": "Authorization accepted", "state": state}))
}

fn event(app: &AppShared, payment: &Payment) -> Event {
    Event::default().event("page").data(view::content(app, payment).into_string())
}

async fn find(app: &AppShared, token: Result<Path<String>, PathRejection>) -> Result<Payment, ApiError> {
    // A path that is not UTF-8 contains no token.
    let token = token.map_or_else(|_| String::new(), |Path(token)| token);
    let spelled = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if token.len() > TOKEN_CHARS_MAX || !spelled {
        return Err(ApiError::NotFound("payment"));
    }
    let row = Entity::find().filter(Column::LinkToken.eq(token)).one(app.database().reader()).await?;
    Ok(payferry_journal::payments::payment_of(&row.ok_or(ApiError::NotFound("payment"))?)?)
}

/// Answers with a page for people instead of a problem document.
fn failure(error: &ApiError) -> Response {
    let texts = match error.status() {
        StatusCode::NOT_FOUND => {
            ("No such payment", "There is no payment for this link. Ask its sender for a new one.")
        }
        StatusCode::TOO_MANY_REQUESTS => ("Too many requests", "Wait a minute, then reload."),
        _ => ("Not available", "The page cannot be shown at the moment. Reload in a little while."),
    };
    super::failure(error, "a payer's page", texts)
}
