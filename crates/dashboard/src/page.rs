//! Parts that all pages share: the frame, error pages, forms and notices.
//!
//! A page is one file; its style is inline and the policy allows it by hash. Every form has a hidden id, which is the
//! idempotency key of its request: a form that is sent twice is carried out once.

use std::sync::LazyLock;

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, RETRY_AFTER, VARY};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use payferry_httpkit::ApiError;
use payferry_httpkit::error::Listener;
use payferry_httpkit::pages::form::FormValues;
use payferry_httpkit::pages::words::{Tone, badge, done, explorer, short};
use payferry_httpkit::pages::{ICON, console_style, style_policy};
use serde::de::DeserializeOwned;
use ulid::Ulid;

use crate::api::{Change, ChangeBody};
use crate::session::{Session, over};
use crate::{HOME, payments};

static STYLE: LazyLock<String> = LazyLock::new(|| console_style(include_str!("style.css")));
/// Content security policy: the inline style above, no scripts, no resources of other origins, no framing.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| style_policy(&STYLE));
/// Hidden field with the idempotency key of a form.
const FORM_ID: &str = "form_id";

/// Entry of the navigation bar that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NavSection {
    Overview,
    Payments,
    Webhooks,
    Balances,
    Keys,
    Settings,
}

const NAVIGATION: [(NavSection, &str, &str); 6] = [
    (NavSection::Overview, HOME, "Overview"),
    (NavSection::Payments, "/dashboard/payments", "Payments"),
    (NavSection::Balances, "/dashboard/balances", "Balances"),
    (NavSection::Webhooks, "/dashboard/webhooks", "Webhooks"),
    (NavSection::Keys, "/dashboard/keys", "Keys"),
    (NavSection::Settings, "/dashboard/settings", "Settings"),
];

impl Session {
    /// A page with the navigation bar.
    pub(crate) fn page(&self, status: StatusCode, title: &str, section: NavSection, body: &Markup) -> Response {
        respond(status, title, &html! { (self.bar(Some(section))) (content(body)) })
    }

    /// The page, or the page of an error.
    pub(crate) fn answer(&self, answered: Result<Response, ApiError>) -> Response {
        answered.unwrap_or_else(|error| match error {
            ApiError::Unauthorized(_) => over(&error.detail(Listener::Public), None),
            error => failure(&error, &self.bar(None)),
        })
    }

    fn bar(&self, section: Option<NavSection>) -> Markup {
        let current = |place| (section == Some(place)).then_some("true");
        let key = if self.key.name.is_empty() { &self.key.id } else { &self.key.name };
        html! {
            header.bar {
                div {
                    a.brand href=(HOME) { (self.key.psp_name) " " span { "dashboard" } }
                    @if !self.dashboard.is_production { span.mode { (badge("sandbox", Tone::Warn)) } }
                    nav aria-label="Pages" {
                        @for (place, path, label) in NAVIGATION { a href=(path) aria-current=[current(place)] { (label) } }
                    }
                    form.search role="search" action=(payments::PATH) method="get" {
                        input type="search" name="q" placeholder="Payment, reference, merchant, hash" aria-label="Search payments"
                            autocomplete="off" spellcheck="false" required maxlength="255";
                        button.quiet { "Search" }
                    }
                    form.inline.leave method="post" action="/dashboard/logout" {
                        button.plain title={ "Signed in with the key " (key) " of " (self.key.psp_id) } { "Sign out" }
                    }
                }
            }
        }
    }

    /// Sends a confirmed form to the API. Returns the answer, or the form with the reason why it was not carried out. An
    /// error ends the session.
    pub(crate) async fn submit<T: DeserializeOwned>(
        &self,
        form: &FormValues,
        method: Method,
        path: &str,
        body: impl Into<ChangeBody>,
    ) -> Result<Result<T, RefusedForm>, ApiError> {
        if !form.is_confirmed() {
            let error = ApiError::Validation(vec![FormValues::unconfirmed()]);
            return Ok(Err(RefusedForm::of(form, &error)));
        }
        let change = Change { method, path, idempotency_key: form.value(FORM_ID), body: body.into() };
        match self.api.send(change).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(error @ ApiError::Unauthorized(_)) => Err(error),
            Err(error) => Ok(Err(RefusedForm::of(form, &error))),
        }
    }

    /// The page of a refused form of one button, in `section`, with a link back to `here`.
    pub(crate) fn not_changed(&self, refused: &RefusedForm, section: NavSection, here: &str) -> Response {
        let body = html! {
            div.title { h1 { (refused.headline) } }
            (refused.said)
            p { a #back href=(here) { "Back" } }
        };
        self.page(refused.status, refused.headline, section, &body)
    }

    /// Hash or address with its middle left out, with a link to the explorer of the chain if it has one.
    pub(crate) fn on_chain(&self, chain: &str, hex: &str) -> Markup {
        self.linked(chain, hex, &short(hex))
    }

    /// The same in full.
    pub(crate) fn whole_on_chain(&self, chain: &str, hex: &str) -> Markup {
        self.linked(chain, hex, &html! { span.mono { (hex) } })
    }

    fn linked(&self, chain: &str, hex: &str, words: &Markup) -> Markup {
        let known = self.dashboard.chain_ids.iter().find(|(known, _)| known.as_str() == chain);
        html! {
            @match known.and_then(|(_, chain_id)| explorer(*chain_id, hex)) {
                Some(link) => a href=(link) rel="noreferrer" target="_blank" { (words) },
                None => (words),
            }
        }
    }
}

