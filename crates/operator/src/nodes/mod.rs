//! `/ops/nodes` and `/ops/leases`: the nodes that share the database, and the node that does each part of the work.
//!
//! A request to drain or to hand over is a row that the node reads within a second, so any node accepts it.

pub(crate) mod page;
pub(crate) mod trees;

use payferry_domain::NodeId;
use payferry_domain::Timestamp;
use payferry_entities::{leases, nodes};
use payferry_httpkit::extract::field::required;
use payferry_httpkit::lists::{DateTime, Found, Page, PageParams, read_page};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, JsonBody, Path, Problem, QueryFields, request, rule};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_nodes::{LeaseName, NodeState};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::Operator;
use crate::input::{id_of, unknown};

/// Maximum number of nodes shown. Rows of nodes that are gone are deleted after a day.
const NODES_MAX: u64 = 200;

record! {
    fn of(row: nodes::Model, own: NodeId) {}

    /// A node.
    pub struct NodeRecord {
        #[schema(example = "node_01JABCDEFGHJKMNPQRSTVWXYZ0")]
        id: String = row.id.clone(),
        /// Name from the configuration.
        name: String = row.name,
        /// True for the node that answers this request.
        is_this: bool = row.id == own.to_string(),
        /// `joining`, `ready`, `draining` or `gone`.
        state: String = row.state,
        /// Version of Payferry.
        version: String = row.version,
        api_url: String = row.api_url,
        operator_url: String = row.operator_url,
        /// Time of the last heartbeat. A service that runs alone sends none.
        seen_at: DateTime = Timestamp(row.seen_at).into(),
        /// Clock of its machine minus the clock of the database server, in milliseconds.
        clock_offset_ms: i64 = row.clock_offset_ms,
        /// True if an operator has asked it to drain.
        drain_requested: bool = row.drain_requested,
        created_at: DateTime = Timestamp(row.joined_at).into(),
        /// The same as `seen_at`.
        updated_at: DateTime = Timestamp(row.seen_at).into(),
    }
}

/// A page of nodes.
#[derive(Serialize, ToSchema)]
pub struct NodeList {
    total: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first, with those that have ended within a day.
    nodes: Vec<NodeRecord>,
}

record! {
    fn of(row: leases::Model) {}

    /// A lease.
    pub struct LeaseRecord {
        /// The same as `name`.
        id: String = row.name.clone(),
        #[schema(example = "chain:base")]
        name: String = row.name,
        /// `shard`, `chain`, `bucket` or `job`.
        kind: String = row.kind,
        /// Id of the owning node; null before the first claim.
        owner: Option<String> = row.owner,
        /// Number of changes of the owner.
        epoch: i64 = row.epoch,
        /// Id of the node to which an operator wants it handed over.
        requested_by: Option<String> = row.requested_by,
        updated_at: DateTime = Timestamp(row.changed_at).into(),
    }
}

/// A page of leases.
#[derive(Serialize, ToSchema)]
pub struct LeaseList {
    total: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// The last change first.
    leases: Vec<LeaseRecord>,
}

/// List the nodes
#[utoipa::path(
    get, path = "/ops/nodes", tag = "Service", operation_id = "listNodes", params(PageParams),
    responses((status = 200, description = "A page of nodes.", body = NodeList), UnreadableQuery),
)]
pub(crate) async fn list(operator: Operator, query: QueryFields) -> Result<Answer, ApiError> {
    use nodes::Column::{Id, JoinedAt};
    let page = Page::read("nodes", query)?;
    let key = |row: &nodes::Model| (row.joined_at, row.id.clone());
    let database = operator.system.database();
    let Found { total, rows, next_cursor } =
        read_page(database, nodes::Entity::find(), [JoinedAt, Id], &page, key).await?;
    let own = operator.system.node().id();
    let nodes = rows.into_iter().map(|row| NodeRecord::of(row, own)).collect();
    Answer::ok(&NodeList { total, next_cursor, nodes })
}

/// List the leases
#[utoipa::path(
    get, path = "/ops/leases", tag = "Service", operation_id = "listLeases", params(PageParams),
    responses((status = 200, description = "A page of leases.", body = LeaseList), UnreadableQuery),
)]
pub(crate) async fn list_leases(operator: Operator, query: QueryFields) -> Result<Answer, ApiError> {
    use leases::Column::{ChangedAt, Name};
    let page = Page::read("leases", query)?;
    let key = |row: &leases::Model| (row.changed_at, row.name.clone());
    let database = operator.system.database();
    let Found { total, rows, next_cursor } =
        read_page(database, leases::Entity::find(), [ChangedAt, Name], &page, key).await?;
    Answer::ok(&LeaseList { total, next_cursor, leases: rows.into_iter().map(LeaseRecord::of).collect() })
}

