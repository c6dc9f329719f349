//! Page for decisions about a payment's money: a form for each possible decision, and the earlier decisions.
//!
//! The page is not live, so that a refresh cannot remove typed input. A decision that is no longer possible is refused.

use axum::Form;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_domain::payment::Decision;
use payferry_domain::{PaymentId, Timestamp};
use payferry_httpkit::error::{ApiError, FieldError};
use payferry_httpkit::extract::Fields;
use serde_json::Value;

use crate::Operator;
use crate::decisions::query::{BlockedLine, Decisions, Possible, RefundLine, TransferLine};
use crate::decisions::{DecisionRequest, carry_out, destination, find, next_refund, unsuitable_at};
use crate::page::failure::{Failure, Refused};
use crate::page::form::{Filled, Sort};
use crate::page::path;
use crate::page::shell::{NavSection, Page};
use crate::page::words::{Tone, ago, badge, clock, count, grouped, plain, short, status};

/// Fields of a decision about a transfer, named as in the API.
const SCREEN_FIELDS: [(&str, Sort); 5] = [
    ("chain", Sort::Text),
    ("tx_hash", Sort::Text),
    ("log_index", Sort::Whole),
    ("decision", Sort::Text),
    ("reason", Sort::Text),
];
/// Fields of a decision about the address of a refund.
const SCREEN_REFUND_FIELDS: [(&str, Sort); 3] =
    [("refund_id", Sort::Text), ("decision", Sort::Text), ("reason", Sort::Text)];
/// Fields of a refund of blocked money.
const REFUND_FIELDS: [(&str, Sort); 6] = [
    ("chain", Sort::Text),
    ("token_address", Sort::Text),
    ("address", Sort::Text),
    ("amount", Sort::Text),
    ("idempotency_key", Sort::Text),
    ("reason", Sort::Text),
];
/// Field of a settlement retry, and of applying transfers that were set aside.
const REASON_FIELDS: [(&str, Sort); 1] = [("reason", Sort::Text)];
/// Check box that must be ticked, because a transfer cannot be reversed.
const CONFIRM: &str = "confirm";

pub(crate) type Pairs = Form<Vec<(String, String)>>;

/// `/ops/view/payments/{payment_id}/decide`.
pub(crate) async fn show(
    State(operator): State<Operator>,
    Path(payment_id): Path<String>,
    uri: Uri,
) -> Result<Response, Failure> {
    let (_, decisions) = read(&operator, &payment_id).await?;
    let is_decided = uri.query() == Some("done=decided");
    let said = html! {
        @if is_decided { p.notice.good role="status" { "The decision is recorded and carried out." } }
    };
    let now = operator.system.clock().now();
    Ok(page(&decisions, &said, "", &Filled::default(), now).into_response())
}

/// Allows or blocks a transfer.
pub(crate) async fn screen(
    State(operator): State<Operator>,
    Path(payment_id): Path<String>,
    Form(pairs): Pairs,
) -> Result<Response, Refused> {
    let filled = Filled::sent(pairs);
    let asked = read_form(&filled, &SCREEN_FIELDS, DecisionRequest::read_screening);
    decide(&operator, &payment_id, "screen", filled, asked).await
}

/// Allows or blocks the address of a refund.
pub(crate) async fn screen_refund(
    State(operator): State<Operator>,
    Path(payment_id): Path<String>,
    Form(pairs): Pairs,
) -> Result<Response, Refused> {
    let filled = Filled::sent(pairs);
    let asked = read_form(&filled, &SCREEN_REFUND_FIELDS, DecisionRequest::read_refund_screening);
    decide(&operator, &payment_id, "screen_refund", filled, asked).await
}

/// Sends blocked money to an address.
pub(crate) async fn refund_blocked(
    State(operator): State<Operator>,
    Path(payment_id): Path<String>,
    Form(pairs): Pairs,
) -> Result<Response, Refused> {
    let filled = Filled::sent(pairs);
    let unsuitable = unsuitable_at(&operator, destination(&filled.json(&REFUND_FIELDS))).await?;
    let asked = read_form(&filled, &REFUND_FIELDS, |fields| DecisionRequest::read_refund(fields, unsuitable));
    decide(&operator, &payment_id, "refund_blocked", filled, asked).await
}

