//! What goes wrong at the interface, and the only home of status codes.
//!
//! An [`ApiError`] becomes an RFC 9457 problem document. The request's id is put in by `edge`, which sees every answer
//! last. Deliberately absent from the documents: stacks, SQL, and whatever a caller sent.

mod credentials;
mod from;

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::Level;
use utoipa::ToSchema;

pub use credentials::{KeyProblem, TokenProblem};

/// Seconds after which a caller may try again when the database or a chain is away.
const RETRY_AWAY_SECS: u64 = 2;
/// Seconds after which a caller may try again where the operator holds back what is new: people lift pauses.
const RETRY_PAUSED_SECS: u64 = 60;
/// Seconds after which a caller may ask again for a request that still runs.
const RETRY_RUNNING_SECS: u64 = 1;

/// One field that is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// Where, such as `merchants[3].business_id`.
    #[schema(example = "merchants[3].business_id")]
    pub field: String,
    /// What is wrong, for programs.
    #[schema(example = "required", value_type = String)]
    pub code: Cow<'static, str>,
    /// What is wrong, for people.
    #[schema(example = "is required")]
    pub message: String,
}

/// A problem document (RFC 9457), the body of every answer that is not a success.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// A URI of this kind of problem.
    #[serde(rename = "type")]
    #[schema(example = "urn:payferry:problem:validation_failed")]
    pub kind: String,
    /// The kind of problem in words; the same for every one of its kind.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// The kind of problem, for programs.
    #[schema(example = "validation_failed", value_type = String)]
    pub code: Cow<'static, str>,
    /// The same as `detail`.
    pub message: String,
    /// The id of the request, as in the header `X-Request-Id`.
    pub request_id: String,
    /// The fields that are at fault, all of them; empty for other problems.
    pub errors: Vec<FieldError>,
}

