//! Sign-in: exchanges an API key for a session. `/dashboard/login` and `/dashboard/logout`.
//!
//! A session is the key with an expiry, sealed into a cookie, so that every node can open it and none stores it. Each page
//! checks the key through the API: a revoked or expired key ends its sessions at once.

use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{ORIGIN, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use maud::html;
use payferry_domain::Timestamp;
use payferry_httpkit::ApiError;
use payferry_httpkit::browser::{SessionCookie, changes, is_behind_tls, is_same_origin, leads_into, redirect_with};
use payferry_httpkit::error::Listener;
use payferry_httpkit::pages::form::SignInForm;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::api::ApiClient;
use crate::{Dashboard, HOME, page};

/// Lifetime of a session, seconds.
pub const SESSION_SECS: i64 = 12 * 3_600;
/// Cookie of the session.
const COOKIE: SessionCookie = SessionCookie { name: "payferry_dashboard", path: HOME };
/// Context of the sealed session.
const SEALED_AS: [&str; 2] = ["dashboard", "session"];
/// Reads the key of a session.
const CURRENT: &str = "/api/v1/keys/current";
/// Notice of a session that has expired, or that another service has sealed.
const SESSION_OVER: &str = "The session is no longer valid; sign in again.";

/// The key of a session, as the API describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct CurrentKey {
    pub(crate) id: String,
    pub(crate) name: String,
    scopes: Vec<String>,
    pub(crate) psp_id: String,
    pub(crate) psp_name: String,
}

impl CurrentKey {
    /// True if the key may do what needs this scope.
    pub(crate) fn has(&self, scope: &str) -> bool {
        self.scopes.iter().any(|held| held == scope || held == "full")
    }
}

/// A signed-in user, whose request comes from a page of this site if it changes something.
pub(crate) struct Session {
    pub(crate) dashboard: Dashboard,
    pub(crate) api: ApiClient,
    pub(crate) key: CurrentKey,
}

impl Session {
    /// Time of payments and transfers. In a sandbox, it may differ from the wall clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.dashboard.clock.now()
    }

    /// Time of deliveries, endpoints and keys.
    pub(crate) fn real_now(&self) -> Timestamp {
        self.dashboard.clock.real_now()
    }
}

impl FromRequestParts<Dashboard> for Session {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, dashboard: &Dashboard) -> Result<Self, Response> {
        let is_change = changes(&parts.method);
        let back = parts.uri.path_and_query().map(PathAndQuery::as_str).filter(|_| !is_change);
        let Some(sealed) = COOKIE.of(&parts.headers) else { return Err(ask(StatusCode::UNAUTHORIZED, None, back)) };
        if is_change && !dashboard.is_own_page(&parts.headers) {
            return Err(foreign());
        }
        let Some(key) = dashboard.open(sealed) else { return Err(over(SESSION_OVER, back)) };
        let found = CurrentKey::read(dashboard, &key, parts.extensions.clone()).await;
        let (api, key) = found.map_err(|error| match error {
            ApiError::Unauthorized(_) => over(&error.detail(Listener::Public), back),
            error => page::outside_failure(&error),
        })?;
        Ok(Self { dashboard: dashboard.clone(), api, key })
    }
}

impl CurrentKey {
    async fn read(dashboard: &Dashboard, key: &str, outer: Extensions) -> Result<(ApiClient, Self), ApiError> {
        let api = ApiClient::new(&dashboard.api, key, outer)?;
        let current = api.get(CURRENT).await?;
        Ok((api, current))
    }
}

impl Dashboard {
    /// A session with this key.
    fn seal(&self, key: &str) -> String {
        let until = self.clock.real_now::<Timestamp>().plus_secs(SESSION_SECS).as_millis();
        let session = Zeroizing::new(format!("{until} {key}"));
        self.sealer.seal(&SEALED_AS, session.as_bytes())
    }

