//! State of one actor: a permanent actor as a row of figures, a payment or outbound transfer as a panel. The
//! supervision log: each failure, its reason, and the action that followed.

use std::backtrace::Backtrace;

use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::observe::{Quarantinable, Quarantine, stored_incidents};
use payferry_actors::system::ActorView;
use payferry_domain::Timestamp;
use payferry_runtime::observe::{
    Action, ActorFailure, ActorFigures, ActorKind, ActorMessages, Cause, Incident, LOG_ENTRIES_MAX, NodeState, NodeView,
};
use serde::Serialize;

use crate::Operator;
use crate::actors::messages::of_actor;
use crate::actors::quarantine::release_button;
use crate::history::page::plot_of;
use crate::page::words::{
    Tone, actor_kind, ago, badge, count, fullest_path, grouped, millis, outbound_link, own_name, payment_link, plain,
};
use crate::page::{NavSection, Page, PageRequest};
use crate::query::{if_by, soon};

/// Added to the numbers of the incidents of other nodes, so that every entry of a page has its own number.
const OF_OTHERS: u64 = 1 << 40;
/// Milliseconds for which an incident is marked as new.
const FRESH_MS: i64 = 4_000;

/// Figures of a permanent actor.
pub(crate) fn figures(node: &NodeView, now: Timestamp) -> Markup {
    html! {
        dl.figures {
            @if supervises(node.kind) { div { dt { "Children" } dd { (count(node.children_live)) } } }
            (of(&node.figures, &|figure| plot_of(node.kind, &node.name, figure)))
            div {
                dt { "Restarts" }
                dd { (count(node.restarts)) small { @if let Some(since) = node.since { "running since " (ago(since, now)) } } }
            }
        }
        @if let Some(failure) = &node.last_failure {
            p.notice { "Last failure " (ago(failure.at, now)) ", " (cause(failure.cause)) ": " span.reason { (failure.reason) } }
        }
    }
}

const fn supervises(kind: ActorKind) -> bool {
    matches!(kind, ActorKind::Root | ActorKind::Shard | ActorKind::OutboundSupervisor | ActorKind::WebhookSender)
}

/// Mailbox, messages and times.
fn of(figures: &ActorFigures, plot: &dyn Fn(&str) -> Markup) -> Markup {
    html! {
        div { dt { "Mailbox" } dd { (count(figures.mailbox)) (plot("mailbox")) } }
        div { dt { "Messages" } dd { (count(figures.messages)) (plot("messages_per_second")) } }
        div { dt { "Wait" } dd { (millis(figures.wait_ms)) small { (millis(figures.wait_ms_max)) " max" } (plot("wait_ms")) } }
        div { dt { "Handling" } dd { (millis(figures.handling_ms)) small { (millis(figures.handling_ms_max)) " max" } (plot("handling_ms")) } }
    }
}

/// Times as a list of facts, for panels without room for figures.
fn times(figures: &ActorFigures) -> Markup {
    html! {
        dt { "Wait" } dd { (millis(figures.wait_ms)) " on average, " (millis(figures.wait_ms_max)) " max" }
        dt { "Handling" } dd { (millis(figures.handling_ms)) " on average, " (millis(figures.handling_ms_max)) " max" }
    }
}

/// Actor of a payment, payout or withdrawal.
pub(crate) struct One<'a> {
    state: NodeState,
    since: Option<Timestamp>,
    figures: ActorFigures,
    handled: Option<&'a ActorMessages>,
    restarts: u64,
    last_failure: Option<&'a ActorFailure>,
    memory: Option<Memory>,
}

/// State that the actor caches.
struct Memory {
    version: u32,
    stale: bool,
    /// Pending effects, in words.
    owes: String,
}

impl<'a, E: Serialize> From<&'a ActorView<E>> for One<'a> {
    fn from(view: &'a ActorView<E>) -> Self {
        let memory = view.memory.as_ref();
        Self {
            state: view.state,
            since: view.since,
            figures: view.figures,
            handled: view.handled.as_ref(),
            restarts: view.restarts,
            last_failure: view.last_failure.as_ref(),
            memory: memory.map(|m| Memory { version: m.version, stale: m.stale, owes: owed(&m.owes) }),
        }
    }
}

/// Pending effects by their serialised names.
fn owed(effects: &[impl Serialize]) -> String {
    let name = |effect| {
        let value = serde_json::to_value(effect).unwrap_or_default();
        plain(value["effect"].as_str().unwrap_or("something"))
    };
    effects.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Panel of one actor, with its failures.
pub(crate) fn panel(actor: Option<&One<'_>>, incidents: &[Incident], now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="actor" {
            header {
                h2 #actor { "Actor" }
                @if let Some(actor) = actor { (state(actor.state)) }
            }
            @match actor {
                None => p.none { "Not running: no work is pending. The next event starts it." },
                Some(actor) => dl.facts {
                    @if let Some(since) = actor.since { dt { "Running since" } dd { (ago(since, now)) } }
                    dt { "Mailbox" } dd { (count(actor.figures.mailbox)) " queued, " (count(actor.figures.messages)) " handled" }
                    (times(&actor.figures))
                    dt { "Restarts" } dd #restarts { span.warn-ink[actor.restarts > 0] { (count(actor.restarts)) } }
                    @if let Some(failure) = actor.last_failure {
                        dt { "Last failure" }
                        dd #last-failure { (ago(failure.at, now)) ", " (cause(failure.cause)) ": " span.reason { (failure.reason) } }
                    }
                    @match &actor.memory {
                        Some(memory) => {
                            dt { "Cached state" } dd { "version " (memory.version) @if memory.stale { ", its row may be newer" } }
                            dt { "Pending effects" }
                            dd { @if memory.owes.is_empty() { "nothing" } @else { (memory.owes) } }
                        }
                        // A quarantined actor is not running and has no cached state.
                        None => @if actor.since.is_some() {
                            dt { "Cached state" } dd #too-busy { span.warn-ink { "unknown, the actor is busy" } }
                        },
                    }
                },
            }
            @if !incidents.is_empty() { (log(incidents, now)) }
        }
        @if let Some(handled) = actor.and_then(|actor| actor.handled) { (of_actor(handled, "handled since the actor started", now)) }
    }
}

