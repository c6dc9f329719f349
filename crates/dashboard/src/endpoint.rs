//! One webhook endpoint: its settings, its secret, a test event, and its deletion.

use axum::extract::{Path, Query};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::form::FormValues;
use payferry_httpkit::pages::words::{ago, done, panel};
use serde::Deserialize;
use serde_json::json;

use crate::api::{Done, segment};
use crate::page::{ChangeButton, NavSection, RefusedForm, form_id, notice, secret, see_other};
use crate::session::Session;
use crate::webhooks::{Endpoint, FIELDS, PATH, SECRET, fields, state};

/// Notices, by the word in the query.
const NOTICES: [(&str, &str); 1] = [("saved", "The endpoint is changed.")];
/// States that a form may set.
const STATES: [(&str, &str); 2] = [("enabled", "enabled"), ("disabled", "disabled: deliveries wait")];

#[derive(Debug, Deserialize)]
struct Rotated {
    signing_secret: String,
}

/// Result of a test event.
#[derive(Debug, Deserialize)]
struct Tested {
    delivered: bool,
    response_code: Option<u16>,
    duration_ms: u64,
    error: Option<String>,
}

/// Query of the page: the result of the last form.
#[derive(Debug, Deserialize)]
pub(crate) struct EndpointQuery {
    done: Option<String>,
}

/// Path of an endpoint in the API.
fn api_path(id: &str) -> Result<String, ApiError> {
    Ok(format!("/api/v1/webhook-endpoints/{}", segment(id, "endpoint")?))
}

/// `/dashboard/webhooks/{endpoint_id}`.
pub(crate) async fn show(session: Session, Path(id): Path<String>, Query(shown): Query<EndpointQuery>) -> Response {
    let said = notice(shown.done.as_deref(), &NOTICES);
    session.answer(page(&session, &id, StatusCode::OK, &said, None).await)
}

/// Changes the endpoint.
pub(crate) async fn change(session: Session, Path(id): Path<String>, form: FormValues) -> Response {
    let changed = async {
        let path = api_path(&id)?;
        match session.submit::<Done>(&form, Method::PATCH, &path, form.json(&FIELDS)).await? {
            Ok(_) => Ok(see_other(&format!("{PATH}/{id}?done=saved"))),
            Err(RefusedForm { status, said, form, .. }) => page(&session, &id, status, &said, Some(form)).await,
        }
    };
    session.answer(changed.await)
}

/// Replaces the signing secret, and shows the new one.
pub(crate) async fn rotate(session: Session, Path(id): Path<String>, form: FormValues) -> Response {
    let rotated = async {
        let path = format!("{}/rotate", api_path(&id)?);
        match session.submit::<Rotated>(&form, Method::POST, &path, json!({})).await? {
            Ok(Rotated { signing_secret }) => {
                let said = secret("Copy the new signing secret now.", SECRET, &signing_secret);
                page(&session, &id, StatusCode::OK, &said, None).await
            }
            Err(refused) => Ok(session.not_changed(&refused, NavSection::Webhooks, &format!("{PATH}/{id}"))),
        }
    };
    session.answer(rotated.await)
}

/// Sends a test event, and shows the outcome.
pub(crate) async fn test(session: Session, Path(id): Path<String>, form: FormValues) -> Response {
    let tested = async {
        let path = format!("{}/test", api_path(&id)?);
        match session.submit::<Tested>(&form, Method::POST, &path, json!({})).await? {
            Ok(tested) => page(&session, &id, StatusCode::OK, &outcome(&tested), None).await,
            Err(refused) => Ok(session.not_changed(&refused, NavSection::Webhooks, &format!("{PATH}/{id}"))),
        }
    };
    session.answer(tested.await)
}

/// Deletes the endpoint.
pub(crate) async fn delete(session: Session, Path(id): Path<String>, form: FormValues) -> Response {
    let deleted = async {
        let path = api_path(&id)?;
        Ok(match session.submit::<Done>(&form, Method::DELETE, &path, json!({})).await? {
            Ok(_) => see_other(&format!("{PATH}?done=deleted")),
            Err(refused) => session.not_changed(&refused, NavSection::Webhooks, &format!("{PATH}/{id}")),
        })
    };
    session.answer(deleted.await)
}

