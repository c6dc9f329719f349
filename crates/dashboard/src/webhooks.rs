//! Webhook endpoints: the list, the webhook URL, and the form of another endpoint.

use axum::extract::Query;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use futures::try_join;
use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::form::{FormValues, Sort};
use payferry_httpkit::pages::words::{Tone, ago, badge, head, panel};
use serde::Deserialize;

use crate::api::{At, with_query};
use crate::deliveries::undelivered_panel;
use crate::page::{NavSection, RefusedForm, cursor_pages, form_id, notice, secret, see_other};
use crate::session::Session;

/// Path of the page.
pub(crate) const PATH: &str = "/dashboard/webhooks";
/// Undelivered events on the page.
const UNDELIVERED_MAX: &str = "20";
/// Notices, by the word in the query.
const NOTICES: [(&str, &str); 2] = [
    ("set", "The webhook URL is set."),
    ("deleted", "The endpoint is deleted, and its open deliveries are cancelled."),
];
/// Schedules of retries, with their names in words.
pub(crate) const SCHEDULES: [(&str, &str); 2] =
    [("default", "3 retries within 6 minutes"), ("extended", "10 retries within 3 days")];
/// Fields of an endpoint, named as in the API.
pub(crate) const FIELDS: [(&str, Sort); 5] = [
    ("url", Sort::Text),
    ("description", Sort::Text),
    ("events", Sort::Words),
    ("schedule", Sort::Text),
    ("status", Sort::Text),
];
/// Explanation of a signing secret.
pub(crate) const SECRET: &str = "It signs the deliveries to this endpoint, and is not shown again.";

/// An endpoint.
#[derive(Debug, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) description: Option<String>,
    pub(crate) events: Vec<String>,
    pub(crate) schedule: String,
    pub(crate) status: String,
    pub(crate) previous_secret_expires_at: Option<At>,
    pub(crate) created_at: At,
    pub(crate) updated_at: At,
}

#[derive(Debug, Deserialize)]
struct EndpointList {
    total: u64,
    next_cursor: Option<String>,
    webhook_endpoints: Vec<Endpoint>,
}

/// The account's first endpoint.
#[derive(Debug, Deserialize)]
struct Webhook {
    webhook_url: Option<String>,
}

/// The secret of a new endpoint.
#[derive(Debug, Deserialize)]
struct Secret {
    signing_secret: Option<String>,
}

/// Query of the page: the result of the last form, and the cursor of the endpoints.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WebhooksQuery {
    done: Option<String>,
    cursor: String,
}

/// A form of the page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Url,
    New,
}

/// `/dashboard/webhooks`.
pub(crate) async fn show(session: Session, Query(shown): Query<WebhooksQuery>) -> Response {
    let said = notice(shown.done.as_deref(), &NOTICES);
    session.answer(page(&session, StatusCode::OK, &said, &shown.cursor, None).await)
}

/// Sets the webhook URL.
pub(crate) async fn set(session: Session, form: FormValues) -> Response {
    session.answer(send(&session, &form, Form::Url).await)
}

/// Creates an endpoint.
pub(crate) async fn create(session: Session, form: FormValues) -> Response {
    session.answer(send(&session, &form, Form::New).await)
}

async fn send(session: &Session, form: &FormValues, which: Form) -> Result<Response, ApiError> {
    let (method, path, body) = match which {
        Form::Url => (Method::PATCH, "/api/v1/set_webhook", form.json(&[("webhook_url", Sort::Text)])),
        Form::New => (Method::POST, "/api/v1/webhook-endpoints", form.json(&FIELDS)),
    };
    match session.submit::<Secret>(form, method, path, body).await? {
        Ok(Secret { signing_secret: Some(text) }) => {
            let said = secret("Copy the signing secret now.", SECRET, &text);
            page(session, StatusCode::OK, &said, "", None).await
        }
        Ok(Secret { signing_secret: None }) => Ok(see_other(&format!("{PATH}?done=set"))),
        Err(RefusedForm { status, said, form, .. }) => page(session, status, &said, "", Some((which, form))).await,
    }
}

