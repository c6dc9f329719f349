//! The OpenAPI document of the JSON routes, collected from the handlers in [`table`].

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use payferry_domain::Address;
use payferry_httpkit::error::Listener;
use payferry_httpkit::openapi::{describe_errors, to_json};
use payferry_httpkit::{Problem, rule};
use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, OpenApi as Document, RefOr, Schema};
use utoipa::{OpenApi, PartialSchema, ToSchema};

use crate::{Operator, admit, table};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Payferry operator listener",
        description = "Health, supervision and administration of a Payferry service.\n\n\
            Every request carries `Authorization: Bearer <operator token>`; browsers have a session instead. Viewers read, \
            operators decide, admins change PSPs, limits, wallets and API keys. Times are ISO 8601 in UTC, except in the \
            supervision tree, in incidents and in stored events: milliseconds since 1970. Amounts are decimal strings. \
            Unknown fields and query parameters are refused. Failures are RFC 9457 problem documents that name every \
            offending field.",
    ),
    components(schemas(Problem)),
    security(("operator_token" = []), ("session" = [])),
    tags(
        (name = "Service", description = "Health, supervision, items that need attention, and pauses."),
        (name = "Money", description = "Payments, payouts and withdrawals, and decisions about them."),
        (name = "Customers", description = "Customers and their verification."),
        (name = "Administration", description = "PSPs, API keys, withdrawal wallets, approvals and the audit log."),
    ),
)]
struct Head;

/// The OpenAPI document.
pub fn document() -> Document {
    let mut document = Head::openapi();
    let components = document.components.get_or_insert_with(Components::new);
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("operator_token", SecurityScheme::Http(token));
    let session = ApiKey::Cookie(ApiKeyValue::new(admit::COOKIE.name));
    components.add_security_scheme("session", SecurityScheme::ApiKey(session));
    for route in table() {
        let Some((item, schemas)) = route.described else { continue };
        components.schemas.extend(schemas);
        document.paths.paths.entry(route.path).or_default().merge_operations(item);
    }
    describe_errors(&mut document, Listener::Operator);
    document
}

/// Read this document
#[utoipa::path(
    get, path = "/ops/openapi.json", tag = "Service", operation_id = "getOpenApiDocument",
    responses((status = 200, description = "The OpenAPI document.", body = FreeObject)),
)]
pub(super) async fn read(_: Operator) -> impl IntoResponse {
    static JSON: LazyLock<Bytes> = LazyLock::new(|| to_json(&document()).into());
    ([(CONTENT_TYPE, "application/json")], JSON.clone())
}

/// An object whose fields depend on its kind, with addresses in EIP-55 form.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FreeObject(Value);

impl From<Value> for FreeObject {
    fn from(value: Value) -> Self {
        Self(with_checksums(value))
    }
}

impl PartialSchema for FreeObject {
    fn schema() -> RefOr<Schema> {
        rule::free_schema().build().into()
    }
}

impl ToSchema for FreeObject {}

fn with_checksums(value: Value) -> Value {
    match value {
        Value::String(text) => checksummed_text(text).into(),
        Value::Array(items) => items.into_iter().map(with_checksums).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, with_checksums(value))).collect(),
        other => other,
    }
}

/// The text, in EIP-55 form if it is an address.
pub(crate) fn checksummed_text(text: String) -> String {
    text.parse().map_or(text, Address::checksummed)
}
