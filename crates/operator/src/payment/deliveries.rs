//! A payment's webhooks, with each delivery attempt.

use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_journal::webhooks::log::LogEntry;

use crate::page::words::{ago, count, millis, status};

pub(crate) fn panel(entries: &[LogEntry], now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="deliveries" {
            header { h2 #deliveries { "Webhooks" } p { "wall clock time" } }
            @if entries.is_empty() {
                p.none { "None. No event was published, or the PSP has no endpoint for it." }
            } @else {
                table {
                    thead {
                        tr {
                            th scope="col" { "Event" }
                            th scope="col" { "Delivery" }
                            th.n.wide scope="col" { "Response" }
                            th.n.wide scope="col" { "Duration" }
                            th.n scope="col" { "Attempts" }
                        }
                    }
                    tbody { @for entry in entries { (delivery(entry, now)) } }
                }
            }
        }
    }
}

fn delivery(entry: &LogEntry, now: Timestamp) -> Markup {
    let delivery = &entry.delivery;
    html! {
        tr id=(delivery.id) {
            th scope="row" { (entry.event.name) br; small { (ago(Timestamp(delivery.created_at), now)) } }
            td {
                (status(word(&delivery.status)))
                @if let Some(at) = delivery.next_attempt_at { br; small { "next " (ago(Timestamp(at), now)) } }
            }
            td.n.wide { (answer(delivery.response_code, delivery.error.as_deref())) }
            td.n.wide { @if let Some(ms) = delivery.duration_ms { (millis(float(ms))) } @else { "–" } }
            td.n { (count(delivery.attempt_count)) }
        }
        @if !entry.attempts.is_empty() {
            tr.more id={ (delivery.id) "-attempts" } {
                td colspan="5" {
                    details {
                        summary { "Attempts" }
                        table {
                            tbody {
                                @for attempt in &entry.attempts {
                                    tr {
                                        th scope="row" { (attempt.number) ". " (ago(Timestamp(attempt.at), now)) }
                                        td { (answer(attempt.response_code, attempt.error.as_deref())) br; small.mono { (attempt.url) } }
                                        td.n { (millis(float(attempt.duration_ms))) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Label of a delivery status. `failed` shows as waiting for a retry, because for a payment `failed` is final.
fn word(status: &str) -> &str {
    if status == "failed" { "retrying" } else { status }
}

fn answer(code: Option<i64>, error: Option<&str>) -> Markup {
    html! {
        @match (code, error) {
            (Some(code), _) => span.bad-ink[!(200..300).contains(&code)] { (code) },
            (None, Some(error)) => span.bad-ink { (error) },
            (None, None) => "–",
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "only three digits are shown")]
fn float(ms: i64) -> f64 {
    ms as f64
}
