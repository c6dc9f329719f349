//! A successful answer as bytes, so that it can be stored for idempotency before it is sent.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::ApiError;

/// Initial capacity of a body buffer.
const BODY_USUAL_BYTES: usize = 1_024;

/// A status and a JSON body.
#[derive(Clone)]
pub struct Answer {
    status: StatusCode,
    body: Vec<u8>,
}

impl Answer {
    /// Answers 200.
    pub fn ok(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::new(StatusCode::OK, body)
    }

    /// Answers 201: an object was created.
    pub fn created(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::new(StatusCode::CREATED, body)
    }

    /// Answers 202: the request was accepted and will be executed later.
    pub fn accepted(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::new(StatusCode::ACCEPTED, body)
    }

    fn new(status: StatusCode, body: &impl Serialize) -> Result<Self, ApiError> {
        let mut bytes = Vec::with_capacity(BODY_USUAL_BYTES);
        serde_json::to_writer(&mut bytes, body)?;
        Ok(Self { status, body: bytes })
    }

    /// Wraps a body that is already serialised as JSON.
    pub(crate) fn of_bytes(status: StatusCode, body: Vec<u8>) -> Self {
        Self { status, body }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The JSON body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        (self.status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], self.body).into_response()
    }
}
