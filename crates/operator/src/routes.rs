//! The table of routes, each with the role that it needs.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodRouter, get, post};
use payferry_accounts::operators::OperatorRole;
use payferry_httpkit::extract::Components;
use payferry_httpkit::openapi::query_of;
use tower_http::compression::CompressionLayer;
use utoipa::openapi::path::PathItem;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::{
    Operator, actors, admit, approvals, attention, audit, bulk, chains, customers, decisions, events, health, history,
    lists, nodes, openapi, outbound, overview, pauses, payment, psps, runbooks, search, webhooks,
};

/// Access rule of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Every client of the listener.
    Open,
    /// Operators with this role or a higher one.
    Role(OperatorRole),
}

/// Query parameters of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteQuery {
    /// These, which its description declares.
    Names(Vec<String>),
    /// Any: the route is a page, or open.
    Any,
}

/// One route.
pub struct Route {
    /// Access rule.
    pub access: Access,
    /// Method.
    pub method: Method,
    /// Path.
    pub path: String,
    /// Query parameters. A request with another one is refused.
    pub query: RouteQuery,
    /// Its part of the OpenAPI document, with the schemas to which it refers; `None` for pages.
    pub(super) described: Option<(PathItem, Components)>,
    pub(super) serve: MethodRouter<Operator>,
}