/// Notice that the subject is quarantined, with a release button.
pub(crate) fn given_up(of: impl Into<Quarantinable>, quarantined: Option<&Quarantine>, now: Timestamp) -> Markup {
    html! {
        @if let Some(quarantined) = quarantined {
            div.notice.bad role="alert" {
                p { strong { "Quarantined " (ago(quarantined.since, now)) "." } " It stays stopped until it is released: " span.reason { (quarantined.reason) } }
                (release_button(of.into()))
            }
        }
    }
}

/// `/ops/view/incidents`: every stored entry.
pub(crate) async fn show_log(operator: Operator, request: PageRequest) -> Response {
    let system = &operator.system;
    // The database has the entries of other nodes and of earlier runs; the newest ones are stored within a second.
    let stored = if_by(soon(), "incidents", stored_incidents(system.database(), LOG_ENTRIES_MAX as u64)).await;
    let mut all = system.log().latest(LOG_ENTRIES_MAX);
    let own = if system.node().is_shared() { system.node().name() } else { "" };
    all.extend(stored.into_iter().flatten().filter(|(node, _)| node != own).map(|(node, incident)| Incident {
        number: OF_OTHERS + incident.number,
        reason: format!("node {node}: {}", incident.reason),
        ..incident
    }));
    all.sort_by_key(|incident| std::cmp::Reverse(incident.at));
    all.truncate(LOG_ENTRIES_MAX);
    let now = system.clock().real_now();
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } span { "supervision log" } }
        div.title { h1 { "Supervision log" } p { "The last " (grouped(LOG_ENTRIES_MAX)) " entries of all nodes, with those of earlier runs, newest first." } }
        section.panel aria-label="Entries" {
            @if all.is_empty() { p.none { "Nothing has failed." } } @else { (log(&all, now)) }
        }
    };
    request.answer(&Page::live("Supervision log", NavSection::Overview, body))
}

/// Entries in the given order.
pub(crate) fn log(incidents: &[Incident], now: Timestamp) -> Markup {
    html! {
        ol.log {
            @for incident in incidents {
                li id={ "incident-" (incident.number) } data-kind=(incident.kind.as_str())
                    .fresh[now.millis_since(incident.at.into()) < FRESH_MS] {
                    span.when { (ago(incident.at, now)) }
                    span.what { (who(incident)) }
                    span.why {
                        (cause(incident.cause)) ": " span.reason { (incident.reason) }
                        @if let Some(location) = &incident.location { br; small.mono { (location) } }
                        @if let Some(backtrace) = &incident.backtrace { (stack(backtrace)) }
                    }
                    span.done { (action(incident.action)) }
                }
            }
        }
    }
}

/// Lines of a backtrace that are shown.
const STACK_LINES_MAX: usize = 80;

/// Stack of a panic, closed at first.
fn stack(backtrace: &Backtrace) -> Markup {
    let text = backtrace.to_string();
    let lines: Vec<&str> = text.lines().take(STACK_LINES_MAX).collect();
    html! { details { summary { "Stack" } pre.mono { (lines.join("\n")) } } }
}

fn who(incident: &Incident) -> Markup {
    let (name, kind) = (&incident.name, actor_kind(incident.kind));
    html! {
        @match incident.kind {
            // The id includes the kind.
            ActorKind::Payment => (payment_link(name)),
            ActorKind::Sending => (outbound_link(name)),
            of @ ActorKind::OutboundSupervisor => a href=(fullest_path(of, name)) { (kind) },
            of @ ActorKind::Endpoint => { (kind) " " a.mono href=(fullest_path(of, name)) { (name) } },
            of => a href=(fullest_path(of, name)) { (kind) @if let Some(name) = own_name(incident.kind, name) { " " (name) } },
        }
    }
}

fn action(action: Action) -> Markup {
    match action {
        Action::Restarted => badge("restarted", Tone::Warn),
        Action::Quarantined => badge("quarantined", Tone::Bad),
    }
}

pub(crate) fn state(state: NodeState) -> Markup {
    let (word, tone) = in_words(state);
    badge(word, tone)
}

/// State as a word, with its tone.
pub(super) const fn in_words(state: NodeState) -> (&'static str, Tone) {
    match state {
        NodeState::Running => ("running", Tone::Good),
        NodeState::Restarting => ("restarting", Tone::Warn),
        NodeState::Quarantined => ("quarantined", Tone::Bad),
        NodeState::Stopped => ("stopped", Tone::Idle),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_actor_without_data_is_shown_as_busy() {
        let shown = |since: Option<Timestamp>, memory: Option<Memory>| {
            let (state, figures) = (NodeState::Running, ActorFigures::default());
            let one = One { state, since, figures, handled: None, restarts: 0, last_failure: None, memory };
            panel(Some(&one), &[], Timestamp(1)).into_string()
        };
        let memory = Memory { version: 3, stale: false, owes: String::new() };
        let idle = shown(Some(Timestamp(0)), Some(memory));
        assert!(idle.contains("version 3") && !idle.contains("is busy"), "{idle}");
        assert!(shown(Some(Timestamp(0)), None).contains("unknown, the actor is busy"));
        assert!(!shown(None, None).contains("is busy"));
    }
}
