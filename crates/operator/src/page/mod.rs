//! Parts that all pages of the operator share. This file has the frame of every page (head, navigation bar, content
//! security policy) and the error pages.
//!
//! Pages are rendered on the server and work without scripts; one small script keeps them current. They are at `/ops` and under
//! `/ops/view/`; all other paths under `/ops` are for programs. A page is one file; its style and script are inline and
//! the policy allows them by hash. Deliberately absent: a build step, resources from other sites, and lists that grow
//! with the payments.

mod context;
pub(crate) mod form;
pub(crate) mod words;

pub(crate) use context::{context, with_context};

use std::str::FromStr;
use std::sync::LazyLock;

use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use payferry_accounts::tenants::TenantError;
use payferry_entities::StoreError;
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::{ICON, console_style, script_policy};
use payferry_runtime::request;
use sea_orm::DbErr;

use crate::query::Count;

/// Styles of all pages, with those that hide the forms that a role may not use.
static STYLE: LazyLock<String> = LazyLock::new(|| console_style(include_str!("roles.css")));
const SCRIPT: &str = concat!(include_str!("live.js"), include_str!("keys.js"));

/// Request header of the script's refresh. The response is then only the page's `<main>` element.
const FRAGMENT: HeaderName = HeaderName::from_static("x-fragment");

/// Response header with the number of entries that need attention.
const ENTRIES: HeaderName = HeaderName::from_static("x-attention");

/// Content security policy: nothing from other origins, only the inline style and script above, no framing, forms only
/// to this origin.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| script_policy(&[&STYLE], SCRIPT, "data:", "'self'"));

/// The path of the pages of something.
pub(crate) fn path(what: &str) -> String {
    format!("/ops/view/{what}")
}

/// Entry of the navigation bar that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NavSection {
    /// Overview and the pages it links to.
    Overview,
    /// Items that need attention.
    Attention,
    /// Payments, and the lists about them.
    Payments,
    /// Customers and their verification.
    Customers,
    Pauses,
    /// Nodes that share the database.
    Nodes,
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

    /// Response to a form. It is not live, because the path of a form cannot be fetched.
    pub(crate) fn answer_form(self, status: StatusCode) -> Response {
        Self { status, is_live: false, ..self }.into_response()
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
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, POLICY.clone()),
        (VARY, HeaderValue::from_static("accept, x-fragment, cookie")),
    ];
    let mut response = (status, headers, markup.into_string()).into_response();
    // The script changes the navigation bar and the title, which are not part of a fragment.
    if let Some(entries) = context().entries.and_then(|entries| HeaderValue::from_str(&entries.to_string()).ok()) {
        response.headers_mut().insert(ENTRIES, entries);
    }
    response
}

fn whole(page: &Page) -> Markup {
    let is_inside = page.place != NavSection::Outside;
    // The style sheet hides the forms that this role may not use.
    let role = request::current().and_then(|request| request.role);
    let attention = context().entries.filter(|entries| *entries != Count::default() && is_inside);
    html! {
        (DOCTYPE)
        html lang="en" data-theme=[context().theme] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex, nofollow";
                title { @if let Some(entries) = attention { "(" (entries) ") " } (page.title) " · Payferry" }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE.as_str())) }
            }
            body data-role=[role] {
                a.skip href="#content" { "Skip to content" }
                @if is_inside { (bar(page)) }
                (content(page))
                @if is_inside { (keys()) script { (PreEscaped(SCRIPT)) } }
            }
        }
    }
}

