//! Formats of figures, times and states, and parts that many pages have: panels, heads of tables, links between the pages
//! of a list, and the audit log.

use std::time::Duration;

use maud::{Markup, html};
use payferry_accounts::audit::AuditEntry;
use payferry_domain::Timestamp;
use payferry_runtime::observe::ActorKind;

use crate::page::{self, path};
use crate::query::Count;

payferry_domain::named! {
    /// Severity of a state, shown as a colour. The word is always shown too.
    Tone, "the severity of a state" {
        Idle = "idle",
        Good = "good",
        /// Warning: the operator should know about it.
        Warn = "warn",
        /// Bad: the operator should act.
        Bad = "bad",
    }
}

/// Word with a colour.
pub(crate) fn badge(word: &str, tone: Tone) -> Markup {
    html! { span class={ "badge " (tone.as_str()) } { (plain(word)) } }
}

/// Notice that a form was carried out.
pub(crate) fn done(words: &str) -> Markup {
    html! { p.notice.good role="status" { (words) } }
}

/// Serialised name as words.
pub(crate) fn plain(name: &str) -> String {
    name.replace('_', " ")
}

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

/// Status of a payment in its colour.
pub(crate) fn status(status: &str) -> Markup {
    let tone = match status {
        "settled" | "delivered" | "sent" | "running" | "final" | "allow" => Tone::Good,
        "mismatched" | "restarting" | "review" | "retrying" | "half_open" => Tone::Warn,
        "failed" | "exhausted" | "quarantined" | "block" | "orphaned" | "open" => Tone::Bad,
        _ => Tone::Idle,
    };
    badge(status, tone)
}

/// Whole number with digit grouping. Zero is dimmed.
pub(crate) fn count(number: impl TryInto<i128>) -> Markup {
    let number = number.try_into().unwrap_or_default();
    html! { @if number == 0 { span.zero { "0" } } @else { (grouped(number)) } }
}