/// Everything that a request can fail with.
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
    /// A provider's callback that is not the provider's, or not from now; why.
    ForgedCallback(&'static str),
    /// A provider's callback that is not what the provider documents; why.
    UnreadableCallback(&'static str),
    /// No operator token, or a wrong one.
    NotOperator(TokenProblem),
    /// A change asked for by another site's page, with the operator's session.
    ForeignOrigin,
    /// The key lacks a scope.
    MissingScope(&'static str),
    /// There is no such object, or it is another PSP's: nobody can tell which.
    NotFound(&'static str),
    /// A field names an object that is not there.
    FieldNotFound(&'static str, FieldError),
    /// There is no such path; where those that there are stand.
    NoRoute(&'static str),
    /// The path has other methods.
    MethodNotAllowed(Option<HeaderValue>),
    /// The request does not fit what is there.
    Conflict(&'static str, String, Vec<FieldError>),
    /// It was there once and is not kept any more; why.
    Gone(&'static str, String),
    /// The body is larger than the route takes, in bytes.
    TooLarge(usize),
    /// The body is not declared as JSON.
    UnsupportedMediaType,
    /// The body is not declared as multipart/form-data.
    NotMultipart,
    /// The body cannot be read as multipart/form-data.
    MalformedMultipart(&'static str),
    /// Documents that are larger than they may be, and whatever else is wrong.
    DocumentTooLarge(Vec<FieldError>),
    /// Fields that are not as they have to be: all of them.
    Validation(Vec<FieldError>),
    /// Fields that cannot be right for this object, with a code of their own.
    Unprocessable(&'static str, String, Vec<FieldError>),
    /// The token is off on the chain.
    TokenUnavailable(String),
    /// The idempotency key came with another request before.
    IdempotencyKeyReused,
    /// The first request with this idempotency key still runs.
    IdempotencyRunning,
    /// Too many requests; seconds to wait.
    RateLimited(u64),
    /// It took too long.
    TimedOut,
    /// What the service stands on is away; what, and for the log why.
    Unavailable(Away, Arc<str>),
    /// A fault of the service; for the log only.
    Internal(Arc<str>),
}

/// Who answers: what a caller does about an answer that was lost is not the same everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// PSPs and payers: requests may have an `Idempotency-Key`.
    Public,
    /// Operators and their programs.
    Operator,
}

/// What is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Away {
    /// The database.
    Database,
    /// A chain, or all of them.
    Chain,
    /// A chain, or all of them: the operator holds back what is new.
    ChainPaused,
    /// The payment: it is given up until an operator looks at it.
    Payment,
    /// The payout or withdrawal: as the payment.
    Sending,
    /// Nobody is configured to verify customers.
    IdentityProvider,
    /// Whoever screens addresses.
    Screening,
    /// There is too much to do.
    Capacity,
    /// The document store.
    Documents,
}

/// What is the same for every problem of a kind.
struct Kind {
    status: StatusCode,
    code: Cow<'static, str>,
    title: &'static str,
}

impl ApiError {
    /// One field is at fault.
    pub fn field(field: &str, code: &'static str, message: impl Into<String>) -> Self {
        Self::Validation(vec![FieldError { field: field.to_owned(), code: code.into(), message: message.into() }])
    }

    /// The operator has paused the account: it starts no payments, and no money out.
    pub fn psp_paused() -> Self {
        let detail = "The operator has paused this account: no payments and no money out can be started.".to_owned();
        Self::Conflict("psp_paused", detail, Vec::new())
    }

    /// A fault of the service.
    pub fn internal(reason: impl std::fmt::Display) -> Self {
        Self::Internal(reason.to_string().into())
    }

    fn kind(&self) -> Kind {
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
            Self::MissingScope(_) => (StatusCode::FORBIDDEN, "missing_scope", "The API key may not do this"),
            Self::NotFound(what) => {
                let code = Cow::Owned(format!("{what}_not_found"));
                return Kind { status: StatusCode::NOT_FOUND, code, title: "There is no such object" };
            }
            Self::FieldNotFound(code, _) => (StatusCode::NOT_FOUND, *code, "There is no such object"),
            Self::NoRoute(_) => (StatusCode::NOT_FOUND, "route_not_found", "There is no such path"),
            Self::MethodNotAllowed(_) => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "The path has other methods")
            }
            Self::Conflict(code, ..) => (StatusCode::CONFLICT, *code, "The request does not fit what is there"),
            Self::Gone(code, _) => (StatusCode::GONE, *code, "It is not kept any more"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large"),
            Self::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body is not declared as JSON")
            }
            Self::NotMultipart => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body is not declared as a form")
            }
            Self::MalformedMultipart(_) => {
                (StatusCode::BAD_REQUEST, "malformed_multipart", "The body is not a form with files")
            }
            Self::DocumentTooLarge(_) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "document_too_large", "A document is too large")
            }
            Self::Validation(_) => (StatusCode::UNPROCESSABLE_ENTITY, "validation_failed", "Fields are not valid"),
            Self::Unprocessable(code, ..) => {
                (StatusCode::UNPROCESSABLE_ENTITY, *code, "Fields do not fit what is there")
            }
            Self::TokenUnavailable(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "token_unavailable", "The token is not available")
            }
            Self::IdempotencyKeyReused => {
                (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", "The idempotency key was used before")
            }
            Self::IdempotencyRunning => {
                (StatusCode::CONFLICT, "idempotency_request_running", "The first request still runs")
            }
            Self::RateLimited(_) => (StatusCode::TOO_MANY_REQUESTS, "rate_limited", "Too many requests"),
            Self::TimedOut => (StatusCode::SERVICE_UNAVAILABLE, "timed_out", "The request took too long"),
            Self::Unavailable(away, _) => (StatusCode::SERVICE_UNAVAILABLE, away.code(), "Not available at the moment"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "The service failed"),
        };
        Kind { status, code: code.into(), title }
    }

    /// What happened this time, for the caller of this listener.
    fn detail(&self, listener: Listener) -> String {
        match self {
            Self::MalformedJson(what) => format!("The body cannot be read as JSON: {what}."),
            Self::BadHeader(name, expected) => format!("The header {name} must be {expected}."),
            Self::BadParameters(errors) | Self::Validation(errors) | Self::DocumentTooLarge(errors) => listed(errors),
            Self::NotMultipart => "Send the body with `Content-Type: multipart/form-data; boundary=...`.".to_owned(),
            Self::MalformedMultipart(what) => format!("The body cannot be read as multipart/form-data: {what}."),
            Self::Unauthorized(problem) => problem.detail().to_owned(),
            Self::ForgedCallback(why) | Self::UnreadableCallback(why) => format!("The callback is refused: {why}."),
            Self::NotOperator(problem) => problem.detail(),
            Self::ForeignOrigin => {
                "A change with the session's cookie needs the header `Origin` of this very site; programs send the \
                 token as a bearer token instead."
                    .to_owned()
            }
            Self::MissingScope(scope) => format!("The API key lacks the scope `{scope}`."),
            Self::NotFound(what) => format!("There is no {what} with this id."),
            Self::FieldNotFound(_, error) => format!("`{}` {}.", error.field, error.message),
            Self::NoRoute(list) => format!("There is nothing at this path; {list} lists what there is."),
            Self::MethodNotAllowed(_) => "This path exists, but not with this method.".to_owned(),
            Self::Conflict(_, detail, _)
            | Self::Unprocessable(_, detail, _)
            | Self::Gone(_, detail)
            | Self::TokenUnavailable(detail) => detail.clone(),
            Self::TooLarge(bytes) => format!("The body may have at most {bytes} bytes."),
            Self::UnsupportedMediaType => "Send the body with `Content-Type: application/json`.".to_owned(),
            Self::IdempotencyKeyReused => {
                "This Idempotency-Key came with another request in the last 24 hours.".to_owned()
            }
            Self::IdempotencyRunning => "The first request with this Idempotency-Key has not ended.".to_owned(),
            Self::RateLimited(secs) => format!("Try again in {secs} s."),
            Self::TimedOut => format!(
                "The request was not answered in time; it may have been carried out. {}",
                match listener {
                    Listener::Public => "Look, or try again with its Idempotency-Key.",
                    Listener::Operator => "Look at what it was about before you repeat it.",
                }
            ),
            Self::Unavailable(away, _) => away.detail().to_owned(),
            Self::Internal(_) => "Something failed here; the request_id finds it in our logs.".to_owned(),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.kind().status
    }

    /// When to try again, if that may help.
    pub fn retry_after_secs(&self) -> Option<u64> {
        match self {
            Self::RateLimited(secs) | Self::NotOperator(TokenProblem::TooManyAttempts(secs)) => Some((*secs).max(1)),
            Self::IdempotencyRunning => Some(RETRY_RUNNING_SECS),
            Self::Unavailable(Away::IdentityProvider, _) => None,
            Self::Unavailable(Away::ChainPaused, _) => Some(RETRY_PAUSED_SECS),
            Self::TimedOut | Self::Unavailable(..) => Some(RETRY_AWAY_SECS),
            _ => None,
        }
    }

    /// Field errors, for the document.
    fn errors(&self) -> Vec<FieldError> {
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

    /// What the log is told, if anything, and how loudly: faults of ours, never what the caller sent.
    ///
    /// A chain that is away is told of once where that is seen: each request that it costs is worth no alarm.
    pub fn for_log(&self) -> Option<(Level, &str)> {
        match self {
            Self::Unavailable(Away::Chain, reason) => Some((Level::WARN, reason)),
            Self::Unavailable(Away::Database | Away::Payment | Away::Sending | Away::Documents, reason)
            | Self::Internal(reason) => Some((Level::ERROR, reason)),
            Self::TimedOut => Some((Level::ERROR, "the request took too long")),
            // Want of room, too: it is counted by status, and an alarm for each would be a part of the crowd.
            _ => None,
        }
    }

    /// The document.
    pub(crate) fn problem(&self, request_id: &str, listener: Listener) -> Problem {
        let Kind { status, code, title } = self.kind();
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

    /// The whole answer.
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
            Self::MethodNotAllowed(Some(allow)) => {
                headers.insert(ALLOW, allow.clone());
            }
            _ => {}
        }
        response
    }
}

/// The answer carries the error itself; `edge` writes the document, with the request's id.
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
            Self::Payment => "payment_quarantined",
            Self::Sending => "sending_quarantined",
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
            Self::Payment => "The payment cannot be worked on at the moment; an operator has been told.",
            Self::Sending => "The payout or withdrawal cannot be worked on at the moment; an operator has been told.",
            Self::IdentityProvider => "No identity provider is configured here: customers cannot be verified.",
            Self::Screening => "The wallet could not be screened in time; try again.",
            Self::Capacity => "Too much is going on at the moment; try again.",
            Self::Documents => "Documents cannot be kept or read at the moment; try again.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_fault_of_ours_alarms_nobody() {
        let away = |away| ApiError::Unavailable(away, "why".into());
        assert_eq!(away(Away::Chain).for_log(), Some((Level::WARN, "why")));
        assert_eq!(away(Away::Capacity).for_log(), None);
        assert_eq!(away(Away::Database).for_log(), Some((Level::ERROR, "why")));
        assert_eq!(ApiError::NotOperator(TokenProblem::Wrong).for_log(), None);
    }
}
