//! Formats of figures, times and states, and parts that the pages of operators and PSPs have: panels and heads of tables.

use std::time::Duration;

use maud::{Markup, html};
use payferry_domain::Timestamp;

payferry_domain::named! {
    /// Severity of a state, shown as a colour. The word is always shown too.
    Tone, "the severity of a state" {
        /// Neither good nor bad.
        Idle = "idle",
        /// Good.
        Good = "good",
        /// Warning: the reader should know about it.
        Warn = "warn",
        /// Bad: the reader should act.
        Bad = "bad",
    }
}

/// Word with a colour.
pub fn badge(word: &str, tone: Tone) -> Markup {
    html! { span class={ "badge " (tone.as_str()) } { (plain(word)) } }
}

/// Notice that a form was carried out.
pub fn done(words: &str) -> Markup {
    html! { p.notice.good role="status" { (words) } }
}

/// Serialised name as words.
pub fn plain(name: &str) -> String {
    name.replace('_', " ")
}

/// Status of a payment in its colour.
pub fn status(status: &str) -> Markup {
    let tone = match status {
        "settled" | "delivered" | "sent" | "running" | "final" | "allow" => Tone::Good,
        "mismatched" | "restarting" | "review" | "retrying" | "half_open" => Tone::Warn,
        "failed" | "exhausted" | "quarantined" | "block" | "orphaned" | "open" => Tone::Bad,
        _ => Tone::Idle,
    };
    badge(status, tone)
}

/// Whole number with digit grouping. Zero is dimmed.
pub fn count(number: impl TryInto<i128>) -> Markup {
    let number = number.try_into().unwrap_or_default();
    html! { @if number == 0 { span.zero { "0" } } @else { (grouped(number)) } }
}

/// Serialised name as a heading.
pub fn heading(name: &str) -> String {
    let words = plain(name);
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Whole number with digit grouping.
pub fn grouped(number: impl TryInto<i128>) -> String {
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
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// Duration in its largest one or two units.
pub fn span(length: Duration) -> String {
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
pub fn ago(at: impl Into<Timestamp>, now: Timestamp) -> Markup {
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
pub fn moment(at: Timestamp, words: &str) -> Markup {
    html! { time datetime=(at) title=(at) { (words) } }
}

/// Time of day, with the date if it differs from the date of `now`.
pub fn clock(at: Timestamp, now: Timestamp) -> Markup {
    let (at_utc, now_utc): (chrono::DateTime<chrono::Utc>, chrono::DateTime<chrono::Utc>) = (at.into(), now.into());
    let pattern = if at_utc.date_naive() == now_utc.date_naive() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
    moment(at, &at_utc.format(pattern).to_string())
}

/// A time in full.
pub fn exact(at: Timestamp) -> Markup {
    moment(at, &at.to_string())
}

/// A time relative to `now`, or `otherwise` if there is none.
pub fn ago_or(at: Option<Timestamp>, now: Timestamp, otherwise: &str) -> Markup {
    html! { @match at { Some(at) => (ago(at, now)), None => span.soft { (otherwise) } } }
}

/// Hash or address with its middle left out. The complete value is in the tooltip.
pub fn short(hex: &str) -> Markup {
    const ENDS_CHARS: usize = 8;
    html! {
        @if hex.len() > 2 * ENDS_CHARS + 4 && hex.is_ascii() {
            span.mono title=(hex) { (hex[..ENDS_CHARS + 2]) "…" (hex[hex.len() - ENDS_CHARS + 2..]) }
        } @else {
            span.mono { (hex) }
        }
    }
}

/// Characters of a transaction hash; an address is shorter.
const HASH_CHARS: usize = 66;

/// Page of a transaction or an address at the explorer of a public chain, by EIP-155 chain id.
pub fn explorer(chain_id: u64, hex: &str) -> Option<String> {
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

/// Section with a heading and a note next to it. An empty note is left out.
pub fn panel(id: &str, heading: &str, note: &str, body: &Markup) -> Markup {
    html! {
        section.panel aria-labelledby=(id) {
            header { h2 id=(id) { (heading) } @if !note.is_empty() { p { (note) } } }
            (body)
        }
    }
}

/// Head of a table: the class and the label of each column.
pub fn head(columns: &[(&str, &str)]) -> Markup {
    explained_head(&columns.iter().map(|(class, label)| (*class, *label, "")).collect::<Vec<_>>())
}

/// Head of a table: the class, the label and the tooltip of each column.
pub fn explained_head(columns: &[(&str, &str, &str)]) -> Markup {
    let given = |text| Some(text).filter(|text: &&str| !text.is_empty());
    html! {
        thead {
            tr {
                @for (class, label, title) in columns { th class=[given(*class)] scope="col" title=[given(*title)] { (label) } }
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

    #[test]
    fn explorers_exist_for_public_chains_only() {
        let hash = format!("0x{}", "ab".repeat(32));
        assert_eq!(explorer(8_453, &hash), Some(format!("https://basescan.org/tx/{hash}")));
        assert_eq!(explorer(137, &hash[..42]), Some(format!("https://polygonscan.com/address/{}", &hash[..42])));
        assert_eq!(explorer(7_700_008_453, &hash), None);
    }
}
