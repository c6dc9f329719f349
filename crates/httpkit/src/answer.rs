//! A successful answer before it goes out: its bytes are known, so that they can be kept.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::ApiError;

/// The room that a body is begun with.
const BODY_USUAL_BYTES: usize = 1_024;

/// A status and a JSON body.
#[derive(Clone)]
pub struct Answer {
    status: StatusCode,
    body: Vec<u8>,
}

impl Answer {
    /// 200.
    pub fn ok(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::new(StatusCode::OK, body)
    }

    /// 201: something was made.
    pub fn created(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::new(StatusCode::CREATED, body)
    }

    /// 202: something will be done.
    pub fn accepted(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::new(StatusCode::ACCEPTED, body)
    }

    fn new(status: StatusCode, body: &impl Serialize) -> Result<Self, ApiError> {
        let mut bytes = Vec::with_capacity(BODY_USUAL_BYTES);
        serde_json::to_writer(&mut bytes, body)?;
        Ok(Self { status, body: bytes })
    }

    /// An answer whose JSON is there already.
    pub(crate) fn of_bytes(status: StatusCode, body: Vec<u8>) -> Self {
        Self { status, body }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The JSON.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        (self.status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], self.body).into_response()
    }
}
