//! The OpenAPI 3.1 document, collected from the handlers.

use std::collections::BTreeSet;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use payferry_httpkit::extract::JSON_BODY_BYTES_MAX;
use payferry_httpkit::idempotency::KEY_CHARS_MAX;
use payferry_httpkit::{Problem, QueryNames};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, OpenApi as Document, Ref, RefOr, Required, Response as DocumentResponse, ServerBuilder,
};
use utoipa::{IntoResponses, OpenApi};

use super::webhooks::catalogue::{self, Event};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Payferry",
        description = "Stablecoin payments for payment service providers.\n\n\
            Every request carries `Authorization: Bearer <API key>` (`sk_test_...` in the sandbox, `sk_live_...` in \
            production), every answer an `X-Request-Id` and, if the key has a limit, `RateLimit-Limit`, `RateLimit-Remaining` and \
            `RateLimit-Reset`. Merchant and payment paths work both as written here and \
            under `/api/v1`. Timestamps are ISO 8601 in UTC with milliseconds; where a time is accepted, a date is, too, and \
            means 00:00 UTC. Amounts are decimal strings; unknown \
            fields are ignored, unknown query parameters are refused. Failures are RFC 9457 problem documents that name every offending field.",
    ),
    components(schemas(Problem, Event)),
    security(("api_key" = [])),
    tags(
        (name = "Customers", description = "Individuals and businesses: identity, verification and payment details."),
        (name = "Merchants", description = "The PSP's merchants, synced in batches."),
        (name = "Money", description = "Payouts, withdrawals, transfers, balances and the ledger."),
        (name = "Payments", description = "Payments: an amount, a wallet created for it, and the received transfers."),
        (name = "Webhooks", description = "Webhook configuration, deliveries, and the feed of all events."),
        (name = "Settings", description = "The account's payment policies."),
    ),
)]
struct Head;

/// The failure of a request with a query.
#[derive(IntoResponses)]
#[response(status = 400, description = UNREADABLE_QUERY)]
pub struct UnreadableQuery(pub Problem);

/// Media type of problem documents.
const PROBLEM_TYPE: &str = "application/problem+json";
/// The schema of a problem document in a response.
const PROBLEM_SCHEMA: &str = "/content/application~1problem+json/schema";
/// Description of that failure.
const UNREADABLE_QUERY: &str = "Parameters that are unknown or cannot be read, all named.";

/// Headers of every response to a key with a limit.
const RATE_LIMIT_HEADERS: [(&str, &str); 3] = [
    ("RateLimit-Limit", "Requests that the key can send at once."),
    ("RateLimit-Remaining", "Requests that are left now."),
    ("RateLimit-Reset", "Seconds after which the whole limit is available again, if no request is sent."),
];

/// The document without the routes.
pub(super) fn head() -> Document {
    let mut head = Head::openapi();
    head.webhooks = Some(catalogue::webhooks());
    head
}

/// Adds what all routes have in common: authentication, server and the common failures.
pub(super) fn complete(mut document: Document, public_url: &str) -> Document {
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("sk_test_... or sk_live_...").build();
    let components = document.components.get_or_insert_with(Components::new);
    components.add_security_scheme("api_key", SecurityScheme::Http(scheme));
    for (name, description) in RATE_LIMIT_HEADERS {
        let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
        let header = HeaderBuilder::new().schema(Some(number)).description(Some(description)).build();
        components.headers.insert(name.to_owned(), header.into());
    }
    document.servers = Some(vec![ServerBuilder::new().url(public_url.trim_end_matches('/')).build()]);
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            common_responses(operation);
            if path.contains('{') {
                add_problem(operation, "404", "There is none with this id.");
            }
        }
        for operation in [&mut item.post, &mut item.patch].into_iter().flatten() {
            body_responses(operation);
        }
        for operation in operations(item) {
            add_problem(operation, "400", UNREADABLE_QUERY);
            problems_only(operation, path);
            rate_limit_headers(operation);
        }
    }
    document
}

/// Gives every error the media type of problem documents and its codes.
fn problems_only(operation: &mut Operation, path: &str) {
    let has_body = operation.request_body.is_some();
    let errors = operation.responses.responses.iter_mut().filter(|(status, _)| status.starts_with(['4', '5']));
    for (status, response) in errors {
        let RefOr::T(response) = response else { continue };
        let mut codes = described_codes(&response.description);
        codes.extend(common_codes(status, has_body).iter().map(|code| (*code).to_owned()));
        if status == "404" {
            codes.extend(codes_of_parameters(path));
        }
        let code = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(codes));
        let codes = ObjectBuilder::new().schema_type(Type::Object).property("code", code);
        let problem = AllOfBuilder::new().item(Ref::from_schema_name("Problem")).item(codes);
        response.content.clear();
        response.content.insert(PROBLEM_TYPE.to_owned(), RefOr::T(ContentBuilder::new().schema(Some(problem)).build()));
    }
}

/// The codes in the description of an error: every word in backticks that has an underscore.
fn described_codes(description: &str) -> BTreeSet<String> {
    let quoted = description.split('`').skip(1).step_by(2);
    let is_code =
        |word: &&str| word.contains('_') && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    quoted.filter(is_code).map(str::to_owned).collect()
}

