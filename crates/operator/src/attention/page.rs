//! Page of items that need attention: quarantined actors, and everything that has made no progress for too long.

use std::collections::HashMap;

use axum::extract::Query;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_actors::observe::{ActorSubject, Quarantinable, QuarantineCounts, QuarantinedSubject};
use payferry_domain::Timestamp;
use payferry_httpkit::{ApiError, RequestBody as _};
use serde::Deserialize;

use crate::Operator;
use crate::attention::acknowledged::{self, ACKNOWLEDGED_DAYS, AcknowledgeRequest, AcknowledgedEntry, ReopenRequest};
use crate::attention::{self, AttentionGroup, AttentionItem, AttentionKind, ITEMS_DEFAULT, NeedsAttention, Position};
use crate::page::form::Filled;
use crate::page::words::{Tone, ago, badge, bounded, counted, heading, outbound_link, payment_link, plain};
use crate::page::{Failure, NavSection, Page, PageRequest, Refused, id_of, path};

/// Items on one page of a kind.
const ITEMS_MAX: usize = 50;

/// Query: everything, or one page of one kind.
#[derive(Deserialize)]
pub(crate) struct Part {
    kind: Option<String>,
    /// Position of the last item of the previous page.
    after: Option<String>,
}

/// `/ops/view/stuck`: every item that needs attention, or one kind of them, page by page.
pub(crate) async fn show(
    operator: Operator,
    Query(part): Query<Part>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let now = system.clock().real_now();
    let Some(name) = part.kind else {
        let found = attention::needs_attention(&operator, ITEMS_DEFAULT).await;
        return Ok(request.answer(&Page::live("Needs attention", NavSection::Attention, body(&found, now))));
    };
    let kind: AttentionKind = id_of("kind", &name)?;
    let after: Option<Position> = part.after.map(|after| id_of("page", &after)).transpose()?;
    let found = attention::needs_attention_of(&operator, kind, after.as_ref(), ITEMS_MAX).await?;
    let title = heading(kind.as_str());
    let body = body_of(&title, kind, found.kinds.first(), after.is_some(), now);
    Ok(request.answer(&Page::live(title, NavSection::Attention, body)))
}

/// Acknowledges an entry.
pub(crate) async fn acknowledge(operator: Operator, filled: Filled) -> Result<Response, Refused> {
    let outcome = async {
        let wanted = filled.read(&acknowledged::FIELDS, AcknowledgeRequest::read)?;
        acknowledged::acknowledge(&operator, wanted).await
    };
    changed(&operator, &filled, outcome.await).await
}

/// Ends an acknowledgement.
pub(crate) async fn reopen(operator: Operator, filled: Filled) -> Result<Response, Refused> {
    let outcome = async {
        let wanted = filled.read(&acknowledged::FIELDS[..2], ReopenRequest::read)?;
        acknowledged::reopen(&operator, wanted).await.map(|_| ())
    };
    changed(&operator, &filled, outcome.await).await
}

async fn changed(operator: &Operator, filled: &Filled, outcome: Result<(), ApiError>) -> Result<Response, Refused> {
    match filled.answered(outcome)? {
        Ok(()) => Ok(Redirect::to(&path("stuck")).into_response()),
        Err(refused) => {
            let found = attention::needs_attention(operator, ITEMS_DEFAULT).await;
            let body = html! { (refused.said) (body(&found, operator.system.clock().real_now())) };
            Ok(Page::live("Needs attention", NavSection::Attention, body).answer_form(refused.status))
        }
    }
}

/// Body with every kind and the first items of each.
fn body(found: &NeedsAttention, now: Timestamp) -> Markup {
    html! {
        div.title {
            h1 { "Needs attention" }
            @if found.kinds.is_empty() { (badge("nothing", Tone::Good)) } @else { (badge(&found.total.to_string(), Tone::Bad)) }
            p { "Items that need a decision or have waited too long, most urgent first." }
        }
        div.col {
            @for group in &found.kinds { (section(group, false, now)) }
            @if found.kinds.is_empty() { section.panel aria-label="Empty" { p.none { "Nothing needs attention." } } }
            @if !found.acknowledged.is_empty() { (acknowledged_panel(&found.acknowledged, now)) }
        }
    }
}