fn outcome(tested: &Tested) -> Markup {
    let Tested { delivered, response_code, duration_ms, error } = tested;
    let answer = match (response_code, error) {
        (Some(code), _) => format!("It answered {code} after {duration_ms} ms."),
        (None, Some(error)) => format!("It did not answer: {error}."),
        (None, None) => "It did not answer.".to_owned(),
    };
    html! {
        @if *delivered { (done(&format!("The endpoint acknowledged the test event. {answer}"))) }
        @else { p.notice.bad role="alert" { "The endpoint did not acknowledge the test event. " (answer) } }
    }
}

async fn page(
    session: &Session,
    id: &str,
    status: StatusCode,
    said: &Markup,
    refused: Option<FormValues>,
) -> Result<Response, ApiError> {
    let endpoint: Endpoint = session.api.get(&api_path(id)?).await?;
    let form = refused.unwrap_or_else(|| {
        FormValues::with([
            ("url", endpoint.url.clone()),
            ("description", endpoint.description.clone().unwrap_or_default()),
            ("events", endpoint.events.join(", ")),
            ("schedule", endpoint.schedule.clone()),
            ("status", endpoint.status.clone()),
        ])
    });
    let may_change = session.key.has("webhooks");
    let body = html! {
        p.crumbs { a href=(PATH) { "Webhooks" } span { "Endpoint" } }
        div.title { h1 { "Endpoint" } (state(&endpoint)) p { code { (endpoint.url) } } }
        (said)
        div.grid.two {
            (facts(session, &endpoint))
            @if may_change { div.col { (change_panel(&form, &endpoint)) (actions_panel(&endpoint)) } }
        }
    };
    Ok(session.page(status, "Endpoint", NavSection::Webhooks, &body))
}

fn facts(session: &Session, endpoint: &Endpoint) -> Markup {
    let now = session.real_now();
    let body = html! {
        dl.facts {
            dt { "Id" } dd { code { (endpoint.id) } }
            dt { "URL" } dd { code { (endpoint.url) } }
            @if let Some(description) = &endpoint.description { dt { "Description" } dd { (description) } }
            dt { "Events" } dd { (endpoint.events.join(", ")) }
            dt { "Retries" } dd { (schedule(&endpoint.schedule)) }
            @if let Some(at) = endpoint.previous_secret_expires_at { dt { "Previous secret" } dd { "also signs, ends " (ago(at, now)) } }
            dt { "Created" } dd { (ago(endpoint.created_at, now)) }
            dt { "Changed" } dd { (ago(endpoint.updated_at, now)) }
        }
    };
    panel("facts", "Settings", "", &body)
}

fn schedule(name: &str) -> &str {
    crate::webhooks::SCHEDULES.iter().find(|(known, _)| *known == name).map_or(name, |(_, words)| words)
}

fn change_panel(form: &FormValues, endpoint: &Endpoint) -> Markup {
    let body = html! {
        div.body {
            form.stack #change method="post" action={ (PATH) "/" (endpoint.id) } {
                (form_id(form))
                (fields(form, "*"))
                (form.choice("status", "State", &STATES))
                (form.confirm("Change this endpoint"))
                div { button { "Save" } }
            }
        }
    };
    panel("change-it", "Change", "", &body)
}

fn actions_panel(endpoint: &Endpoint) -> Markup {
    let action = |what: &str| format!("{PATH}/{}/{what}", endpoint.id);
    let body = html! {
        div.body.actions {
            (ChangeButton {
                label: "Send a test event", subject: "to this endpoint", action: &action("test"), fields: html! {},
                statement: "The receiver ignores webhook.test",
            })
            (ChangeButton {
                label: "Rotate the secret", subject: "of this endpoint", action: &action("rotate"), fields: html! {},
                statement: "For 24 hours, the old and the new secret both sign",
            })
            (ChangeButton {
                label: "Delete", subject: "this endpoint", action: &action("delete"), fields: html! {},
                statement: "Its open deliveries are cancelled",
            })
        }
    };
    panel("actions", "Actions", "", &body)
}