    /// The key of a session; `None` if the session has expired or is not genuine.
    fn open(&self, sealed: &str) -> Option<Zeroizing<String>> {
        let session = self.sealer.open(&SEALED_AS, sealed).ok()?;
        let (until, key) = str::from_utf8(&session).ok()?.split_once(' ')?;
        let is_over = Timestamp(until.parse().ok()?) <= self.clock.real_now();
        (!is_over).then(|| Zeroizing::new(key.to_owned()))
    }

    /// True if a page of this site sent the request: a proxy may change the host of the request, but not the origin.
    fn is_own_page(&self, headers: &HeaderMap) -> bool {
        let configured = self.public_url.origin().ascii_serialization();
        is_same_origin(headers) || headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes() == configured.as_bytes())
    }
}

/// Data of the form. No `Debug`, because it holds the key.
#[derive(Deserialize)]
pub(crate) struct SignIn {
    key: String,
    next: Option<String>,
}

/// Returns the sign-in form.
pub(crate) async fn form() -> Response {
    ask(StatusCode::OK, None, None)
}

/// Exchanges the key for a session.
pub(crate) async fn sign_in(
    State(dashboard): State<Dashboard>,
    parts: Parts,
    form: Result<Form<SignIn>, FormRejection>,
) -> Response {
    // Otherwise another site could sign a browser in to another account.
    if !dashboard.is_own_page(&parts.headers) {
        return foreign();
    }
    let Ok(Form(SignIn { key, next })) = form else {
        return ask(StatusCode::UNPROCESSABLE_ENTITY, Some("Enter an API key."), None);
    };
    let key = Zeroizing::new(key);
    let next = next.as_deref().filter(|path| leads_into(HOME, path)).unwrap_or(HOME);
    match CurrentKey::read(&dashboard, key.trim(), parts.extensions).await {
        Ok(_) => {
            let is_secure = dashboard.is_production || is_behind_tls(&parts.headers);
            redirect_with(next, COOKIE.set(&dashboard.seal(key.trim()), SESSION_SECS, is_secure))
        }
        Err(error) => {
            page::log(&error);
            let mut response = ask(error.status(), Some(&error.detail(Listener::Public)), Some(next));
            response.headers_mut().extend(error.retry_after_secs().map(|secs| (RETRY_AFTER, secs.into())));
            response
        }
    }
}

/// Removes the session from this browser.
pub(crate) async fn sign_out(State(dashboard): State<Dashboard>, headers: HeaderMap) -> Response {
    if !dashboard.is_own_page(&headers) {
        return foreign();
    }
    ended()
}

/// Redirects to the sign-in form, and removes the session from this browser.
pub(crate) fn ended() -> Response {
    redirect_with("/dashboard/login", COOKIE.remove())
}

/// The sign-in form after the end of a session, which it removes from the browser.
pub(crate) fn over(why: &str, back: Option<&str>) -> Response {
    let mut response = ask(StatusCode::UNAUTHORIZED, Some(why), back);
    response.headers_mut().insert(SET_COOKIE, COOKIE.remove());
    response
}

/// The refusal of a form that another site sent.
fn foreign() -> Response {
    let body = html! {
        div.title { h1 { "Not accepted" } }
        p.notice.bad role="alert" { "The form was sent by a page of another site. Nothing was changed." }
        p { a href=(HOME) { "Overview" } }
    };
    page::outside(StatusCode::FORBIDDEN, "Not accepted", &body)
}

/// The sign-in form. `back`: where to go after it.
fn ask(status: StatusCode, said: Option<&str>, back: Option<&str>) -> Response {
    let next = back.filter(|path| leads_into(HOME, path) && !path.starts_with("/dashboard/login")).unwrap_or(HOME);
    let form = SignInForm {
        area: "dashboard",
        action: "/dashboard/login",
        secret: ("key", "API key"),
        user: "api key",
        next,
        button: "Sign in",
        said,
    };
    let body = form.with(&html! {
        p.soft {
            "The key needs the scope " code { "read" } ". The session ends after " (SESSION_SECS / 3_600)
            " hours, when you sign out, or when the key is revoked."
        }
    });
    let mut response = page::outside(status, "Sign in", &body);
    if status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"payferry\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
