//! Table of the routes.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodRouter, get, on, patch, post};

use super::{
    Operator, actors, admin, audit, customers, decisions, documents, events, health, login, page, pauses, release,
    sendings, stuck,
};

/// Access to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Every client that reaches the listener.
    Open,
    /// Clients with the operator token or a session.
    Token,
}

/// One route.
pub struct Route {
    /// Access.
    pub access: Access,
    /// Method.
    pub method: Method,
    /// Path.
    pub path: &'static str,
    pub(super) serve: MethodRouter<Operator>,
}

/// Every route. All except health, metrics and login need the token.
pub fn table() -> Vec<Route> {
    let mut routes = vec![
        open(Method::GET, "/healthz", health::healthz),
        open(Method::GET, "/readyz", health::readyz),
        open(Method::GET, "/metrics", health::metrics),
        open(Method::GET, "/ops/login", login::form),
        open(Method::POST, "/ops/login", login::enter),
        write("/ops/logout", login::leave),
        read("/ops/actors", actors::tree),
        read("/ops/actors/{actor_id}", actors::one),
        write("/ops/actors/{actor_id}/release", release::release),
        read("/ops/shards/{shard}", actors::shard),
        read("/ops/overview", actors::overview),
        read("/ops/stuck", stuck::list),
        read("/ops/events", events::listen),
        read("/ops/audit", audit::list),
        read("/ops/customers", customers::list),
        read("/ops/customers/{customer_id}", customers::get),
        write("/ops/customers/{customer_id}/decide", customers::decide),
        read("/ops/customers/{customer_id}/documents/{kind}", documents::read),
        read("/ops/pauses", pauses::list),
        write("/ops/pauses", pauses::set),
        write("/ops/pauses/{scope}/lift", pauses::lift),
        read("/ops/payments/{payment_id}", decisions::get),
        write("/ops/payments/{payment_id}/screen", decisions::screen),
        write("/ops/payments/{payment_id}/screen_refund", decisions::screen_refund),
        write("/ops/payments/{payment_id}/refund_blocked", decisions::refund_blocked),
        write("/ops/payments/{payment_id}/retry_settlement", decisions::retry_settlement),
        write("/ops/payments/{payment_id}/take_in", decisions::take_in),
        read("/ops/sendings", sendings::list),
        read("/ops/sendings/{sending_id}", sendings::get),
        write("/ops/sendings/{sending_id}/screen", sendings::screen),
        read("/ops/psps", admin::psps::list),
        write("/ops/psps", admin::psps::create),
        read("/ops/psps/{psp_id}", admin::psps::get),
        change("/ops/psps/{psp_id}", admin::psps::change),
        read("/ops/psps/{psp_id}/withdrawal-wallets", admin::wallets::list),
        write("/ops/psps/{psp_id}/withdrawal-wallets", admin::wallets::set),
        read("/ops/psps/{psp_id}/keys", admin::keys::list),
        write("/ops/psps/{psp_id}/keys", admin::keys::create),
        write("/ops/psps/{psp_id}/keys/{key_id}/revoke", admin::keys::revoke),
    ];
    routes.extend(page::routes());
    routes
}

fn open<H: Handler<T, Operator>, T: 'static>(method: Method, path: &'static str, handler: H) -> Route {
    let filter = axum::routing::MethodFilter::try_from(method.clone()).expect("a standard method");
    Route { access: Access::Open, method, path, serve: on(filter, handler) }
}

/// A GET route.
pub(super) fn read<H: Handler<T, Operator>, T: 'static>(path: &'static str, handler: H) -> Route {
    Route { access: Access::Token, method: Method::GET, path, serve: get(handler) }
}

/// A POST route.
pub(super) fn write<H: Handler<T, Operator>, T: 'static>(path: &'static str, handler: H) -> Route {
    Route { access: Access::Token, method: Method::POST, path, serve: post(handler) }
}

fn change<H: Handler<T, Operator>, T: 'static>(path: &'static str, handler: H) -> Route {
    Route { access: Access::Token, method: Method::PATCH, path, serve: patch(handler) }
}