/// Form that was not carried out, for its page.
pub(crate) struct RefusedForm {
    pub(crate) status: StatusCode,
    headline: &'static str,
    /// Reason, as a notice.
    pub(crate) said: Markup,
    /// The form as it was sent, with its errors.
    pub(crate) form: FormValues,
}

impl RefusedForm {
    pub(crate) fn of(form: &FormValues, error: &ApiError) -> Self {
        log(error);
        let form = form.refused(error.errors());
        let detail = error.detail(Listener::Public);
        let said = match error {
            ApiError::Validation(_) => form.summary(),
            ApiError::TimedOut => notice_bad(
                "The request timed out and may have been carried out, or may still be. Check its result before you repeat it.",
            ),
            _ => notice_bad(&format!("Nothing was changed: {detail}")),
        };
        let is_unknown = matches!(error, ApiError::TimedOut);
        let headline = if is_unknown { "Outcome unknown" } else { "Nothing was changed" };
        Self { status: error.status(), headline, said, form }
    }
}

fn notice_bad(words: &str) -> Markup {
    html! { p.notice.bad role="alert" { (words) } }
}

/// The hidden id of a form: that of the sent form, or a new one.
pub(crate) fn form_id(form: &FormValues) -> Markup {
    let sent = form.value(FORM_ID);
    let id = if sent.is_empty() { format!("dashboard-{}", Ulid::generate()) } else { sent.to_owned() };
    html! { input type="hidden" name=(FORM_ID) value=(id); }
}

/// A change that is made with one button: its form is behind a fold, with a confirmation.
pub(crate) struct ChangeButton<'a> {
    /// Word on the button.
    pub(crate) label: &'a str,
    /// The changed object, for screen readers.
    pub(crate) subject: &'a str,
    /// Path of the form.
    pub(crate) action: &'a str,
    /// Further fields.
    pub(crate) fields: Markup,
    /// Statement that is confirmed.
    pub(crate) statement: &'a str,
}

impl maud::Render for ChangeButton<'_> {
    fn render(&self) -> Markup {
        let Self { label, subject, action, fields, statement } = self;
        let form = FormValues::default();
        html! {
            details.act {
                summary aria-label={ (label) " " (subject) } { (label) }
                form.stack method="post" action=(action) {
                    (form_id(&form))
                    (fields)
                    (form.confirm(statement))
                    div { button.danger aria-label={ "Confirm: " (label) " " (subject) } { (label) } }
                }
            }
        }
    }
}

/// The notice of a form that was carried out, by the word in the query of the page.
pub(crate) fn notice(word: Option<&str>, notices: &[(&str, &str)]) -> Markup {
    let found = notices.iter().find(|(known, _)| Some(*known) == word);
    html! { @if let Some((_, words)) = found { (done(words)) } }
}

/// The notice with a secret that is shown once.
pub(crate) fn secret(headline: &str, explanation: &str, secret: &str) -> Markup {
    html! {
        div.notice.good role="status" {
            strong { (headline) } " " (explanation)
            span.secret { (secret) }
        }
    }
}

/// Links of a list with cursors. `first`: path of the first page, unless this is it.
pub(crate) fn cursor_pages(of: &str, first: Option<&str>, next: Option<&str>) -> Markup {
    html! {
        @if first.is_some() || next.is_some() {
            nav.pages aria-label={ "Pages of " (of) } {
                @if let Some(first) = first { a rel="first" href=(first) { "First page" } }
                @if let Some(next) = next { a rel="next" href=(next) { "Next page" } }
            }
        }
    }
}

/// Redirects the browser to a page, which it then reads.
pub(crate) fn see_other(path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().extend(HeaderValue::from_str(path).map(|path| (LOCATION, path)));
    response
}

/// Page for a user who is not signed in.
pub(crate) fn outside(status: StatusCode, title: &str, body: &Markup) -> Response {
    respond(status, title, &content(body))
}

/// Page of an error before the account is known.
pub(crate) fn outside_failure(error: &ApiError) -> Response {
    failure(error, &html! {})
}

/// Any other path.
pub(crate) async fn unknown(session: Session) -> Response {
    let body = html! {
        div.title { h1 { "No such page" } }
        p { a href=(HOME) { "Overview" } }
    };
    respond(StatusCode::NOT_FOUND, "No such page", &html! { (session.bar(None)) (content(&body)) })
}

/// Logs an error of the service.
pub(crate) fn log(error: &ApiError) {
    if let Some((_, reason)) = error.for_log() {
        tracing::error!(error = reason, "a page of the dashboard failed: {reason}");
    }
}

fn failure(error: &ApiError, bar: &Markup) -> Response {
    log(error);
    let headline = match error.status() {
        StatusCode::BAD_REQUEST => "Not valid",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        _ => "Not available",
    };
    let body = html! {
        div.title { h1 { (headline) } }
        (notice_bad(&error.detail(Listener::Public)))
        p { a href=(HOME) { "Overview" } }
    };
    let mut response = respond(error.status(), headline, &html! { (bar) (content(&body)) });
    response.headers_mut().extend(error.retry_after_secs().map(|secs| (RETRY_AFTER, secs.into())));
    response
}

fn content(body: &Markup) -> Markup {
    html! { main #content { (body) } }
}

fn respond(status: StatusCode, title: &str, inside: &Markup) -> Response {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex, nofollow";
                title { (title) " · Payferry" }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE.as_str())) }
            }
            body {
                a.skip href="#content" { "Skip to content" }
                (inside)
            }
        }
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, POLICY.clone()),
        (VARY, HeaderValue::from_static("cookie")),
    ];
    (status, headers, markup.into_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_style_contains_no_closing_tag() {
        // Maud does not escape the inline style.
        assert!(!STYLE.contains("</"));
    }
}