/// Drain a node
///
/// The node answers 503 to `/readyz`, hands its leases over, and still answers requests. Stop or restart its process
/// afterwards. Can be repeated.
#[utoipa::path(
    post, path = "/ops/nodes/{node_id}/drain", tag = "Service", operation_id = "drainNode",
    params(("node_id" = String, Path, description = "The node.")),
    responses(
        (status = 200, description = "The node drains within a second.", body = NodeRecord),
        (status = 404, description = "`node_not_found`: there is no such node, or it has ended.", body = Problem),
    ),
)]
pub(crate) async fn drain(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let row = request_drain(&operator, id_of("node_id", &id)?).await?;
    Answer::ok(&NodeRecord::of(row, operator.system.node().id()))
}

request! {
    /// A hand-over.
    pub struct HandOverRequest refusing(unknown::<HandOverRequest>) {
        /// Node that gets the lease.
        node_id: NodeId = required(rule::id()),
    }
}

/// Hand a lease over
///
/// The owner stops the work and hands the lease over within a second, if the other node is ready. A node with more than its
/// share hands leases over by itself later.
#[utoipa::path(
    post, path = "/ops/leases/{name}/hand_over", tag = "Service", operation_id = "handOverLease",
    request_body = HandOverRequest,
    params(("name" = String, Path, description = "The name of the lease.")),
    responses(
        (status = 200, description = "The lease, before it is handed over.", body = LeaseRecord),
        (status = 404, description = "`lease_not_found`, `node_not_found`.", body = Problem),
    ),
)]
pub(crate) async fn hand_over(
    operator: Operator,
    Path(name): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let HandOverRequest { node_id } = body.parse()?;
    Answer::ok(&LeaseRecord::of(request_hand_over(&operator, &name, node_id).await?))
}

async fn load(operator: &Operator) -> Result<Vec<nodes::Model>, DbErr> {
    let newest = nodes::Entity::find().order_by_desc(nodes::Column::JoinedAt).order_by_desc(nodes::Column::Id);
    newest.limit(NODES_MAX).all(operator.system.database().reader()).await
}

/// Asks a node to drain. Used by the API and the page.
async fn request_drain(operator: &Operator, id: NodeId) -> Result<nodes::Model, ApiError> {
    let system = &operator.system;
    let transaction = system.database().begin().await?;
    let changed = nodes::Entity::update_many()
        .col_expr(nodes::Column::DrainRequested, Expr::value(true))
        .filter(nodes::Column::Id.eq(id.to_string()))
        .filter(nodes::Column::State.ne(NodeState::Gone.to_string()))
        .exec_with_returning(&transaction)
        .await?;
    let row = changed.into_iter().next().ok_or(ApiError::NotFound("node"))?;
    let entry = NewAuditEntry {
        action: "node.drain_requested".to_owned(),
        psp_id: None,
        subject: row.id.clone(),
        detail: json!({ "name": row.name }),
    };
    audit::append(&transaction, &Actor::Operator, system.clock().real_now(), vec![entry]).await?;
    transaction.commit().await?;
    tracing::warn!(node.id = %id, "operator asked node {} to drain", row.name);
    Ok(row)
}

/// Asks the owner of a lease to hand it over. Used by the API and the page.
async fn request_hand_over(operator: &Operator, name: &str, to: NodeId) -> Result<leases::Model, ApiError> {
    let name: LeaseName = name.parse().map_err(|_| ApiError::NotFound("lease"))?;
    let system = &operator.system;
    let transaction = system.database().begin().await?;
    let target =
        nodes::Entity::find_by_id(to.to_string()).filter(nodes::Column::State.eq(NodeState::Ready.to_string()));
    let target = target.one(&transaction).await?.ok_or(ApiError::NotFound("node"))?;
    let changed = leases::Entity::update_many()
        .col_expr(leases::Column::RequestedBy, Expr::value(to.to_string()))
        .filter(leases::Column::Name.eq(name.to_string()))
        .exec_with_returning(&transaction)
        .await?;
    let row = changed.into_iter().next().ok_or(ApiError::NotFound("lease"))?;
    let detail = json!({ "from": row.owner, "to": row.requested_by, "to_name": target.name });
    let (action, subject) = ("lease.hand_over_requested".to_owned(), row.name.clone());
    let entry = NewAuditEntry { action, psp_id: None, subject, detail };
    audit::append(&transaction, &Actor::Operator, system.clock().real_now(), vec![entry]).await?;
    transaction.commit().await?;
    tracing::warn!(lease = %name, node.id = %to, "operator wants {name} handed over to node {}", target.name);
    Ok(row)
}
