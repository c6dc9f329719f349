//! `GET /pay/{token}`: the payer's page. Anyone who has the link can open it, so it shows no personal data.
//!
//! `scene` decides the content, `texts` has the words in each language, `brand` the appearance that the PSP chose, `view`
//! renders the page, `qr` draws the codes. The page is complete without JavaScript. With it, `GET /pay/{token}/events` sends
//! the content again whenever it changes. `POST /pay/{token}/chain` chooses the chain, if the payer may.

mod brand;
mod qr;
mod scene;
mod texts;
mod view;

use axum::Form;
use axum::extract::rejection::{FormRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Redirect, Response};
use payferry_domain::payment::{Command, Payment};
use payferry_domain::{Chain, CommandError};
use payferry_entities::payments::{Column, Entity};
use payferry_httpkit::limits::network_prefix;
use payferry_httpkit::live::StreamOwner;
use payferry_httpkit::pages::ScriptAdmitted;
use payferry_httpkit::{Answer, ApiError, ClientAddress, JsonBody};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde::Deserialize;
use serde_json::json;

use crate::http::live;
use crate::http::payments::authorize::{AuthorizationRequest, accept};
use crate::http::state::AppState;

use brand::Brand;
pub(super) use texts::Language;
use view::Frame;
pub(super) use view::{moment, test_notice};

/// The chain's name in wallets.
pub(super) fn chain_name(chain: Chain) -> &'static str {
    scene::chain_name(chain)
}

/// Upper bound for a token's length in characters; real tokens are shorter.
const TOKEN_CHARS_MAX: usize = 128;

/// A request that is within the limit of its address, or its refusal.
pub(super) type Admitted = Result<ScriptAdmitted, ApiError>;

/// The page.
pub(in crate::http) async fn serve(
    admitted: Admitted,
    State(app): State<AppState>,
    language: Language,
    token: Result<Path<String>, PathRejection>,
) -> Response {
    let shown = async {
        admitted?;
        let payment = find(&app, token).await?;
        let frame = Frame { language, brand: Brand::read(&app, &payment).await? };
        Ok(view::page(&app, &payment, &frame))
    };
    answer(language, shown.await)
}

/// Streams the page's content whenever it changes.
pub(in crate::http) async fn events(
    admitted: Admitted,
    State(app): State<AppState>,
    language: Language,
    token: Result<Path<String>, PathRejection>,
    parts: Parts,
) -> Response {
    let begun = async {
        admitted?;
        let payment = find(&app, token).await?;
        let frame = Frame { language, brand: Brand::read(&app, &payment).await? };
        let holder = StreamOwner::Address(network_prefix(ClientAddress::of(&parts)));
        let place = app.stream_limits.take(holder, app.config.limits.streams_per_address)?;
        let render: live::Render = Box::new(move |app, payment| {
            Event::default().event("page").data(view::content(app, payment, &frame).into_string())
        });
        Ok(live::follow(app.clone(), payment, place, render))
    };
    answer(language, begun.await)
}

/// The chain that the payer chose.
#[derive(Deserialize)]
pub(in crate::http) struct Choice {
    chain: String,
}

/// Fixes the chain, and shows the page again: with the chain that was fixed before, if the choice was made already.
pub(in crate::http) async fn choose_chain(
    admitted: Admitted,
    State(app): State<AppState>,
    language: Language,
    token: Result<Path<String>, PathRejection>,
    form: Result<Form<Choice>, FormRejection>,
) -> Response {
    let chosen = async {
        admitted?;
        let payment = find(&app, token).await?;
        let chain = form.ok().and_then(|Form(choice)| choice.chain.parse().ok());
        if let Some(chain) = chain.filter(|chain| app.system.takes_payments_on(*chain)) {
            match app.system.command(payment.id(), Command::ChooseChain { chain }, None).await {
                Ok(_) | Err(CommandError::Rejected(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Redirect::to(&format!("/pay/{}", payment.terms.link_token)).into_response())
    };
    answer(language, chosen.await)
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

/// The payment of a link.
pub(super) async fn find(app: &AppState, token: Result<Path<String>, PathRejection>) -> Result<Payment, ApiError> {
    // A path that is not UTF-8 contains no token.
    let token = token.map_or_else(|_| String::new(), |Path(token)| token);
    let spelled = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if token.len() > TOKEN_CHARS_MAX || !spelled {
        return Err(ApiError::NotFound("payment"));
    }
    let row = Entity::find().filter(Column::LinkToken.eq(token)).one(app.database().reader()).await?;
    Ok(payferry_journal::payments::payment_of(&row.ok_or(ApiError::NotFound("payment"))?)?)
}

/// The response, which depends on the language. A failure is a page for people instead of a problem document.
pub(super) fn answer(language: Language, answered: Result<Response, ApiError>) -> Response {
    let mut response = answered.unwrap_or_else(|error| failure(language, &error));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-language"));
    response
}

fn failure(language: Language, error: &ApiError) -> Response {
    let texts = language.texts();
    let said = match error.status() {
        StatusCode::NOT_FOUND => texts.not_found,
        StatusCode::TOO_MANY_REQUESTS => texts.too_many,
        _ => texts.unavailable,
    };
    super::failure(error, "a payer's page", language.as_str(), said)
}
