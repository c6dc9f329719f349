//! `GET /docs`: the API reference, rendered from the OpenAPI document. No script and no external resources.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use payferry_httpkit::pages;
use serde_json::{Map, Value};
use utoipa::openapi::OpenApi;

/// Maximum nesting of schemas that the page shows.
const DEPTH_MAX: usize = 6;

/// Renders the complete page.
pub(in crate::http) fn render(document: &OpenApi) -> Arc<str> {
    let document = serde_json::to_value(document).unwrap_or_default();
    pages::page("Payferry API reference", &body(&document)).into_string().into()
}

/// Answers with the page.
pub(in crate::http) async fn serve(State(page): State<Arc<str>>) -> Response {
    pages::respond(StatusCode::OK, page.to_string())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

/// Method, path and operation of every route with a tag.
fn operations<'a>(document: &'a Value, tag: &'a str) -> impl Iterator<Item = (&'a str, &'a str, &'a Value)> {
    object(&document["paths"]).flat_map(move |(path, item)| {
        object(item)
            .filter(move |(_, operation)| operation["tags"][0] == tag)
            .map(move |(method, operation)| (method.as_str(), path.as_str(), operation))
    })
}

fn anchor(method: &str, path: &str) -> String {
    format!("{method}{}", path.replace(['/', '{', '}'], "-"))
}

fn body(document: &Value) -> Markup {
    let tags: Vec<&Value> = document["tags"].as_array().into_iter().flatten().collect();
    html! {
        main {
            h1 { (text(&document["info"], "title")) " API reference" }
            p.soft { "Version " (text(&document["info"], "version")) " · " a href="/openapi.json" { "OpenAPI 3.1 document" } }
            @for paragraph in text(&document["info"], "description").split("\n\n") { p { (prose(paragraph)) } }
            nav {
                ul {
                    @for tag in &tags {
                        @for (method, path, _) in operations(document, text(tag, "name")) {
                            li { a href={ "#" (anchor(method, path)) } { code { (method.to_uppercase()) " " (path) } } }
                        }
                    }
                }
            }
            @for tag in &tags {
                h2 { (text(tag, "name")) }
                p { (text(tag, "description")) }
                @for (method, path, operation) in operations(document, text(tag, "name")) {
                    (endpoint(document, method, path, operation))
                }
            }
        }
    }
}

fn endpoint(document: &Value, method: &str, path: &str, operation: &Value) -> Markup {
    let parameters: Vec<&Value> = operation["parameters"].as_array().into_iter().flatten().collect();
    let request = &operation["requestBody"]["content"]["application/json"]["schema"];
    html! {
        h3 id=(anchor(method, path)) { code { span.method { (method.to_uppercase()) } (path) } }
        p { strong { (text(operation, "summary")) } }
        @for paragraph in text(operation, "description").split("\n\n").filter(|text| !text.is_empty()) {
            p { (prose(paragraph)) }
        }
        @if !parameters.is_empty() {
            table {
                tr { th { "Parameter" } th { "In" } th { "Meaning" } }
                @for parameter in parameters {
                    tr {
                        td { code { (text(parameter, "name")) } }
                        td { (text(parameter, "in")) }
                        td { (prose(text(parameter, "description"))) (bounds(&parameter["schema"])) }
                    }
                }
            }
        }
        @if request.is_object() {
            p.soft { "Body" }
            (fields(document, request, 0))
        }
        @for (status, response) in object(&operation["responses"]) {
            @let schema = &response["content"]["application/json"]["schema"];
            @if schema.is_object() && status.starts_with('2') {
                p.soft { "Answer " (status) ": " (prose(text(response, "description"))) }
                (fields(document, schema, 0))
            }
        }
        details {
            summary { "Failures" }
            table {
                @for (status, response) in object(&operation["responses"]).filter(|(status, _)| !status.starts_with('2')) {
                    tr { td { (status) } td { (prose(text(response, "description"))) } }
                }
            }
        }
    }
}

/// Resolves a reference to its schema.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let one = schema["oneOf"].as_array().or_else(|| schema["allOf"].as_array());
    if let Some(named) = one.and_then(|list| list.iter().find(|part| part["$ref"].is_string())) {
        return resolve(document, named);
    }
    match schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/components/schemas/")) {
        Some(name) => &document["components"]["schemas"][name],
        None => schema,
    }
}

fn kind(document: &Value, schema: &Value) -> String {
    let schema = resolve(document, schema);
    let name = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names
            .iter()
            .filter_map(Value::as_str)
            .map(|n| if n == "null" { "or null" } else { n })
            .collect::<Vec<_>>()
            .join(" "),
        _ => "any".to_owned(),
    };
    if name.starts_with("array") { format!("list of {}", kind(document, &schema["items"])) } else { name }
}

fn fields(document: &Value, schema: &Value, depth: usize) -> Markup {
    let schema = resolve(document, schema);
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    html! {
        table {
            @if depth == 0 { tr { th { "Field" } th { "Type" } th { "Meaning" } } }
            @for (name, field) in object(&schema["properties"]) {
                @let within = resolve(document, if field["items"].is_object() { &field["items"] } else { field });
                tr {
                    td { code { (name) } @if !required.contains(&name.as_str()) { span.soft { " optional" } } }
                    td { (kind(document, field)) }
                    td {
                        (prose(text(field, "description"))) (bounds(field))
                        @if within["properties"].is_object() && depth < DEPTH_MAX { (fields(document, within, depth + 1)) }
                    }
                }
            }
        }
    }
}

/// The constraints of a schema beyond its type.
fn bounds(schema: &Value) -> Markup {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let told = [
        ("minimum", "at least "),
        ("maximum", "at most "),
        ("minLength", "at least this many characters: "),
        ("maxLength", "characters at most: "),
        ("default", "default "),
        ("example", "example "),
    ];
    let mut notes: Vec<String> = told
        .iter()
        .filter(|(key, _)| !schema[*key].is_null())
        .map(|(key, words)| format!("{words}{}", plain(&schema[*key])))
        .collect();
    if let Some(values) = schema["enum"].as_array() {
        notes.push(format!("one of {}", values.iter().map(plain).collect::<Vec<_>>().join(", ")));
    }
    html! { @if !notes.is_empty() { span.soft { " (" (notes.join("; ")) ")" } } }
}

/// Renders a text with `code` in backticks.
fn prose(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