/// Serialised name as a heading.
pub(crate) fn heading(name: &str) -> String {
    let words = plain(name);
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
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

/// Whole number with digit grouping.
pub(crate) fn grouped(number: impl TryInto<i128>) -> String {
    let number = number.try_into().unwrap_or(i128::MAX);
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        text.push('−');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Number with the singular or plural noun.
pub(crate) fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
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

/// Duration in its largest one or two units.
pub(crate) fn span(length: Duration) -> String {
    let secs = length.as_secs();
    match secs {
        0..60 => format!("{secs} s"),
        60..3_600 => format!("{} min", secs / 60),
        3_600..86_400 if secs % 3_600 < 60 => format!("{} h", secs / 3_600),
        3_600..86_400 => format!("{} h {} min", secs / 3_600, secs % 3_600 / 60),
        _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3_600),
    }
}

/// Time relative to `now`. The exact time is in the tooltip.
pub(crate) fn ago(at: impl Into<Timestamp>, now: Timestamp) -> Markup {
    let at = at.into();
    let past_ms = now.millis_since(at);
    let length = Duration::from_millis(past_ms.unsigned_abs());
    let words = match span(length) {
        _ if length < Duration::from_secs(1) => "now".to_owned(),
        span if past_ms > 0 => format!("{span} ago"),
        span => format!("in {span}"),
    };
    moment(at, &words)
}

/// Time with the given text.
pub(crate) fn moment(at: Timestamp, words: &str) -> Markup {
    html! { time datetime=(at) title=(at) { (words) } }
}

/// Time of day, with the date if it differs from the date of `now`.
pub(crate) fn clock(at: Timestamp, now: Timestamp) -> Markup {
    let (at_utc, now_utc): (chrono::DateTime<chrono::Utc>, chrono::DateTime<chrono::Utc>) = (at.into(), now.into());
    let pattern = if at_utc.date_naive() == now_utc.date_naive() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
    moment(at, &at_utc.format(pattern).to_string())
}

/// A time in full.
pub(crate) fn exact(at: Timestamp) -> Markup {
    moment(at, &at.to_string())
}

/// A time relative to `now`, or `otherwise` if there is none.
pub(crate) fn ago_or(at: Option<Timestamp>, now: Timestamp, otherwise: &str) -> Markup {
    html! { @match at { Some(at) => (ago(at, now)), None => span.soft { (otherwise) } } }
}

/// Integer as a floating-point number.
#[allow(clippy::cast_precision_loss, reason = "only three digits are shown")]
pub(crate) fn float(number: impl TryInto<i64>) -> f64 {
    number.try_into().unwrap_or(i64::MAX) as f64
}

/// Hash or address with its middle left out. The complete value is in the tooltip.
pub(crate) fn short(hex: &str) -> Markup {
    const ENDS_CHARS: usize = 8;
    html! {
        @if hex.len() > 2 * ENDS_CHARS + 4 && hex.is_ascii() {
            span.mono title=(hex) { (hex[..ENDS_CHARS + 2]) "…" (hex[hex.len() - ENDS_CHARS + 2..]) }
        } @else {
            span.mono { (hex) }
        }
    }
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

/// Characters of a transaction hash; an address is shorter.
const HASH_CHARS: usize = 66;

/// Page of a transaction or an address at the explorer of a public chain.
fn explorer_of(chain: &str, hex: &str) -> Option<String> {
    let chain_id = page::context().chain_ids.into_iter().find(|(known, _)| known.as_str() == chain)?.1;
    let site = EXPLORERS.iter().find(|(known, _)| *known == chain_id)?.1;
    let page = if hex.len() == HASH_CHARS { "tx" } else { "address" };
    Some(format!("https://{site}/{page}/{hex}"))
}

/// Explorers of the public chains and their test networks, by EIP-155 chain id.
const EXPLORERS: [(u64, &str); 6] = [
    (8_453, "basescan.org"),
    (84_532, "sepolia.basescan.org"),
    (137, "polygonscan.com"),
    (80_002, "amoy.polygonscan.com"),
    (42_161, "arbiscan.io"),
    (421_614, "sepolia.arbiscan.io"),
];

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

/// Section with a heading and a note next to it. An empty note is left out.
pub(crate) fn panel(id: &str, heading: &str, note: &str, body: &Markup) -> Markup {
    html! {
        section.panel aria-labelledby=(id) {
            header { h2 id=(id) { (heading) } @if !note.is_empty() { p { (note) } } }
            (body)
        }
    }
}

/// Head of a table: the class and the label of each column.
pub(crate) fn head(columns: &[(&str, &str)]) -> Markup {
    explained_head(&columns.iter().map(|(class, label)| (*class, *label, "")).collect::<Vec<_>>())
}

/// Head of a table: the class, the label and the tooltip of each column.
pub(crate) fn explained_head(columns: &[(&str, &str, &str)]) -> Markup {
    let given = |text| Some(text).filter(|text: &&str| !text.is_empty());
    html! {
        thead {
            tr {
                @for (class, label, title) in columns { th class=[given(*class)] scope="col" title=[given(*title)] { (label) } }
            }
        }
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
    fn formats_counts_and_durations() {
        assert_eq!([0, 999, 1_000, -12_345_678].map(grouped).join(" "), "0 999 1,000 −12,345,678");
        assert_eq!(counted(1, "payment", "payments"), "1 payment");
        assert_eq!(
            [0.0, 0.012, 0.5, 3.21, 42.0, 1_500.0, 90_000.0].map(millis).join(" | "),
            "0 | 12 µs | 0.50 ms | 3.2 ms | 42 ms | 1.5 s | 1 min"
        );
        assert_eq!(
            [59, 60, 3_600, 3_720, 90_000].map(|s| span(Duration::from_secs(s))).join(" | "),
            "59 s | 1 min | 1 h | 1 h 2 min | 1 d 1 h"
        );
    }

    #[test]
    fn formats_times_relative_to_now() {
        let now = Timestamp(1_732_175_655_007);
        let words = |ms| ago(now.plus_millis(ms), now).into_string();
        assert!(words(-12_000).contains(">12 s ago<"), "{}", words(-12_000));
        assert!(words(300_000).contains(">in 5 min<"));
        assert!(words(-10).contains(">now<"));
        assert!(words(0).contains("title=\"2024-11-21T07:54:15.007Z\""));
        assert!(clock(now, now).into_string().contains(">07:54:15<"));
        assert!(clock(now, now.plus_secs(86_400)).into_string().contains(">2024-11-21 07:54<"));
    }
}
