//! Pages for people: plain HTML without scripts and without external resources.
//!
//! Payers see the style sheet `style.css`. Operators and PSPs see `console.css`, with the formats of [`words`] and the forms
//! of [`form`].

pub mod form;
pub mod words;

use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use crate::caller::HttpState;
use crate::error::ApiError;

/// The style sheet, inline in every page; the policy allows it by its hash.
const STYLE: &str = include_str!("style.css");

/// Styles of the pages of operators and PSPs.
const CONSOLE: &str = include_str!("console.css");

/// Icon: a ferry hull on water.
pub const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath \
    fill='%230b6470' d='M7 1h2v5h5l-2 6H4L2 6h5zM1 13h14v2H1z'/%3E%3C/svg%3E";

/// The style sheet of a page of operators or PSPs, with rules of its own.
pub fn console_style(own: &str) -> String {
    [CONSOLE, own].concat()
}

/// A whole page in English.
pub fn page(title: &str, body: &Markup) -> Markup {
    page_in("en", title, body)
}

/// A whole page in this language.
pub fn page_in(language: &str, title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang=(language) {
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

/// Source expression of an inline style sheet or script in a content security policy.
fn source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

/// Content security policy of a page with a script: its own inline styles and script, requests to this service, images of
/// the sources `images`, forms to `form_action`. It forbids frames and external resources.
pub fn script_policy(styles: &[&str], script: &str, images: &str, form_action: &str) -> HeaderValue {
    let styles: Vec<_> = styles.iter().map(|style| source(style)).collect();
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src {images}; \
         form-action {form_action}; base-uri 'none'; frame-ancestors 'none'",
        styles.join(" "),
        source(script)
    );
    header(&policy)
}

/// Content security policy of a page without scripts: its own inline style, images of this service and inline ones, forms to
/// this service.
pub fn style_policy(style: &str) -> HeaderValue {
    header(&format!(
        "default-src 'none'; style-src {}; img-src 'self' data:; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'",
        source(style)
    ))
}

fn header(policy: &str) -> HeaderValue {
    HeaderValue::from_str(policy).expect("base64 and policy keywords are valid header text")
}

/// Response with a page. Its policy forbids scripts, frames, forms and external resources.
pub fn respond(status: StatusCode, page: String) -> Response {
    respond_within("'none'", status, page)
}

/// The same for a page with a form that is sent to this service.
pub fn respond_with_form(status: StatusCode, page: String) -> Response {
    respond_within("'self'", status, page)
}

fn respond_within(form_action: &str, status: StatusCode, page: String) -> Response {
    let style = source(STYLE);
    let policy = format!(
        "default-src 'none'; style-src {style}; base-uri 'none'; form-action {form_action}; frame-ancestors 'none'"
    );
    respond_under(header(&policy), status, page)
}

/// The same for a page with a content security policy of its own.
pub fn respond_under(policy: HeaderValue, status: StatusCode, page: String) -> Response {
    let mut response = (status, page).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("x-robots-tag"), HeaderValue::from_static("noindex, nofollow"));
    response
}

/// Extractor that succeeds if the request is within the limit of its address.
pub struct PageAdmitted;

impl<A: HttpState> FromRequestParts<A> for PageAdmitted {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &A) -> Result<Self, Response> {
        app.limiters().page(parts).map(|()| Self).map_err(|error| {
            let body = html! { main.narrow { h1 { "Too many requests" } p { "Wait a minute, then reload." } } };
            let mut response = respond(error.status(), page("Too many requests", &body).into_string());
            response.headers_mut().extend(error.retry_after_secs().map(|secs| (RETRY_AFTER, secs.into())));
            response
        })
    }
}

/// Extractor like [`PageAdmitted`] for a request of a page's script, which is refused with a problem document, and for a page
/// that renders the refusal itself.
pub struct ScriptAdmitted;

impl<A: HttpState> FromRequestParts<A> for ScriptAdmitted {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &A) -> Result<Self, ApiError> {
        app.limiters().page(parts).map(|()| Self)
    }
}
