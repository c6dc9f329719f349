//! Pages for payers and customers, and the reference of the API.

pub mod consent;
pub mod pay;
pub mod reference;
pub mod refund;

use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::Response;
use maud::html;
use payferry_httpkit::{ApiError, pages};

/// Logs the failure of a page if it is one of the service, and answers with a notice in this language. `what` names the page.
fn failure(error: &ApiError, what: &str, language: &str, (headline, explanation): (&str, &str)) -> Response {
    if let Some((_, reason)) = error.for_log() {
        tracing::error!(error = reason, "{what} failed: {reason}");
    }
    let mut response = notice(error.status(), language, headline, explanation);
    response.headers_mut().extend(error.retry_after_secs().map(|secs| (RETRY_AFTER, secs.into())));
    response
}

fn notice(status: StatusCode, language: &str, headline: &str, explanation: &str) -> Response {
    let body = html! { main.narrow { h1 { (headline) } p { (explanation) } } };
    pages::respond(status, pages::page_in(language, headline, &body).into_string())
}
