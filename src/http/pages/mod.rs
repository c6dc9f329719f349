//! HTML pages for people, rendered on the server, without scripts (except the payer's page) or external resources.

pub mod consent;
pub mod pay;
pub mod reference;

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

pub(crate) use pay::Admitted;

/// The shared style sheet, inline in every page. The content security policy allows it by its hash.
const STYLE: &str = include_str!("style.css");

/// Renders a complete page.
pub(crate) fn page(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex, nofollow";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    }
}

/// The style sheet's source expression for a content security policy.
fn style_source() -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(STYLE)))
}

/// Answers with a page whose policy forbids scripts, framing, forms and external resources.
fn respond(status: StatusCode, page: String) -> Response {
    respond_within("'none'", status, page)
}

/// The same, but allows a form that posts to this service.
pub(crate) fn respond_with_form(status: StatusCode, page: String) -> Response {
    respond_within("'self'", status, page)
}

fn respond_within(form_action: &str, status: StatusCode, page: String) -> Response {
    let style = style_source();
    let policy = format!(
        "default-src 'none'; style-src {style}; base-uri 'none'; form-action {form_action}; frame-ancestors 'none'"
    );
    let mut response = (status, page).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.extend(HeaderValue::from_str(&policy).map(|policy| (CONTENT_SECURITY_POLICY, policy)));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("x-robots-tag"), HeaderValue::from_static("noindex, nofollow"));
    response
}
