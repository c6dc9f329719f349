//! Payments by status and chain, and the journal that writes them.

use maud::{Markup, html};
use payferry_actors::observe::Tallied;
use payferry_domain::Chain;
use payferry_domain::payment::Status;
use payferry_journal::JournalStats;

use crate::page::words::{count, millis, status};

/// All payments. `None` until the count after the start is complete.
pub(super) fn panel(tally: Option<&[Tallied]>) -> Markup {
    html! {
        section.panel aria-labelledby="payments" {
            header { h2 #payments { "Payments" } p { "total, by status and chain" } }
            @match tally {
                Some(tally) => (table(tally)),
                None => p.none { "Counting payments after the start." },
            }
        }
    }
}

/// Table with a row for each status and a column for each chain.
fn table(tally: &[Tallied]) -> Markup {
    let number = |wanted: &dyn Fn(&Tallied) -> bool| -> u64 {
        tally.iter().filter(|one| wanted(one)).map(|one| one.count).sum()
    };
    let live =
        |wanted: &dyn Fn(&Tallied) -> bool| -> u64 { tally.iter().filter(|one| wanted(one)).map(|one| one.live).sum() };
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Status" }
                    th.n scope="col" { "All" }
                    th.n scope="col" title="Payments with pending work that the service does by itself" { "Live" }
                    @for chain in Chain::ALL { th.n scope="col" { (chain) } }
                }
            }
            tbody {
                @for one in Status::ALL {
                    tr id={ "status-" (one) } {
                        th scope="row" { (status(one.as_str())) }
                        td.n { (count(number(&|t| t.status == *one))) }
                        td.n { (count(live(&|t| t.status == *one))) }
                        @for chain in Chain::ALL { td.n { (count(number(&|t| t.status == *one && t.chain == chain))) } }
                    }
                }
            }
            tfoot {
                tr {
                    th scope="row" { "All" }
                    td.n { (count(number(&|_| true))) }
                    td.n { (count(live(&|_| true))) }
                    @for chain in Chain::ALL { td.n { (count(number(&|t| t.chain == chain))) } }
                }
            }
        }
    }
}

/// Statistics of the journal.
pub(crate) fn journal(stats: &JournalStats) -> Markup {
    html! {
        section.panel aria-labelledby="journal" {
            header { h2 #journal { "Journal" } p { "group commits of payment writes" } }
            dl.facts {
                dt { "Queued" }
                dd { (count(stats.transitions_queued)) " transitions, " (count(stats.initiations_queued)) " initiations" }
                dt { "Committed" }
                dd { (count(stats.units)) " writes in " (count(stats.groups)) " groups" }
                dt { "Group size" }
                dd { (units_mean(stats)) " writes on average, " (count(stats.group_units_max)) " max" }
                dt { "Commit time" }
                dd { (millis(commit_ms(stats))) " on average, " (millis(us(stats.commit_time_us_max))) " max" }
                dt { "Problems" }
                dd {
                    (count(stats.conflicts)) " conflicts, " (count(stats.retries)) " retries, "
                    span.bad-ink[stats.failed > 0] { (count(stats.failed)) " failed or unknown" }
                }
            }
        }
    }
}

/// Mean time of a commit, milliseconds.
pub(super) fn commit_ms(stats: &JournalStats) -> f64 {
    if stats.groups == 0 { 0.0 } else { us(stats.commit_time_us) / float(stats.groups) }
}

/// Mean number of writes in a group.
pub(super) fn units_mean(stats: &JournalStats) -> String {
    if stats.groups == 0 { "0".to_owned() } else { format!("{:.1}", float(stats.units) / float(stats.groups)) }
}

fn us(us: u64) -> f64 {
    float(us) / 1_000.0
}

#[allow(clippy::cast_precision_loss, reason = "only three digits are shown")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_a_refused_write_once_as_failed() {
        let stats = JournalStats { refused: 2, failed: 5, ..JournalStats::default() };
        let shown = journal(&stats).into_string();
        assert!(shown.contains("bad-ink\">5 failed or unknown"), "{shown}");
    }
}
