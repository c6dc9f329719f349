//! Parts of the OpenAPI documents of both listeners: their errors with media type and codes, and their query parameters.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use serde_json::json;
use utoipa::IntoResponses;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, Type};
use utoipa::openapi::{Content, ContentBuilder, OpenApi as Document, Ref, RefOr, Response, ResponseBuilder};

use crate::Problem;
use crate::error::Listener;
use crate::extract::{JSON_BODY_BYTES_MAX, QueryNames};

/// The failure of a request with a query.
#[derive(IntoResponses)]
#[response(status = 400, description = UNREADABLE_QUERY)]
pub struct UnreadableQuery(pub Problem);

/// A stream of server-sent events. It has no schema: its content is a sequence of events, which OpenAPI cannot describe.
pub struct EventStream;

impl IntoResponses for EventStream {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let content = ContentBuilder::new().build();
        let response = ResponseBuilder::new().description("The stream.").content("text/event-stream", content).build();
        BTreeMap::from([("200".to_owned(), response.into())])
    }
}

/// Media type of problem documents.
const PROBLEM_TYPE: &str = "application/problem+json";
/// The schema of a problem document in a response.
const PROBLEM_SCHEMA: &str = "/content/application~1problem+json/schema";
/// Description of that failure.
const UNREADABLE_QUERY: &str = "Parameters that are unknown or cannot be read, all named.";

/// Adds the errors that the operations of a listener have in common, and gives every error its media type and codes. An
/// operation with its own security needs no caller.
pub fn describe_errors(document: &mut Document, listener: Listener) {
    for (path, item) in &mut document.paths.paths {
        for operation in [&mut item.post, &mut item.patch].into_iter().flatten() {
            // On the public listener, every such request may have a body.
            let has_body = listener == Listener::Public || operation.request_body.is_some();
            let errors =
                body_errors(listener).into_iter().filter(|(status, _)| has_body || OF_CHANGES.contains(status));
            add_problems(operation, &errors.collect::<Vec<_>>());
        }
        for operation in operations(item) {
            if operation.security.is_none() {
                add_problems(operation, caller_errors(listener));
            }
            add_problems(operation, &errors(listener));
            if path.contains('{') {
                add_problems(operation, &[("404", "There is none with this id.")]);
            }
            problems_only(operation, path, listener);
        }
    }
}

fn errors(listener: Listener) -> [(&'static str, &'static str); 3] {
    let repeat = match listener {
        Listener::Public => {
            "The database or a chain is unavailable; or `timed_out`: the request may have been carried out, so check \
             its result or repeat it with the same Idempotency-Key. `Retry-After` says when to try again."
        }
        Listener::Operator => {
            "The database or a chain is unavailable; or `timed_out`: the request may have been carried out, so check \
             its result before you repeat it. `Retry-After` says when to try again."
        }
    };
    [
        ("400", UNREADABLE_QUERY),
        ("500", "The service failed; the request id identifies the error in its logs."),
        ("503", repeat),
    ]
}

/// Errors that depend on the caller.
const fn caller_errors(listener: Listener) -> &'static [(&'static str, &'static str)] {
    match listener {
        Listener::Public => &[
            ("401", "No valid API key."),
            ("403", "The key lacks the scope."),
            ("429", "Too many requests; `Retry-After` says when to try again."),
        ],
        Listener::Operator => &[
            ("401", "No valid token or session of an operator."),
            ("403", "The operator lacks the role, or a session is used from another site."),
        ],
    }
}

/// Errors of changes without a body.
const OF_CHANGES: [&str; 2] = ["408", "409"];

/// Errors of changes.
fn body_errors(listener: Listener) -> [(&'static str, String); 6] {
    let kib = JSON_BODY_BYTES_MAX / 1024;
    let (conflict, too_large, invalid) = match listener {
        Listener::Public => (
            "The request conflicts with the current state, or the first one with this key is still running.",
            format!("The body is larger than {kib} KiB (customers: 4 MiB, merchant sync: 5 MiB)."),
            "Invalid fields, all named; or the Idempotency-Key was used with another body.",
        ),
        Listener::Operator => (
            "The request conflicts with the current state.",
            format!("The body is larger than {kib} KiB."),
            "Invalid fields, all named.",
        ),
    };
    [
        ("400", "The body is not JSON, or a header or parameter cannot be read.".to_owned()),
        ("409", conflict.to_owned()),
        ("408", "The body did not arrive in time. The request was not carried out.".to_owned()),
        ("413", too_large),
        ("415", "The body is not declared as JSON.".to_owned()),
        ("422", invalid.to_owned()),
    ]
}

/// Adds the failures that the handler itself did not describe.
fn add_problems(operation: &mut Operation, problems: &[(&str, impl AsRef<str>)]) {
    for (status, description) in problems {
        let response = RefOr::T(Response::new(description.as_ref()));
        operation.responses.responses.entry((*status).to_owned()).or_insert(response);
    }
}

/// Gives every error the media type of problem documents and its codes.
fn problems_only(operation: &mut Operation, path: &str, listener: Listener) {
    let has_body = operation.request_body.is_some();
    let errors = operation.responses.responses.iter_mut().filter(|(status, _)| status.starts_with(['4', '5']));
    for (status, response) in errors {
        let RefOr::T(response) = response else { continue };
        let mut codes = described_codes(&response.description);
        codes.extend(common_codes(status, has_body, listener).iter().map(|code| (*code).to_owned()));
        if status == "404" {
            codes.extend(codes_of_parameters(path));
        }
        let code = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(codes));
        let codes = ObjectBuilder::new().schema_type(Type::Object).property("code", code);
        let problem = AllOfBuilder::new().item(Ref::from_schema_name("Problem")).item(codes);
        response.content.retain(|_, content| !is_problem(content));
        response.content.insert(PROBLEM_TYPE.to_owned(), RefOr::T(ContentBuilder::new().schema(Some(problem)).build()));
    }
}

