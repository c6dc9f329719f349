//! Errors of the interface. Only this module maps errors to status codes.
//!
//! An [`ApiError`] becomes an RFC 9457 problem document. `edge` adds the request id. The documents never contain stack
//! traces, SQL or what the caller sent.

mod credentials;
mod from;

pub use from::sentence;

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::Level;
use utoipa::ToSchema;

pub use credentials::{KeyProblem, TokenProblem};

use crate::progress::{BODY_IDLE_TIMEOUT, BODY_TIMEOUT};
use crate::serve::HEAD_BYTES_MAX;

/// Seconds after which a caller may try again when the database or a chain is unavailable.
const RETRY_AWAY_SECS: u64 = 2;
/// Seconds after which a caller may try again when the operator has paused new payments. Operators lift pauses by hand.
const RETRY_PAUSED_SECS: u64 = 60;
/// Seconds after which a caller may repeat a request whose first attempt still runs.
const RETRY_RUNNING_SECS: u64 = 1;

/// One invalid field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// The field's path, such as `merchants[3].business_id`.
    #[schema(example = "merchants[3].business_id")]
    pub field: String,
    /// Code of the error, for programs.
    #[schema(example = "required", value_type = String)]
    pub code: Cow<'static, str>,
    /// Text of the error, for people.
    #[schema(example = "is required")]
    pub message: String,
}

impl FieldError {
    /// Creates the error of one field.
    pub fn new(field: impl Into<String>, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { field: field.into(), code: code.into(), message: message.into() }
    }
}

/// A problem document (RFC 9457), the body of every answer that is not a success.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// A URI that identifies the type of the problem.
    #[serde(rename = "type")]
    #[schema(example = "urn:payferry:problem:validation_failed")]
    pub kind: String,
    /// The type of the problem in words, the same for every problem of this type.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// Details of this request's error.
    pub detail: String,
    /// The type of the problem, for programs.
    #[schema(example = "validation_failed", value_type = String)]
    pub code: Cow<'static, str>,
    /// The same as `detail`.
    pub message: String,
    /// The id of the request, as in the header `X-Request-Id`.
    pub request_id: String,
    /// Every invalid field; empty for other problems.
    pub errors: Vec<FieldError>,
}

