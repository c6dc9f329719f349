//! `GET` and `POST /consent?token=...`: the terms of service, and the button that accepts them.
//!
//! Works without JavaScript. The token in the URL authenticates. No cookie is set, and the page shows only the
//! requesting PSP, nothing about the customer.

use axum::Form;
use axum::extract::State;
use axum::extract::rejection::FormRejection;
use axum::http::header::USER_AGENT;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use maud::html;
use payferry_domain::customer::{Command, Customer};
use payferry_domain::{CustomerId, Timestamp, TransitionError};
use payferry_entities::{customers, psps};
use payferry_httpkit::pages::PageAdmitted;
use payferry_httpkit::{ApiError, QueryFields, pages};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_journal::customers::{CustomerChangeError, customer_of};
use sea_orm::EntityTrait;
use serde::Deserialize;
use serde_json::json;

use super::{failure, notice};
use crate::http::consent::link::{self, LinkError};
use crate::http::state::{AppShared, AppState};

/// Maximum characters of a stored user agent; the rest is cut off.
const USER_AGENT_CHARS_MAX: usize = 255;

/// The submitted form.
#[derive(Deserialize)]
pub(in crate::http) struct Click {
    accept: Option<String>,
}

/// Reason why there is nothing to accept.
enum Refusal {
    Link(LinkError),
    /// The customer is deactivated.
    Over,
    Error(ApiError),
}

impl<E: Into<ApiError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Shows the terms.
pub(in crate::http) async fn show(_: PageAdmitted, State(app): State<AppState>, uri: Uri) -> Response {
    match ask(&app, &token_of(&uri)).await {
        Ok((customer, psp)) => match customer.tos_accepted_at {
            Some(at) => accepted("You have accepted these terms already", at),
            None => offer(&app, StatusCode::OK, &psp),
        },
        Err(refusal) => refuse(&refusal),
    }
}

/// Records the acceptance of the terms.
pub(in crate::http) async fn accept(
    _: PageAdmitted,
    State(app): State<AppState>,
    uri: Uri,
    headers: HeaderMap,
    click: Result<Form<Click>, FormRejection>,
) -> Response {
    let token = token_of(&uri);
    let is_accepted = click.is_ok_and(|Form(click)| click.accept.as_deref() == Some("yes"));
    let outcome = async {
        if !is_accepted {
            let (_, psp) = ask(&app, &token).await?;
            return Ok(offer(&app, StatusCode::UNPROCESSABLE_ENTITY, &psp));
        }
        record(&app, &token, &headers).await
    };
    outcome.await.unwrap_or_else(|refusal| refuse(&refusal))
}

/// Returns the token in the URL; a missing one becomes an empty text, which is refused as invalid.
fn token_of(uri: &Uri) -> String {
    QueryFields::of(uri).optional("token", |token| Ok(token.to_owned())).unwrap_or_default()
}

/// Returns the customer of the token, and the name of the PSP that asks for its consent.
async fn ask(app: &AppShared, token: &str) -> Result<(Customer, String), Refusal> {
    let id = customer_id(app, token)?;
    let row = customers::Entity::find_by_id(id.to_string()).one(app.database().reader()).await?;
    let customer = customer_of(&row.ok_or(Refusal::Link(LinkError::Forged))?)?;
    if !customer.is_active {
        return Err(Refusal::Over);
    }
    let psp = psps::Entity::find_by_id(customer.psp_id.to_string()).one(app.database().reader()).await?;
    Ok((customer, psp.map(|psp| psp.name).unwrap_or_default()))
}

fn customer_id(app: &AppShared, token: &str) -> Result<CustomerId, Refusal> {
    link::read(app.sealer(), token, app.clock().now()).map_err(Refusal::Link)
}

async fn record(app: &AppShared, token: &str, headers: &HeaderMap) -> Result<Response, Refusal> {
    let (id, now) = (customer_id(app, token)?, app.clock().now());
    let mut opened = match app.system.open_customer(id, None).await {
        Err(CustomerChangeError::NotFound) => return Err(Refusal::Link(LinkError::Forged)),
        opened => opened?,
    };
    match opened.apply(&Command::AcceptTerms, &Actor::Customer, now).await {
        Err(CustomerChangeError::Rejected(TransitionError::Rejected(_))) => return Err(Refusal::Over),
        Ok(events) if events.is_empty() => {
            let at = opened.customer().tos_accepted_at.unwrap_or(now);
            return Ok(accepted("You have accepted these terms already", at));
        }
        outcome => outcome?,
    };
    let user_agent = headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let user_agent = user_agent.map(|text| text.chars().take(USER_AGENT_CHARS_MAX).collect::<String>());
    // With the client's address, which every entry has, the evidence of the consent.
    let entry = NewAuditEntry {
        action: "customer.terms_shown".to_owned(),
        psp_id: Some(opened.customer().psp_id),
        subject: id.to_string(),
        detail: json!({ "sha256": app.config.terms.digest(), "user_agent": user_agent }),
    };
    audit::append(opened.transaction(), &Actor::Customer, now, vec![entry]).await?;
    opened.commit().await?;
    tracing::info!(customer.id = %id, "customer {id} accepted the terms of service");
    Ok(accepted("Thank you", now))
}

fn offer(app: &AppShared, status: StatusCode, psp: &str) -> Response {
    let terms = &app.config.terms;
    let body = html! {
        main {
            h1 { (terms.title()) }
            p { strong { (psp) } " asks you to read and accept these terms." }
            @if status != StatusCode::OK {
                p.box role="alert" { "Nothing was accepted. Use the button below the terms." }
            }
            div.box { @for paragraph in terms.paragraphs() { p { (paragraph) } } }
            // Posts to the same URL, with its token.
            form method="post" {
                button.pay name="accept" value="yes" { "I have read and accept the terms" }
            }
            p.soft { "If you do not agree, close this page. Nothing happens until you accept." }
        }
    };
    pages::respond_with_form(status, pages::page(terms.title(), &body).into_string())
}

fn accepted(headline: &str, at: Timestamp) -> Response {
    let body = html! {
        main.narrow {
            h1 { (headline) }
            p { "The terms of service were accepted on " (at) "." }
            p.soft { "You may close this page." }
        }
    };
    pages::respond(StatusCode::OK, pages::page(headline, &body).into_string())
}

fn refuse(refusal: &Refusal) -> Response {
    let (status, headline, explanation) = match refusal {
        Refusal::Link(LinkError::Expired) => {
            (StatusCode::GONE, "This link has expired", "It was valid for 24 hours. Ask its sender for a new one.")
        }
        Refusal::Link(LinkError::Forged) => {
            (StatusCode::NOT_FOUND, "No such link", "This link is not valid. Copy all of it, or ask for a new one.")
        }
        Refusal::Over => (StatusCode::GONE, "This link is no longer needed", "There is nothing to accept."),
        Refusal::Error(error) => {
            let texts = ("Not available", "Nothing was accepted. Reload in a little while.");
            return failure(error, "a consent page", "en", texts);
        }
    };
    notice(status, "en", headline, explanation)
}
