//! The table of routes, each with the role that it needs.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodRouter, get, on, patch, post};
use payferry_accounts::operators::OperatorRole;
use tower_http::compression::CompressionLayer;

use crate::{
    Operator, actors, admit, approvals, attention, audit, chains, customers, decisions, events, health, outbound,
    overview, pauses, payment, psps, webhooks,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteQuery {
    /// These.
    Names(&'static [&'static str]),
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
    pub path: &'static str,
    /// Query parameters. A request with another one is refused.
    pub query: RouteQuery,
    pub(super) serve: MethodRouter<Operator>,
}

/// All routes. All except health, metrics and the login need an operator: a viewer to read, an operator for everyday work,
/// an admin to change limits, wallets, keys and PSPs.
pub fn table() -> Vec<Route> {
    vec![
        open(Method::GET, "/healthz", health::healthz),
        open(Method::GET, "/readyz", health::readyz),
        compressed(open(Method::GET, "/metrics", health::metrics)),
        open(Method::GET, "/ops/login", admit::form),
        open(Method::POST, "/ops/login", admit::enter),
        leave("/ops/logout", admit::leave),
        read("/ops/actors", actors::tree),
        read("/ops/actors/{actor_id}", actors::one),
        write("/ops/actors/{actor_id}/release", actors::release),
        read("/ops/shards/{shard}", actors::shard).with_query(&["after", "limit"]),
        read("/ops/overview", overview::data),
        read("/ops/stuck", attention::list).with_query(&["kind", "after", "limit"]),
        read("/ops/events", events::listen),
        read("/ops/audit", audit::list).with_query(&[
            "subject",
            "customer_id",
            "psp_id",
            "actor_kind",
            "action",
            "from",
            "to",
            "after",
            "limit",
        ]),
        read("/ops/customers", customers::list).with_query(&[
            "psp_id",
            "kyc_status",
            "status",
            "search",
            "limit",
            "offset",
        ]),
        read("/ops/customers/{customer_id}", customers::get),
        write("/ops/customers/{customer_id}/decide", customers::decide),
        read("/ops/customers/{customer_id}/documents/{kind}", customers::documents::read),
        read("/ops/pauses", pauses::list),
        write("/ops/pauses", pauses::set),
        write("/ops/pauses/{scope}/lift", pauses::lift),
        read("/ops/payments/{payment_id}", decisions::get),
        write("/ops/payments/{payment_id}/screen", decisions::decide),
        write("/ops/payments/{payment_id}/screen_refund", decisions::decide),
        write("/ops/payments/{payment_id}/approve_refund", decisions::decide),
        write("/ops/payments/{payment_id}/refund_blocked", decisions::decide),
        write("/ops/payments/{payment_id}/retry_settlement", decisions::decide),
        write("/ops/payments/{payment_id}/take_in", decisions::decide),
        read("/ops/approvals", approvals::list).with_query(&["status", "limit", "offset"]),
        read("/ops/approvals/{approval_id}", approvals::get),
        write("/ops/approvals/{approval_id}/approve", approvals::approve),
        write("/ops/approvals/{approval_id}/reject", approvals::reject),
        read("/ops/sendings", outbound::list).with_query(&["after", "limit"]),
        read("/ops/sendings/{sending_id}", outbound::get),
        write("/ops/sendings/{sending_id}/screen", outbound::screen),
        read("/ops/psps", psps::list).with_query(&["limit", "offset"]),
        administer("/ops/psps", psps::create),
        read("/ops/psps/{psp_id}", psps::get),
        administer_by_patch("/ops/psps/{psp_id}", psps::change),
        read("/ops/psps/{psp_id}/withdrawal-wallets", psps::withdrawal::show),
        administer("/ops/psps/{psp_id}/withdrawal-wallets", psps::withdrawal::change),
        read("/ops/psps/{psp_id}/keys", psps::keys::list).with_query(&["limit", "offset"]),
        administer("/ops/psps/{psp_id}/keys", psps::keys::create),
        administer("/ops/psps/{psp_id}/keys/{key_id}/revoke", psps::keys::revoke),
        // Pages and their forms. Only routes that read may be live: the script fetches the page's own path again.
        read("/ops", overview::page::show),
        read("/ops/view/incidents", actors::panel::show_log),
        read("/ops/view/stuck", attention::page::show),
        read("/ops/view/actors/{kind}/{name}", actors::page::show),
        read("/ops/view/shards/{shard}", actors::live::show_shard),
        read("/ops/view/payments", payment::page::find),
        read("/ops/view/payments/{payment_id}", payment::page::show),
        write("/ops/view/payments/{payment_id}/release", payment::page::release),
        read("/ops/view/payments/{payment_id}/decide", decisions::page::show),
        write("/ops/view/payments/{payment_id}/screen", decisions::page::decide),
        write("/ops/view/payments/{payment_id}/screen_refund", decisions::page::decide),
        write("/ops/view/payments/{payment_id}/approve_refund", decisions::page::decide),
        write("/ops/view/payments/{payment_id}/refund_blocked", decisions::page::decide),
        write("/ops/view/payments/{payment_id}/retry_settlement", decisions::page::decide),
        write("/ops/view/payments/{payment_id}/take_in", decisions::page::decide),
        read("/ops/view/approvals", approvals::page::list),
        read("/ops/view/approvals/{approval_id}", approvals::page::show),
        write("/ops/view/approvals/{approval_id}/approve", approvals::page::approve),
        write("/ops/view/approvals/{approval_id}/reject", approvals::page::reject),
        read("/ops/view/sendings", outbound::page::list),
        read("/ops/view/sendings/{sending_id}", outbound::page::show),
        write("/ops/view/sendings/{sending_id}/screen", outbound::page::screen),
        write("/ops/view/sendings/{sending_id}/release", outbound::page::release),
        read("/ops/view/chains/{chain}", chains::page::show),
        read("/ops/view/webhooks", webhooks::page::list),
        read("/ops/view/webhooks/{psp_id}", webhooks::page::show),
        read("/ops/view/customers", customers::page::list),
        read("/ops/view/customers/{customer_id}", customers::page::show),
        write("/ops/view/customers/{customer_id}/decide", customers::page::decide),
        read("/ops/view/pauses", pauses::page::show),
        write("/ops/view/pauses", pauses::page::set),
        write("/ops/view/pauses/{scope}/lift", pauses::page::lift),
        read("/ops/view/psps", psps::page::list),
        administer("/ops/view/psps", psps::page::create),
        read("/ops/view/psps/{psp_id}", psps::page::show),
        administer("/ops/view/psps/{psp_id}", psps::page::change),
        administer("/ops/view/psps/{psp_id}/withdrawal-wallets", psps::withdrawal::set_by_form),
        administer("/ops/view/psps/{psp_id}/keys", psps::keys::create_by_form),
        administer("/ops/view/psps/{psp_id}/keys/{key_id}/revoke", psps::keys::revoke_by_form),
    ]
}

