//! `/ops/login` and `/ops/logout`: browser sessions.

use axum::Form;
use axum::extract::State;
use axum::extract::rejection::FormRejection;
use axum::http::header::{LOCATION, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::html;
use payferry_httpkit::error::{ApiError, FieldError, TokenProblem};
use serde::Deserialize;

use crate::admit::{self, Peer};
use crate::{BODY_BYTES_MAX, Operator, page};

/// Target of a login without another target.
const HOME: &str = "/ops";

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
    State(operator): State<Operator>,
    Peer(from): Peer,
    headers: HeaderMap,
    form: Result<Form<Login>, FormRejection>,
) -> Result<Response, ApiError> {
    let Form(Login { token, next }) = form.map_err(|rejection| unreadable(&rejection))?;
    let next = next.as_deref().filter(|path| is_own(path)).unwrap_or(HOME);
    match operator.admission.token(token.trim(), from) {
        Ok(()) => Ok(go(next, operator.admission.session(admit::is_behind_tls(&headers)))),
        Err(problem) if admit::wants_html(&headers) => Ok(refused(problem, Some(next))),
        Err(problem) => Err(ApiError::NotOperator(problem)),
    }
}

/// Removes the session from this browser.
pub(super) async fn leave() -> Response {
    go("/ops/login", admit::no_session())
}

/// Login form in place of the requested page. `back`: where to go after the login.
pub(super) fn refused(problem: TokenProblem, back: Option<&str>) -> Response {
    let mut response = ask(StatusCode::UNAUTHORIZED, Some(problem), back.filter(|path| is_own(path)).unwrap_or(HOME));
    let headers = response.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"payferry operator\""));
    match problem {
        // If the browser kept sending the cookie, it would use up the attempts of its address.
        TokenProblem::Wrong | TokenProblem::SessionOver => {
            headers.insert(SET_COOKIE, admit::no_session());
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
    use super::is_own;

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