/// Errors of requests.
#[derive(Debug, Clone)]
pub enum ApiError {
    /// The body is not JSON, or not a JSON object.
    MalformedJson(String),
    /// The query or the path cannot be read.
    BadParameters(Vec<FieldError>),
    /// A header cannot be read.
    BadHeader(&'static str, &'static str),
    /// No valid key.
    Unauthorized(KeyProblem),
    /// A provider's callback with a wrong signature or an old timestamp; why.
    ForgedCallback(&'static str),
    /// A provider's callback that does not have the documented format; why.
    UnreadableCallback(&'static str),
    /// No credential of an operator, or a wrong one.
    NotOperator(TokenProblem),
    /// A login, or a change with an operator's session, that comes from another site's page.
    ForeignOrigin,
    /// The operator lacks this role.
    MissingRole(&'static str),
    /// The key lacks a scope.
    MissingScope(&'static str),
    /// There is no such object, or it belongs to another PSP. The answer does not reveal which.
    NotFound(&'static str),
    /// A field names an object that does not exist.
    FieldNotFound(&'static str, FieldError),
    /// There is no such path; the path of the list of routes.
    NoRoute(&'static str),
    /// The path does not have this method; the allowed ones.
    MethodNotAllowed(Option<HeaderValue>),
    /// The request conflicts with the current state.
    Conflict(&'static str, String, Vec<FieldError>),
    /// The object existed and was deleted; why.
    Gone(&'static str, String),
    /// The request line and the headers are larger than [`HEAD_BYTES_MAX`].
    HeadTooLarge,
    /// The body is larger than the route accepts; the limit in bytes.
    TooLarge(usize),
    /// The body is not declared as JSON.
    UnsupportedMediaType,
    /// The body is not declared as multipart/form-data.
    NotMultipart,
    /// The body has an encoding that is not accepted: what has it, and the only accepted one.
    UnsupportedEncoding(&'static str, &'static str),
    /// The body cannot be read as multipart/form-data.
    MalformedMultipart(&'static str),
    /// Documents that are too large, and every other fault of the form.
    DocumentTooLarge(Vec<FieldError>),
    /// Invalid fields, all of them.
    Validation(Vec<FieldError>),
    /// Fields that are not valid for this object, with their own code.
    Unprocessable(&'static str, String, Vec<FieldError>),
    /// The token is disabled on the chain.
    TokenUnavailable(String),
    /// The idempotency key was used for another request.
    IdempotencyKeyReused,
    /// The first request with this idempotency key still runs.
    IdempotencyRunning,
    /// Too many requests; seconds to wait.
    RateLimited(u64),
    /// The body of the request did not arrive in time.
    BodyTimedOut,
    /// The request exceeded its time limit.
    TimedOut,
    /// A dependency is unavailable; which one, and for the log why.
    Unavailable(Away, Arc<str>),
    /// The change would violate an invariant of the service, so nothing was written; the violated ones.
    InvariantViolated(Arc<str>),
    /// A fault of the service; the reason is only logged.
    Internal(Arc<str>),
}

/// The listener that answers. Callers recover from a lost answer differently on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// PSPs and payers: requests may have an `Idempotency-Key`.
    Public,
    /// Operators and their programs.
    Operator,
}

/// An unavailable dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Away {
    /// The database.
    Database,
    /// A chain, or all of them.
    Chain,
    /// A chain, or all of them: the operator has paused new payments.
    ChainPaused,
    /// Outbound transfers of a chain: the operator must reconcile them first.
    Unreconciled,
    /// The payment's actor: it has failed too often and waits for an operator.
    Payment,
    /// The actor of the payout or withdrawal: as for a payment.
    OutboundTransfer,
    /// The customer: a change would have violated an invariant, and it waits for an operator.
    Customer,
    /// Customers cannot be verified because no identity provider is configured.
    IdentityProvider,
    /// The screening provider.
    Screening,
    /// Capacity: the service is overloaded.
    Capacity,
    /// The document store.
    Documents,
}

impl ApiError {
    /// One invalid field.
    pub fn field(field: &str, code: &'static str, message: impl Into<String>) -> Self {
        Self::Validation(vec![FieldError::new(field, code, message)])
    }

    /// One parameter that cannot be read.
    pub fn parameter(name: &str, code: &'static str, message: impl Into<String>) -> Self {
        Self::BadParameters(vec![FieldError::new(name, code, message)])
    }

    /// A conflict that is not the fault of a field.
    pub fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::Conflict(code, detail.into(), Vec::new())
    }

    /// The operator has paused the account: it can start no payments, payouts or withdrawals.
    pub fn psp_paused() -> Self {
        let detail = "The operator has paused this account: it can start no payments and send no money.";
        Self::conflict("psp_paused", detail)
    }

    /// A fault of the service.
    pub fn internal(reason: impl std::fmt::Display) -> Self {
        Self::Internal(reason.to_string().into())
    }

    /// The fixed part of every problem of one type: status, code and title.
    fn kind(&self) -> (StatusCode, Cow<'static, str>, &'static str) {
        let (status, code, title) = match self {
            Self::MalformedJson(_) => (StatusCode::BAD_REQUEST, "malformed_json", "The body is not JSON"),
            Self::BadParameters(_) => (StatusCode::BAD_REQUEST, "invalid_parameters", "The parameters are not valid"),
            Self::BadHeader(..) => (StatusCode::BAD_REQUEST, "invalid_header", "A header is not valid"),
            Self::Unauthorized(problem) => (StatusCode::UNAUTHORIZED, problem.code(), "The API key was not accepted"),
            Self::ForgedCallback(_) => {
                (StatusCode::UNAUTHORIZED, "callback_not_genuine", "The callback was not accepted")
            }
            Self::UnreadableCallback(_) => {
                (StatusCode::BAD_REQUEST, "callback_unreadable", "The callback cannot be read")
            }
            Self::NotOperator(problem) => {
                (StatusCode::UNAUTHORIZED, problem.code(), "The operator token was not accepted")
            }
            Self::ForeignOrigin => (StatusCode::FORBIDDEN, "foreign_origin", "The request comes from another site"),
            Self::MissingRole(_) => (StatusCode::FORBIDDEN, "operator_role_missing", "The operator lacks a role"),
            Self::MissingScope(_) => (StatusCode::FORBIDDEN, "missing_scope", "The API key lacks a scope"),
            Self::NotFound(what) => {
                let code = format!("{what}_not_found");
                return (StatusCode::NOT_FOUND, code.into(), "There is no such object");
            }
            Self::FieldNotFound(code, _) => (StatusCode::NOT_FOUND, *code, "There is no such object"),
            Self::NoRoute(_) => (StatusCode::NOT_FOUND, "route_not_found", "There is no such path"),
            Self::MethodNotAllowed(_) => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "The method is not allowed")
            }
            Self::Conflict(code, ..) => (StatusCode::CONFLICT, *code, "The request conflicts with the current state"),
            Self::Gone(code, _) => (StatusCode::GONE, *code, "It no longer exists"),
            Self::HeadTooLarge => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", "The headers are too large")
            }
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large"),
            Self::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body is not declared as JSON")
            }
            Self::NotMultipart => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body is not declared as a form")
            }
            Self::UnsupportedEncoding(..) => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "The encoding of the body is not accepted",
            ),
            Self::MalformedMultipart(_) => {
                (StatusCode::BAD_REQUEST, "malformed_multipart", "The body is not a valid form")
            }
            Self::DocumentTooLarge(_) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "document_too_large", "A document is too large")
            }
            Self::Validation(_) => (StatusCode::UNPROCESSABLE_ENTITY, "validation_failed", "Fields are not valid"),
            Self::Unprocessable(code, ..) => {
                (StatusCode::UNPROCESSABLE_ENTITY, *code, "Fields are not valid for this object")
            }
            Self::TokenUnavailable(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "token_unavailable", "The token is not available")
            }
            Self::IdempotencyKeyReused => {
                (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", "The idempotency key was used before")
            }
            Self::IdempotencyRunning => {
                (StatusCode::CONFLICT, "idempotency_request_running", "The first request is still running")
            }
            Self::RateLimited(_) => (StatusCode::TOO_MANY_REQUESTS, "rate_limited", "Too many requests"),
            Self::BodyTimedOut => (StatusCode::REQUEST_TIMEOUT, "body_timeout", "The body did not arrive in time"),
            Self::TimedOut => (StatusCode::SERVICE_UNAVAILABLE, "timed_out", "The request took too long"),
            Self::Unavailable(away, _) => (StatusCode::SERVICE_UNAVAILABLE, away.code(), "Not available at the moment"),
            Self::InvariantViolated(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "invariant_violated", "The change would violate an invariant")
            }
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "The service failed"),
        };
        (status, code.into(), title)
    }

    /// The type of the problem, for programs.
    pub fn code(&self) -> Cow<'static, str> {
        self.kind().1
    }

    /// Details of the error, for callers of this listener.
    pub fn detail(&self, listener: Listener) -> String {
        match self {
            Self::MalformedJson(what) => format!("The body cannot be read as JSON: {what}."),
            Self::BadHeader(name, expected) => format!("The header {name} must be {expected}."),
            Self::BadParameters(errors) | Self::Validation(errors) | Self::DocumentTooLarge(errors) => listed(errors),
            Self::NotMultipart => "Send the body with `Content-Type: multipart/form-data; boundary=...`.".to_owned(),
            Self::UnsupportedEncoding(what, accepted) => format!("The {what} of the body must be {accepted}."),
            Self::MalformedMultipart(what) => format!("The body cannot be read as multipart/form-data: {what}."),
            Self::Unauthorized(problem) => problem.detail().to_owned(),
            Self::ForgedCallback(why) | Self::UnreadableCallback(why) => format!("The callback is refused: {why}."),
            Self::NotOperator(problem) => problem.detail(),
            Self::ForeignOrigin => {
                "A login from a browser, and a change with the session cookie, need an `Origin` header of this site; \
                 programs should send the token as a bearer token instead."
                    .to_owned()
            }
            Self::MissingRole(role) => format!("This needs an operator with the role `{role}`."),
            Self::MissingScope(scope) => format!("The API key lacks the scope `{scope}`."),
            Self::NotFound(what) => format!("There is no {what} with this id."),
            Self::FieldNotFound(_, error) => format!("`{}` {}.", error.field, error.message),
            Self::NoRoute(list) => format!("There is no route with this path; {list} lists all routes."),
            Self::MethodNotAllowed(_) => "This path does not support this method.".to_owned(),
            Self::Conflict(_, detail, _)
            | Self::Unprocessable(_, detail, _)
            | Self::Gone(_, detail)
            | Self::TokenUnavailable(detail) => detail.clone(),
            Self::HeadTooLarge => {
                format!("The request line and the headers may have at most {HEAD_BYTES_MAX} bytes together.")
            }
            Self::TooLarge(bytes) => format!("The body may have at most {bytes} bytes."),
            Self::UnsupportedMediaType => "Send the body with `Content-Type: application/json`.".to_owned(),
            Self::IdempotencyKeyReused => {
                "This Idempotency-Key was used for another request in the last 24 hours; use a new key.".to_owned()
            }
            Self::IdempotencyRunning => "The first request with this Idempotency-Key is still running.".to_owned(),
            Self::RateLimited(secs) => format!("Try again in {secs} s."),
            Self::BodyTimedOut => format!(
                "The body must arrive within {} s, without a pause of {} s. The request was not carried out; send it again.",
                BODY_TIMEOUT.as_secs(),
                BODY_IDLE_TIMEOUT.as_secs()
            ),
            Self::TimedOut => format!(
                "The request timed out and may have been carried out. {}",
                match listener {
                    Listener::Public => "Check its result, or repeat it with the same Idempotency-Key.",
                    Listener::Operator => "Check its result before you repeat it.",
                }
            ),
            Self::Unavailable(away, _) => away.detail().to_owned(),
            Self::InvariantViolated(reason) => {
                format!("The service has a defect: {reason}. Nothing was changed; the operator was notified.")
            }
            Self::Internal(_) => "The service failed; the request_id identifies the error in its logs.".to_owned(),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.kind().0
    }

    /// Seconds after which to try again, if that may help.
    pub fn retry_after_secs(&self) -> Option<u64> {
        match self {
            Self::RateLimited(secs) | Self::NotOperator(TokenProblem::TooManyAttempts(secs)) => Some((*secs).max(1)),
            Self::IdempotencyRunning => Some(RETRY_RUNNING_SECS),
            Self::Unavailable(Away::IdentityProvider, _) => None,
            Self::Unavailable(Away::ChainPaused | Away::Unreconciled, _) => Some(RETRY_PAUSED_SECS),
            Self::TimedOut | Self::Unavailable(..) => Some(RETRY_AWAY_SECS),
            _ => None,
        }
    }

    /// The invalid fields.
    pub fn errors(&self) -> Vec<FieldError> {
        match self {
            Self::BadParameters(errors)
            | Self::Validation(errors)
            | Self::DocumentTooLarge(errors)
            | Self::Unprocessable(_, _, errors)
            | Self::Conflict(_, _, errors) => errors.clone(),
            Self::FieldNotFound(_, error) => vec![error.clone()],
            _ => Vec::new(),
        }
    }

    /// Text and level of the log line, if there is one: only for faults of the service, without data of the request.
    ///
    /// The chain's watcher logs an unavailable chain once. A log line for each affected request would add nothing.
    pub fn for_log(&self) -> Option<(Level, &str)> {
        match self {
            Self::Unavailable(Away::Chain, reason) => Some((Level::WARN, reason)),
            Self::Unavailable(
                Away::Database | Away::Payment | Away::OutboundTransfer | Away::Customer | Away::Documents,
                reason,
            )
            | Self::InvariantViolated(reason)
            | Self::Internal(reason) => Some((Level::ERROR, reason)),
            Self::TimedOut => Some((Level::ERROR, "the request timed out")),
            // Lack of capacity is not logged either: a metric counts it by status, and a log line for each request
            // would add load.
            _ => None,
        }
    }

    /// The problem document.
    pub(crate) fn problem(&self, request_id: &str, listener: Listener) -> Problem {
        let (status, code, title) = self.kind();
        let detail = self.detail(listener);
        Problem {
            kind: format!("urn:payferry:problem:{code}"),
            title,
            status: status.as_u16(),
            message: detail.clone(),
            detail,
            code,
            request_id: request_id.to_owned(),
            errors: self.errors(),
        }
    }

    /// The complete answer.
    pub(crate) fn response(&self, request_id: &str, listener: Listener) -> Response {
        let problem = self.problem(request_id, listener);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(secs) = self.retry_after_secs() {
            headers.insert(RETRY_AFTER, HeaderValue::from(secs));
        }
        match self {
            Self::Unauthorized(_) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"payferry\""));
            }
            Self::NotOperator(_) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"payferry operator\""));
            }
            // The rest of the body is not read.
            Self::BodyTimedOut => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Self::MethodNotAllowed(Some(allow)) => {
                headers.insert(ALLOW, allow.clone());
            }
            _ => {}
        }
        response
    }
}

