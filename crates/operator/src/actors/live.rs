//! Pages of the actors that the tree only counts. Here: the payments of a shard.

use std::str::FromStr;

use axum::extract::{Path, Query};
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::observe::PaymentLine;
use payferry_domain::{Chain, PaymentId, Timestamp};
use payferry_runtime::observe::{ActorKind, NodeView};
use serde::Deserialize;

use crate::Operator;
use crate::actors::panel as actor;
use crate::page::words::{ago, count, grouped, head, payment_link, status};
use crate::page::{Failure, NavSection, Page, PageRequest, id_of, path};

/// Actors on one page of a list.
const LIVE_MAX: usize = 50;
/// Actors to read: one more, to know if a next page exists.
pub(crate) const LINES_READ_MAX: usize = LIVE_MAX + 1;

/// Start of a page.
#[derive(Deserialize)]
pub(crate) struct PageStart {
    /// Id of the last item of the previous page.
    after: Option<String>,
}

impl PageStart {
    /// The id after which the page starts, if it is not the first page. `what` is the type of the object.
    pub(crate) fn after<I: FromStr>(self, what: &'static str) -> Result<Option<I>, Failure> {
        self.after.filter(|after| !after.is_empty()).map(|after| id_of(what, &after)).transpose()
    }
}

/// Page with the live actors of one supervisor.
pub(crate) struct LivePage<'a> {
    pub(crate) title: String,
    /// Its entry in the breadcrumbs.
    pub(crate) crumb: &'static str,
    pub(crate) here: String,
    pub(crate) supervisor: &'a NodeView,
    /// Id and name of the list.
    pub(crate) list: (&'static str, &'static str),
    /// Heading of the first column.
    pub(crate) column: &'static str,
    /// Text of an empty list.
    pub(crate) none: &'static str,
    /// Start of the page, if it is not the first.
    pub(crate) after: Option<String>,
    pub(crate) lines: Vec<LiveLine>,
}

/// One actor of such a list.
pub(crate) struct LiveLine {
    pub(crate) id: String,
    pub(crate) link: Markup,
    pub(crate) status: Markup,
    pub(crate) chain: Chain,
    pub(crate) version: u32,
    pub(crate) mailbox: usize,
    pub(crate) since: Option<Timestamp>,
}

/// `/ops/view/shards/{shard}`: the live payments of a shard.
pub(crate) async fn show_shard(
    operator: Operator,
    Path(name): Path<String>,
    Query(from): Query<PageStart>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let tree = system.tree();
    let found = tree.root.children.iter().find(|node| node.kind == ActorKind::Shard && node.name == name);
    let (Some(supervisor), Ok(index)) = (found, name.parse()) else { return Err(Failure::not_found("shard", name)) };
    let after: Option<PaymentId> = from.after("payment")?;
    let line = |PaymentLine { id, status: in_status, chain, version, mailbox, since }| {
        let (id, status) = (PaymentId::to_string(&id), status(in_status.as_str()));
        LiveLine { link: payment_link(&id), id, status, chain, version, mailbox, since }
    };
    let page = LivePage {
        title: format!("Shard {name}"),
        crumb: "shard",
        here: format!("{}/{name}", path("shards")),
        supervisor,
        list: ("payments", "payments"),
        column: "Payment",
        none: if after.is_some() { "No more payments." } else { "None." },
        after: after.map(|after| after.to_string()),
        lines: system.payments_of_shard(index, after, LINES_READ_MAX).into_iter().map(line).collect(),
    };
    Ok(request.answer(&page.render(system.clock().real_now())))
}

impl LivePage<'_> {
    /// The page. It has one line more than it shows if a next page exists.
    pub(crate) fn render(self, now: Timestamp) -> Page {
        let (id, name) = self.list;
        let shown = &self.lines[..self.lines.len().min(LIVE_MAX)];
        let next = shown.last().filter(|_| self.lines.len() > LIVE_MAX).map(|last| &last.id);
        let body = html! {
            p.crumbs { a href="/ops" { "Overview" } span { (self.crumb) } }
            div.title {
                h1 { (self.title) }
                (actor::state(self.supervisor.state))
            }
            (actor::figures(self.supervisor, now))
            section.panel aria-labelledby=(id) {
                header {
                    h2 id=(id) { "Live " (name) }
                    p { (grouped(self.supervisor.children_live)) ", by id" @if let Some(after) = &self.after { ", after " code { (after) } } }
                }
                @if shown.is_empty() { p.none { (self.none) } } @else {
                    table {
                        (head(&[("", self.column), ("", "Status"), ("wide", "Chain"), ("n wide", "Version"), ("n wide", "Mailbox"), ("n wide", "Running since")]))
                        tbody {
                            @for line in shown {
                                tr id=(line.id) {
                                    th scope="row" { (line.link) }
                                    td { (line.status) }
                                    td.wide { (line.chain) }
                                    td.n.wide { (line.version) }
                                    td.n.wide { (count(line.mailbox)) }
                                    td.n.wide { @match line.since { Some(since) => (ago(since, now)), None => "waits" } }
                                }
                            }
                        }
                    }
                }
                @if self.after.is_some() || next.is_some() {
                    nav.pages aria-label={ "Pages of " (name) } {
                        @if self.after.is_some() { a rel="first" href=(self.here) { "First page" } }
                        @if let Some(next) = next { a rel="next" href={ (self.here) "?after=" (next) } { "Next " (LIVE_MAX) } }
                    }
                }
            }
        };
        Page::live(self.title, NavSection::Overview, body)
    }
}
