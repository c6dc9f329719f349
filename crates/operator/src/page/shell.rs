//! Frame of every page: head, navigation bar, content security policy. A page is one file; its style and script are
//! inline and the policy allows them by hash.

use std::sync::LazyLock;

use axum::extract::FromRequestParts;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("live.js");

/// Request header of the script's refresh. The response is then only the page's `<main>` element.
const FRAGMENT: HeaderName = HeaderName::from_static("x-fragment");

/// Icon: a ferry hull on water.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath \
    fill='%230b6470' d='M7 1h2v5h5l-2 6H4L2 6h5zM1 13h14v2H1z'/%3E%3C/svg%3E";

/// Content security policy: nothing from other origins, only the inline style and script above, no framing, forms only
/// to this origin.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    );
    HeaderValue::from_str(&policy).expect("base64 and policy keywords are valid header text")
});

/// Entry of the navigation bar that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NavSection {
    /// Overview and the pages it links to.
    Overview,
    /// Items that need attention.
    Stuck,
    /// Customers and their verification.
    Customers,
    /// Pauses.
    Pauses,
    /// PSPs and their keys.
    Psps,
    /// No entry: the user is not logged in.
    Outside,
}

/// Page before it becomes a response.
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) title: String,
    pub(crate) place: NavSection,
    /// True if the script refreshes the page. Pages with forms are not refreshed.
    pub(crate) is_live: bool,
    pub(crate) body: Markup,
}

impl Page {
    /// Page that the script refreshes.
    pub(crate) fn live(title: impl Into<String>, place: NavSection, body: Markup) -> Self {
        Self { status: StatusCode::OK, title: title.into(), place, is_live: true, body }
    }

    /// Page that the script does not refresh.
    pub(crate) fn still(title: impl Into<String>, place: NavSection, body: Markup) -> Self {
        Self { is_live: false, ..Self::live(title, place, body) }
    }
}

/// Kind of request for the page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRequest {
    is_fragment: bool,
}

impl<S: Sync> FromRequestParts<S> for PageRequest {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self { is_fragment: parts.headers.contains_key(FRAGMENT) })
    }
}

impl PageRequest {
    /// Renders the page as it was requested.
    pub(crate) fn answer(self, page: &Page) -> Response {
        let markup = if self.is_fragment { content(page) } else { whole(page) };
        respond(page.status, markup)
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        respond(self.status, whole(&self))
    }
}

fn respond(status: StatusCode, markup: Markup) -> Response {
    let mut response = (status, markup.into_string()).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    // With `no-referrer`, the browser would not send the origin of a form.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("accept, x-fragment, cookie"));
    response
}

fn whole(page: &Page) -> Markup {
    let is_inside = page.place != NavSection::Outside;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex, nofollow";
                title { (page.title) " · Payferry" }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#content" { "Skip to content" }
                @if is_inside { (bar(page)) }
                (content(page))
                @if is_inside { script { (PreEscaped(SCRIPT)) } }
            }
        }
    }
}

fn bar(page: &Page) -> Markup {
    let current = |place| (page.place == place).then_some("true");
    html! {
        header.bar {
            div {
                a.brand href="/ops" { "Payferry " span { "operator" } }
                nav aria-label="Pages" {
                    a href="/ops" aria-current=[current(NavSection::Overview)] { "Overview" }
                    a href="/ops/view/stuck" aria-current=[current(NavSection::Stuck)] { "Needs attention" }
                    a href="/ops/view/pauses" aria-current=[current(NavSection::Pauses)] { "Pauses" }
                    a href="/ops/view/customers" aria-current=[current(NavSection::Customers)] { "Customers" }
                    a href="/ops/view/psps" aria-current=[current(NavSection::Psps)] { "PSPs" }
                }
                form.search role="search" action="/ops/view/payments" method="get" {
                    input type="search" name="id" placeholder="Find a payment: pay_…" aria-label="Payment id"
                        autocomplete="off" spellcheck="false" required maxlength="64";
                    button.quiet { "Find" }
                }
                @if page.is_live { span #link role="status" data-state="idle" { "not live" } }
                form.inline.leave method="post" action="/ops/logout" { button.plain { "Log out" } }
            }
        }
    }
}

fn content(page: &Page) -> Markup {
    html! { main #content data-live[page.is_live] { (page.body) } }
}

/// Page for a user who is not logged in.
pub(crate) fn outside(status: StatusCode, title: &str, body: Markup) -> Response {
    Page { status, ..Page::still(title, NavSection::Outside, body) }.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_style_and_script_contain_no_closing_tag() {
        // Maud does not escape the inline style and script.
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</"));
    }
}