/// True if the handler described no body of its own.
fn is_problem(content: &RefOr<Content>) -> bool {
    let RefOr::T(content) = content else { return false };
    matches!(&content.schema, Some(RefOr::Ref(schema)) if schema.ref_location.ends_with("/Problem"))
}

/// The codes in the description of an error: every word in backticks that has an underscore.
fn described_codes(description: &str) -> BTreeSet<String> {
    let quoted = description.split('`').skip(1).step_by(2);
    let is_code =
        |word: &&str| word.contains('_') && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    quoted.filter(is_code).map(str::to_owned).collect()
}

/// The codes that an error with this status may have in every operation.
fn common_codes(status: &str, has_body: bool, listener: Listener) -> &'static [&'static str] {
    match (status, listener) {
        ("400", _) if has_body => &["malformed_json", "malformed_multipart", "invalid_header", "invalid_parameters"],
        ("400", _) => &["invalid_header", "invalid_parameters", "malformed_json"],
        ("401", Listener::Public) => &[
            "api_key_missing",
            "api_key_malformed",
            "api_key_wrong_environment",
            "api_key_unknown",
            "api_key_revoked",
            "api_key_expired",
        ],
        ("401", Listener::Operator) => {
            &["operator_token_missing", "operator_token_wrong", "operator_token_attempts", "operator_session_over"]
        }
        ("403", Listener::Public) => &["missing_scope"],
        ("403", Listener::Operator) => &["operator_role_missing", "foreign_origin"],
        ("408", _) => &["body_timeout"],
        ("409", Listener::Public) => &["concurrent_change", "idempotency_request_running"],
        ("409", Listener::Operator) => &["concurrent_change"],
        ("413", _) => &["body_too_large"],
        ("415", _) => &["unsupported_media_type"],
        ("422", Listener::Public) => &["validation_failed", "idempotency_key_reused"],
        ("422", Listener::Operator) => &["validation_failed"],
        ("429", _) => &["rate_limited"],
        ("500", _) => &["internal_error", "invariant_violated"],
        ("503", _) => &[
            "timed_out",
            "overloaded",
            "database_unavailable",
            "chain_unavailable",
            "documents_unavailable",
            "payment_quarantined",
            "sending_quarantined",
            "customer_quarantined",
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

/// The document as JSON, with what `utoipa` cannot express: an empty query parameter counts as absent, and the codes of an
/// error stand beside the reference to its schema, so that generated clients have one type for all problems.
pub fn to_json(document: &Document) -> String {
    let mut json = serde_json::to_value(document).unwrap_or_default();
    let paths = json["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = paths.filter_map(serde_json::Value::as_object_mut).flat_map(|item| item.values_mut());
    for operation in operations {
        let parameters = operation.get_mut("parameters").and_then(serde_json::Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            if parameter["in"] == "query" && parameter["required"] != true {
                parameter["allowEmptyValue"] = json!(true);
            }
        }
        for response in operation["responses"].as_object_mut().into_iter().flat_map(|responses| responses.values_mut())
        {
            if let Some(schema) = response.pointer_mut(PROBLEM_SCHEMA) {
                *schema = json!({ "$ref": schema["allOf"][0]["$ref"], "properties": schema["allOf"][1]["properties"] });
            }
        }
    }
    json.to_string()
}

/// The query parameters of each operation.
pub fn query_names(document: &Document) -> QueryNames {
    QueryNames::of(document.paths.paths.iter().flat_map(|(path, item)| {
        let methods = [(Method::GET, &item.get), (Method::POST, &item.post), (Method::PATCH, &item.patch)];
        methods.into_iter().filter_map(move |(method, operation)| {
            let names = query_of(operation.as_ref()?).map(str::to_owned).collect();
            Some(((method, path.clone()), names))
        })
    }))
}

/// Names of the query parameters of an operation.
pub fn query_of(operation: &Operation) -> impl Iterator<Item = &str> {
    operation.parameters.iter().flatten().filter_map(|parameter| match parameter {
        RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.as_str()),
        _ => None,
    })
}

/// The operations of a path.
pub fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete].into_iter().flatten()
}
