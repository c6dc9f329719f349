//! Messages of actors: those of one actor by name, and the graph of the messages between kinds of actors.

use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_httpkit::{Answer, ApiError};
use payferry_runtime::observe::{ActorKind, ActorMessages, MessageEdge, MessageView};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::history::page::plot;
use crate::page::words::{actor_kind, ago, count, explained_head, head, millis, panel, plain};
use crate::page::{NavSection, Page, PageRequest};

/// Messages between two kinds of actors.
#[derive(Debug, Serialize, ToSchema)]
pub struct EdgeRecord {
    #[serde(flatten)]
    edge: MessageEdge,
    /// Messages per second in the last 10 s; null before the second sample.
    per_second: Option<f32>,
}

/// Messages between all kinds of actors.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageGraph {
    /// Pairs of kinds with at least one message. `from` is null for requests, timers and tasks.
    edges: Vec<EdgeRecord>,
}

/// Read the messages between actors
///
/// How many messages actors of each kind have sent to actors of each other kind, with the current rates.
#[utoipa::path(
    get, path = "/ops/messages", tag = "Service", operation_id = "getMessages",
    responses((status = 200, description = "The messages.", body = MessageGraph)),
)]
pub(crate) async fn data(operator: Operator) -> Result<Answer, ApiError> {
    Answer::ok(&MessageGraph { edges: edges(&operator) })
}

fn edges(operator: &Operator) -> Vec<EdgeRecord> {
    let record = |edge: MessageEdge| {
        let series = operator.history.of(&format!("{}_per_second", figure(edge)));
        let per_second = series.and_then(|(series, _)| series.fine.back().copied()).filter(|rate| rate.is_finite());
        EdgeRecord { edge, per_second }
    };
    operator.system.message_edges().into_iter().map(record).collect()
}

/// Name of the figure of an edge.
pub(crate) fn figure(edge: MessageEdge) -> String {
    format!("messages/{}/{}", edge.from.map_or("outside", ActorKind::as_str), edge.to.as_str())
}

/// `/ops/view/messages`: the graph, and a table of its edges.
pub(crate) async fn show(operator: Operator, request: PageRequest) -> Response {
    let mut edges = edges(&operator);
    edges.sort_by_key(|edge| std::cmp::Reverse(edge.edge.messages));
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } span { "messages" } }
        div.title { h1 { "Messages" } p { "Between kinds of actors. The thicker a line, the more messages in the last 10 s." } }
        div.grid.two {
            div.col { (panel("graph", "Graph", "", &html! { div.body { (graph(&edges)) } })) }
            div.col { (panel("edges", "Rates", "", &table(&edges))) }
        }
    };
    request.answer(&Page::live("Messages", NavSection::Overview, body))
}

/// Size of the drawing.
const SIZE: f32 = 640.0;
/// Distance of the nodes from its centre.
const RADIUS: f32 = 250.0;

fn name(kind: Option<ActorKind>) -> String {
    kind.map_or_else(|| "outside".to_owned(), actor_kind)
}

/// Kinds on a circle, with an arrow for each pair.
fn graph(edges: &[EdgeRecord]) -> Markup {
    let mut kinds: Vec<Option<ActorKind>> =
        edges.iter().flat_map(|edge| [edge.edge.from, Some(edge.edge.to)]).collect();
    kinds.sort_unstable();
    kinds.dedup();
    #[allow(clippy::cast_precision_loss, reason = "there are fewer than twenty kinds")]
    let place = |kind: Option<ActorKind>| {
        let index = kinds.iter().position(|known| *known == kind).unwrap_or_default();
        let angle = index as f32 / kinds.len().max(1) as f32 * std::f32::consts::TAU;
        (SIZE / 2.0 + RADIUS * angle.sin(), SIZE / 2.0 - RADIUS * angle.cos())
    };
    let width = |rate: f32| (1.0 + rate.max(0.0)).ln().mul_add(1.2, 0.6);
    html! {
        svg.graph role="img" aria-label="Messages between kinds of actors; the table has the rates" viewBox={ "0 0 " (SIZE) " " (SIZE) } {
            @for edge in edges {
                @let (x1, y1) = place(edge.edge.from);
                @let (x2, y2) = place(Some(edge.edge.to));
                @let rate = edge.per_second.unwrap_or_default();
                path.quiet[rate <= 0.0] d={ (format!("M{x1:.0},{y1:.0} Q{:.0},{:.0} {x2:.0},{y2:.0}", SIZE / 2.0, SIZE / 2.0)) }
                    stroke-width=(format!("{:.1}", width(rate))) { title { (name(edge.edge.from)) " to " (name(Some(edge.edge.to))) } }
            }
            @for kind in &kinds {
                @let (x, y) = place(*kind);
                circle cx=(format!("{x:.0}")) cy=(format!("{y:.0}")) r="7" {}
                text x=(format!("{x:.0}")) y=(format!("{:.0}", if y < SIZE / 2.0 { y - 14.0 } else { y + 24.0 })) text-anchor="middle" { (name(*kind)) }
            }
        }
    }
}

fn table(edges: &[EdgeRecord]) -> Markup {
    html! {
        table {
            (explained_head(&[("", "From", ""), ("", "To", ""), ("n", "Rate", "Messages per second in the last 10 s"), ("n", "Messages", "")]))
            tbody {
                @for EdgeRecord { edge, per_second } in edges {
                    tr id={ (edge.from.map_or("outside", ActorKind::as_str)) "-" (edge.to.as_str()) } {
                        th scope="row" { (name(edge.from)) }
                        td { (name(Some(edge.to))) }
                        td.n {
                            @match per_second { Some(rate) => { (format!("{rate:.1}")) "/s" }, None => "–" }
                            (plot(&format!("{}_per_second", figure(*edge))))
                        }
                        td.n { (count(edge.messages)) }
                    }
                }
            }
        }
    }
}

/// Messages of one actor, which are counted from this time on.
pub(super) fn of_actor(messages: &ActorMessages, counted: &str, now: Timestamp) -> Markup {
    html! {
        @if !messages.by_name.is_empty() { (by_name(&messages.by_name, counted)) }
        @if !messages.last.is_empty() {
            (panel("last-messages", "Last messages", "newest first", &html! {
                table {
                    (head(&[("", "Message"), ("n", "Handling"), ("n", "When")]))
                    tbody {
                        @for message in &messages.last {
                            tr { th scope="row" { (plain(message.name)) } td.n { (millis(message.handling_ms)) } td.n { (ago(message.at, now)) } }
                        }
                    }
                }
            }))
        }
    }
}

/// Messages by name, with their handling times.
pub(super) fn by_name(messages: &[MessageView], note: &str) -> Markup {
    panel(
        "messages",
        "Messages",
        note,
        &html! {
            table {
                (head(&[("", "Message"), ("n", "Count"), ("n", "Handling avg"), ("n", "max")]))
                tbody {
                    @for message in messages {
                        tr id={ "message-" (message.name) } {
                            th scope="row" { (plain(message.name)) }
                            td.n { (count(message.count)) }
                            td.n { (millis(message.handling_ms)) }
                            td.n { (millis(message.handling_ms_max)) }
                        }
                    }
                }
            }
        },
    )
}
