//! Authentication: the operator token, or a session that the login form issued for it. `/ops/login` and `/ops/logout`.
//!
//! Owned here: the comparison of tokens, the session format, and the limit of failed attempts per address. Sessions are
//! not stored: the cookie holds its end time and a MAC of it, under a key derived from the token. A restart of the
//! service ends no session, a new token ends all, and a logout only removes the cookie from that browser.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequestParts, Request};
use axum::http::header::{
    ACCEPT, AUTHORIZATION, COOKIE, HOST, LOCATION, ORIGIN, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE,
};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hmac::{Hmac, KeyInit, Mac};
use maud::html;
use moka::sync::Cache;
use payferry_domain::Timestamp;
use payferry_httpkit::error::TokenProblem;
use payferry_httpkit::limits::network_prefix;
use payferry_httpkit::{ApiError, ClientAddress, FieldError};
use payferry_runtime::clock::Clock;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{BODY_BYTES_MAX, Operator, page};

/// Lifetime of a session.
pub const SESSION_SECS: i64 = 12 * 3_600;
/// Wrong tokens that an address may send within a minute. After that, its tokens are not checked until the minute is
/// over.
pub const FAILED_ATTEMPTS_PER_MINUTE_MAX: u32 = 30;
/// Starts with the first wrong token.
const ATTEMPTS_WINDOW: Duration = Duration::from_mins(1);
/// Addresses whose wrong tokens are counted at the same time.
const ADDRESSES_MAX: u64 = 10_000;
/// Cookie of the session.
const COOKIE_NAME: &str = "payferry_operator";
/// Target of a login without another target.
const HOME: &str = "/ops";

/// Authenticates the operator.
pub struct Admission {
    /// A digest, so that a comparison reveals nothing about the length of the token.
    token: [u8; 32],
    session_key: [u8; 32],
    clock: Clock,
    failures: Cache<IpAddr, Arc<AtomicU32>>,
}

/// Credential of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Credential {
    Token,
    Session,
}

impl Admission {
    /// Authentication with this token.
    pub(super) fn new(token: &str, clock: Clock) -> Self {
        Self {
            token: Sha256::digest(token).into(),
            session_key: mac(token.as_bytes(), b"payferry operator session v1"),
            clock,
            failures: Cache::builder().max_capacity(ADDRESSES_MAX).time_to_live(ATTEMPTS_WINDOW).build(),
        }
    }

    /// Compares the token that `from` sent. Wrong tokens are counted.
    fn token(&self, shown: &str, from: IpAddr) -> Result<(), TokenProblem> {
        let digest: [u8; 32] = Sha256::digest(shown).into();
        self.attempt(from, || bool::from(digest.ct_eq(&self.token)))
    }

    /// Cookie of a new session. `secure`: send it over TLS only.
    fn session(&self, secure: bool) -> HeaderValue {
        let ends_at = self.clock.real_now::<Timestamp>().plus_secs(SESSION_SECS).as_millis();
        let session = format!("{ends_at}.{}", hex::encode(self.seal(ends_at)));
        cookie(&session, SESSION_SECS, secure)
    }

    fn look(&self, headers: &HeaderMap, from: IpAddr) -> Result<Credential, TokenProblem> {
        if let Some(header) = headers.get(AUTHORIZATION) {
            let text = header.to_str().map_err(|_| TokenProblem::Wrong)?;
            let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
            if !scheme.eq_ignore_ascii_case("bearer") {
                return Err(TokenProblem::Missing);
            }
            return self.token(token.trim(), from).map(|()| Credential::Token);
        }
        let session = session_of(headers).ok_or(TokenProblem::Missing)?;
        let (ends_at, seal) = session.split_once('.').ok_or(TokenProblem::Wrong)?;
        let ends_at: i64 = ends_at.parse().map_err(|_| TokenProblem::Wrong)?;
        // A forged seal counts as a wrong token.
        let given = hex::decode(seal).map_err(|_| TokenProblem::Wrong)?;
        self.attempt(from, || bool::from(given.ct_eq(&self.seal(ends_at))))?;
        if Timestamp(ends_at) <= self.clock.real_now() {
            Err(TokenProblem::SessionOver)
        } else {
            Ok(Credential::Session)
        }
    }

    fn seal(&self, ends_at: i64) -> [u8; 32] {
        mac(&self.session_key, &ends_at.to_be_bytes())
    }

