//! `/ops/pauses`: pauses set by the operator.

use axum::extract::Path as UrlPath;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_accounts::{Moment, tenants};
use payferry_actors::pauses::{self, Held, Pause, Scope};
use payferry_domain::Timestamp;
use payferry_httpkit::{Answer, ApiError, Fault, Fields, JsonBody, Path, read};
use payferry_journal::audit::Actor;
use serde::Serialize;
use serde_json::Value;

use crate::Operator;
use crate::input::{only, tenant_failure};
use crate::page::form::{Filled, Sort, names};
use crate::page::words::{Tone, ago, badge, panel};
use crate::page::{Failure, NavSection, Page, Refused, id_of, path};

/// Fields of a pause, in the API and in the form.
const FIELDS: [(&str, Sort); 2] = [("scope", Sort::Text), ("reason", Sort::Text)];

/// A pause in a response.
fn shown(scope: Scope, pause: Pause) -> impl Serialize {
    record! { scope: scope.to_string(), reason: pause.reason, set_by: pause.set_by, since: Moment(pause.since) }
}

pub(super) async fn list(operator: Operator) -> Result<Answer, ApiError> {
    let held = load(&operator).await?;
    Answer::ok(&record! { pauses: held.into_iter().map(|(scope, pause)| shown(scope, pause)).collect::<Vec<_>>() })
}

/// Sets a pause: `{"scope": "chain:base", "reason": "..."}`. If the scope is already paused, returns the existing
/// pause.
pub(super) async fn set(operator: Operator, body: JsonBody) -> Result<Answer, ApiError> {
    let (scope, reason) = body.read(read_new)?;
    Answer::ok(&shown(scope, hold(&operator, scope, &reason).await?))
}

/// Lifts a pause. Idempotent.
pub(super) async fn lift(operator: Operator, Path(scope): Path<String>) -> Result<Answer, ApiError> {
    let parsed = scope.parse::<Scope>();
    let parsed = parsed.map_err(|error| ApiError::parameter("scope", "unknown_value", error.to_string()))?;
    let was_paused = lift_pause(&operator, parsed).await?;
    Answer::ok(&record! { scope: scope, was_paused: was_paused })
}

pub(super) fn read_new(fields: &Fields<'_>) -> Option<(Scope, String)> {
    only(fields, &names(&FIELDS));
    let scope = |value: &Value| {
        let unknown = |error: pauses::UnknownScope| Fault::new("unknown_value", error.to_string());
        read::string(value)?.parse::<Scope>().map_err(unknown)
    };
    let (scope, reason) = (fields.required("scope", scope), fields.required("reason", read::text));
    Some((scope?, reason?))
}

pub(super) async fn load(operator: &Operator) -> Result<Held, ApiError> {
    Ok(pauses::load(operator.system.database()).await?)
}

/// Sets a pause for the operator. Used by the API and the page.
pub(super) async fn hold(operator: &Operator, scope: Scope, reason: &str) -> Result<Pause, ApiError> {
    let system = &operator.system;
    if let Scope::Psp(psp_id) = scope {
        tenants::find_psp(system.database(), psp_id).await.map_err(tenant_failure)?;
    }
    let transaction = system.database().begin().await?;
    let pause = pauses::set(&transaction, scope, reason, &Actor::Operator, system.clock().real_now()).await?;
    transaction.commit().await?;
    tracing::warn!(%scope, "operator paused {scope}");
    system.refresh_pauses().await?;
    Ok(pause)
}

/// Lifts a pause for the operator. Used by the API and the page. Returns whether it existed.
pub(super) async fn lift_pause(operator: &Operator, scope: Scope) -> Result<bool, ApiError> {
    let system = &operator.system;
    let transaction = system.database().begin().await?;
    let lifted = pauses::lift(&transaction, scope, &Actor::Operator, system.clock().real_now()).await?;
    transaction.commit().await?;
    tracing::warn!(%scope, "operator lifted the pause of {scope}");
    system.refresh_pauses().await?;
    Ok(lifted.is_some())
}

