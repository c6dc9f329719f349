//! Page of items that need attention: quarantined actors, and everything that has made no progress for too long.

use std::collections::HashMap;

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, Render, html};
use payferry_actors::observe::{Quarantinable, QuarantineCounts, QuarantinedSubject};
use payferry_domain::Timestamp;
use payferry_httpkit::RequestBody as _;
use serde::Deserialize;

use crate::Operator;
use crate::actors::quarantine::{page_of, release_button};
use crate::attention::acknowledged::{self, ACKNOWLEDGED_DAYS, AcknowledgeRequest, AcknowledgedEntry, ReopenRequest};
use crate::attention::{self, AttentionGroup, AttentionItem, AttentionKind, ITEMS_DEFAULT, NeedsAttention, Position};
use crate::bulk::BulkAction;
use crate::bulk::page::link_to;
use crate::page::form::{ChangeButton, Filled, answer_button};
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
    let change = async {
        let wanted = filled.read(&acknowledged::FIELDS, AcknowledgeRequest::read)?;
        acknowledged::acknowledge(&operator, wanted).await
    };
    answer_button(&filled, &path("stuck"), change).await
}

/// Ends an acknowledgement.
pub(crate) async fn reopen(operator: Operator, filled: Filled) -> Result<Response, Refused> {
    let change = async {
        let wanted = filled.read(&acknowledged::FIELDS[..2], ReopenRequest::read)?;
        acknowledged::reopen(&operator, wanted).await.map(drop)
    };
    answer_button(&filled, &path("stuck"), change).await
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
                            (reopen_button(entry))
                        }
                    }
                }
            }
        }
    }
}

/// Button that acknowledges an entry.
fn acknowledge_button(kind: AttentionKind, item: &AttentionItem) -> Markup {
    let (position, action) = (item.position.to_string(), format!("{}/acknowledge", path("stuck")));
    let hidden = [("kind", kind.as_str()), ("item", &position)];
    let statement = "No action is needed";
    ChangeButton { label: "Acknowledge", subject: &item.id, action: &action, hidden: &hidden, statement }.render()
}

/// Button that ends an acknowledgement.
fn reopen_button(entry: &AcknowledgedEntry) -> Markup {
    let action = format!("{}/reopen", path("stuck"));
    let hidden = [("kind", entry.kind.as_str()), ("item", entry.item.as_str())];
    let statement = "It needs attention again";
    ChangeButton { label: "Reopen", subject: &entry.item, action: &action, hidden: &hidden, statement }.render()
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
                @if let Some(action) = bulk_action(group.kind) { (link_to(action, "All at once")) }
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
                            @if let (AttentionKind::Quarantined, Ok(of)) = (group.kind, item.id.parse::<Quarantinable>()) { (release_button(of)) }
                            @else if let AttentionKind::ApprovalOpen = group.kind { a href={ (path("approvals")) "/" (item.id) } { "Decide" } }
                            @else if let AttentionKind::OutboundInReview = group.kind { a href={ (path("sendings")) "/" (item.id) } { "Decide" } }
                            @else if let (false, Some(payment)) = (item.can.is_empty(), &item.payment_id) { a href={ (path("payments")) "/" (payment) "/decide" } { "Decide" } }
                            @if group.kind.may_be_acknowledged() { (acknowledge_button(group.kind, item)) }
                        }
                    }
                }
            }
            (pages(group, is_behind))
        }
    }
}

/// Action that can be taken on many entries of a kind.
const fn bulk_action(kind: AttentionKind) -> Option<BulkAction> {
    match kind {
        AttentionKind::Quarantined => Some(BulkAction::Release),
        AttentionKind::SettlementFailed => Some(BulkAction::RetrySettlement),
        AttentionKind::RefundApproval => Some(BulkAction::ApproveRefund),
        AttentionKind::WebhooksExhausted => Some(BulkAction::Redeliver),
        _ => None,
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
                            span.done { (release_button(*id)) }
                        }
                    }
                }
            }
        }
    }
}

fn link(of: Quarantinable) -> Markup {
    html! { a.mono href=(page_of(of)) { (of) } }
}
