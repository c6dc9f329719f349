//! What waits for somebody: what was given up, and everything that has not moved for too long.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::observe::Ferried;
use payferry_domain::Timestamp;

use super::failure::Failure;
use super::path;
use super::shell::{Asked, Page, Place};
use super::words::{Tone, ago, badge, counted, payment_link, plain, sending_link};
use crate::operator::Operator;
use crate::operator::read::overview::Overview;
use crate::operator::read::stuck::{self, ITEMS_DEFAULT, StuckGroup, StuckItem, StuckKind};

/// Quarantined ones that are listed on the overview.
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
                @for (id, item) in rows(name, &group.items) {
                    li id=(id) {
                        span.when { @match item.since { Some(since) => (ago(since.0, now)), None => "–" } }
                        span.what { (what(group.kind, item)) }
                        span.why { (item.reason) }
                        span.done {
                            @if let (StuckKind::Quarantined, Some(of)) = (group.kind, ferried(&item.id)) { (release(of)) }
                            @else if let StuckKind::SendingInReview = group.kind { a href={ (path("sendings")) "/" (item.id) } { "Decide" } }
                            @else if let (false, Some(payment)) = (item.can.is_empty(), &item.payment_id) { a href={ (path("payments")) "/" (payment) "/decide" } { "Decide" } }
                        }
                    }
                }
            }
        }
    }
}

/// The items of a kind, each with an id of its own for its row: one payment may be there with several tokens.
fn rows<'a>(kind: &str, items: &'a [StuckItem]) -> Vec<(String, &'a StuckItem)> {
    let mut times: HashMap<&str, usize> = HashMap::new();
    let row = |item: &'a StuckItem| {
        let nth = times.entry(&item.id).or_default();
        *nth += 1;
        let id = if *nth == 1 { format!("{kind}-{}", item.id) } else { format!("{kind}-{}-{nth}", item.id) };
        (id, item)
    };
    items.iter().map(row).collect()
}

/// What it is, with a way to its page.
fn what(kind: StuckKind, item: &StuckItem) -> Markup {
    html! {
        @match (kind, &item.payment_id, &item.psp_id) {
            (_, Some(payment), _) => (payment_link(payment)),
            (StuckKind::Paused, ..) => a.mono href=(path("pauses")) { (item.id) },
            (StuckKind::Quarantined | StuckKind::SendingInReview | StuckKind::SendingOverdue, ..) => (sending_link(&item.id)),
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

/// What was given up, with a button for each; nothing if nothing was.
pub(super) fn quarantined(view: &Overview, now: Timestamp) -> Markup {
    let (payments, sendings) = (&view.quarantined, &view.sendings_quarantined);
    let all = payments.iter().map(|(id, quarantine)| (Ferried::from(*id), quarantine));
    let all = all.chain(sendings.iter().map(|(id, quarantine)| (Ferried::from(*id), quarantine)));
    let headline = match (payments.len(), sendings.len()) {
        (payments, 0) => counted(payments, "payment is", "payments are"),
        (0, sendings) => counted(sendings, "payout or withdrawal is", "payouts and withdrawals are"),
        (payments, sendings) => {
            format!("{}, and of payouts and withdrawals {sendings} are", counted(payments, "payment", "payments"))
        }
    };
    html! {
        @if !payments.is_empty() || !sendings.is_empty() {
            section.panel.alarm aria-labelledby="quarantined" {
                header {
                    h2 #quarantined { (headline) " quarantined" }
                    p { "each failed too often and is not run until it is released" }
                    a.more href=(path("stuck")) { "all that is stuck" }
                }
                ol.log {
                    @for (of, quarantine) in all.take(QUARANTINED_MAX) {
                        li id={ "quarantined-" (of) } {
                            span.when { (ago(quarantine.since, now)) }
                            span.what { (link(of)) }
                            span.why { span.reason { (quarantine.reason) } }
                            span.done { (release(of)) }
                        }
                    }
                }
            }
        }
    }
}

/// What has an actor of its own by this id.
fn ferried(id: &str) -> Option<Ferried> {
    id.parse().map(Ferried::Payment).or_else(|_| id.parse().map(Ferried::Sending)).ok()
}

fn link(of: Ferried) -> Markup {
    match of {
        Ferried::Payment(id) => payment_link(&id.to_string()),
        Ferried::Sending(id) => sending_link(&id.to_string()),
    }
}

/// The button that lets it run again.
fn release(of: Ferried) -> Markup {
    let pages = path(if matches!(of, Ferried::Payment(_)) { "payments" } else { "sendings" });
    html! {
        form.inline method="post" action={ (pages) "/" (of) "/release" } {
            button.quiet { "Release" }
        }
    }
}