/// Attaches the error to the answer; `edge` writes the document with the request id.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

fn listed(errors: &[FieldError]) -> String {
    /// Fields that the sentence names; `errors` names all.
    const NAMED_MAX: usize = 5;
    let mut named: Vec<_> =
        errors.iter().take(NAMED_MAX).map(|error| format!("`{}` {}", error.field, error.message)).collect();
    if errors.len() > NAMED_MAX {
        named.push(format!("and {} more", errors.len() - NAMED_MAX));
    }
    format!("{}.", named.join("; "))
}

impl Away {
    const fn code(self) -> &'static str {
        match self {
            Self::Database => "database_unavailable",
            Self::Chain => "chain_unavailable",
            Self::ChainPaused => "chain_paused",
            Self::Unreconciled => "sending_unreconciled",
            Self::Payment => "payment_quarantined",
            Self::OutboundTransfer => "sending_quarantined",
            Self::Customer => "customer_quarantined",
            Self::IdentityProvider => "identity_provider_unconfigured",
            Self::Screening => "screening_unavailable",
            Self::Capacity => "overloaded",
            Self::Documents => "documents_unavailable",
        }
    }

    const fn detail(self) -> &'static str {
        match self {
            Self::Database => "The database does not answer at the moment; try again.",
            Self::Chain => "The chain does not answer at the moment; try again, or use another chain.",
            Self::ChainPaused => {
                "The chain takes no new payments at the moment: the operator has paused it. Use another chain."
            }
            Self::Unreconciled => {
                "The service has lost outbound transfers on this chain, and takes no new ones until the operator has \
                 reconciled it. Nothing was created. Before you repeat a request, look in the ledger for `unknown_sent`."
            }
            Self::Payment => "The payment cannot be processed at the moment; the operator was notified.",
            Self::OutboundTransfer => {
                "The payout or withdrawal cannot be processed at the moment; the operator was notified."
            }
            Self::Customer => "The customer cannot be changed at the moment; the operator was notified.",
            Self::IdentityProvider => "No identity provider is configured, so customers cannot be verified.",
            Self::Screening => "The wallet could not be screened in time; try again.",
            Self::Capacity => "The service is overloaded at the moment; try again.",
            Self::Documents => "Documents cannot be stored or read at the moment; try again.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_of_the_service_are_logged_as_errors() {
        let away = |away| ApiError::Unavailable(away, "why".into());
        assert_eq!(away(Away::Chain).for_log(), Some((Level::WARN, "why")));
        assert_eq!(away(Away::Capacity).for_log(), None);
        assert_eq!(away(Away::Database).for_log(), Some((Level::ERROR, "why")));
        assert_eq!(ApiError::NotOperator(TokenProblem::Wrong).for_log(), None);
    }
}
