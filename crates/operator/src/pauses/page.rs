//! Pauses, with a button to lift each, and a form for a new pause.

use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_actors::pauses::{Held, Scope};
use payferry_domain::Timestamp;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::Fields;

use crate::Operator;
use crate::page::failure::{Failure, Refused};
use crate::page::form::{Filled, Sort};
use crate::page::path;
use crate::page::shell::{Page, Place};
use crate::page::words::{Tone, ago, badge};
use crate::pauses::{hold, let_go, load, read_new};

/// Fields of a pause, named as in the API.
const FIELDS: [(&str, Sort); 2] = [("scope", Sort::Text), ("reason", Sort::Text)];

/// `/ops/view/pauses`: every pause.
pub(crate) async fn show(State(operator): State<Operator>) -> Result<Response, Failure> {
    Ok(page(&operator, &html! {}, &Filled::default()).await?.into_response())
}

/// Sets a pause.
pub(crate) async fn set(
    State(operator): State<Operator>,
    Form(pairs): Form<Vec<(String, String)>>,
) -> Result<Response, Refused> {
    let filled = Filled::sent(pairs);
    let body = filled.json(&FIELDS);
    let read = Fields::of_body(&body).and_then(|fields| {
        let asked = read_new(&fields);
        fields.finish(asked)
    });
    let outcome = match read {
        Ok((scope, reason)) => hold(&operator, scope, &reason).await.map(|_| ()),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => Ok(Redirect::to(&path("pauses")).into_response()),
        Err(ApiError::NotFound(what)) => {
            let said = html! { div.notice.bad role="alert" { "Nothing was changed: " (what) " not found." } };
            Ok(Page { status: StatusCode::NOT_FOUND, ..page(&operator, &said, &filled).await? }.into_response())
        }
        Err(error) => {
            let filled = filled.refused(error)?;
            let page = page(&operator, &filled.summary(), &filled).await?;
            Ok(Page { status: StatusCode::UNPROCESSABLE_ENTITY, ..page }.into_response())
        }
    }
}

/// Lifts a pause.
pub(crate) async fn lift(State(operator): State<Operator>, Path(scope): Path<String>) -> Result<Response, Refused> {
    let parsed: Scope = scope.parse().map_err(|_| Failure::not_found("pause", scope.clone()))?;
    let_go(&operator, parsed).await?;
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
            section.panel aria-labelledby="paused" {
                header { h2 #paused { "Active pauses" } }
                @if held.is_empty() { p.none { "Nothing is paused." } } @else { (table(&held, now)) }
            }
            section.panel aria-labelledby="pause" {
                header { h2 #pause { "Pause" } p { "immediate on this node, within a second on other nodes" } }
                div.body { (form(filled)) }
            }
        }
    };
    Ok(Page::still("Pauses", Place::Pauses, body))
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
