//! Statistics of the journal, on the overview and on the page of its actor.

use maud::{Markup, html};
use payferry_actors::System;
use payferry_journal::JournalStats;
use serde::Serialize;
use utoipa::ToSchema;

use crate::page::words::{self, count, float, millis};

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct JournalLine {
    /// True if the last known writes to the database succeeded.
    pub writing: bool,
    /// Statistics since the service started.
    #[serde(flatten)]
    pub stats: JournalStats,
}

/// Returns whether the journal writes, and its statistics.
pub(crate) fn line(system: &System) -> JournalLine {
    JournalLine { writing: system.journal().is_writing(), stats: system.journal().stats() }
}

pub(crate) fn panel(stats: &JournalStats) -> Markup {
    let body = html! {
        dl.facts {
            dt { "Queued" }
            dd { (count(stats.transitions_queued)) " transitions, " (count(stats.initiations_queued)) " initiations" }
            dt { "Committed" }
            dd { (count(stats.units)) " writes in " (count(stats.groups)) " groups" }
            dt { "Group size" }
            dd { (writes_mean(stats)) " writes on average, " (count(stats.group_units_max)) " max" }
            dt { "Commit time" }
            dd { (millis(commit_ms(stats))) " on average, " (millis(float(stats.commit_time_us_max) / 1_000.0)) " max" }
            dt { "Problems" }
            dd {
                (count(stats.conflicts)) " conflicts, " (count(stats.retries)) " retries, "
                span.bad-ink[stats.failed > 0] { (count(stats.failed)) " failed or unknown" }
            }
        }
    };
    words::panel("journal", "Journal", "group commits of payment writes", &body)
}

/// Mean time of a commit, milliseconds.
pub(crate) fn commit_ms(stats: &JournalStats) -> f64 {
    if stats.groups == 0 { 0.0 } else { float(stats.commit_time_us) / 1_000.0 / float(stats.groups) }
}

/// Mean number of writes in a group.
pub(crate) fn writes_mean(stats: &JournalStats) -> String {
    if stats.groups == 0 { "0".to_owned() } else { format!("{:.1}", float(stats.units) / float(stats.groups)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_a_refused_write_once_as_failed() {
        let stats = JournalStats { refused: 2, failed: 5, ..JournalStats::default() };
        let shown = panel(&stats).into_string();
        assert!(shown.contains("bad-ink\">5 failed or unknown"), "{shown}");
    }
}