/// The codes that an error with this status may have in every operation.
fn common_codes(status: &str, has_body: bool) -> &'static [&'static str] {
    match (status, has_body) {
        ("400", true) => &["malformed_json", "malformed_multipart", "invalid_header", "invalid_parameters"],
        ("400", false) => &["invalid_header", "invalid_parameters", "malformed_json"],
        ("401", _) => &[
            "api_key_missing",
            "api_key_malformed",
            "api_key_wrong_environment",
            "api_key_unknown",
            "api_key_revoked",
            "api_key_expired",
        ],
        ("403", _) => &["missing_scope"],
        ("408", _) => &["body_timeout"],
        ("409", _) => &["concurrent_change", "idempotency_request_running"],
        ("413", _) => &["body_too_large"],
        ("415", _) => &["unsupported_media_type"],
        ("422", _) => &["validation_failed", "idempotency_key_reused"],
        ("429", _) => &["rate_limited"],
        ("500", _) => &["internal_error"],
        ("503", _) => &[
            "timed_out",
            "overloaded",
            "database_unavailable",
            "chain_unavailable",
            "documents_unavailable",
            "payment_quarantined",
            "sending_quarantined",
        ],
        _ => &[],
    }
}

/// The codes of objects that the path names and that do not exist: `payment_not_found` for `{payment_id}`.
fn codes_of_parameters(path: &str) -> impl Iterator<Item = String> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    names.map(|name| match name.strip_suffix("_id") {
        Some(object) => format!("{object}_not_found"),
        None => "document_not_found".to_owned(),
    })
}

/// The document as JSON. The codes of an error stand beside the reference to its schema, which `utoipa` cannot express, so
/// that generated clients have one type for all problems.
pub(super) fn to_json(document: &Document) -> Bytes {
    let mut json = serde_json::to_value(document).unwrap_or_default();
    let paths = json["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = paths.filter_map(serde_json::Value::as_object_mut).flat_map(|item| item.values_mut());
    let responses = operations.filter_map(|operation| operation["responses"].as_object_mut());
    for response in responses.flat_map(|responses| responses.values_mut()) {
        if let Some(schema) = response.pointer_mut(PROBLEM_SCHEMA) {
            *schema = serde_json::json!({ "$ref": schema["allOf"][0]["$ref"], "properties": schema["allOf"][1]["properties"] });
        }
    }
    Bytes::from(json.to_string())
}

/// The query parameters of each operation.
pub(super) fn query_names(document: &Document) -> QueryNames {
    QueryNames::of(document.paths.paths.iter().flat_map(|(path, item)| {
        let methods = [(Method::GET, &item.get), (Method::POST, &item.post), (Method::PATCH, &item.patch)];
        methods.into_iter().filter_map(move |(method, operation)| {
            let parameters = operation.as_ref()?.parameters.iter().flatten();
            let names = parameters.filter_map(|parameter| match parameter {
                RefOr::T(parameter) => (parameter.parameter_in == ParameterIn::Query).then(|| parameter.name.clone()),
                RefOr::Ref(_) => None,
            });
            Some(((method, path.clone()), names.collect()))
        })
    }))
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.patch, &mut item.delete].into_iter().flatten()
}

fn common_responses(operation: &mut Operation) {
    for (status, description) in [
        ("401", "No valid API key."),
        ("403", "The key lacks the scope."),
        ("429", "Too many requests; `Retry-After` says when to try again."),
        ("500", "The service failed; the request id identifies the error in its logs."),
        (
            "503",
            "The database or a chain is unavailable; or `timed_out`: the request may have been carried out, so check \
             its result or repeat it with the same Idempotency-Key. `Retry-After` says when to try again.",
        ),
    ] {
        add_problem(operation, status, description);
    }
}

fn body_responses(operation: &mut Operation) {
    let key = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "For 24 hours, the same key and body return the first answer again, with `Idempotent-Replayed: true`.",
        ))
        .schema(Some(
            ObjectBuilder::new()
                .schema_type(Type::String)
                .min_length(Some(1))
                .max_length(Some(KEY_CHARS_MAX))
                .pattern(Some("^[!-~]+$")),
        ))
        .build();
    operation.parameters.get_or_insert_with(Vec::new).push(RefOr::T(key));
    let too_large =
        format!("The body is larger than {} KiB (customers: 4 MiB, merchant sync: 5 MiB).", JSON_BODY_BYTES_MAX / 1024);
    for (status, description) in [
        ("400", "The body is not JSON, or a header or parameter cannot be read."),
        ("409", "The request conflicts with the current state, or the first one with this key is still running."),
        ("408", "The body did not arrive in time. The request was not carried out."),
        ("413", too_large.as_str()),
        ("415", "The body is not declared as JSON."),
        ("422", "Invalid fields, all named; or the Idempotency-Key was used with another body."),
    ] {
        add_problem(operation, status, description);
    }
}

/// Describes the headers that every response to a key with a limit has. To keep the document small, only successes and 429
/// name them.
fn rate_limit_headers(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response
            && (status.starts_with('2') || status == "429")
        {
            let header = |name: &str| RefOr::Ref(Ref::new(format!("#/components/headers/{name}")));
            response.headers.extend(RATE_LIMIT_HEADERS.map(|(name, _)| (name.to_owned(), header(name))));
        }
    }
}

/// Adds a failure that the handler itself did not describe.
fn add_problem(operation: &mut Operation, status: &str, description: &str) {
    let mut response = DocumentResponse::new(description);
    let schema = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(RefOr::Ref(schema))).build();
    response.content.insert(PROBLEM_TYPE.to_owned(), RefOr::T(content));
    operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(response));
}

/// `GET /openapi.json`
pub(super) async fn serve(State(document): State<Bytes>) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("public, max-age=300")),
    ];
    (headers, document).into_response()
}