/// Retries a failed settlement now.
pub(crate) async fn retry_settlement(
    State(operator): State<Operator>,
    Path(payment_id): Path<String>,
    Form(pairs): Pairs,
) -> Result<Response, Refused> {
    let filled = Filled::sent(pairs);
    let asked = read_form(&filled, &REASON_FIELDS, DecisionRequest::read_retry);
    decide(&operator, &payment_id, "retry_settlement", filled, asked).await
}

/// Applies transfers that were set aside.
pub(crate) async fn take_in(
    State(operator): State<Operator>,
    Path(payment_id): Path<String>,
    Form(pairs): Pairs,
) -> Result<Response, Refused> {
    let filled = Filled::sent(pairs);
    let asked = read_form(&filled, &REASON_FIELDS, DecisionRequest::read_taking_in);
    decide(&operator, &payment_id, "take_in", filled, asked).await
}

/// Reads a confirmed form in the same way as the body of an API request.
pub(crate) fn read_form<T>(
    filled: &Filled,
    names: &[(&str, Sort)],
    read: impl FnOnce(&Fields<'_>) -> Option<T>,
) -> Result<T, ApiError> {
    let body: Value = filled.json(names);
    let asked = Fields::of_body(&body).and_then(|fields| {
        let asked = read(&fields);
        fields.finish(asked)
    });
    let is_confirmed = filled.json(&[(CONFIRM, Sort::Box)])[CONFIRM] == Value::Bool(true);
    if is_confirmed {
        return asked;
    }
    let unticked =
        FieldError { field: CONFIRM.to_owned(), code: "required".into(), message: "must be ticked".to_owned() };
    match asked {
        Err(ApiError::Validation(mut errors)) => {
            errors.push(unticked);
            Err(ApiError::Validation(errors))
        }
        _ => Err(ApiError::Validation(vec![unticked])),
    }
}

async fn decide(
    operator: &Operator,
    payment_id: &str,
    form: &str,
    filled: Filled,
    asked: Result<DecisionRequest, ApiError>,
) -> Result<Response, Refused> {
    let (id, before) = read(operator, payment_id).await?;
    let outcome = match asked {
        Ok(asked) => carry_out(operator, id, asked).await,
        Err(error) => Err(error),
    };
    let now = operator.system.clock().now();
    let refused = |detail: &str| html! { div.notice.bad role="alert" { "Nothing was changed: " (detail) } };
    match outcome {
        Ok(_) => Ok(Redirect::to(&format!("{}/{id}/decide?done=decided", path("payments"))).into_response()),
        Err(ApiError::TimedOut) => Err(Failure::unknown("payment", format!("{}/{id}", path("payments"))).into()),
        // A conflict is shown on the page of the form.
        Err(ApiError::Conflict(_, detail, _) | ApiError::Unprocessable(_, detail, _)) => {
            let page = page(&before, &refused(&detail), form, &filled, now);
            Ok(Page { status: StatusCode::CONFLICT, ..page }.into_response())
        }
        Err(ApiError::NotFound(what @ ("transfer" | "refund"))) => {
            let page = page(&before, &refused(&format!("{what} not found.")), form, &filled, now);
            Ok(Page { status: StatusCode::NOT_FOUND, ..page }.into_response())
        }
        Err(error) => {
            let filled = filled.refused(error)?;
            let page = page(&before, &filled.summary(), form, &filled, now);
            Ok(Page { status: StatusCode::UNPROCESSABLE_ENTITY, ..page }.into_response())
        }
    }
}

async fn read(operator: &Operator, payment_id: &str) -> Result<(PaymentId, Decisions), Failure> {
    let missing = || Failure::not_found("payment", payment_id);
    let id: PaymentId = payment_id.parse().map_err(|_| missing())?;
    match find(operator, id).await {
        Ok(decisions) => Ok((id, decisions)),
        Err(ApiError::NotFound(_)) => Err(missing()),
        Err(error) => Err(error.into()),
    }
}

/// Link from the payment's page, if a decision is possible.
pub(crate) fn hint(can: &[Possible], id: PaymentId) -> Markup {
    html! {
        @if !can.is_empty() {
            p.notice role="status" {
                "An operator can decide about this payment's money. "
                a #decide href={ (path("payments")) "/" (id) "/decide" } { "Decide" }
            }
        }
    }
}

/// The page. `sent` names the form that was refused, and `filled` has its values.
fn page(decisions: &Decisions, said: &Markup, sent: &str, filled: &Filled, now: Timestamp) -> Page {
    let id = decisions.payment_id;
    let here = format!("{}/{id}", path("payments"));
    let empty = Filled::default();
    let filled_of = |form: &str| if form == sent { filled } else { &empty };
    let can = |action: &str| decisions.can.iter().any(|possible| possible.action == action);
    let open: Vec<&TransferLine> = decisions.transfers.iter().filter(|line| !line.may.is_empty()).collect();
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } a href=(here) { "payment" } span { "decide" } }
        div.title {
            h1.mono { (id) }
            (status(decisions.status.as_str()))
            @for label in &decisions.labels { (badge(label.as_str(), Tone::Warn)) }
            p { "Every decision is recorded with its reason." }
        }
        (said)
        div.grid.two {
            div.col {
                @for line in &open { (screening(&here, line, filled_of("screen"), now)) }
                @for line in decisions.refunds.iter().filter(|line| !line.may.is_empty()) { (refund_screening(&here, line, filled_of("screen_refund"), now)) }
                @if can("refund_blocked") {
                    @for held in &decisions.blocked { (refund(&here, held, &next_refund(decisions), filled_of("refund_blocked"))) }
                }
                @if can("retry_settlement") { (retry(&here, decisions, filled_of("retry_settlement"), now)) }
                @if can("take_in") { (taking_in(&here, decisions, filled_of("take_in"))) }
                @if decisions.can.is_empty() {
                    section.panel aria-label="Empty" { p.none { "No decision is possible for this payment now." } }
                }
            }
            div.col { (history(decisions, now)) }
        }
    };
    Page::still(format!("Decide about {id}"), NavSection::Stuck, body)
}