async fn page(
    session: &Session,
    status: StatusCode,
    said: &Markup,
    cursor: &str,
    refused: Option<(Form, FormValues)>,
) -> Result<Response, ApiError> {
    let endpoints = with_query("/api/v1/webhook-endpoints", [("cursor", cursor)]);
    let (webhook, endpoints, undelivered) = try_join!(
        session.api.get::<Webhook>("/api/v1/webhook"),
        session.api.get::<EndpointList>(&endpoints),
        session.undelivered(UNDELIVERED_MAX),
    )?;
    let sent = |which| refused.as_ref().filter(|(of, _)| *of == which).map(|(_, form)| form.clone());
    let url = webhook.webhook_url.unwrap_or_default();
    let url_form = sent(Form::Url).unwrap_or_else(|| FormValues::with([("webhook_url", url)]));
    let new = sent(Form::New).unwrap_or_default();
    let now = session.real_now();
    let body = html! {
        div.title { h1 { "Webhooks" } p { "Endpoints that receive the events of your payments." } }
        (said)
        div.grid.two {
            div.col {
                (list(&endpoints, cursor, now))
                (undelivered_panel(&undelivered, now))
            }
            @if session.key.has("webhooks") { div.col { (url_panel(&url_form)) (new_panel(&new)) } }
        }
    };
    Ok(session.page(status, "Webhooks", NavSection::Webhooks, &body))
}

fn list(list: &EndpointList, cursor: &str, now: Timestamp) -> Markup {
    let next = list.next_cursor.as_deref().map(|next| with_query(PATH, [("cursor", next)]));
    let body = html! {
        @if list.webhook_endpoints.is_empty() { p.none { "None. Events wait until an endpoint exists." } } @else {
            table {
                (head(&[("", "Endpoint"), ("", "State"), ("wide", "Events"), ("n", "Created")]))
                tbody {
                    @for endpoint in &list.webhook_endpoints {
                        tr id=(endpoint.id) {
                            th scope="row" {
                                a href={ (PATH) "/" (endpoint.id) } { code { (endpoint.url) } }
                                @if let Some(description) = &endpoint.description { br; small { (description) } }
                            }
                            td { (state(endpoint)) }
                            td.wide { (endpoint.events.join(", ")) }
                            td.n { (ago(endpoint.created_at, now)) }
                        }
                    }
                }
            }
        }
        (cursor_pages("endpoints", (!cursor.is_empty()).then_some(PATH), next.as_deref()))
    };
    panel("endpoints", "Endpoints", &list.total.to_string(), &body)
}

/// The status of an endpoint.
pub(crate) fn state(endpoint: &Endpoint) -> Markup {
    badge(&endpoint.status, if endpoint.status == "enabled" { Tone::Good } else { Tone::Idle })
}

fn url_panel(form: &FormValues) -> Markup {
    let body = html! {
        div.body {
            form.stack #webhook-url method="post" action="/dashboard/webhook-url" {
                (form_id(form))
                (form.line("webhook_url", "URL", "https://psp.example/webhooks", true))
                (form.confirm("The receiver at this URL verifies signatures"))
                div { button { "Set URL" } }
            }
        }
    };
    panel("url", "Webhook URL", "of the first endpoint", &body)
}

fn new_panel(form: &FormValues) -> Markup {
    let body = html! {
        div.body {
            form.stack #new-endpoint method="post" action=(PATH) {
                (form_id(form))
                (fields(form, "All events except customer.*"))
                (form.confirm("The receiver at this URL verifies signatures"))
                div { button { "Add endpoint" } }
            }
        }
    };
    panel("new", "Add an endpoint", "", &body)
}

/// The fields of a new or changed endpoint.
pub(crate) fn fields(form: &FormValues, events: &str) -> Markup {
    html! {
        (form.line("url", "URL", "https://psp.example/webhooks", true))
        (form.line("description", "Description (optional)", "accounting", false))
        (form.line("events", "Events, such as payment.* or refund.sent", events, false))
        (form.choice("schedule", "Retries", &SCHEDULES))
    }
}
