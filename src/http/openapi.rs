//! The OpenAPI 3.1 document, collected from the handlers.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use payferry_httpkit::Problem;
use payferry_httpkit::error::Listener;
use payferry_httpkit::idempotency::KEY_CHARS_MAX;
use payferry_httpkit::openapi::{describe_errors, operations};
use utoipa::OpenApi;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, OpenApi as Document, Ref, RefOr, Required, ServerBuilder};

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
        (name = "API keys", description = "The account's API keys."),
        (name = "Settings", description = "The account's payment policies."),
    ),
)]
struct Head;

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
    describe_errors(&mut document, Listener::Public);
    for item in document.paths.paths.values_mut() {
        for operation in [&mut item.post, &mut item.patch].into_iter().flatten() {
            operation.parameters.get_or_insert_with(Vec::new).push(RefOr::T(idempotency_key()));
        }
        operations(item).for_each(rate_limit_headers);
    }
    document
}

fn idempotency_key() -> Parameter {
    let key = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(KEY_CHARS_MAX));
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "For 24 hours, the same key and body return the first answer again, with `Idempotent-Replayed: true`.",
        ))
        .schema(Some(key.pattern(Some("^[!-~]+$"))))
        .build()
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

/// `GET /openapi.json`
pub(super) async fn serve(State(document): State<Bytes>) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("public, max-age=300")),
    ];
    (headers, document).into_response()
}
