//! Path parameters whose errors are problem documents instead of axum's plain text.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::{ApiError, FieldError};

/// Like axum's `Path`, for text parameters.
#[derive(Debug, Clone)]
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|rejection| {
            if rejection.status().is_server_error() {
                return ApiError::internal("a handler's path parameters do not match its route");
            }
            let message = "must be UTF-8, percent-encoded".to_owned();
            ApiError::BadParameters(vec![FieldError { field: "path".to_owned(), code: "not_utf8".into(), message }])
        })
    }
}