/// All routes. All except health, metrics and the login need an operator: a viewer to read, an operator for everyday work,
/// an admin to change limits, wallets, keys and PSPs. The handlers of the JSON routes declare their paths, methods, query
/// parameters, bodies and responses.
pub fn table() -> Vec<Route> {
    vec![
        open(routes!(health::healthz)),
        open(routes!(health::readyz)),
        compressed(open(routes!(health::metrics))),
        page(Access::Open, "/ops/login", admit::form),
        form(Access::Open, "/ops/login", admit::enter),
        form(VIEWER, "/ops/logout", admit::leave),
        json(VIEWER, routes!(openapi::read)),
        json(VIEWER, routes!(actors::tree)),
        json(VIEWER, routes!(actors::one)),
        json(OPERATOR, routes!(actors::release)),
        json(VIEWER, routes!(actors::shard)),
        json(VIEWER, routes!(overview::data)),
        json(VIEWER, routes!(attention::list)),
        json(OPERATOR, routes!(attention::acknowledged::acknowledge_entry)),
        json(OPERATOR, routes!(attention::acknowledged::reopen_entry)),
        json(VIEWER, routes!(events::listen)),
        json(VIEWER, routes!(audit::list)),
        json(VIEWER, routes!(customers::list)),
        json(VIEWER, routes!(customers::get)),
        json(OPERATOR, routes!(customers::decide)),
        json(VIEWER, routes!(customers::documents::read)),
        json(VIEWER, routes!(pauses::list)),
        json(OPERATOR, routes!(pauses::set)),
        json(OPERATOR, routes!(pauses::lift)),
        json(VIEWER, routes!(nodes::list)),
        json(ADMIN, routes!(nodes::drain)),
        json(VIEWER, routes!(nodes::list_leases)),
        json(ADMIN, routes!(nodes::hand_over)),
        json(VIEWER, routes!(history::data)),
        json(VIEWER, routes!(actors::messages::data)),
        json(VIEWER, routes!(search::data)),
        json(VIEWER, routes!(lists::payments::data)),
        json(VIEWER, routes!(lists::deliveries::data)),
        json(VIEWER, routes!(lists::operations::data)),
        json(VIEWER, routes!(payment::replay::data)),
        json(VIEWER, routes!(decisions::get)),
        json(OPERATOR, routes!(decisions::screen)),
        json(OPERATOR, routes!(decisions::screen_refund)),
        json(OPERATOR, routes!(decisions::screen_payer)),
        json(OPERATOR, routes!(decisions::approve_refund)),
        json(OPERATOR, routes!(decisions::refund_blocked)),
        json(OPERATOR, routes!(decisions::retry_settlement)),
        json(OPERATOR, routes!(decisions::apply_set_aside)),
        json(VIEWER, routes!(bulk::preview)),
        json(OPERATOR, routes!(bulk::start)),
        json(VIEWER, routes!(bulk::list)),
        json(VIEWER, routes!(bulk::get)),
        json(OPERATOR, routes!(bulk::stop)),
        json(VIEWER, routes!(approvals::list)),
        json(VIEWER, routes!(approvals::get)),
        json(OPERATOR, routes!(approvals::approve)),
        json(OPERATOR, routes!(approvals::reject)),
        json(VIEWER, routes!(outbound::list)),
        json(VIEWER, routes!(outbound::get)),
        json(OPERATOR, routes!(outbound::screen)),
        json(VIEWER, routes!(psps::list)),
        json(ADMIN, routes!(psps::create)),
        json(VIEWER, routes!(psps::get)),
        json(ADMIN, routes!(psps::change)),
        json(VIEWER, routes!(psps::withdrawal::show)),
        json(ADMIN, routes!(psps::withdrawal::change)),
        json(VIEWER, routes!(psps::keys::list)),
        json(ADMIN, routes!(psps::keys::create)),
        json(ADMIN, routes!(psps::keys::revoke)),
        // Pages and their forms. Only routes that read may be live: the script fetches the page's own path again.
        page(VIEWER, "/ops", overview::page::show),
        page(VIEWER, "/ops/view/incidents", actors::panel::show_log),
        page(VIEWER, "/ops/view/stuck", attention::page::show),
        form(OPERATOR, "/ops/view/stuck/acknowledge", attention::page::acknowledge),
        form(OPERATOR, "/ops/view/stuck/reopen", attention::page::reopen),
        page(VIEWER, "/ops/view/runbooks", runbooks::list),
        page(VIEWER, "/ops/view/runbooks/{name}", runbooks::show),
        page(VIEWER, "/ops/view/actors", actors::list::show),
        page(VIEWER, "/ops/view/messages", actors::messages::show),
        page(VIEWER, "/ops/view/actors/{kind}/{name}", actors::page::show),
        page(VIEWER, "/ops/view/shards/{shard}", actors::live::show_shard),
        page(VIEWER, "/ops/view/history", history::page::show),
        page(VIEWER, "/ops/view/search", search::show),
        page(VIEWER, "/ops/view/payments", lists::payments::show),
        page(VIEWER, "/ops/view/deliveries", lists::deliveries::show),
        page(VIEWER, "/ops/view/operations", lists::operations::show),
        page(VIEWER, "/ops/view/payments/{payment_id}", payment::page::show),
        page(VIEWER, "/ops/view/payments/{payment_id}/replay", payment::replay::show),
        form(OPERATOR, "/ops/view/payments/{payment_id}/release", payment::page::release),
        page(VIEWER, "/ops/view/payments/{payment_id}/decide", decisions::page::show),
        form(OPERATOR, "/ops/view/payments/{payment_id}/screen", decisions::page::decide),
        form(OPERATOR, "/ops/view/payments/{payment_id}/screen_refund", decisions::page::decide),
        form(OPERATOR, "/ops/view/payments/{payment_id}/screen_payer", decisions::page::decide),
        form(OPERATOR, "/ops/view/payments/{payment_id}/approve_refund", decisions::page::decide),
        form(OPERATOR, "/ops/view/payments/{payment_id}/refund_blocked", decisions::page::decide),
        form(OPERATOR, "/ops/view/payments/{payment_id}/retry_settlement", decisions::page::decide),
        form(OPERATOR, "/ops/view/payments/{payment_id}/take_in", decisions::page::decide),
        page(VIEWER, "/ops/view/bulk", bulk::page::show),
        form(OPERATOR, "/ops/view/bulk", bulk::page::start),
        page(VIEWER, "/ops/view/bulk/{job_id}", bulk::page::show_job),
        form(OPERATOR, "/ops/view/bulk/{job_id}/stop", bulk::page::stop),
        page(VIEWER, "/ops/view/approvals", approvals::page::list),
        page(VIEWER, "/ops/view/approvals/{approval_id}", approvals::page::show),
        form(OPERATOR, "/ops/view/approvals/{approval_id}/approve", approvals::page::approve),
        form(OPERATOR, "/ops/view/approvals/{approval_id}/reject", approvals::page::reject),
        page(VIEWER, "/ops/view/sendings", outbound::page::list),
        page(VIEWER, "/ops/view/sendings/{sending_id}", outbound::page::show),
        form(OPERATOR, "/ops/view/sendings/{sending_id}/screen", outbound::page::screen),
        form(OPERATOR, "/ops/view/sendings/{sending_id}/release", outbound::page::release),
        page(VIEWER, "/ops/view/chains/{chain}", chains::page::show),
        page(VIEWER, "/ops/view/webhooks", webhooks::page::list),
        page(VIEWER, "/ops/view/webhooks/{psp_id}", webhooks::page::show),
        page(VIEWER, "/ops/view/customers", customers::page::list),
        page(VIEWER, "/ops/view/customers/{customer_id}", customers::page::show),
        form(OPERATOR, "/ops/view/customers/{customer_id}/decide", customers::page::decide),
        form(OPERATOR, "/ops/view/customers/{customer_id}/release", customers::page::release),
        page(VIEWER, "/ops/view/pauses", pauses::page::show),
        form(OPERATOR, "/ops/view/pauses", pauses::page::set),
        form(OPERATOR, "/ops/view/pauses/{scope}/lift", pauses::page::lift),
        page(VIEWER, "/ops/view/nodes", nodes::page::show),
        form(ADMIN, "/ops/view/nodes/{node_id}/drain", nodes::page::drain),
        form(ADMIN, "/ops/view/leases/{name}/hand_over", nodes::page::hand_over),
        page(VIEWER, "/ops/view/psps", psps::page::list),
        form(ADMIN, "/ops/view/psps", psps::page::create),
        page(VIEWER, "/ops/view/psps/{psp_id}", psps::page::show),
        form(ADMIN, "/ops/view/psps/{psp_id}", psps::page::change),
        form(ADMIN, "/ops/view/psps/{psp_id}/withdrawal-wallets", psps::withdrawal::set_by_form),
        form(ADMIN, "/ops/view/psps/{psp_id}/keys", psps::keys::create_by_form),
        form(ADMIN, "/ops/view/psps/{psp_id}/keys/{key_id}/revoke", psps::keys::revoke_by_form),
    ]
}

