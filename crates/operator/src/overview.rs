//! `/ops/overview` and `/ops`: overview of the service, most urgent first.

use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::System;
use payferry_actors::observe::{QuarantinedSubject, Tallied, TreeView};
use payferry_actors::pauses::Held;
use payferry_domain::payment::Status;
use payferry_domain::{Chain, Timestamp};
use payferry_httpkit::{Answer, ApiError};
use payferry_journal::JournalStats;
use payferry_runtime::observe::{ActorKind, Incident, KindView};
use serde::Serialize;

use crate::actors::{panel as actor, tree};
use crate::attention::page as stuck;
use crate::chains::{self, ChainLine};
use crate::health::{self, Readiness};
use crate::page::words::{Tone, ago, badge, count, counted, float, grouped, millis, panel, status};
use crate::page::{NavSection, Page, PageRequest, path};
use crate::query::{if_by, soon};
use crate::webhooks::{self, Webhooks, page as webhook_pages};
use crate::{Operator, pauses};

/// Maximum number of log entries, the newest.
pub const INCIDENTS_MAX: usize = 25;
/// Maximum number of quarantined actors, the oldest.
pub const QUARANTINED_MAX: usize = 10;

/// Data of the overview.
#[derive(Debug, Clone, Serialize)]
pub struct Overview {
    /// Readiness for payments, with the reasons why not.
    pub readiness: Readiness,
    /// Permanent actors. Payments are counted in their shards, payouts and withdrawals at their supervisor.
    pub tree: TreeView,
    /// Figures of every kind of actor.
    pub kinds: Vec<KindView>,
    pub payments_quarantined: usize,
    pub sendings_quarantined: usize,
    /// First [`QUARANTINED_MAX`] of the quarantined actors.
    pub quarantined: Vec<QuarantinedSubject>,
    /// Supervision log, newest first, at most [`INCIDENTS_MAX`] entries.
    pub incidents: Vec<Incident>,
    /// Number of stored log entries.
    pub incidents_kept: usize,
    /// Payments by status and chain. `None` until the count after the start is complete.
    pub payments: Option<Vec<Tallied>>,
    pub chains: Vec<ChainLine>,
    /// Undelivered events. `None` if the database does not answer in time.
    pub webhooks: Option<Webhooks>,
    pub journal: JournalLine,
}

#[derive(Debug, Clone, Serialize)]
pub struct JournalLine {
    /// True if the last known writes to the database succeeded.
    pub writing: bool,
    /// Statistics since the service started.
    #[serde(flatten)]
    pub stats: JournalStats,
}

/// Returns the data of the overview page.
pub(super) async fn data(operator: Operator) -> Result<Answer, ApiError> {
    Answer::ok(&overview(&operator.system).await)
}

/// Reads the overview. Data that only the database has is missing while the database is down.
pub async fn overview(system: &System) -> Overview {
    let readiness = health::readiness(system).await;
    let (mut works, mut undelivered) = (None, None);
    if readiness.database.reads {
        let deadline = soon();
        (works, undelivered) = tokio::join!(
            if_by(deadline, "settler work", chains::works(system)),
            if_by(deadline, "undelivered events", webhooks::webhooks(system)),
        );
    }
    let view = system.observe();
    Overview {
        readiness,
        tree: system.tree(),
        kinds: system.kinds(),
        payments_quarantined: view.payments_quarantined,
        sendings_quarantined: view.sendings_quarantined,
        quarantined: system.given_up(None, QUARANTINED_MAX),
        incidents: system.log().latest(INCIDENTS_MAX),
        incidents_kept: system.log().incidents_len(),
        payments: payments(system),
        chains: chains::chains(system, works.as_ref()),
        webhooks: undelivered,
        journal: journal(system),
    }
}

/// Payments by status and chain. Before the count is complete, the tally only covers changes since the start.
pub fn payments(system: &System) -> Option<Vec<Tallied>> {
    system.tally_is_counted().then(|| system.tally())
}

pub fn journal(system: &System) -> JournalLine {
    JournalLine { writing: system.journal().is_writing(), stats: system.journal().stats() }
}

pub(crate) async fn show(operator: Operator, asked: PageRequest) -> Response {
    let mut overview = overview(&operator.system).await;
    if let Some(webhooks) = &mut overview.webhooks {
        webhooks.endpoints.truncate(webhook_pages::OVERVIEW_MAX);
        if_by(soon(), "PSP names", webhook_pages::name(&operator.system, &mut webhooks.endpoints)).await;
    }
    let now = operator.system.clock().real_now();
    let held = operator.system.pauses().held();
    asked.answer(&Page::live("Overview", NavSection::Overview, body(&overview, &held, now)))
}

fn body(view: &Overview, held: &Held, now: Timestamp) -> Markup {
    let given_up = (view.payments_quarantined, view.sendings_quarantined);
    html! {
        div.title { h1 { "Overview" } (ready(&view.readiness)) }
        div.col {
            (alarm(&view.readiness))
            (pauses::notice(held))
            (stuck::quarantined(view, now))
            (figures(view, now))
            div.grid.two {
                div.col {
                    (tree::panel(&view.tree, &view.kinds, given_up, now))
                    (log(view, now))
                }
                div.col {
                    (chains::panel(&view.chains))
                    (payments_panel(view.payments.as_deref()))
                    (webhook_pages::panel(view.webhooks.as_ref(), now))
                    (journal_panel(&view.journal.stats))
                }
            }
        }
    }
}