fn open<H: Handler<T, Operator>, T: 'static>(method: Method, path: &'static str, handler: H) -> Route {
    let filter = axum::routing::MethodFilter::try_from(method.clone()).expect("an ordinary method");
    Route { access: Access::Open, method, path, query: RouteQuery::Any, serve: on(filter, handler) }
}

/// The same route, with gzip for clients that accept it.
fn compressed(route: Route) -> Route {
    Route { serve: route.serve.layer(CompressionLayer::new()), ..route }
}

/// A route that reads.
pub(super) fn read<H: Handler<T, Operator>, T: 'static>(path: &'static str, handler: H) -> Route {
    needing(OperatorRole::Viewer, Method::GET, path, get(handler))
}

/// A route that every operator may use on its own session.
fn leave<H: Handler<T, Operator>, T: 'static>(path: &'static str, handler: H) -> Route {
    needing(OperatorRole::Viewer, Method::POST, path, post(handler))
}

/// A route of everyday work.
pub(super) fn write<H: Handler<T, Operator>, T: 'static>(path: &'static str, handler: H) -> Route {
    needing(OperatorRole::Operator, Method::POST, path, post(handler))
}

/// A route that changes limits, wallets, keys or PSPs.
fn administer<H: Handler<T, Operator>, T: 'static>(path: &'static str, handler: H) -> Route {
    needing(OperatorRole::Admin, Method::POST, path, post(handler))
}

fn administer_by_patch<H: Handler<T, Operator>, T: 'static>(path: &'static str, handler: H) -> Route {
    needing(OperatorRole::Admin, Method::PATCH, path, patch(handler))
}

/// A route for this role. Pages accept any query parameter, other routes none.
fn needing(role: OperatorRole, method: Method, path: &'static str, serve: MethodRouter<Operator>) -> Route {
    let is_of_pages = matches!(path, "/ops" | "/ops/logout") || path.starts_with("/ops/view/");
    let query = if is_of_pages { RouteQuery::Any } else { RouteQuery::Names(&[]) };
    Route { access: Access::Role(role), method, path, query, serve }
}

impl Route {
    /// The same route with query parameters.
    fn with_query(self, names: &'static [&'static str]) -> Self {
        Self { query: RouteQuery::Names(names), ..self }
    }
}
