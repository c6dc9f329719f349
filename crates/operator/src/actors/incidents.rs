//! Supervision log: each failure, its reason, and the action that followed.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_runtime::observe::{Action, ActorKind, Cause, Incident, LOG_ENTRIES_MAX};

use crate::Operator;
use crate::actors::page as permanent;
use crate::page::path;
use crate::page::shell::{NavSection, Page, PageRequest};
use crate::page::words::{Tone, ago, badge, grouped, outbound_link, payment_link, plain};

/// Milliseconds for which an incident is marked as new.
const FRESH_MS: i64 = 4_000;

/// `/ops/view/incidents`: every stored entry.
pub(crate) async fn show(State(operator): State<Operator>, asked: PageRequest) -> Response {
    let all = operator.system.latest_incidents(LOG_ENTRIES_MAX);
    let now = operator.system.clock().real_now();
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } span { "supervision log" } }
        div.title { h1 { "Supervision log" } p { "The last " (grouped(LOG_ENTRIES_MAX.try_into().unwrap_or(i128::MAX))) " entries since the service started, newest first." } }
        section.panel aria-label="Entries" {
            @if all.is_empty() { p.none { "Nothing has failed since the service started." } } @else { (list(&all, now)) }
        }
    };
    asked.answer(&Page::live("Supervision log", NavSection::Overview, body))
}

/// Entries in the given order.
pub(crate) fn list(incidents: &[Incident], now: Timestamp) -> Markup {
    html! {
        ol.log {
            @for incident in incidents {
                li id={ "incident-" (incident.number) } data-kind=(incident.kind.as_str())
                    .fresh[now.millis_since(incident.at.into()) < FRESH_MS] {
                    span.when { (ago(incident.at, now)) }
                    span.what { (who(incident)) }
                    span.why { (cause(incident.cause)) ": " span.reason { (incident.reason) } }
                    span.done { (action(incident.action)) }
                }
            }
        }
    }
}

fn who(incident: &Incident) -> Markup {
    let (name, kind) = (&incident.name, plain(incident.kind.as_str()));
    html! {
        @match incident.kind {
            // The id includes the kind.
            ActorKind::Payment => (payment_link(name)),
            ActorKind::Sending => (outbound_link(name)),
            ActorKind::SendingDesk => a href=(path("sendings")) { (kind) },
            ActorKind::Shard => a href={ (path("shards")) "/" (name) } { (kind) " " (name) },
            ActorKind::Watcher | ActorKind::Settler => a href={ (path("chains")) "/" (name) } { (kind) " " (name) },
            ActorKind::Endpoint => { (kind) " " a.mono href={ (path("webhooks")) "/" (name) } { (name) } },
            of => a href=(permanent::page(of, name)) { (kind) @if plain(name) != kind { " " (name) } },
        }
    }
}

fn action(action: Action) -> Markup {
    match action {
        Action::Restarted => badge("restarted", Tone::Warn),
        Action::Quarantined => badge("quarantined", Tone::Bad),
    }
}

/// Class of a failure, in words.
pub(super) const fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Panic => "panic",
        Cause::Error => "error",
        Cause::Killed => "killed",
        Cause::Stopped => "stopped unexpectedly",
        Cause::Start => "failed to start",
    }
}
