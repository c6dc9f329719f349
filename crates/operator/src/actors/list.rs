//! `/ops/view/actors`: all actors that are listed by name, sorted and filtered.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use payferry_runtime::observe::{NodeState, NodeView};
use serde::Deserialize;

use crate::Operator;
use crate::actors::panel::state;
use crate::history::page::plot_of;
use crate::page::words::{actor_kind, count, fullest_path, grouped, millis, own_name};
use crate::page::{NavSection, Page, PageRequest, path};

/// Actors on the page. Only endpoints can be more.
const ACTORS_MAX: usize = 500;
/// Orders of the list, by their names in the query and on the page.
const ORDERS: [(&str, &str); 5] = [
    ("mailbox", "Mailbox"),
    ("messages", "Messages"),
    ("wait", "Wait avg"),
    ("handling", "Handling avg"),
    ("restarts", "Restarts"),
];

/// Query of the page.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    sort: Option<String>,
    kind: Option<String>,
    state: Option<String>,
}

pub(crate) async fn show(operator: Operator, Query(wanted): Query<Wanted>, request: PageRequest) -> Response {
    let root = operator.system.tree().root;
    let mut all = Vec::new();
    collect(&root, &mut all);
    let kinds: Vec<&str> = {
        let mut kinds: Vec<&str> = all.iter().map(|node| node.kind.as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (kind, is_down) = (given(&wanted.kind), given(&wanted.state).as_deref() == Some("down"));
    let mut shown: Vec<&NodeView> = all
        .iter()
        .copied()
        .filter(|node| kind.as_deref().is_none_or(|kind| node.kind.as_str() == kind))
        .filter(|node| !is_down || node.state != NodeState::Running)
        .collect();
    let sort = given(&wanted.sort).unwrap_or_else(|| "mailbox".to_owned());
    shown.sort_by(|one, other| key(other, &sort).total_cmp(&key(one, &sort)));
    let total = shown.len();
    shown.truncate(ACTORS_MAX);
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } span { "actors" } }
        div.title { h1 { "Actors" } p { "Those that are listed by name. Payments are listed in their shards." } }
        form.filters method="get" action=(path("actors")) {
            label { "Sort by" select name="sort" { @for (name, words) in ORDERS { option value=(name) selected[sort == name] { (words) } } } }
            label { "Kind" select name="kind" { option value="" { "all" } @for one in &kinds { option value=(one) selected[kind.as_deref() == Some(one)] { (crate::page::words::plain(one)) } } } }
            label { "State" select name="state" { option value="" { "all" } option value="down" selected[is_down] { "not running" } } }
            div { button { "Show" } " " a.button.quiet href=(path("messages")) { "Messages" } }
        }
        section.panel aria-labelledby="actors" {
            header { h2 #actors { "Actors" } p { (grouped(total)) @if total > shown.len() { ", the first " (grouped(shown.len())) " are shown" } } }
            @if shown.is_empty() { p.none { "None." } } @else { (table(&shown, &sort, &wanted)) }
        }
    };
    request.answer(&Page::live("Actors", NavSection::Overview, body))
}

fn collect<'a>(node: &'a NodeView, all: &mut Vec<&'a NodeView>) {
    all.push(node);
    node.children.iter().for_each(|child| collect(child, all));
}

#[allow(clippy::cast_precision_loss, reason = "only the order matters")]
fn key(node: &NodeView, sort: &str) -> f64 {
    match sort {
        "messages" => node.figures.messages as f64,
        "wait" => node.figures.wait_ms,
        "handling" => node.figures.handling_ms,
        "restarts" => node.restarts as f64,
        _ => node.figures.mailbox as f64,
    }
}

fn table(nodes: &[&NodeView], sort: &str, wanted: &Wanted) -> Markup {
    let by = |name: &str| {
        let kind = wanted.kind.as_deref().unwrap_or_default();
        let state = wanted.state.as_deref().unwrap_or_default();
        format!("{}?sort={name}&kind={kind}&state={state}", path("actors"))
    };
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Actor" }
                    @for (name, words) in ORDERS {
                        th.n scope="col" aria-sort=[(sort == name).then_some("descending")] .wide[matches!(name, "messages" | "wait" | "restarts")] { a href=(by(name)) { (words) } }
                    }
                }
            }
            tbody {
                @for node in nodes {
                    tr id={ "actor-" (node.kind.as_str()) "-" (node.name) } {
                        th scope="row" {
                            a.reason href=(fullest_path(node.kind, &node.name)) { (actor_kind(node.kind)) @if let Some(name) = own_name(node.kind, &node.name) { " " (name) } } " " (state(node.state))
                        }
                        td.n { (count(node.figures.mailbox)) span.wide { (plot_of(node.kind, &node.name, "mailbox")) } }
                        td.n.wide { (count(node.figures.messages)) }
                        td.n.wide { (millis(node.figures.wait_ms)) }
                        td.n { (millis(node.figures.handling_ms)) }
                        td.n.wide { (count(node.restarts)) }
                    }
                }
            }
        }
    }
}