fn bar(page: &Page) -> Markup {
    let current = |place| (page.place == place).then_some("true");
    let operator = request::current().and_then(|request| request.operator).map(|name| format!("Logged in as {name}"));
    html! {
        header.bar {
            div {
                a.brand href="/ops" { "Payferry " span { "operator" } }
                nav aria-label="Pages" {
                    a href="/ops" aria-current=[current(NavSection::Overview)] { "Overview" }
                    a href="/ops/view/stuck" aria-current=[current(NavSection::Attention)] {
                        "Needs attention"
                        @let entries = context().entries.filter(|entries| *entries != Count::default());
                        " " span #attention.badge.bad hidden[entries.is_none()] { (entries.unwrap_or_default()) }
                    }
                    a href="/ops/view/payments" aria-current=[current(NavSection::Payments)] { "Payments" }
                    a href="/ops/view/pauses" aria-current=[current(NavSection::Pauses)] { "Pauses" }
                    a href="/ops/view/nodes" aria-current=[current(NavSection::Nodes)] { "Nodes" }
                    a href="/ops/view/customers" aria-current=[current(NavSection::Customers)] { "Customers" }
                    a href="/ops/view/psps" aria-current=[current(NavSection::Psps)] { "PSPs" }
                }
                form.search role="search" action="/ops/view/search" method="get" {
                    input #search type="search" name="q" placeholder="Search: id, hash, wallet, reference" aria-label="Search"
                        autocomplete="off" spellcheck="false" required maxlength="200";
                    button.quiet { "Search" }
                }
                button #theme.plain type="button" title="Theme: automatic, dark or light" { "auto" }
                button #key-help.plain type="button" title="Keys" aria-label="Keys" { "?" }
                @if page.is_live { span #link role="status" data-state="idle" { "not live" } }
                form.inline.leave method="post" action="/ops/logout" {
                    button.plain title=[operator.as_deref()] { "Log out" }
                }
            }
        }
    }
}

/// Keys of the script.
fn keys() -> Markup {
    let keys =
        [("/", "search"), ("j, k", "next and previous row"), ("Enter", "open the row"), ("?", "show and hide this")];
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keys" }
            dl.facts { @for (key, words) in keys { dt { kbd { (key) } } dd { (words) } } }
            form method="dialog" { button.quiet { "Close" } }
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

/// Reason why a page cannot be shown.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No object of this type has this name.
    NotFound { what: &'static str, name: String },
    /// The database does not answer, or a row cannot be read.
    Unreadable(String),
    /// The outcome of a form is unknown: it may have been applied, or may still be. Names the page to check before a
    /// retry.
    Unknown { about: &'static str, path: String },
}

/// Failure of a form. Its page is not live, because the path of a form cannot be fetched.
#[derive(Debug)]
pub(crate) struct Refused(Failure);

/// Characters of an unknown name that the page repeats.
const NAME_CHARS_MAX: usize = 80;

impl Failure {
    pub(crate) fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Self::NotFound { what, name: name.into() }
    }

    fn page(self) -> Page {
        let is_live = matches!(self, Self::Unreadable(_));
        let (status, headline, words) = match self {
            Self::NotFound { what, name } => {
                let name: String = name.chars().take(NAME_CHARS_MAX).collect();
                let words = html! { "No " (what) " “" (name) "” exists." };
                (StatusCode::NOT_FOUND, format!("No such {what}"), words)
            }
            Self::Unreadable(error) => {
                tracing::error!(error, "operator page failed: {error}");
                let words = html! { "The database did not return the data. See the service log for the reason." };
                (StatusCode::SERVICE_UNAVAILABLE, "Not available".to_owned(), words)
            }
            Self::Unknown { about, path } => {
                tracing::error!(about = %path, "outcome of an operator's request is unknown: {path}");
                let words = html! {
                    "The request timed out. It may have been carried out, or may still be. Check the "
                    a #about href=(path) { (about) } " before you repeat it."
                };
                (StatusCode::SERVICE_UNAVAILABLE, "Outcome unknown".to_owned(), words)
            }
        };
        let body = html! {
            div.title { h1 { (headline) } }
            p.notice.bad role="alert" { (words) }
        };
        // A live page shows the requested content as soon as it is available.
        Page { status, is_live, ..Page::still(headline, NavSection::Overview, body) }
    }

    /// Error of a form that is no answer to it.
    pub(crate) fn of_form(error: &ApiError) -> Self {
        match error {
            ApiError::TimedOut => Self::Unknown { about: "overview", path: "/ops".to_owned() },
            other => {
                Self::Unreadable(other.for_log().map_or_else(|| format!("{other:?}"), |(_, reason)| reason.to_owned()))
            }
        }
    }
}

/// Parses the id in the path of a page. No object has a malformed id.
pub(crate) fn id_of<I: FromStr>(what: &'static str, text: &str) -> Result<I, Failure> {
    text.parse().map_err(|_| Failure::not_found(what, text))
}

impl<E: Into<Failure>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl From<DbErr> for Failure {
    fn from(error: DbErr) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<TenantError> for Failure {
    fn from(error: TenantError) -> Self {
        match error {
            TenantError::NoPsp(id) => Self::not_found("PSP", id.to_string()),
            TenantError::NoKey(_) => Self::not_found("key", "that id"),
            other => Self::Unreadable(other.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.page().into_response()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        Page { is_live: false, ..self.0.page() }.into_response()
    }
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
