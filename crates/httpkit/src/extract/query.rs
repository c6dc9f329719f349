//! Query and path parameters, as strict as bodies: the answer is a problem document that names every invalid parameter at
//! once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use serde::de::DeserializeOwned;

use super::Fault;
use crate::error::{ApiError, FieldError};
use crate::idempotency::bare;

/// Default number of items in a page.
pub const PAGE_LIMIT_DEFAULT: u64 = 50;
/// Maximum number of items in a page.
pub const PAGE_LIMIT_MAX: u64 = 200;
/// Maximum offset into a list. Clients use cursors beyond it.
pub const PAGE_OFFSET_MAX: u64 = 1_000_000;

/// The query parameters of every operation, from the API description. A layer adds them to each request. An operation that
/// is not listed has none.
#[derive(Clone, Default)]
pub struct QueryNames(Arc<HashMap<(Method, String), HashSet<String>>>);

/// Marks the requests of a route that accepts any query parameter.
#[derive(Clone, Copy)]
pub struct AnyQuery;

impl QueryNames {
    /// Collects the names of the query parameters of each method and path.
    pub fn of(operations: impl IntoIterator<Item = ((Method, String), HashSet<String>)>) -> Self {
        let without_prefix = |((method, path), names): ((Method, String), _)| ((method, bare(&path).to_owned()), names);
        Self(Arc::new(operations.into_iter().map(without_prefix).collect()))
    }

    /// Returns true if the operation of a request has parameters, and the faults of those that it does not have.
    fn unknown(parts: &Parts) -> (bool, Vec<FieldError>) {
        if parts.extensions.get::<AnyQuery>().is_some() {
            return (true, Vec::new());
        }
        if parts.uri.query().is_none() {
            return (false, Vec::new());
        }
        let path = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        let method = if parts.method == Method::HEAD { Method::GET } else { parts.method.clone() };
        let known = parts.extensions.get::<Self>().and_then(|names| names.0.get(&(method, bare(path).to_owned())));
        let is_known = |name: &String| known.is_some_and(|known| known.contains(name));
        let fault = |name: &String| Fault::new("unknown_parameter", "is not a parameter of this request").of(name);
        let unknown = QueryFields::of(&parts.uri).given.keys().filter(|name| !is_known(name)).map(fault).collect();
        (known.is_some_and(|known| !known.is_empty()), unknown)
    }

    /// Refuses a request with parameters if its operation has none. [`QueryFields`] refuses unknown parameters of other
    /// operations, together with invalid ones.
    pub fn check(parts: &Parts) -> Result<(), ApiError> {
        match Self::unknown(parts) {
            (false, unknown) if !unknown.is_empty() => Err(ApiError::BadParameters(unknown)),
            _ => Ok(()),
        }
    }
}

/// The parameters of one request. The first of a repeated one counts.
pub struct QueryFields {
    given: BTreeMap<String, String>,
    faults: Vec<FieldError>,
}

/// The requested page of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageQuery {
    /// Maximum number of items.
    pub limit: u64,
    /// Items to skip.
    pub offset: u64,
}

impl QueryFields {
    /// The parameters of a request's URI. Unknown ones are ignored.
    pub fn of(uri: &Uri) -> Self {
        let mut given = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            given.entry(name.into_owned()).or_insert_with(|| value.into_owned());
        }
        Self { given, faults: Vec::new() }
    }

    /// Reads a parameter that may be missing or empty.
    pub fn optional<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, Fault>) -> Option<T> {
        let text = self.given.get(name).filter(|text| !text.is_empty())?;
        match read(text) {
            Ok(value) => Some(value),
            Err(fault) => {
                self.fault(name, fault);
                None
            }
        }
    }

    /// Reads a required parameter.
    pub fn required<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, Fault>) -> Option<T> {
        if self.given.get(name).is_none_or(String::is_empty) {
            self.fault(name, Fault::new("required", "is required"));
            return None;
        }
        self.optional(name, read)
    }

    /// Reads `limit` and `offset`.
    pub fn page(&mut self) -> PageQuery {
        let limit = self.optional("limit", |text| between(text, 1, PAGE_LIMIT_MAX)).unwrap_or(PAGE_LIMIT_DEFAULT);
        let offset = self.optional("offset", |text| between(text, 0, PAGE_OFFSET_MAX)).unwrap_or(0);
        PageQuery { limit, offset }
    }

    /// Records a fault of a parameter.
    pub fn fault(&mut self, name: &str, fault: Fault) {
        self.faults.push(fault.of(name));
    }

    /// Returns an error that names every fault, if there is one.
    pub fn finish(self) -> Result<(), ApiError> {
        if self.faults.is_empty() { Ok(()) } else { Err(ApiError::BadParameters(self.faults)) }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for QueryFields {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self { faults: QueryNames::unknown(parts).1, ..Self::of(&parts.uri) })
    }
}

/// Parses a whole number within bounds.
pub fn between(text: &str, min: u64, max: u64) -> Result<u64, Fault> {
    let out = || Fault::new("out_of_range", format!("must be a whole number between {min} and {max}"));
    text.parse().ok().filter(|number| (min..=max).contains(number)).ok_or_else(out)
}

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
            ApiError::parameter("path", "not_utf8", "must be UTF-8, percent-encoded")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invalid_parameter_is_reported() {
        let mut query = QueryFields::of(&"/x?limit=0&offset=-1&other=1&limit=5".parse().unwrap());
        query.page();
        let Err(ApiError::BadParameters(errors)) = query.finish() else { panic!("accepted") };
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), ["limit", "offset"]);
    }

    #[test]
    fn a_page_has_defaults() {
        let mut query = QueryFields::of(&"/x?limit=&offset=7".parse().unwrap());
        assert_eq!(query.page(), PageQuery { limit: 50, offset: 7 });
        query.finish().unwrap();
    }
}
