//! The routes, in the order of the interface.

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::ApiError;
use super::state::AppState;
use super::{edge, merchants, metrics, openapi, pages};

/// Under this, the paths without a prefix stand again.
pub const PREFIX: &str = "/api/v1";

/// Everything that PSPs and payers reach.
pub fn router(app: AppState) -> Router {
    router_with(app, Router::new())
}

/// The same, and routes that only some environments have.
pub fn router_with(app: AppState, more: Router<AppState>) -> Router {
    metrics::describe();
    // Served as written and under /api/v1.
    let (bare, bare_document) = OpenApiRouter::with_openapi(openapi::head())
        .routes(routes!(merchants::sync::sync))
        .routes(routes!(merchants::list::list))
        .routes(routes!(merchants::get::get))
        .split_for_parts();
    let document = openapi::complete(bare_document, app.config.public_url.as_str());
    let reference = pages::reference::render(&document);
    let json: Arc<str> = document.to_json().unwrap_or_default().into();
    Router::new()
        .nest(PREFIX, bare.clone())
        .merge(bare)
        .route("/openapi.json", get(openapi::serve).with_state(json))
        .route("/docs", get(pages::reference::serve).with_state(reference))
        .merge(more)
        .fallback(async || ApiError::NoRoute)
        .layer(middleware::from_fn(edge::surround))
        .with_state(app)
}