/// `/ops/view/pauses`: every pause.
pub(crate) async fn show(operator: Operator) -> Result<Response, Failure> {
    Ok(page(&operator, &html! {}, &Filled::default()).await?.into_response())
}

pub(crate) async fn set_by_form(operator: Operator, filled: Filled) -> Result<Response, Refused> {
    let outcome = async {
        let (scope, reason) = filled.read(&FIELDS, read_new)?;
        hold(&operator, scope, &reason).await
    };
    match filled.answered(outcome.await)? {
        Ok(_) => Ok(Redirect::to(&path("pauses")).into_response()),
        Err(refused) => Ok(page(&operator, &refused.said, &refused.filled).await?.answer_form(refused.status)),
    }
}

pub(crate) async fn lift_by_form(operator: Operator, UrlPath(scope): UrlPath<String>) -> Result<Response, Refused> {
    lift_pause(&operator, id_of("pause", &scope)?).await?;
    Ok(Redirect::to(&path("pauses")).into_response())
}

async fn page(operator: &Operator, said: &Markup, filled: &Filled) -> Result<Page, Failure> {
    let held = load(operator).await?;
    let now = operator.system.clock().real_now();
    let body = html! {
        div.title {
            h1 { "Pauses" }
            @if held.is_empty() { (badge("nothing", Tone::Good)) } @else { (badge(&held.len().to_string(), Tone::Bad)) }
            p { "Paused work is not lost: it continues when the pause is lifted. Work in progress continues." }
        }
        (said)
        div.grid.two {
            (panel("paused", "Active pauses", "", &if held.is_empty() { html! { p.none { "Nothing is paused." } } } else { table(&held, now) }))
            (panel("pause", "Pause", "immediate on this node, within a second on other nodes", &html! { div.body { (form(filled)) } }))
        }
    };
    Ok(Page::still("Pauses", NavSection::Pauses, body))
}

/// Pauses for the overview. Empty if there are none.
pub(crate) fn notice(held: &Held) -> Markup {
    html! {
        @if !held.is_empty() {
            div.notice.bad #held role="status" {
                strong { "Paused: " }
                @for (index, scope) in held.keys().enumerate() {
                    @if index > 0 { ", " }
                    a.mono href=(path("pauses")) { (scope) }
                }
            }
        }
    }
}

fn table(held: &Held, now: Timestamp) -> Markup {
    html! {
        table {
            thead { tr { th scope="col" { "Scope" } th scope="col" { "Reason" } th.n.wide scope="col" { "Since" } th scope="col" { span.soft { "Lift" } } } }
            tbody {
                @for (scope, pause) in held {
                    @let name = scope.to_string();
                    tr id={ "pause-" (name) } {
                        th.mono scope="row" { (name) }
                        td { (pause.reason) }
                        td.n.wide { (ago(pause.since, now)) }
                        td {
                            form.inline method="post" action={ (path("pauses")) "/" (name) "/lift" } {
                                button.quiet aria-label={ "Lift the pause of " (name) } { "Lift" }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn form(filled: &Filled) -> Markup {
    html! {
        form.stack #new-pause method="post" action=(path("pauses")) {
            (filled.line("scope", "Scope", "chain:base, psp:psp_…, settlement, sending:polygon", true))
            (filled.line("reason", "Reason, for colleagues", "the endpoint forges logs", true))
            div { button.danger { "Pause" } }
        }
        dl.facts {
            dt.mono { "chain:base" } dd { "no new payments, settlements or outbound transfers on this chain; it is still watched" }
            dt.mono { "psp:psp_…" } dd { "this PSP cannot create payments or send money" }
            dt.mono { "settlement, settlement:base" } dd { "no settlements, on every chain or on this chain" }
            dt.mono { "sending, sending:base" } dd { "no refunds, payouts, withdrawals or transfers are sent, on every chain or on this chain" }
        }
    }
}
