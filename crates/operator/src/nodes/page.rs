//! Page of the nodes: their state, the leases that each holds, and the supervision tree of each.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use payferry_domain::{NodeId, Timestamp};
use payferry_entities::{leases, nodes};
use payferry_httpkit::RequestBody as _;
use payferry_nodes::{LeaseKind, LeaseName, NodeState};
use sea_orm::EntityTrait;
use serde_json::Value;

use super::{HandOverRequest, load, request_drain, request_hand_over, trees};
use crate::Operator;
use crate::page::form::{ChangeButton, Filled, Sort, answer_button};
use crate::page::words::{Tone, ago, badge, count, counted, panel};
use crate::page::{Failure, NavSection, Page, Refused, id_of, path};

/// Fields of the form of a hand-over.
const FIELDS: [(&str, Sort); 1] = [("node_id", Sort::Text)];

/// Leases of a node by kind.
type Held = BTreeMap<String, Vec<LeaseName>>;

/// `/ops/view/nodes`: every node.
pub(crate) async fn show(operator: Operator, headers: HeaderMap) -> Result<Response, Failure> {
    let is_running = |node: &nodes::Model| node.state != NodeState::Gone.to_string();
    let (running, gone): (Vec<_>, Vec<_>) = load(&operator).await?.into_iter().partition(is_running);
    let mut held: BTreeMap<String, Held> = BTreeMap::new();
    for row in leases::Entity::find().all(operator.system.database().reader()).await? {
        if let (Some(owner), Ok(name)) = (row.owner, row.name.parse()) {
            held.entry(owner).or_default().entry(row.kind).or_default().push(name);
        }
    }
    let trees = trees::of(&running, &headers).await;
    let now = operator.system.clock().real_now();
    let own = operator.system.node().id().to_string();
    let body = html! {
        div.title {
            h1 { "Nodes" }
            (badge(&running.len().to_string(), Tone::Good))
            p { "Processes that share the database. Each holds the leases of its part of the work." }
        }
        div.col {
            @for (node, tree) in running.iter().zip(&trees) {
                (one(node, held.get(&node.id), tree, &running, node.id == own, now))
            }
            @if !gone.is_empty() { (panel("gone", "Ended within a day", "", &ended(&gone, now))) }
        }
    };
    Ok(Page::still("Nodes", NavSection::Nodes, body).into_response())
}

pub(crate) async fn drain(operator: Operator, Path(id): Path<String>, filled: Filled) -> Result<Response, Refused> {
    let id: NodeId = id_of("node", &id)?;
    answer_button(&filled, &path("nodes"), async { request_drain(&operator, id).await.map(drop) }).await
}

pub(crate) async fn hand_over(
    operator: Operator,
    Path(name): Path<String>,
    filled: Filled,
) -> Result<Response, Refused> {
    let change = async {
        let HandOverRequest { node_id } = filled.read(&FIELDS, HandOverRequest::read)?;
        request_hand_over(&operator, &name, node_id).await.map(drop)
    };
    answer_button(&filled, &path("nodes"), change).await
}

fn one(
    node: &nodes::Model,
    held: Option<&Held>,
    tree: &trees::Tree,
    others: &[nodes::Model],
    is_own: bool,
    now: Timestamp,
) -> Markup {
    let is_ready = node.state == NodeState::Ready.to_string();
    let tone = if is_ready { Tone::Good } else { Tone::Bad };
    let body = html! {
        div.body {
            p { (badge(&node.state, tone)) " " @if is_own { "this node" } }
            dl.facts {
                dt { "Id" } dd.mono { (node.id) }
                dt { "Version" } dd { (node.version) }
                dt { "Listeners" } dd.mono { (node.api_url) ", " (node.operator_url) }
                dt { "Started" } dd { (ago(Timestamp(node.joined_at), now)) }
                dt { "Last heartbeat" } dd { (ago(Timestamp(node.seen_at), now)) }
                dt { "Clock offset" } dd { (node.clock_offset_ms) " ms" }
                @match tree {
                    Ok(tree) => (figures(tree)),
                    Err(reason) => { dt { "Supervision tree" } dd { strong { "missing: " (reason) } } }
                }
            }
            (leases_of(node, held, others))
            @if is_ready && !node.drain_requested {
                (ChangeButton {
                    label: "Drain", subject: &node.name, action: &format!("{}/{}/drain", path("nodes"), node.id), hidden: &[],
                    statement: "It hands its leases over and takes no new requests until its process is restarted",
                })
            }
        }
    };
    panel(&format!("node-{}", node.name), &node.name, "", &body)
}

/// Figures of the supervision tree of a node.
fn figures(tree: &Value) -> Markup {
    let number = |pointer: &str| tree.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let kinds = tree["kinds"].as_array().cloned().unwrap_or_default();
    let busy = kinds.iter().filter(|kind| kind["live"].as_i64().unwrap_or_default() > 0);
    html! {
        dt { "Live payments" } dd { (count(number("/payments_live"))) }
        dt { "Actors" } dd {
            @for (index, kind) in busy.enumerate() {
                @if index > 0 { ", " }
                (kind["kind"].as_str().unwrap_or_default().replace('_', " ")) " " (count(kind["live"].as_i64().unwrap_or_default()))
                @if let restarts @ 1.. = kind["restarts"].as_i64().unwrap_or_default() {
                    " (" (counted(usize::try_from(restarts).unwrap_or_default(), "restart", "restarts")) ")"
                }
            }
        }
    }
}

/// Leases of a node. Chains and jobs can be handed over one by one.
fn leases_of(node: &nodes::Model, held: Option<&Held>, others: &[nodes::Model]) -> Markup {
    let of = |kind: LeaseKind| held.and_then(|held| held.get(&kind.to_string())).map_or(&[][..], Vec::as_slice);
    let to: Vec<_> =
        others.iter().filter(|other| other.id != node.id && other.state == NodeState::Ready.to_string()).collect();
    html! {
        p { (counted(of(LeaseKind::Shard).len(), "shard", "shards")) ", " (counted(of(LeaseKind::Bucket).len(), "bucket", "buckets")) }
        @let named = [of(LeaseKind::Chain), of(LeaseKind::Job)].concat();
        @if !named.is_empty() {
            table {
                thead { tr { th scope="col" { "Lease" } th scope="col" { span.soft { "Hand over" } } } }
                tbody {
                    @for name in named {
                        tr {
                            th.mono scope="row" { (name) }
                            td {
                                @for other in &to {
                                    (ChangeButton {
                                        label: &format!("to {}", other.name), subject: &format!("hand over {name}"),
                                        action: &format!("{}/{name}/hand_over", path("leases")), hidden: &[("node_id", &other.id)],
                                        statement: "The other node takes over this work",
                                    })
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn ended(gone: &[nodes::Model], now: Timestamp) -> Markup {
    html! {
        table {
            thead { tr { th scope="col" { "Node" } th scope="col" { "Id" } th.n.wide scope="col" { "Last heartbeat" } } }
            tbody {
                @for node in gone {
                    tr { th scope="row" { (node.name) } td.mono { (node.id) } td.n.wide { (ago(Timestamp(node.seen_at), now)) } }
                }
            }
        }
    }
}