fn ready(readiness: &Readiness) -> Markup {
    if readiness.ready { badge("ready", Tone::Good) } else { badge("not ready", Tone::Bad) }
}

/// Reasons why the service cannot take payments.
fn alarm(readiness: &Readiness) -> Markup {
    let told = [
        (!readiness.database.reads, "The database does not answer."),
        (!readiness.database.writes, "The database does not accept writes."),
        (!readiness.payments.ok, "Live payments are still being loaded."),
        (!readiness.chains.ok, "No chain is available for payments."),
    ];
    html! {
        @if !readiness.ready {
            div.notice.bad role="alert" {
                strong { "The service cannot take payments. " }
                @for (_, words) in told.iter().filter(|(is_so, _)| *is_so) { (words) " " }
            }
        }
    }
}

fn figures(view: &Overview, now: Timestamp) -> Markup {
    let of = |kind| view.kinds.iter().find(|one| one.kind == kind);
    let waiting: usize = view.kinds.iter().map(|kind| kind.figures.mailbox).sum();
    let restarts: u64 = view.kinds.iter().flat_map(|kind| kind.restarts.values()).sum();
    let all = view.payments.as_ref().map(|payments| payments.iter().map(|one| one.count).sum::<u64>());
    let stats = &view.journal.stats;
    html! {
        dl.figures {
            div {
                dt title="Live payments with an actor. The actors of quarantined payments are stopped." { "Payment actors" }
                dd {
                    (count(of(ActorKind::Payment).map_or(0, |kind: &KindView| kind.live)))
                    small {
                        @if view.payments_quarantined > 0 { (count(view.payments_quarantined)) " quarantined, " }
                        @match all { Some(all) => { "of " (grouped(all)) }, None => "counting the total" }
                    }
                }
            }
            div { dt { "Mailboxes" } dd { (count(waiting)) small { "messages queued" } } }
            div {
                dt { "Journal" }
                dd { (millis(commit_ms(stats))) small { "per commit, " (units_mean(stats)) " writes" } }
            }
            div {
                dt { "Webhooks" }
                dd {
                    @match view.webhooks.as_ref().map(|webhooks| &webhooks.backlog) {
                        Some(backlog) => {
                            (webhook_pages::waiting(backlog))
                            small { @match backlog.waiting_since { Some(since) => { "oldest " (ago(since.0, now)) }, None => "none waiting" } }
                        }
                        None => { "–" small { "unknown" } }
                    }
                }
            }
            div { dt { "To settle" } dd { (chains::to_settle(&view.chains)) } }
            div {
                dt { "Restarts" }
                dd {
                    (count(restarts))
                    small { @match view.incidents.first() { Some(last) => (ago(last.at, now)), None => "none" } }
                }
            }
        }
    }
}

fn log(view: &Overview, now: Timestamp) -> Markup {
    let shown = view.incidents.as_slice();
    html! {
        section.panel aria-labelledby="log" {
            header {
                h2 #log { "Supervision log" }
                @if view.incidents_kept > shown.len() {
                    a.more href=(path("incidents")) { "all " (counted(view.incidents_kept, "entry", "entries")) }
                }
            }
            @if shown.is_empty() {
                p.none { "Nothing has failed since the service started." }
            } @else {
                (actor::log(shown, now))
            }
        }
    }
}

/// All payments. `None` until the count after the start is complete.
fn payments_panel(tally: Option<&[Tallied]>) -> Markup {
    let body = tally.map_or_else(|| html! { p.none { "Counting payments after the start." } }, payments_table);
    panel("payments", "Payments", "total, by status and chain", &body)
}

/// Table with a row for each status and a column for each chain.
fn payments_table(tally: &[Tallied]) -> Markup {
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
                        td.n { (count(number(&|t| t.status == one))) }
                        td.n { (count(live(&|t| t.status == one))) }
                        @for chain in Chain::ALL { td.n { (count(number(&|t| t.status == one && t.chain == chain))) } }
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

pub(crate) fn journal_panel(stats: &JournalStats) -> Markup {
    let body = html! {
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
    };
    panel("journal", "Journal", "group commits of payment writes", &body)
}

/// Mean time of a commit, milliseconds.
fn commit_ms(stats: &JournalStats) -> f64 {
    if stats.groups == 0 { 0.0 } else { us(stats.commit_time_us) / float(stats.groups) }
}

/// Mean number of writes in a group.
fn units_mean(stats: &JournalStats) -> String {
    if stats.groups == 0 { "0".to_owned() } else { format!("{:.1}", float(stats.units) / float(stats.groups)) }
}

fn us(us: u64) -> f64 {
    float(us) / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_a_refused_write_once_as_failed() {
        let stats = JournalStats { refused: 2, failed: 5, ..JournalStats::default() };
        let shown = journal_panel(&stats).into_string();
        assert!(shown.contains("bad-ink\">5 failed or unknown"), "{shown}");
    }
}