/// Entries that an operator has acknowledged.
fn acknowledged_panel(entries: &[AcknowledgedEntry], now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="acknowledged" {
            header { h2 #acknowledged { "Acknowledged" } p { "Not counted, for " (ACKNOWLEDGED_DAYS) " days or until the problem begins again." } }
            ol.log {
                @for entry in entries {
                    li id={ "acknowledged-" (entry.kind) "-" (entry.item) } {
                        span.when { (ago(Timestamp(entry.at.0), now)) }
                        span.what { (heading(&entry.kind)) br; small.mono { (entry.item.split_once('.').map_or(entry.item.as_str(), |(_, id)| id)) } }
                        span.why { (entry.operator) ": " (entry.reason) }
                        span.done {
                            form.inline method="post" action={ (path("stuck")) "/reopen" } {
                                input type="hidden" name="kind" value=(entry.kind);
                                input type="hidden" name="item" value=(entry.item);
                                button.quiet { "Reopen" }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Form that acknowledges an entry.
fn acknowledge_form(kind: AttentionKind, item: &AttentionItem) -> Markup {
    html! {
        details.act {
            summary { "Acknowledge" }
            form.stack method="post" action={ (path("stuck")) "/acknowledge" } {
                input type="hidden" name="kind" value=(kind);
                input type="hidden" name="item" value=(item.position);
                label { "Reason" input type="text" name="reason" required maxlength="500" autocomplete="off"; }
                div { button.quiet { "Acknowledge" } }
            }
        }
    }
}

/// Body with one page of one kind.
fn body_of(
    title: &str,
    kind: AttentionKind,
    group: Option<&AttentionGroup>,
    is_behind: bool,
    now: Timestamp,
) -> Markup {
    html! {
        p.crumbs { a href=(path("stuck")) { "Needs attention" } span { (plain(kind.as_str())) } }
        div.title {
            h1 { (title) }
            @match group { Some(group) => (badge(&group.total.to_string(), Tone::Bad)), None => (badge("nothing", Tone::Good)) }
        }
        @match group {
            Some(group) => (section(group, is_behind, now)),
            None => section.panel aria-label="Empty" { p.none { "Nothing of this kind needs attention." } },
        }
    }
}

/// Section of one kind. `is_behind`: earlier items exist that are not shown here.
fn section(group: &AttentionGroup, is_behind: bool, now: Timestamp) -> Markup {
    let name = group.kind.as_str();
    html! {
        section.panel.alarm id=(name) aria-labelledby={ "of-" (name) } {
            header {
                h2 id={ "of-" (name) } { (heading(name)) " " span.soft { (bounded(group.total)) } }
                a.more href=(group.runbook) { "Runbook" }
                p { (group.meaning) " " (group.advice) }
            }
            @if group.items.is_empty() { p.none { "No more items." } }
            ol.log {
                @for (id, item) in rows(name, &group.items) {
                    li id=(id) {
                        span.when { @match item.since { Some(since) => (ago(since.0, now)), None => "–" } }
                        span.what { (what(group.kind, item)) }
                        span.why {
                            @if let Some(money) = &item.money { strong { (money) } " " }
                            @if let Some(chain) = &item.chain { "on " (chain) " " }
                            (item.reason)
                        }
                        span.done {
                            @if let (AttentionKind::Quarantined, Ok(of)) = (group.kind, item.id.parse::<Quarantinable>()) { (release(of)) }
                            @else if let AttentionKind::ApprovalOpen = group.kind { a href={ (path("approvals")) "/" (item.id) } { "Decide" } }
                            @else if let AttentionKind::OutboundInReview = group.kind { a href={ (path("sendings")) "/" (item.id) } { "Decide" } }
                            @else if let (false, Some(payment)) = (item.can.is_empty(), &item.payment_id) { a href={ (path("payments")) "/" (payment) "/decide" } { "Decide" } }
                            @if group.kind.may_be_acknowledged() { (acknowledge_form(group.kind, item)) }
                        }
                    }
                }
            }
            (pages(group, is_behind))
        }
    }
}

/// Number of items shown, with links to the other pages.
fn pages(group: &AttentionGroup, is_behind: bool) -> Markup {
    let of_kind = |after: Option<&Position>| {
        let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
        format!("{}?kind={}{after}", path("stuck"), group.kind.as_str())
    };
    let shown = counted(group.items.len(), "is", "are");
    html! {
        @if is_behind || group.next_after.is_some() {
            nav.pages aria-label={ "Pages of " (plain(group.kind.as_str())) } {
                span { (shown) " shown of " (bounded(group.total)) }
                @if is_behind { a rel="first" href=(of_kind(None)) { "First page" } }
                @if let Some(next) = &group.next_after { a rel="next" href=(of_kind(Some(next))) { "Next " (ITEMS_MAX) } }
            }
        }
    }
}

/// Rows of a kind's items, each with a unique id: one payment may occur with several tokens.
fn rows<'a>(kind: &str, items: &'a [AttentionItem]) -> Vec<(String, &'a AttentionItem)> {
    let mut times: HashMap<&str, usize> = HashMap::new();
    let row = |item: &'a AttentionItem| {
        let nth = times.entry(&item.id).or_default();
        *nth += 1;
        let id = if *nth == 1 { format!("{kind}-{}", item.id) } else { format!("{kind}-{}-{nth}", item.id) };
        (id, item)
    };
    items.iter().map(row).collect()
}

/// Description of an item, with a link to its page.
fn what(kind: AttentionKind, item: &AttentionItem) -> Markup {
    html! {
        @match (kind, &item.payment_id, &item.psp_id) {
            (_, Some(payment), _) => (payment_link(payment)),
            (AttentionKind::ApprovalOpen, None, Some(psp)) => a.mono href={ (path("psps")) "/" (psp) } { (psp) },
            (AttentionKind::Paused, ..) => a.mono href=(path("pauses")) { (item.id) },
            (AttentionKind::Quarantined, ..) => @match item.id.parse() { Ok(of) => (link(of)), Err(_) => (item.id) },
            (AttentionKind::OutboundInReview | AttentionKind::OutboundOverdue, ..) => (outbound_link(&item.id)),
            (AttentionKind::CheckOverdue, ..) => span.mono { (item.id) },
            (AttentionKind::LedgerImbalance | AttentionKind::VaultDifference, None, Some(psp)) => a.mono href={ (path("psps")) "/" (psp) } { (psp) },
            (_, None, Some(psp)) => a.mono href={ (path("webhooks")) "/" (psp) } { (psp) },
            (AttentionKind::Chain | AttentionKind::Settler, ..) => a href={ (path("chains")) "/" (item.id) } { (item.id) },
            _ => (item.id),
        }
    }
}

/// The first quarantined subjects, each with a release button. Empty if none is quarantined.
pub(crate) fn quarantined(totals: QuarantineCounts, first: &[QuarantinedSubject], now: Timestamp) -> Markup {
    let QuarantineCounts { payments, outbound, customers } = totals;
    let parts = [
        (payments, "payment", "payments"),
        (outbound, "payout or withdrawal", "payouts or withdrawals"),
        (customers, "customer", "customers"),
    ];
    let parts: Vec<_> = parts.iter().filter(|part| part.0 > 0).map(|(n, one, many)| counted(*n, one, many)).collect();
    let headline = format!("{} {}", parts.join(" and "), if totals.total() == 1 { "is" } else { "are" });
    html! {
        @if !first.is_empty() {
            section.panel.alarm aria-labelledby="quarantined" {
                header {
                    h2 #quarantined { (headline) " quarantined" }
                    p { "Each failed and stays stopped until it is released." }
                    a.more href={ (path("stuck")) "?kind=" (AttentionKind::Quarantined.as_str()) } { "show all" }
                }
                ol.log {
                    @for QuarantinedSubject { id, quarantine } in first {
                        li id={ "quarantined-" (id) } {
                            span.when { (ago(quarantine.since, now)) }
                            span.what { (link(*id)) }
                            span.why { span.reason { (quarantine.reason) } }
                            span.done { (release(*id)) }
                        }
                    }
                }
            }
        }
    }
}

/// Path of the subject's page.
fn page_of(of: Quarantinable) -> String {
    let pages = match of {
        Quarantinable::Actor(ActorSubject::Payment(_)) => "payments",
        Quarantinable::Actor(ActorSubject::OutboundTransfer(_)) => "sendings",
        Quarantinable::Customer(_) => "customers",
    };
    format!("{}/{of}", path(pages))
}

fn link(of: Quarantinable) -> Markup {
    html! { a.mono href=(page_of(of)) { (of) } }
}

/// Button that releases a subject from quarantine.
fn release(of: Quarantinable) -> Markup {
    html! {
        form.inline method="post" action={ (page_of(of)) "/release" } {
            button.quiet { "Release" }
        }
    }
}