    /// Checks one attempt, unless too many failed before.
    fn attempt(&self, from: IpAddr, is_right: impl FnOnce() -> bool) -> Result<(), TokenProblem> {
        let address = network_prefix(from);
        let failed = self.failures.get(&address).map_or(0, |count| count.load(Ordering::Relaxed));
        if failed >= FAILED_ATTEMPTS_PER_MINUTE_MAX {
            return Err(TokenProblem::TooManyAttempts(ATTEMPTS_WINDOW.as_secs()));
        }
        if is_right() {
            return Ok(());
        }
        let count = self.failures.get_with(address, Arc::default);
        if count.fetch_add(1, Ordering::Relaxed) + 1 == FAILED_ATTEMPTS_PER_MINUTE_MAX {
            tracing::warn!("too many wrong operator tokens from {address}: its tokens are not checked for a minute");
        }
        Err(TokenProblem::Wrong)
    }
}

/// Middleware around every route that needs the token.
pub(super) async fn admit(operator: Operator, Client(from): Client, request: Request, next: Next) -> Response {
    match operator.admission.look(request.headers(), from) {
        Ok(Credential::Session) if changes(request.method()) && !is_same_origin(request.headers()) => {
            ApiError::ForeignOrigin.into_response()
        }
        Ok(_) => next.run(request).await,
        Err(problem) if wants_html(request.headers()) => {
            let back = request.uri().path_and_query().map(PathAndQuery::as_str).filter(|_| !changes(request.method()));
            refused(problem, back)
        }
        Err(problem) => ApiError::NotOperator(problem).into_response(),
    }
}

/// Cookie that removes the session from the browser.
fn no_session() -> HeaderValue {
    cookie("", 0, false)
}

/// Returns true if the client prefers HTML.
fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/html"))
}

/// Returns true if a page of this site sent the request. Only such a request may change anything with a session,
/// because a browser also adds the cookie to requests that other sites cause.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let origin = text(ORIGIN).and_then(|origin| origin.split_once("://"));
    matches!((origin, text(HOST)), (Some((_, site)), Some(host)) if site.eq_ignore_ascii_case(host))
}

/// Returns true if the browser uses TLS for this site, according to its `Origin`.
fn is_behind_tls(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

fn session_of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE_NAME).map(|(_, session)| session)
}

fn cookie(session: &str, age_secs: i64, secure: bool) -> HeaderValue {
    let secure = if secure { "; Secure" } else { "" };
    let text = format!("{COOKIE_NAME}={session}; Path=/ops; Max-Age={age_secs}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).expect("digits and hexadecimal digits are valid in a header")
}

fn mac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts a key of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// Address of the client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client(IpAddr);

impl<S: Send + Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(ClientAddress::of(parts)))
    }
}

/// Data of the form. No `Debug`, because it holds the token.
#[derive(Deserialize)]
pub(super) struct Login {
    token: String,
    next: Option<String>,
}

/// Returns the login form.
pub(super) async fn form() -> Response {
    ask(StatusCode::OK, None, HOME)
}

/// Exchanges the token for a session.
pub(super) async fn enter(
    operator: Operator,
    Client(from): Client,
    headers: HeaderMap,
    form: Result<Form<Login>, FormRejection>,
) -> Result<Response, ApiError> {
    let Form(Login { token, next }) = form.map_err(|rejection| unreadable(&rejection))?;
    let next = next.as_deref().filter(|path| is_own(path)).unwrap_or(HOME);
    match operator.admission.token(token.trim(), from) {
        Ok(()) => Ok(go(next, operator.admission.session(is_behind_tls(&headers)))),
        Err(problem) if wants_html(&headers) => Ok(refused(problem, Some(next))),
        Err(problem) => Err(ApiError::NotOperator(problem)),
    }
}

/// Removes the session from this browser.
pub(super) async fn leave() -> Response {
    go("/ops/login", no_session())
}

/// Login form in place of the requested page. `back`: where to go after the login.
fn refused(problem: TokenProblem, back: Option<&str>) -> Response {
    let mut response = ask(StatusCode::UNAUTHORIZED, Some(problem), back.filter(|path| is_own(path)).unwrap_or(HOME));
    let headers = response.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"payferry operator\""));
    match problem {
        // If the browser kept sending the cookie, it would use up the attempts of its address.
        TokenProblem::Wrong | TokenProblem::SessionOver => {
            headers.insert(SET_COOKIE, no_session());
        }
        TokenProblem::TooManyAttempts(secs) => {
            headers.insert(RETRY_AFTER, HeaderValue::from(secs));
        }
        TokenProblem::Missing => {}
    }
    response
}

