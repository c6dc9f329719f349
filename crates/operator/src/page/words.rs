//! Formats of figures and states, and parts that many pages have: links to other pages and between the pages of a list, and
//! the audit log. The formats that PSPs see too are in `payferry_httpkit::pages::words`.

use std::time::Duration;

use maud::{Markup, html};
use payferry_accounts::audit::AuditEntry;
use payferry_domain::Timestamp;
use payferry_runtime::observe::ActorKind;

use crate::page::{self, path};
use crate::query::Count;

pub(crate) use payferry_httpkit::pages::words::{
    Tone, ago, ago_or, badge, clock, count, counted, done, exact, explained_head, explorer, grouped, head, heading,
    panel, plain, short, span, status,
};

/// Name of a kind of actor. Stored names and labels of metrics keep older words.
pub(crate) fn actor_kind(kind: ActorKind) -> String {
    match kind {
        ActorKind::ComplianceService => "compliance service".to_owned(),
        ActorKind::OutboundSupervisor => "outbound supervisor".to_owned(),
        ActorKind::Sending => "outbound transfer".to_owned(),
        kind => plain(kind.as_str()),
    }
}

/// Name of an actor, unless it only repeats its kind.
pub(crate) fn own_name(kind: ActorKind, name: &str) -> Option<&str> {
    let repeats = plain(name) == plain(kind.as_str()) || plain(name) == actor_kind(kind);
    (!repeats).then_some(name)
}

/// A count. One that stopped at its limit is shown as "more than".
pub(crate) fn bounded(number: Count) -> Markup {
    html! {
        @if number.more {
            span title={ "more than " (grouped(number.counted)) } { "> " (grouped(number.counted)) }
        } @else {
            (count(number.counted))
        }
    }
}

/// Milliseconds in three digits, with a suitable unit.
pub(crate) fn millis(ms: f64) -> String {
    match ms {
        ms if ms <= 0.0 => "0".to_owned(),
        ms if ms < 0.1 => format!("{:.0} µs", ms * 1_000.0),
        ms if ms < 1.0 => format!("{ms:.2} ms"),
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms if ms < 60_000.0 => format!("{:.1} s", ms / 1_000.0),
        ms => span(Duration::from_secs_f64(ms / 1_000.0)),
    }
}

/// Integer as a floating-point number.
#[allow(clippy::cast_precision_loss, reason = "only three digits are shown")]
pub(crate) fn float(number: impl TryInto<i64>) -> f64 {
    number.try_into().unwrap_or(i64::MAX) as f64
}

/// Hash or address on a chain, with its middle left out: with a link to the explorer of the chain, if it has one, and a button
/// that copies it.
pub(crate) fn on_chain(chain: impl std::fmt::Display, hex: &str) -> Markup {
    html! {
        @match explorer_of(&chain.to_string(), hex) {
            Some(link) => a href=(link) rel="noreferrer" target="_blank" { (short(hex)) },
            None => (short(hex)),
        }
        (copy(hex))
    }
}

/// The same in full.
pub(crate) fn whole_on_chain(chain: impl std::fmt::Display, hex: &str) -> Markup {
    html! {
        @match explorer_of(&chain.to_string(), hex) {
            Some(link) => a.mono href=(link) rel="noreferrer" target="_blank" { (hex) },
            None => span.mono { (hex) },
        }
        (copy(hex))
    }
}

/// Button that copies a text. The style sheet hides it where no script runs.
pub(crate) fn copy(text: &str) -> Markup {
    html! { " " button.copy type="button" data-copy=(text) title="Copy" aria-label={ "Copy " (text) } { "⧉" } }
}

/// Page of a transaction or an address at the explorer of a public chain.
fn explorer_of(chain: &str, hex: &str) -> Option<String> {
    let chain_id = page::context().chain_ids.into_iter().find(|(known, _)| known.as_str() == chain)?.1;
    explorer(chain_id, hex)
}

pub(crate) fn payment_link(id: &str) -> Markup {
    html! { a.mono href={ "/ops/view/payments/" (id) } { (id) } }
}

pub(crate) fn outbound_link(id: &str) -> Markup {
    html! { a.mono href={ (path("sendings")) "/" (id) } { (id) } }
}

/// Path of an actor's own page. Spaces in its name become underscores.
pub(crate) fn actor_path(kind: ActorKind, name: &str) -> String {
    path(&format!("actors/{}/{}", kind.as_str(), name.replace(' ', "_")))
}

/// Path of the page with the most information about a permanent actor: the page of its subject if that shows the actor
/// too.
pub(crate) fn fullest_path(kind: ActorKind, name: &str) -> String {
    match kind {
        ActorKind::Watcher | ActorKind::Settler => format!("{}/{name}", path("chains")),
        ActorKind::Endpoint => format!("{}/{name}", path("webhooks")),
        ActorKind::OutboundSupervisor => path("sendings"),
        ActorKind::Shard => format!("{}/{name}", path("shards")),
        kind => actor_path(kind, name),
    }
}

/// Links to the previous and the next page of a list. `at` returns the path of the page at an offset.
pub(crate) fn offset_pages(of: &str, offset: u64, size: u64, has_next: bool, at: impl Fn(u64) -> String) -> Markup {
    html! {
        @if offset > 0 || has_next {
            nav.pages aria-label={ "Pages of " (of) } {
                @if offset > 0 { a rel="prev" href=(at(offset.saturating_sub(size))) { "Previous" } }
                @if has_next { a rel="next" href=(at(offset + size)) { "Next " (size) } }
            }
        }
    }
}

/// Audit log of one object. All names of its actions start with `prefix`. An empty log shows `none`, if
/// that is not empty.
pub(crate) fn audit_log(entries: &[AuditEntry], prefix: &str, note: &Markup, none: &str, now: Timestamp) -> Markup {
    html! {
        section.panel #history aria-labelledby="who" {
            header { h2 #who { "Audit log" } (note) }
            @if entries.is_empty() && !none.is_empty() { p.none { (none) } }
            ol.log {
                @for entry in entries {
                    li id={ "entry-" (entry.number) } {
                        span.when { (clock(entry.at.0, now)) }
                        span.what { (plain(entry.action.strip_prefix(prefix).unwrap_or(&entry.action))) }
                        span.why { (plain(&entry.actor_kind)) @if !entry.actor.is_empty() { " " span.mono { (entry.actor) } } }
                        span.done { @if let Some(reason) = entry.detail["reason"].as_str() { (reason) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_milliseconds() {
        assert_eq!(
            [0.0, 0.012, 0.5, 3.21, 42.0, 1_500.0, 90_000.0].map(millis).join(" | "),
            "0 | 12 µs | 0.50 ms | 3.2 ms | 42 ms | 1.5 s | 1 min"
        );
    }
}