const VIEWER: Access = Access::Role(OperatorRole::Viewer);
const OPERATOR: Access = Access::Role(OperatorRole::Operator);
const ADMIN: Access = Access::Role(OperatorRole::Admin);

/// An open route, which accepts any query.
fn open(handler: UtoipaMethodRouter<Operator>) -> Route {
    Route { query: RouteQuery::Any, ..json(Access::Open, handler) }
}

/// The same route, with gzip for clients that accept it.
fn compressed(route: Route) -> Route {
    Route { serve: route.serve.layer(CompressionLayer::new()), ..route }
}

/// A route for programs, as its handler declares it.
fn json(access: Access, (schemas, paths, serve): UtoipaMethodRouter<Operator>) -> Route {
    let (path, item) = paths.paths.into_iter().next().expect("a handler declares its path");
    let operations = [(Method::GET, &item.get), (Method::POST, &item.post), (Method::PATCH, &item.patch)];
    let declared = operations.into_iter().find_map(|(method, operation)| Some((method, operation.as_ref()?)));
    let (method, operation) = declared.expect("a handler declares its method");
    let query = RouteQuery::Names(query_of(operation).map(str::to_owned).collect());
    Route { access, method, path, query, described: Some((item, schemas)), serve }
}

/// A page, which accepts any query.
fn page<H: Handler<T, Operator>, T: 'static>(access: Access, path: &str, handler: H) -> Route {
    let (path, serve) = (path.to_owned(), get(handler));
    Route { access, method: Method::GET, path, query: RouteQuery::Any, described: None, serve }
}

/// A form of a page.
fn form<H: Handler<T, Operator>, T: 'static>(access: Access, path: &str, handler: H) -> Route {
    let (path, serve) = (path.to_owned(), post(handler));
    Route { access, method: Method::POST, path, query: RouteQuery::Any, described: None, serve }
}
