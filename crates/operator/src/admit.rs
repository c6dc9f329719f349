//! Authentication: an operator's token, or a session that the login form opened for it. `/ops/login` and `/ops/logout`.
//!
//! Owned here: the order of the checks. A correct credential is accepted whatever failed before; a credential that this
//! service did not issue is refused without the database. Access of revoked operators and of ended sessions ends at
//! once, because each request reads their rows; only while the database does not answer, the last reading counts.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use axum::Extension;
use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, ORIGIN, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::html;
use moka::sync::Cache;
use payferry_accounts::operators::{self, ADMIN, OperatorCredential, OperatorRole, SESSION_SECS};
use payferry_domain::Timestamp;
use payferry_httpkit::browser::{SessionCookie, changes, is_behind_tls, is_same_origin, leads_into, redirect_with};
use payferry_httpkit::error::TokenProblem;
use payferry_httpkit::extract::read::TEXT_CHARS_MAX;
use payferry_httpkit::pages::form::SignInForm;
use payferry_httpkit::{ApiError, ClientAddress, FieldError};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_runtime::request;
use payferry_runtime::seal::Sealer;
use sea_orm::DbErr;
use serde::Deserialize;
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use crate::attempts::FailedAttempts;
use crate::query::by;
use crate::{BODY_BYTES_MAX, Operator, OperatorShared, page};

/// Time that the check of a credential waits for the database.
const CHECK_PATIENCE: Duration = Duration::from_secs(1);
/// Time since its last check for which a credential is accepted while the database does not answer.
const OUTAGE_ACCESS: Duration = Duration::from_hours(1);
/// Credentials whose last check is remembered.
const CHECKED_MAX: u64 = 1_000;
/// Cookie of the session.
pub(crate) const COOKIE: SessionCookie = SessionCookie { name: "payferry_operator", path: HOME };
/// Header with the reason for a change; the audit entries of the change contain it.
const REASON: &str = "x-reason";
/// Target of a login without another target.
const HOME: &str = "/ops";

/// Authenticates operators.
pub(crate) struct Admission {
    /// Hash of the shared token.
    admin: String,
    attempts: FailedAttempts,
    checked: Cache<Proof, Identity>,
}

/// Hash of a credential that the client sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Proof {
    Token(String),
    Session(String),
}

/// Operator who sent a request.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) role: OperatorRole,
    token_hash: String,
    proof: Proof,
}

impl Admission {
    /// Authentication with this shared token.
    pub(crate) fn new(token: &str, sealer: &Sealer) -> Self {
        Self {
            admin: OperatorCredential::Token.hash(token, sealer),
            attempts: FailedAttempts::new(),
            checked: Cache::builder().max_capacity(CHECKED_MAX).time_to_live(OUTAGE_ACCESS).build(),
        }
    }
}

impl OperatorShared {
    /// Authenticates a request.
    async fn identify(&self, headers: &HeaderMap, from: IpAddr) -> Result<Identity, ApiError> {
        if let Some(header) = headers.get(AUTHORIZATION) {
            let text = header.to_str().map_err(|_| TokenProblem::Wrong)?;
            let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
            if !scheme.eq_ignore_ascii_case("bearer") {
                return Err(TokenProblem::Missing.into());
            }
            return self.holder(token.trim(), from).await;
        }
        let session = COOKIE.of(headers).ok_or(TokenProblem::Missing)?;
        if !OperatorCredential::Session.is_genuine(session, self.system.sealer()) {
            return Err(self.failed(from).await);
        }
        let proof = Proof::Session(OperatorCredential::Session.hash(session, self.system.sealer()));
        self.check(proof).await?.ok_or_else(|| TokenProblem::SessionOver.into())
    }

    /// Returns the operator with this token. A wrong token counts as a failed attempt.
    async fn holder(&self, token: &str, from: IpAddr) -> Result<Identity, ApiError> {
        let sealer = self.system.sealer();
        let hash = OperatorCredential::Token.hash(token, sealer);
        let is_admin: bool = hash.as_bytes().ct_eq(self.admission.admin.as_bytes()).into();
        if (is_admin || OperatorCredential::Token.is_genuine(token, sealer))
            && let Some(identity) = self.check(Proof::Token(hash)).await?
        {
            return Ok(identity);
        }
        Err(self.failed(from).await)
    }

    /// Returns the operator with this credential; `None` if the operator is revoked or the session is over.
    async fn check(&self, proof: Proof) -> Result<Option<Identity>, DbErr> {
        let checked = &self.admission.checked;
        match by(Instant::now() + CHECK_PATIENCE, self.read(&proof)).await {
            Ok(Some(identity)) => {
                checked.insert(proof, identity.clone());
                Ok(Some(identity))
            }
            Ok(None) => {
                checked.invalidate(&proof);
                Ok(None)
            }
            Err(error) => checked.get(&proof).map(Some).ok_or(error),
        }
    }

    async fn read(&self, proof: &Proof) -> Result<Option<Identity>, DbErr> {
        let database = self.system.database();
        let token_hash = match proof {
            Proof::Token(hash) => Some(hash.clone()),
            Proof::Session(hash) => operators::session_token(database, hash, self.system.clock().real_now()).await?,
        };
        let Some(token_hash) = token_hash else { return Ok(None) };
        let (name, role) = if token_hash == self.admission.admin {
            (ADMIN.to_owned(), OperatorRole::Admin)
        } else {
            let Some(found) = operators::find(database, &token_hash).await? else { return Ok(None) };
            (found.name, found.role)
        };
        Ok(Some(Identity { name, role, token_hash, proof: proof.clone() }))
    }

    /// Returns true if the credential of an open stream is still valid.
    pub(crate) async fn is_valid(&self, identity: &Identity) -> bool {
        matches!(self.check(identity.proof.clone()).await, Ok(Some(_)))
    }

