//! `GET /docs`: the API reference. Scalar, which a crate contains, renders `/openapi.json` in the browser, with examples in
//! curl, JavaScript and Python. Nothing comes from another host, and the page has no inline script.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use maud::{DOCTYPE, html};
use payferry_httpkit::pages::{self, PageAdmitted};

use crate::http::state::AppState;

/// Policy of the page. The renderer makes its own style sheets.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Script that starts the renderer with its settings.
const STARTER: &str = include_str!("docs.js");
/// Name of the renderer in its crate.
const RENDERER_NAME: &str = "scalar.js";
/// How long browsers keep the scripts.
const SCRIPT_CACHING: &str = "public, max-age=3600";

/// The renderer, about 5 MB.
static RENDERER: LazyLock<Bytes> = LazyLock::new(|| {
    let script = scalar_api_reference::get_asset(RENDERER_NAME);
    script.expect("the crate contains its renderer").into()
});

/// Routes of the page and its two scripts.
pub(in crate::http) fn routes() -> Router<AppState> {
    Router::new()
        .route("/docs", get(page))
        .route("/docs/docs.js", get(async || script(Bytes::from_static(STARTER.as_bytes()))))
        .route("/docs/scalar.js", get(async |_: PageAdmitted| script(RENDERER.clone())))
}

async fn page() -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Payferry API reference" }
                link rel="icon" href="data:,";
            }
            body {
                noscript { "This page needs JavaScript. It shows the " a href="/openapi.json" { "OpenAPI 3.1 document" } "." }
                div #app {}
                script src="/docs/docs.js" {}
                script src="/docs/scalar.js" {}
            }
        }
    };
    pages::respond_under(HeaderValue::from_static(POLICY), StatusCode::OK, page.into_string())
}

fn script(text: Bytes) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static(SCRIPT_CACHING)),
    ];
    (headers, text).into_response()
}
