//! The PSP's dashboard: `/dashboard` of the public listener.
//!
//! It is a client of the public API inside the process. Each page sends requests with the API key of its session to the
//! routes of the API, and renders the answers. So the rules of the API for scopes, tenants, limits and input are those of
//! the dashboard too, and its errors have the same texts. `session` signs in, `api` sends the requests, `page` has the frame
//! of every page; each screen is one file. Deliberately absent: the database, and scripts.

mod api;
mod balances;
mod checkout;
mod deliveries;
mod endpoint;
mod keys;
mod outbound;
mod overview;
mod page;
mod payment;
mod payments;
mod refund_requests;
mod session;
mod settings;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};
use payferry_domain::Chain;
use payferry_httpkit::browser::harden;
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use url::Url;

pub use session::SESSION_SECS;

/// Path of the dashboard.
pub const HOME: &str = "/dashboard";
/// Maximum size of a form.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Parts of the service that the dashboard uses.
pub struct DashboardConfig {
    /// The routes of the public API, without the edge.
    pub api: Router,
    /// Seals sessions.
    pub sealer: Sealer,
    /// Time of the service.
    pub clock: Clock,
    /// Public base URL. Forms of its pages are accepted, whatever host a proxy puts into the request.
    pub public_url: Url,
    /// True if browsers send sessions over TLS only, and payments are of real money.
    pub is_production: bool,
    /// EIP-155 chain ids of the configured chains, for links to explorers.
    pub chain_ids: Vec<(Chain, u64)>,
}

/// State shared by the handlers. Clones share it.
#[derive(Clone, derive_more::Deref)]
pub(crate) struct Dashboard(Arc<DashboardConfig>);

/// The pages and their forms.
pub fn router<S: Clone + Send + Sync + 'static>(config: DashboardConfig) -> Router<S> {
    Router::new()
        .route(HOME, get(overview::show))
        .route("/dashboard/login", get(session::form).post(session::sign_in))
        .route("/dashboard/logout", post(session::sign_out))
        .route("/dashboard/payments", get(payments::show))
        .route("/dashboard/payments/{payment_id}", get(payment::show))
        .route(
            "/dashboard/payments/{payment_id}/refund-requests/{refund_request_id}/approve",
            post(refund_requests::approve),
        )
        .route(
            "/dashboard/payments/{payment_id}/refund-requests/{refund_request_id}/decline",
            post(refund_requests::decline),
        )
        .route("/dashboard/outbound/{outbound_id}", get(outbound::show))
        .route("/dashboard/deliveries/{subject_id}/{delivery_id}/redeliver", post(deliveries::redeliver))
        .route("/dashboard/webhook-url", post(webhooks::set))
        .route("/dashboard/webhooks", get(webhooks::show).post(webhooks::create))
        .route("/dashboard/webhooks/{endpoint_id}", get(endpoint::show).post(endpoint::change))
        .route("/dashboard/webhooks/{endpoint_id}/rotate", post(endpoint::rotate))
        .route("/dashboard/webhooks/{endpoint_id}/test", post(endpoint::test))
        .route("/dashboard/webhooks/{endpoint_id}/delete", post(endpoint::delete))
        .route("/dashboard/balances", get(balances::show))
        .route("/dashboard/withdrawals", post(balances::withdraw))
        .route("/dashboard/keys", get(keys::show).post(keys::create))
        .route("/dashboard/keys/{key_id}/rotate", post(keys::rotate))
        .route("/dashboard/keys/{key_id}/revoke", post(keys::revoke))
        .route("/dashboard/settings", get(settings::show).post(settings::change))
        .route("/dashboard/settings/checkout", post(checkout::change))
        .route(
            "/dashboard/settings/logo",
            post(checkout::upload).layer(DefaultBodyLimit::max(checkout::FORM_BYTES_MAX)),
        )
        .route("/dashboard/settings/logo/delete", post(checkout::delete))
        .route("/dashboard/{*path}", get(page::unknown))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(harden))
        .with_state(Dashboard(Arc::new(config)))
}