    /// Counts a failed attempt, and records it in the audit log unless that has enough of them.
    async fn failed(&self, from: IpAddr) -> ApiError {
        let failed = self.admission.attempts.add(from);
        if let Some(attempts) = failed.to_record {
            let entry = NewAuditEntry {
                action: "operator.login_failed".to_owned(),
                psp_id: None,
                subject: "login".to_owned(),
                detail: json!({ "attempts": attempts }),
            };
            let now: Timestamp = self.system.clock().real_now();
            let written = audit::append(self.system.database().writer(), &Actor::Service, now, vec![entry]);
            if let Err(error) = by(Instant::now() + CHECK_PATIENCE, written).await {
                tracing::warn!(%error, "a failed operator login is not in the audit log");
            }
        }
        failed.problem.into()
    }
}

/// Middleware around every route that needs an operator.
pub(super) async fn admit(
    State(operator): State<Operator>,
    Client(from): Client,
    mut request: Request,
    next: Next,
) -> Response {
    match operator.identify(request.headers(), from).await {
        Ok(Identity { proof: Proof::Session(_), .. })
            if changes(request.method()) && !is_same_origin(request.headers()) =>
        {
            ApiError::ForeignOrigin.into_response()
        }
        Ok(identity) => {
            let (name, role) = (identity.name.clone(), Some(identity.role.as_str()));
            match reason_of(request.headers()) {
                Ok(reason) => reason.into_iter().for_each(request::give_reason),
                Err(error) => return error.into_response(),
            }
            request.extensions_mut().insert(identity);
            request::sent_by(name, role, next.run(request)).await
        }
        Err(ApiError::NotOperator(problem)) if wants_html(request.headers()) => {
            let back = request.uri().path_and_query().map(PathAndQuery::as_str).filter(|_| !changes(request.method()));
            refused(problem, back)
        }
        Err(error) => error.into_response(),
    }
}

/// Reason for the change of a program. Pages send theirs in the form.
fn reason_of(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = headers.get(REASON) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let is_reason = (1..=TEXT_CHARS_MAX).contains(&text.len());
    is_reason.then_some(Some(text)).ok_or(ApiError::BadHeader("X-Reason", "1 to 255 visible ASCII characters"))
}

/// Middleware around every route that needs a role, inside [`admit`].
pub(super) async fn require(
    State(needed): State<OperatorRole>,
    Extension(identity): Extension<Identity>,
    request: Request,
    next: Next,
) -> Response {
    if identity.role >= needed {
        return next.run(request).await;
    }
    if wants_html(request.headers()) {
        let body = html! {
            div.title { h1 { "Not allowed" } }
            p.notice.bad role="alert" { "This needs the role " (needed) "; " (identity.name) " is " (identity.role) "." }
            p { a href=(HOME) { "Overview" } }
        };
        return page::outside(StatusCode::FORBIDDEN, "Not allowed", body);
    }
    ApiError::MissingRole(needed.as_str()).into_response()
}

/// Returns true if the client prefers HTML.
fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/html"))
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
    // Otherwise another site could log a browser in, so that its user acts under another name.
    if headers.contains_key(ORIGIN) && !is_same_origin(&headers) {
        return Err(ApiError::ForeignOrigin);
    }
    let Form(Login { token, next }) = form.map_err(|rejection| unreadable(&rejection))?;
    let next = next.as_deref().filter(|path| leads_into(HOME, path)).unwrap_or(HOME);
    match operator.holder(token.trim(), from).await {
        Ok(Identity { name, token_hash, .. }) => {
            let (database, sealer) = (operator.system.database(), operator.system.sealer());
            let now = operator.system.clock().real_now();
            let session = operators::open_session(database, sealer, &name, token_hash, now).await?;
            Ok(redirect_with(next, COOKIE.set(&session, SESSION_SECS, is_behind_tls(&headers))))
        }
        Err(ApiError::NotOperator(problem)) if wants_html(&headers) => Ok(refused(problem, Some(next))),
        Err(error) => Err(error),
    }
}

/// Ends the session, also in this browser. A token is not a session and stays valid.
pub(super) async fn leave(
    operator: Operator,
    Extension(Identity { name, proof, .. }): Extension<Identity>,
) -> Result<Response, ApiError> {
    if let Proof::Session(hash) = &proof {
        operators::end_session(operator.system.database(), hash, &name, operator.system.clock().real_now()).await?;
        operator.admission.checked.invalidate(&proof);
    }
    Ok(redirect_with("/ops/login", COOKIE.remove()))
}

/// Login form in place of the requested page. `back`: where to go after the login.
fn refused(problem: TokenProblem, back: Option<&str>) -> Response {
    let mut response =
        ask(StatusCode::UNAUTHORIZED, Some(problem), back.filter(|path| leads_into(HOME, path)).unwrap_or(HOME));
    let headers = response.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"payferry operator\""));
    match problem {
        // If the browser kept sending the cookie, it would use up the attempts of its address.
        TokenProblem::Wrong | TokenProblem::SessionOver => {
            headers.insert(SET_COOKIE, COOKIE.remove());
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
    let form = SignInForm {
        area: "operator",
        action: "/ops/login",
        secret: ("token", "Operator token"),
        user: "operator",
        next,
        button: "Log in",
        said: said.as_deref(),
    };
    page::outside(status, "Log in", form.with(&html! {}))
}

fn unreadable(rejection: &FormRejection) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return ApiError::TooLarge(BODY_BYTES_MAX);
    }
    let message = "is required, in a form".to_owned();
    ApiError::Validation(vec![FieldError { field: "token".to_owned(), code: "required".into(), message }])
}