pub(crate) fn confirm(filled: &Filled, words: &str) -> Markup {
    html! { (filled.tick(CONFIRM, words)) }
}

fn screening(here: &str, line: &TransferLine, filled: &Filled, now: Timestamp) -> Markup {
    let choices: Vec<(&str, &str)> = line
        .may
        .iter()
        .map(|decision| match decision {
            Decision::Allow => ("allow", "allow: count the money"),
            _ => ("block", "block: hold the money"),
        })
        .collect();
    html! {
        section.panel aria-label={ "Transfer " (line.tx_hash) } {
            header {
                h2 { "Transfer of " (line.amount) }
                p { @match line.verdict { Some(verdict) => (status(verdict.as_str())), None => "not screened yet" } }
            }
            dl.facts {
                dt { "Transaction" } dd { (short(&line.tx_hash)) " on " (line.chain) }
                dt { "From" } dd.mono { (line.from) }
                dt { "State" } dd { (status(line.status)) }
                @if let Some(provider) = &line.provider {
                    dt { "Screening" }
                    dd { (provider) @if !line.flags.is_empty() { ": " (line.flags.join(", ")) } @if let Some(at) = line.checked_at { " " small { (ago(at.0, now)) } } }
                }
            }
            div.body {
                form.stack id={ "screen-" (line.tx_hash) "-" (line.log_index) } method="post" action={ (here) "/screen" } {
                    input type="hidden" name="chain" value=(line.chain);
                    input type="hidden" name="tx_hash" value=(line.tx_hash);
                    input type="hidden" name="log_index" value=(line.log_index);
                    (filled.choice("decision", "Decision", &choices))
                    (filled.line("reason", "Reason, without personal data", "basis of the decision", true))
                    (confirm(filled, "I have checked the source of the money"))
                    div { button { "Decide" } }
                }
            }
        }
    }
}

fn refund_screening(here: &str, line: &RefundLine, filled: &Filled, now: Timestamp) -> Markup {
    html! {
        section.panel aria-label={ "Refund " (line.refund_id) } {
            header {
                h2 { "Refund of " (line.amount) }
                p { @match line.verdict { Some(verdict) => (status(verdict.as_str())), None => "not screened yet" } }
            }
            dl.facts {
                dt { "To" } dd.mono { (line.address) }
                @if let Some(provider) = &line.provider {
                    dt { "Screening" }
                    dd { (provider) @if !line.flags.is_empty() { ": " (line.flags.join(", ")) } @if let Some(at) = line.checked_at { " " small { (ago(at.0, now)) } } }
                }
            }
            div.body {
                form.stack id={ "screen-" (line.refund_id) } method="post" action={ (here) "/screen_refund" } {
                    input type="hidden" name="refund_id" value=(line.refund_id);
                    (filled.choice("decision", "Decision", &[("allow", "allow: send it"), ("block", "block: fail it; another address can be used")]))
                    (filled.line("reason", "Reason, without personal data", "basis of the decision", true))
                    (confirm(filled, "I have checked the destination address"))
                    div { button { "Decide" } }
                }
            }
        }
    }
}

