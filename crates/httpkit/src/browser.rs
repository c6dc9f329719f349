//! Requests of browsers: the cookie of a session, the check that a page of this site sent a form, and the headers of
//! responses that a browser shows.

use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, ORIGIN, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Cookie of a session. Scripts cannot read it, and other sites cannot send it.
#[derive(Debug, Clone, Copy)]
pub struct SessionCookie {
    /// Name of the cookie.
    pub name: &'static str,
    /// Path of the pages that receive it.
    pub path: &'static str,
}

impl SessionCookie {
    /// The session in a request's headers.
    pub fn of(self, headers: &HeaderMap) -> Option<&str> {
        let Self { name: wanted, .. } = self;
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == wanted).map(|(_, session)| session)
    }

    /// Sets the session, of ASCII letters, digits and `_.+/-`. `secure`: the browser sends it over TLS only.
    pub fn set(self, session: &str, age_secs: i64, secure: bool) -> HeaderValue {
        let Self { name, path } = self;
        let secure = if secure { "; Secure" } else { "" };
        let text = format!("{name}={session}; Path={path}; Max-Age={age_secs}; HttpOnly; SameSite=Strict{secure}");
        HeaderValue::from_str(&text).expect("a session's characters are valid in a header")
    }

    /// Removes the session from the browser.
    pub fn remove(self) -> HeaderValue {
        self.set("", 0, false)
    }
}

/// Returns true if a page of this site sent the request. Only such a request may change anything with a session,
/// because a browser also adds the cookie to requests that other sites cause.
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let origin = text(ORIGIN).and_then(|origin| origin.split_once("://"));
    matches!((origin, text(HOST)), (Some((_, site)), Some(host)) if site.eq_ignore_ascii_case(host))
}

/// Returns true if the browser uses TLS for this site, according to its `Origin`.
pub fn is_behind_tls(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// Returns true if requests with this method change something.
pub fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Returns true if a path leads to `home`, or to a page of this site below it.
pub fn leads_into(home: &str, path: &str) -> bool {
    let rest = path.strip_prefix(home);
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    plain && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
}

/// Redirects to a path, and sets or removes a session.
pub fn redirect_with(to: &str, cookie: HeaderValue) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().extend(HeaderValue::from_str(to).map(|to| (LOCATION, to)));
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

/// Content security policy of responses that are not pages.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Middleware that adds the headers that a response for a browser does not have yet.
pub async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
        // With `no-referrer`, browsers would send `Origin: null` with the forms of this site.
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("x-robots-tag"), "noindex, nofollow"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
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
    fn a_login_redirects_only_to_pages_below_its_home() {
        for good in ["/ops", "/ops/actors/pay_1", "/ops?tab=chains"] {
            assert!(leads_into("/ops", good), "{good}");
        }
        for bad in ["", "/", "//evil.example", "/opsx", "https://evil.example/ops", "/ops\r\nx: y", "/ops\\evil"] {
            assert!(!leads_into("/ops", bad), "{bad}");
        }
    }

    #[test]
    fn session_is_found_among_other_cookies() {
        let cookie = SessionCookie { name: "s", path: "/ops" };
        let sent = headers(&[("cookie", "theme=dark; s=v1.a+/b; ss=x")]);
        assert_eq!(cookie.of(&sent), Some("v1.a+/b"));
        assert_eq!(cookie.of(&headers(&[("cookie", "ss=x")])), None);
        assert_eq!(cookie.set("a", 60, true), "s=a; Path=/ops; Max-Age=60; HttpOnly; SameSite=Strict; Secure");
    }
}