fn ask(status: StatusCode, problem: Option<TokenProblem>, next: &str) -> Response {
    let said = problem.filter(|problem| *problem != TokenProblem::Missing).map(TokenProblem::detail);
    let body = html! {
        div.login {
            h1 { "Payferry " span.soft { "operator" } }
            @if let Some(said) = said { p.notice.bad role="alert" { (said) } }
            form.stack method="post" action="/ops/login" {
                label for="token" { "Operator token" }
                // The form has no user name, but password managers expect one.
                input type="text" name="username" value="operator" autocomplete="username" hidden;
                input #token type="password" name="token" autocomplete="current-password" required autofocus;
                input type="hidden" name="next" value=(next);
                div { button type="submit" { "Log in" } }
            }
        }
    };
    page::outside(status, "Log in", body)
}

/// Returns true if a path leads to an operator page of this site.
fn is_own(path: &str) -> bool {
    let rest = path.strip_prefix(HOME);
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    plain && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
}

fn go(to: &str, cookie: HeaderValue) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().extend(HeaderValue::from_str(to).map(|to| (LOCATION, to)));
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

fn unreadable(rejection: &FormRejection) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return ApiError::TooLarge(BODY_BYTES_MAX);
    }
    let message = "is required, in a form".to_owned();
    ApiError::Validation(vec![FieldError { field: "token".to_owned(), code: "required".into(), message }])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn session(admission: &Admission) -> String {
        let cookie = admission.session(false);
        cookie.to_str().unwrap().split(';').next().unwrap().to_owned()
    }

    #[test]
    fn accepts_only_the_token_or_its_session() {
        let admission = Admission::new("correct horse battery", Clock::default());
        let look = |pairs: &[(&'static str, &str)]| admission.look(&headers(pairs), HERE);
        assert_eq!(look(&[("authorization", "Bearer correct horse battery")]), Ok(Credential::Token));
        assert_eq!(look(&[("authorization", "bearer correct horse")]), Err(TokenProblem::Wrong));
        assert_eq!(look(&[("authorization", "Basic Y29ycmVjdA==")]), Err(TokenProblem::Missing));
        assert_eq!(look(&[]), Err(TokenProblem::Missing));
        let good = session(&admission);
        assert_eq!(look(&[("cookie", &format!("theme=dark; {good}"))]), Ok(Credential::Session));
        let longer = good.replacen("payferry_operator=1", "payferry_operator=2", 1);
        assert_eq!(look(&[("cookie", &longer)]), Err(TokenProblem::Wrong), "a session cannot be extended");
        let other = Admission::new("another token", Clock::default());
        assert_eq!(look(&[("cookie", &session(&other))]), Err(TokenProblem::Wrong));
        let over = admission.clock.real_now::<Timestamp>().as_millis() - 1;
        let over = format!("payferry_operator={over}.{}", hex::encode(admission.seal(over)));
        assert_eq!(look(&[("cookie", &over)]), Err(TokenProblem::SessionOver));
    }

    #[test]
    fn limits_wrong_tokens_per_address() {
        let admission = Admission::new("correct horse battery", Clock::default());
        for _ in 0..FAILED_ATTEMPTS_PER_MINUTE_MAX {
            assert_eq!(admission.token("wrong", HERE), Err(TokenProblem::Wrong));
        }
        let refused = admission.token("correct horse battery", HERE);
        assert!(
            matches!(refused, Err(TokenProblem::TooManyAttempts(_))),
            "a correct guess is not revealed: {refused:?}"
        );
        assert!(matches!(
            admission.look(&headers(&[("cookie", &session(&admission))]), HERE),
            Err(TokenProblem::TooManyAttempts(_))
        ));
        assert_eq!(admission.token("correct horse battery", "192.0.2.1".parse().unwrap()), Ok(()));
    }

    #[test]
    fn accepts_only_the_origin_of_this_site() {
        for (pairs, same) in [
            (vec![("host", "ops.example:8081"), ("origin", "http://ops.example:8081")], true),
            (vec![("host", "ops.example"), ("origin", "https://OPS.example")], true),
            (vec![("host", "ops.example"), ("origin", "https://ops.example.evil")], false),
            (vec![("host", "ops.example"), ("origin", "null")], false),
            (vec![("host", "ops.example")], false),
            (vec![("origin", "http://ops.example")], false),
        ] {
            assert_eq!(is_same_origin(&headers(&pairs)), same, "{pairs:?}");
        }
    }

    #[test]
    fn a_login_redirects_only_to_operator_pages() {
        for good in ["/ops", "/ops/actors/pay_1", "/ops?tab=chains"] {
            assert!(is_own(good), "{good}");
        }
        for bad in ["", "/", "//evil.example", "/opsx", "https://evil.example/ops", "/ops\r\nx: y", "/ops\\evil"] {
            assert!(!is_own(bad), "{bad}");
        }
    }
}
