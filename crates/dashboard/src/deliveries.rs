//! Deliveries of webhooks: the log of a payment, payout or withdrawal, what is not delivered, and redelivery.

use axum::extract::Path;
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::form::FormValues;
use payferry_httpkit::pages::words::{ago, ago_or, counted, head, panel, status};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::api::{At, Done, segment, with_query};
use crate::page::{ChangeButton, NavSection, cursor_pages, see_other};
use crate::session::Session;

/// Notice after a redelivery, by the word in the query.
pub(crate) const NOTICES: [(&str, &str); 1] = [("redelivered", "The delivery is queued again, with all its retries.")];
/// Deliveries on the page of a payment.
const DELIVERIES_MAX: &str = "50";

/// A delivery of one event.
#[derive(Debug, Deserialize)]
pub(crate) struct Delivery {
    id: String,
    endpoint_id: String,
    payment_id: String,
    event: String,
    sequence: i64,
    url: Option<String>,
    #[serde(rename = "delivery_status")]
    status: String,
    attempt_count: i64,
    failure: Option<String>,
    next_attempt_at: Option<At>,
    payload: Box<RawValue>,
    attempts: Vec<Attempt>,
    created_at: At,
}

/// One attempt at a delivery.
#[derive(Debug, Deserialize)]
struct Attempt {
    number: i64,
    at: At,
    response_code: Option<i64>,
    response_body: Option<String>,
    duration_ms: i64,
    error: Option<String>,
}

/// A page of deliveries.
#[derive(Debug, Deserialize)]
pub(crate) struct DeliveryList {
    pub(crate) total: u64,
    next_cursor: Option<String>,
    pub(crate) deliveries: Vec<Delivery>,
}

impl Session {
    /// Reads the delivery log of a payment, payout or withdrawal, from this cursor on.
    pub(crate) async fn delivery_log(&self, subject: &str, cursor: &str) -> Result<DeliveryList, ApiError> {
        let path = format!("/payments/{subject}/webhooks");
        self.api.get(&with_query(&path, [("limit", DELIVERIES_MAX), ("cursor", cursor)])).await
    }

    /// Reads the oldest deliveries that have not succeeded.
    pub(crate) async fn undelivered(&self, limit: &str) -> Result<DeliveryList, ApiError> {
        self.api.get(&with_query("/api/v1/webhook/undelivered", [("limit", limit)])).await
    }

    /// The delivery log, on the page `here`.
    pub(crate) fn log_panel(&self, log: &DeliveryList, here: &str, is_first: bool) -> Markup {
        let next = log.next_cursor.as_deref().map(|cursor| with_query(here, [("deliveries", cursor)]));
        let body = html! {
            @if log.deliveries.is_empty() { p.none { "No events were sent to an endpoint." } }
            ol.deliveries {
                @for delivery in &log.deliveries { (self.entry(delivery)) }
            }
            (cursor_pages("deliveries", (!is_first).then_some(here), next.as_deref()))
        };
        panel("deliveries", "Deliveries", &counted(log.deliveries.len(), "delivery", "deliveries"), &body)
    }

    fn entry(&self, delivery: &Delivery) -> Markup {
        let now = self.real_now();
        let action = format!("/dashboard/deliveries/{}/{}/redeliver", delivery.payment_id, delivery.id);
        html! {
            li id=(delivery.id) {
                div.head {
                    strong { (delivery.event) } " " (status(&delivery.status))
                    span.at { (ago(delivery.created_at, now)) }
                }
                div.soft {
                    "Event " (delivery.sequence) " to "
                    a href={ "/dashboard/webhooks/" (delivery.endpoint_id) } { code { (delivery.url.as_deref().unwrap_or(&delivery.endpoint_id)) } }
                }
                @if let Some(failure) = &delivery.failure { div { span.bad-ink { (failure) } } }
                @if let Some(at) = delivery.next_attempt_at { div.soft { "Next attempt " (ago(at, now)) } }
                @if !delivery.attempts.is_empty() { (attempts(delivery, now)) }
                details {
                    summary aria-label={ "Body of " (delivery.event) " to " (delivery.endpoint_id) } { "Body" }
                    pre tabindex="0" aria-label={ "Body of " (delivery.event) } { (delivery.payload.get()) }
                }
                @if self.key.has("webhooks") {
                    div.actions {
                        (ChangeButton {
                            label: "Redeliver", subject: &format!("{} to {}", delivery.event, delivery.endpoint_id), action: &action,
                            fields: html! {}, statement: "The endpoint handles events that arrive twice",
                        })
                    }
                }
            }
        }
    }
}

