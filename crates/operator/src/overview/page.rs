//! `/ops`: page of the overview.

use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::observe::{QuarantineCounts, Tallied};
use payferry_actors::pauses::Held;
use payferry_domain::payment::Status;
use payferry_domain::{Chain, Timestamp};
use payferry_runtime::observe::{ActorKind, KindView};

use crate::Operator;
use crate::actors::{journal, panel as actor, tree};
use crate::attention::page as attention;
use crate::chains::page as chains;
use crate::health::Readiness;
use crate::history::page::plot;
use crate::overview::{self, Overview, UnsafeSetting};
use crate::page::words::{Tone, ago, badge, count, counted, grouped, millis, panel, status};
use crate::page::{NavSection, Page, PageRequest, path};
use crate::pauses::page as pauses;
use crate::query::{if_by, soon};
use crate::webhooks::page as webhook_pages;

pub(crate) async fn show(operator: Operator, request: PageRequest) -> Response {
    let mut overview = overview::overview(&operator).await;
    if let Some(webhooks) = &mut overview.webhooks {
        webhooks.endpoints.truncate(webhook_pages::OVERVIEW_MAX);
        if_by(soon(), "PSP names", webhook_pages::name(&operator.system, &mut webhooks.endpoints)).await;
    }
    let now = operator.system.clock().real_now();
    let held = operator.system.pauses().held();
    request.answer(&Page::live("Overview", NavSection::Overview, body(&overview, &held, now)))
}

fn body(view: &Overview, held: &Held, now: Timestamp) -> Markup {
    let given_up = QuarantineCounts {
        payments: view.payments_quarantined,
        outbound: view.sendings_quarantined,
        customers: view.customers_quarantined,
    };
    html! {
        div.title { h1 { "Overview" } (ready(&view.readiness)) }
        div.col {
            (alarm(&view.readiness))
            (pauses::notice(held))
            (unsafe_notice(&view.unsafe_settings))
            (attention::quarantined(given_up, &view.quarantined, now))
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
                    (journal::panel(&view.journal.stats))
                }
            }
        }
    }
}

fn unsafe_notice(settings: &[UnsafeSetting]) -> Markup {
    html! {
        @if !settings.is_empty() {
            div.notice.warn #unsafe role="status" {
                strong { "Unsafe settings are allowed" }
                ul { @for one in settings { li { span.mono { (one.setting) } ": " (one.detail) } } }
            }
        }
    }
}

fn ready(readiness: &Readiness) -> Markup {
    if readiness.ready { badge("ready", Tone::Good) } else { badge("not ready", Tone::Bad) }
}

/// Reasons why the service is not ready.
fn alarm(readiness: &Readiness) -> Markup {
    let problems = [
        (readiness.node.draining, "The node is draining and stops soon."),
        (!readiness.database.reads, "The database does not answer."),
        (!readiness.database.writes, "The database does not accept writes."),
        (!readiness.payments.ok, "Live payments are still being loaded."),
        (!readiness.chains.ok, "No chain is available for payments."),
    ];
    html! {
        @if !readiness.ready {
            div.notice.bad role="alert" {
                strong { "The service is not ready for payments. " }
                @for (_, words) in problems.iter().filter(|(is_so, _)| *is_so) { (words) " " }
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
                    (plot("kind/payment/live"))
                }
            }
            div { dt { "Mailboxes" } dd { (count(waiting)) small { "messages queued" } (plot("mailboxes")) } }
            div {
                dt { "Journal" }
                dd { (millis(journal::commit_ms(stats))) small { "per commit, " (journal::writes_mean(stats)) " writes" } (plot("journal/writes_per_second")) }
            }
            div {
                dt { "Webhooks" }
                dd {
                    @match view.webhooks.as_ref().map(|webhooks| &webhooks.backlog) {
                        Some(backlog) => {
                            a href=(path("deliveries")) { (webhook_pages::waiting(backlog)) }
                            small { @match backlog.waiting_since { Some(since) => { "oldest " (ago(since.0, now)) }, None => "none waiting" } }
                        }
                        None => { "–" small { "unknown" } }
                    }
                    (plot("webhooks/waiting"))
                }
            }
            div {
                dt title="An overloaded service completes the payments that it has before it accepts more." { "New payments" }
                dd #admission {
                    @match view.admission.limit_per_second {
                        None => "accepted",
                        Some(0.0) => span.bad-ink { "refused" },
                        Some(limit) => span.bad-ink { "up to " (format!("{limit:.0}")) "/s" },
                    }
                    small { (grouped(view.admission.refused)) " refused as overloaded" }
                    (plot("admission/refused_per_second"))
                }
            }
            div { dt { "To settle" } dd { a href={ (path("operations")) "?status=queued" } { (chains::to_settle(&view.chains)) } (plot("kind/settler/mailbox")) } }
            div {
                dt { "Restarts" }
                dd {
                    (count(restarts))
                    small { @match view.incidents.first() { Some(last) => (ago(last.at, now)), None => "none" } }
                    (plot("restarts_per_second"))
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
                p.none { "Nothing has failed." }
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

/// Path of the list of these payments.
fn list(status: Option<Status>, chain: Option<Chain>) -> String {
    let status = status.map(|status| format!("status={status}"));
    let chain = chain.map(|chain| format!("chain={chain}"));
    let filters: Vec<String> = status.into_iter().chain(chain).collect();
    let mark = if filters.is_empty() { "" } else { "?" };
    format!("{}{mark}{}", path("payments"), filters.join("&"))
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
                        td.n { a href=(list(Some(one), None)) { (count(number(&|t| t.status == one))) } }
                        td.n { (count(live(&|t| t.status == one))) }
                        @for chain in Chain::ALL { td.n { a href=(list(Some(one), Some(chain))) { (count(number(&|t| t.status == one && t.chain == chain))) } } }
                    }
                }
            }
            tfoot {
                tr {
                    th scope="row" { "All" }
                    td.n { a href=(list(None, None)) { (count(number(&|_| true))) } }
                    td.n { (count(live(&|_| true))) }
                    @for chain in Chain::ALL { td.n { a href=(list(None, Some(chain))) { (count(number(&|t| t.chain == chain))) } } }
                }
            }
        }
    }
}
