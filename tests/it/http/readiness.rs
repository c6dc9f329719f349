//! `/readyz` of the public listener.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use payferry_httpkit::Limits;

use crate::prelude::*;

/// Status of the response, which has no body.
async fn readyz(app: &TestApp) -> StatusCode {
    let response = app.request(Method::GET, "/readyz").without_key().begin().await;
    let (parts, body) = response.into_parts();
    assert!(axum::body::to_bytes(body, usize::MAX).await.unwrap().is_empty());
    assert_eq!(parts.headers["cache-control"], "no-store");
    parts.status
}

async fn until_readyz(app: &TestApp, status: StatusCode) {
    until(&format!("/readyz answers {status}"), async || (readyz(app).await == status).then_some(())).await;
}

#[tokio::test]
async fn service_is_ready_with_its_database_and_a_chain_until_it_drains() {
    let without_chains = TestApp::start().await;
    assert_eq!(readyz(&without_chains).await, StatusCode::SERVICE_UNAVAILABLE);

    let app = TestApp::start_with_chains().await;
    until_readyz(&app, StatusCode::OK).await;
    let described = app.open("/openapi.json").await.json;
    assert!(described["paths"].get("/readyz").is_none(), "it is not a part of the API");
    app.state.database().clone().close().await.unwrap();
    until_readyz(&app, StatusCode::SERVICE_UNAVAILABLE).await;

    let app = TestApp::start_with_chains().await;
    until_readyz(&app, StatusCode::OK).await;
    app.state.config.draining.begin();
    assert_eq!(readyz(&app).await, StatusCode::SERVICE_UNAVAILABLE, "at once");
    assert_eq!(app.get("/merchants").await.status, 200);
}

#[tokio::test]
async fn readiness_needs_no_permit() {
    let routes = Router::new().route("/endless", get(std::future::pending::<()>));
    let limits = Some(Limits { requests_at_once: 1, ..Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { limits, routes, chains: true, ..TestConfig::default() }).await;
    until_readyz(&app, StatusCode::OK).await;
    let running = tokio::spawn(app.request(Method::GET, "/endless").begin());
    until("no permit is left", async || (app.open("/docs").await.status == 503).then_some(())).await;
    until_readyz(&app, StatusCode::OK).await;
    running.abort();
}
