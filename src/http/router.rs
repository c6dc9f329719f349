//! The routes, in the order of the interface.

use axum::body::Bytes;
use axum::routing::{get, post};
use axum::{Extension, Router};
use payferry_dashboard::DashboardConfig;
use payferry_httpkit::edge::Edge;
use payferry_httpkit::error::Listener;
use payferry_httpkit::openapi::{query_names, to_json};
use payferry_httpkit::{ApiError, PREFIX, metrics};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::state::{AppState, Environment};
use super::{
    checkout, compliance, consent, customers, documents, keys, merchants, money, openapi, pages, payments, readiness,
    settings, webhooks,
};

/// The router for PSPs and payers, with the routes that only some environments have.
pub fn router_with(app: AppState, more: Router<AppState>) -> Router {
    metrics::install();
    // Served with and without the prefix `/api/v1`.
    let (bare, bare_document) = OpenApiRouter::with_openapi(openapi::head())
        .routes(routes!(merchants::sync))
        .routes(routes!(merchants::list))
        .routes(routes!(merchants::get))
        .routes(routes!(payments::initiate::initiate))
        .routes(routes!(payments::read::get))
        .routes(routes!(payments::read::list))
        .routes(routes!(payments::read::events))
        .routes(routes!(payments::authorize::authorize))
        .routes(routes!(payments::change::cancel))
        .routes(routes!(payments::change::resolve))
        .routes(routes!(payments::refunds::request, payments::refunds::list))
        .routes(routes!(payments::refunds::get))
        .routes(routes!(payments::refund_list::list))
        .routes(routes!(payments::refund_list::get))
        .routes(routes!(payments::payer_requests::list))
        .routes(routes!(payments::payer_requests::get))
        .routes(routes!(payments::payer_requests::approve))
        .routes(routes!(payments::payer_requests::decline))
        .routes(routes!(webhooks::deliveries::deliveries))
        .routes(routes!(webhooks::deliveries::redeliver))
        .routes(routes!(money::outbound::create_payout, money::outbound::list_payouts))
        .routes(routes!(money::outbound::get_payout))
        .routes(routes!(money::outbound::create_withdrawal, money::outbound::list_withdrawals))
        .routes(routes!(money::outbound::get_withdrawal))
        .routes(routes!(money::transfers::create, money::transfers::list))
        .routes(routes!(money::transfers::get))
        .routes(routes!(money::balances::list))
        .routes(routes!(money::entries::list))
        .routes(routes!(money::statement::read_statement))
        .routes(routes!(compliance::request))
        .split_for_parts();
    let (prefixed, prefixed_document) = OpenApiRouter::default()
        .routes(routes!(customers::create::create, customers::read::list))
        .routes(routes!(consent::request))
        .routes(routes!(customers::details::set))
        .routes(routes!(customers::read::get, customers::change::update, customers::change::deactivate))
        .routes(routes!(documents::upload))
        .routes(routes!(documents::download))
        .routes(routes!(webhooks::endpoint::set))
        .routes(routes!(webhooks::endpoint::show))
        .routes(routes!(webhooks::endpoint::rotate))
        .routes(routes!(webhooks::endpoint::test))
        .routes(routes!(webhooks::endpoints::create, webhooks::endpoints::list))
        .routes(routes!(webhooks::endpoints::get, webhooks::endpoints::change, webhooks::endpoints::delete))
        .routes(routes!(webhooks::endpoints::rotate))
        .routes(routes!(webhooks::endpoints::test))
        .routes(routes!(webhooks::deliveries::redeliver_all))
        .routes(routes!(webhooks::deliveries::undelivered))
        .routes(routes!(webhooks::events::events))
        .routes(routes!(webhooks::events::event))
        .routes(routes!(keys::change::create, keys::read::list))
        .routes(routes!(keys::read::current))
        .routes(routes!(keys::read::get))
        .routes(routes!(keys::change::rotate))
        .routes(routes!(keys::change::revoke))
        .routes(routes!(settings::show, settings::change))
        .routes(routes!(checkout::upload, checkout::delete))
        .split_for_parts();
    let document = openapi::complete(bare_document.merge_from(prefixed_document), app.config.public_url.as_str());
    let query_names = query_names(&document);
    let json = Bytes::from(to_json(&document));
    let limits = &app.config.limits;
    let edge = Edge::new(Listener::Public, app.door.clone(), limits.request_timeout, limits.edge);
    let api = Router::new().nest(PREFIX, bare.clone()).merge(bare).merge(prefixed);
    let dashboard = dashboard(&app, api.clone().layer(Extension(query_names.clone())));
    let router = api
        .merge(dashboard)
        .route("/openapi.json", get(openapi::serve).with_state(json))
        .merge(pages::reference::routes())
        .route("/pay/{token}", get(pages::pay::serve))
        .route("/pay/{token}/events", get(pages::pay::events))
        .route("/pay/{token}/chain", post(pages::pay::choose_chain))
        .route("/pay/{token}/authorization", post(pages::pay::authorize))
        .route(&format!("{}/{{hash}}", checkout::LOGOS), get(checkout::serve))
        .route("/pay/{token}/refund", get(pages::refund::show).post(pages::refund::claim))
        .route("/pay/{token}/refund/messages", post(pages::refund::messages))
        .route("/pay/{token}/refund/signed", post(pages::refund::sign))
        .route("/compliance/callbacks/{provider}", post(compliance::take))
        .route("/consent", get(pages::consent::show).post(pages::consent::accept))
        .merge(more)
        .fallback(async || ApiError::NoRoute("/docs"))
        .layer(Extension(query_names));
    // Outside the edge: the checks of load balancers count against no limit, and are in no log and no metric.
    edge.surround(router).route("/readyz", get(readiness::serve)).with_state(app)
}

/// The dashboard, as a client of these routes.
fn dashboard(app: &AppState, api: Router<AppState>) -> Router<AppState> {
    let chain_ids = app.system.chains().running().map(|spec| (spec.chain, spec.chain_id)).collect();
    payferry_dashboard::router(DashboardConfig {
        api: api.with_state(app.clone()),
        sealer: app.sealer().clone(),
        clock: app.clock().clone(),
        public_url: app.config.public_url.clone(),
        is_production: app.config.environment == Environment::Production,
        chain_ids,
    })
}
