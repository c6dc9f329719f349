//! What waits for somebody: payments given up, and everything that has not moved for too long.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::observe::Quarantine;
use payferry_domain::{PaymentId, Timestamp};

use super::failure::Failure;
use super::path;
use super::shell::{Asked, Page, Place};
use super::words::{Tone, ago, badge, counted, payment_link, plain};
use crate::operator::Operator;
use crate::operator::read::stuck::{self, ITEMS_DEFAULT, StuckGroup, StuckItem, StuckKind};

/// Quarantined payments that are listed on the overview.
const QUARANTINED_MAX: usize = 10;

/// `/ops/view/stuck`: everything that waits for somebody.
pub(super) async fn show(State(operator): State<Operator>, asked: Asked) -> Result<Response, Failure> {
    let stuck = stuck::stuck(&operator.system, None, ITEMS_DEFAULT).await?;
    let now = operator.system.clock().real_now();
    let body = html! {
        div.title {
            h1 { "Stuck" }
            @if stuck.kinds.is_empty() { (badge("nothing", Tone::Good)) } @else { (badge(&stuck.total.to_string(), Tone::Bad)) }
            p { "What needs a person or has waited too long, the most pressing first." }
        }
        div.col {
            @for group in &stuck.kinds { (kind(group, now)) }
            @if stuck.kinds.is_empty() { section.panel aria-label="Nothing" { p.none { "Nothing is stuck." } } }
        }
    };
    Ok(asked.answer(&Page::live("Stuck", Place::Stuck, body)))
}

/// Everything of one kind.
fn kind(group: &StuckGroup, now: Timestamp) -> Markup {
    let name = group.kind.as_str();
    html! {
        section.panel.alarm id=(name) aria-labelledby={ "of-" (name) } {
            header { h2 id={ "of-" (name) } { (heading(name)) " " span.soft { (group.total) } } p { (group.meaning) " " (group.advice) } }
            ol.log {
                @for item in &group.items {
                    li id={ (name) "-" (item.id) } {
                        span.when { @match item.since { Some(since) => (ago(since.0, now)), None => "–" } }
                        span.what { (what(group.kind, item)) }
                        span.why { (item.reason) }
                        span.done {
                            @if let (StuckKind::Quarantined, Some(Ok(id))) = (group.kind, item.payment_id.as_ref().map(|id| id.parse())) { (release(id)) }
                            @else if let StuckKind::SendingInReview = group.kind { a href={ (path("sendings")) "/" (item.id) } { "Decide" } }
                            @else if let (false, Some(payment)) = (item.can.is_empty(), &item.payment_id) { a href={ (path("payments")) "/" (payment) "/decide" } { "Decide" } }
                        }
                    }
                }
            }
        }
    }
}

/// What it is, with a way to its page.
fn what(kind: StuckKind, item: &StuckItem) -> Markup {
    html! {
        @match (kind, &item.payment_id, &item.psp_id) {
            (_, Some(payment), _) => (payment_link(payment)),
            (StuckKind::Paused, ..) => a.mono href=(path("pauses")) { (item.id) },
            (StuckKind::SendingInReview | StuckKind::SendingOverdue, ..) => a.mono href={ (path("sendings")) "/" (item.id) } { (item.id) },
            (StuckKind::CheckOverdue, ..) => span.mono { (item.id) },
            (StuckKind::LedgerImbalance | StuckKind::VaultDifference, None, Some(psp)) => a.mono href={ (path("psps")) "/" (psp) } { (psp) },
            (_, None, Some(psp)) => a.mono href={ (path("webhooks")) "/" (psp) } { (psp) },
            (StuckKind::Chain | StuckKind::Settler, ..) => a href={ (path("chains")) "/" (item.id) } { (item.id) },
            _ => (item.id),
        }
    }
}

/// A kind's name as a heading.
fn heading(name: &str) -> String {
    let words = plain(name);
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Payments given up, with a button for each; nothing if there are none.
pub(super) fn quarantined(quarantined: &BTreeMap<PaymentId, Quarantine>, now: Timestamp) -> Markup {
    html! {
        @if !quarantined.is_empty() {
            section.panel.alarm aria-labelledby="quarantined" {
                header {
                    h2 #quarantined { (counted(quarantined.len(), "payment is", "payments are")) " quarantined" }
                    p { "each failed too often and is not run until it is released" }
                    a.more href=(path("stuck")) { "all that is stuck" }
                }
                ol.log {
                    @for (id, quarantine) in quarantined.iter().take(QUARANTINED_MAX) {
                        li id={ "quarantined-" (id) } {
                            span.when { (ago(quarantine.since, now)) }
                            span.what { (payment_link(&id.to_string())) }
                            span.why { span.reason { (quarantine.reason) } }
                            span.done { (release(*id)) }
                        }
                    }
                }
            }
        }
    }
}

/// The button that lets a payment run again.
pub(super) fn release(id: PaymentId) -> Markup {
    html! {
        form.inline method="post" action={ (path("payments")) "/" (id) "/release" } {
            button.quiet { "Release" }
        }
    }
}