fn attempts(delivery: &Delivery, now: Timestamp) -> Markup {
    let count = usize::try_from(delivery.attempt_count).unwrap_or_default();
    let counted = counted(count, "attempt", "attempts");
    html! {
        details {
            summary aria-label={ (counted) " of " (delivery.event) " to " (delivery.endpoint_id) } { (counted) }
            table {
                (head(&[("", "Attempt"), ("", "Answer"), ("n", "Duration"), ("n", "Time")]))
                tbody {
                    @for attempt in &delivery.attempts {
                        tr {
                            th scope="row" { (attempt.number) }
                            td {
                                @if let Some(code) = attempt.response_code { (code) }
                                @if let Some(error) = &attempt.error { span.bad-ink { (error) } }
                                @if let Some(body) = attempt.response_body.as_deref().filter(|body| !body.is_empty()) { br; code { (body) } }
                            }
                            td.n { (attempt.duration_ms) " ms" }
                            td.n { (ago(attempt.at, now)) }
                        }
                    }
                }
            }
        }
    }
}

/// Panel of undelivered events, with links to its payments, payouts and withdrawals.
pub(crate) fn undelivered_panel(list: &DeliveryList, now: Timestamp) -> Markup {
    let body = html! {
        @if list.deliveries.is_empty() { p.none { "Everything is delivered." } } @else {
            table {
                (head(&[("", "Event"), ("", "State"), ("wide", "Of"), ("n", "Next attempt")]))
                tbody {
                    @for delivery in &list.deliveries {
                        tr {
                            th scope="row" {
                                @match page_of(&delivery.payment_id) {
                                    Some(page) => a href={ (page) "#" (delivery.id) } { (delivery.event) },
                                    None => (delivery.event),
                                }
                                br; small { (ago(delivery.created_at, now)) }
                            }
                            td { (status(&delivery.status)) @if let Some(failure) = &delivery.failure { br; small { (failure) } } }
                            td.wide { code { (delivery.payment_id) } }
                            td.n { (ago_or(delivery.next_attempt_at.map(|at| at.0), now, "none")) }
                        }
                    }
                }
            }
        }
    };
    panel("undelivered", "Undelivered webhooks", &list.total.to_string(), &body)
}

/// The page of a payment, transfer, payout or withdrawal.
pub(crate) fn page_of(subject: &str) -> Option<String> {
    let folder = match subject.split_once('_')?.0 {
        "pay" | "tr" => "payments",
        "po" | "wd" => "outbound",
        _ => return None,
    };
    Some(format!("/dashboard/{folder}/{subject}"))
}

/// Delivers an event again.
pub(crate) async fn redeliver(session: Session, ids: Path<(String, String)>, form: FormValues) -> Response {
    session.answer(queue(&session, ids, &form).await)
}

async fn queue(
    session: &Session,
    Path((subject, delivery)): Path<(String, String)>,
    form: &FormValues,
) -> Result<Response, ApiError> {
    let here = page_of(segment(&subject, "payment")?).ok_or(ApiError::NotFound("payment"))?;
    let path = format!("/payments/{subject}/webhooks/{}/redeliver", segment(&delivery, "delivery")?);
    Ok(match session.submit::<Done>(form, Method::POST, &path, json!({})).await? {
        Ok(_) => see_other(&format!("{here}?done=redelivered#{delivery}")),
        Err(refused) => session.not_changed(&refused, NavSection::Payments, &here),
    })
}
