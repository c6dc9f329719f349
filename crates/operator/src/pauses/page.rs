//! Page of the pauses.

use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, Render, html};
use payferry_actors::pauses::{Held, Scope};
use payferry_domain::Timestamp;
use payferry_httpkit::RequestBody as _;

use crate::Operator;
use crate::page::form::{ChangeButton, Filled, answer_button};
use crate::page::words::{Tone, ago, badge, panel};
use crate::page::{Failure, NavSection, Page, Refused, id_of, path};
use crate::pauses::{FIELDS, PauseRequest, hold, lift_pause, load};

/// `/ops/view/pauses`: every pause.
pub(crate) async fn show(operator: Operator) -> Result<Response, Failure> {
    Ok(page(&operator, &html! {}, &Filled::default()).await?.into_response())
}

pub(crate) async fn set(operator: Operator, filled: Filled) -> Result<Response, Refused> {
    let outcome = async {
        let PauseRequest { scope, reason } = filled.read(&FIELDS, PauseRequest::read)?;
        hold(&operator, scope, &reason).await
    };
    match filled.answered(outcome.await)? {
        Ok(_) => Ok(Redirect::to(&path("pauses")).into_response()),
        Err(refused) => Ok(page(&operator, &refused.said, &refused.filled).await?.answer_form(refused.status)),
    }
}

pub(crate) async fn lift(operator: Operator, Path(scope): Path<String>, filled: Filled) -> Result<Response, Refused> {
    let scope: Scope = id_of("pause", &scope)?;
    let here = if let Scope::Psp(psp) = scope { format!("{}/{psp}", path("psps")) } else { path("pauses") };
    answer_button(&filled, &here, async { Ok(lift_pause(&operator, scope).await.map(drop)?) }).await
}

/// Button that lifts a pause; a pause of the reconciliation ends with a command.
fn lift_button(scope: Scope) -> Markup {
    let (subject, action) = (format!("the pause of {scope}"), format!("{}/{scope}/lift", path("pauses")));
    let statement = "The reason of the pause no longer exists";
    match scope {
        Scope::Unreconciled(..) => html! { code { "payferry reconcile" } },
        _ => ChangeButton { label: "Lift", subject: &subject, action: &action, hidden: &[], statement }.render(),
    }
}

/// Notice on the page of a paused PSP.
pub(crate) fn notice_of(scope: Scope, held: &Held, now: Timestamp) -> Markup {
    html! {
        @if let Some(pause) = held.get(&scope) {
            div.notice.bad #paused role="status" {
                p { strong { "Paused " (ago(pause.since, now)) "." } " It cannot create payments or send money: " span.reason { (pause.reason) } }
                (lift_button(scope))
            }
        }
    }
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
                            (lift_button(*scope))
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
            (filled.sign("the endpoint forges logs", "The work of this scope must stop"))
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