/// `key` is the idempotency key of the next refund after those on this page, also if the form was sent before.
fn refund(here: &str, held: &BlockedLine, key: &str, filled: &Filled) -> Markup {
    let place = held.misdirected.as_deref().map(|token| format!("-{}-{token}", held.chain)).unwrap_or_default();
    html! {
        section.panel aria-labelledby={ "blocked" (place) } {
            header {
                h2 id={ "blocked" (place) } { "Blocked money" }
                p { (held.amount) " " (held.currency.unwrap_or("of another token")) " on " (held.chain) " held" }
            }
            div.body {
                form.stack id={ "refund-blocked" (place) } method="post" action={ (here) "/refund_blocked" } {
                    @if let Some(token) = &held.misdirected {
                        input type="hidden" name="chain" value=(held.chain);
                        input type="hidden" name="token_address" value=(token);
                    }
                    input type="hidden" name="idempotency_key" value=(key);
                    (filled.line("address", "Destination address", "0x…", true))
                    (filled.line("amount", "Amount (empty: the whole amount)", &held.amount, false))
                    (filled.line("reason", "Reason, without personal data", "basis of the decision", true))
                    (confirm(filled, "The money may go to this address. The transfer cannot be reversed."))
                    div { button { "Send" } }
                }
            }
        }
    }
}

fn retry(here: &str, decisions: &Decisions, filled: &Filled, now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="settlement" {
            header { h2 #settlement { "Settlement" } p { "failed with a persistent error" } }
            @if let Some(settlement) = &decisions.settlement {
                dl.facts {
                    dt { "Amount" } dd { (settlement.amount) " " (decisions.currency) }
                    dt { "Failures" } dd { (count(settlement.failures)) }
                    @if let Some(failure) = &settlement.failure { dt { "Last failure" } dd { span.bad-ink.reason { (failure) } } }
                    @if let Some(at) = settlement.retry_at { dt { "Next attempt" } dd { (ago(at.0, now)) } }
                }
            }
            div.body {
                form.stack #retry-settlement method="post" action={ (here) "/retry_settlement" } {
                    (filled.line("reason", "Reason", "what was fixed", true))
                    (confirm(filled, "The cause of the failure is fixed"))
                    div { button { "Settle again" } }
                }
            }
        }
    }
}

fn taking_in(here: &str, decisions: &Decisions, filled: &Filled) -> Markup {
    html! {
        section.panel aria-labelledby="aside" {
            header { h2 #aside { "Money set aside" } p { "recorded but not counted: the payment's list of transfers is full" } }
            dl.facts {
                @for line in &decisions.set_aside {
                    dt { @if line.at_least { "at least " } (count(line.transfers)) " on " (line.chain) }
                    dd { @if line.at_least { "at least " } (line.amount) " " (line.currency.unwrap_or("of another token")) }
                }
            }
            div.body {
                form.stack #take-in method="post" action={ (here) "/take_in" } {
                    (filled.line("reason", "Reason, without personal data", "basis of the decision", true))
                    (confirm(filled, "These transfers are genuine, not spam"))
                    div { button { "Apply transfers" } }
                }
            }
        }
    }
}

fn history(decisions: &Decisions, now: Timestamp) -> Markup {
    html! {
        section.panel #history aria-labelledby="who" {
            header { h2 #who { "Audit log" } p { (grouped(decisions.history.len().try_into().unwrap_or(i128::MAX))) } }
            @if decisions.history.is_empty() { p.none { "No decisions yet." } }
            ol.log {
                @for entry in &decisions.history {
                    li id={ "entry-" (entry.number) } {
                        span.when { (clock(entry.at.0, now)) }
                        span.what { (plain(entry.action.strip_prefix("payment.").unwrap_or(&entry.action))) }
                        span.why { (plain(&entry.actor_kind)) @if !entry.actor.is_empty() { " " span.mono { (entry.actor) } } }
                        span.done { @if let Some(reason) = entry.detail["reason"].as_str() { (reason) } }
                    }
                }
            }
        }
    }
}
