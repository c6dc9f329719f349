//! Conformance of responses to the OpenAPI documents. Every response that a test receives is checked against the document
//! of its listener.
//!
//! The check is stricter than the document: an object may have no fields beyond the described ones, so that no field stays
//! undocumented.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use jsonschema::{Registry, RegistryBuilder, Resource, Validator};
use parking_lot::Mutex;
use payferry_domain::Address;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::call::Reply;

/// URI of the document among the schemas.
const DOCUMENT: &str = "urn:payferry:openapi";
/// Prefix under which paths are available beside their own.
const PREFIX: &str = "/api/v1";
/// Beginnings of paths that the document does not describe: pages, logos, the document, callbacks, the sandbox, and tests.
const UNDESCRIBED: [&str; 13] = [
    "/checkout/",
    "/compliance/callbacks/",
    "/consent",
    "/dashboard",
    "/docs",
    "/openapi.json",
    "/pay/",
    "/sandbox",
    "/slow",
    "/broken",
    "/ops/login",
    "/ops/logout",
    "/ops/view",
];

/// The OpenAPI document with the validators of its responses.
pub struct Document {
    contents: Value,
    registry: Registry<'static>,
    /// Compiled validators, by the pointer of their schema.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// The document of the service that answers. It is the same for every service of a process, so the first one is read and
/// compiled.
pub async fn document(read: impl Future<Output = Value>) -> &'static Document {
    static COMPILED: OnceCell<Document> = OnceCell::const_new();
    COMPILED.get_or_init(async || Document::new(read.await)).await
}

impl Document {
    pub fn new(mut contents: Value) -> Self {
        close_all(&mut contents);
        let resource = Resource::from_contents(contents.clone());
        let registry = Registry::new().add(DOCUMENT, resource).and_then(RegistryBuilder::prepare).unwrap();
        Self { contents, registry, validators: Mutex::default() }
    }

    /// Returns what is wrong with a response; `Ok` if it is as described.
    pub fn check(
        &self,
        (method, path): (&Method, &str),
        (status, headers): (StatusCode, &HeaderMap),
        body: &[u8],
    ) -> Result<(), String> {
        if path == "/ops" || UNDESCRIBED.iter().any(|beginning| path.starts_with(beginning)) {
            return Ok(());
        }
        let method = if method == Method::HEAD { "get".to_owned() } else { method.as_str().to_ascii_lowercase() };
        let Some(template) = self.template(path) else {
            // On the operator's listener, unknown paths need an operator, too.
            return ensure(status == 404 || status == 401, || "the document has no such path".to_owned());
        };
        let item = format!("/paths/{}/{method}", escape(template));
        if self.contents.pointer(&item).is_none() {
            return ensure(status == 405, || format!("{template} has no such method"));
        }
        let response = format!("{item}/responses/{}", status.as_u16());
        let described = self.contents.pointer(&response);
        let described = described.ok_or_else(|| format!("{template} does not have this status"))?;
        let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default();
        let is_described = described["content"].get(media_type).is_some();
        ensure(is_described, || format!("{template} does not have the media type {media_type:?}"))?;
        if !media_type.ends_with("json") || body.is_empty() {
            return Ok(());
        }
        let body = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let plain = plain_addresses(&body);
        ensure(plain.is_empty(), || format!("addresses without their EIP-55 checksum: {plain:?}"))?;
        self.validate(&format!("{response}/content/{}/schema", escape(media_type)), &body)
    }

    /// Checks the body of an event against its webhook.
    #[track_caller]
    pub fn assert_describes(&self, event: &Value) {
        let name = event["event"].as_str().unwrap_or_default();
        let schema = format!("/webhooks/{name}/post/requestBody/content/application~1json/schema");
        assert!(self.contents.pointer(&schema).is_some(), "the document has no webhook {name:?}");
        if let Err(fault) = self.validate(&schema, event) {
            panic!("not as documented: {fault}\n{event:#}");
        }
    }

    /// The path of the document that matches with the fewest parameters.
    fn template(&self, path: &str) -> Option<&str> {
        let bare = path.strip_prefix(PREFIX).unwrap_or(path);
        let parameters = |template: &str, path: &str| {
            if template.split('/').count() != path.split('/').count() {
                return None;
            }
            let mut differing = template.split('/').zip(path.split('/')).filter(|(template, part)| template != part);
            let mut count = 0;
            let is_match = differing.all(|(template, part)| {
                count += 1;
                template.starts_with('{') && !part.is_empty()
            });
            is_match.then_some(count)
        };
        let paths = self.contents["paths"].as_object()?;
        let matching = paths.keys().filter_map(|template| {
            let count = [path, bare].into_iter().filter_map(|path| parameters(template, path)).min()?;
            Some((count, template.as_str()))
        });
        matching.min().map(|(_, template)| template)
    }

    fn validate(&self, schema: &str, body: &Value) -> Result<(), String> {
        let compile = || {
            let options = jsonschema::options().with_registry(&self.registry).should_validate_formats(true);
            let reference = json!({ "$ref": format!("{DOCUMENT}#{}", uri_escape(schema)) });
            Arc::new(options.build(&reference).unwrap_or_else(|error| panic!("{schema}: {error}")))
        };
        let validator = self.validators.lock().entry(schema.to_owned()).or_insert_with(compile).clone();
        let faults: Vec<_> =
            validator.iter_errors(body).map(|error| format!("{}: {error}", error.instance_path())).collect();
        ensure(faults.is_empty(), || format!("{schema}\n  {}", faults.join("\n  ")))
    }
}

/// Addresses that are not in EIP-55 form, except in the PSP's own `metadata`.
fn plain_addresses(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => {
            let is_plain = |address: Address| address.checksummed() != *text;
            text.parse().is_ok_and(is_plain).then_some(text.as_str()).into_iter().collect()
        }
        Value::Array(items) => items.iter().flat_map(plain_addresses).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| *name != "metadata")
            .flat_map(|(_, value)| plain_addresses(value))
            .collect(),
        _ => Vec::new(),
    }
}

fn ensure(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}

/// A part of a JSON pointer.
fn escape(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

/// A JSON pointer as the fragment of a URI.
fn uri_escape(pointer: &str) -> String {
    pointer.replace('{', "%7B").replace('}', "%7D")
}

/// Makes every object of the components and the responses accept described fields only.
fn close_all(document: &mut Value) {
    for schema in document["components"]["schemas"].as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
        close_parts(schema);
    }
    let webhooks = document["webhooks"].as_object_mut().into_iter().flat_map(|all| all.values_mut());
    webhooks.filter_map(|item| item.pointer_mut("/post/requestBody")).for_each(close_content);
    let items = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = items.filter_map(Value::as_object_mut).flat_map(|item| item.values_mut());
    for operation in operations {
        let responses = operation["responses"].as_object_mut().into_iter().flat_map(|all| all.values_mut());
        responses.for_each(close_content);
    }
}

/// Closes the schemas of a request or a response.
fn close_content(of: &mut Value) {
    let content = of.get_mut("content").and_then(Value::as_object_mut).into_iter();
    let media = content.flat_map(|content| content.values_mut());
    media.filter_map(|media| media.get_mut("schema")).for_each(close);
}

/// Closes a schema that describes a whole value. `unevaluatedProperties` also sees the fields of `$ref` and `allOf`, which
/// `additionalProperties` does not.
fn close(schema: &mut Value) {
    close_parts(schema);
    let Some(fields) = schema.as_object_mut() else { return };
    if ["$ref", "properties", "allOf", "oneOf", "anyOf"].iter().any(|keyword| fields.contains_key(*keyword)) {
        fields.entry("unevaluatedProperties").or_insert(Value::Bool(false));
    }
}

/// Closes the parts of a schema that describe whole values. An object without described fields stays open.
fn close_parts(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for (keyword, part) in fields.iter_mut() {
        match (keyword.as_str(), part) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(close),
            ("items" | "additionalProperties", part) => close(part),
            ("allOf" | "oneOf" | "anyOf", Value::Array(parts)) => parts.iter_mut().for_each(close_parts),
            _ => {}
        }
    }
    let is_object = fields.get("type").is_some_and(|kind| *kind == "object" || *kind == json!(["object", "null"]));
    if is_object && !fields.contains_key("properties") {
        fields.entry("additionalProperties").or_insert(Value::Bool(true));
    }
}

/// Checks a response of a listener against its document.
pub fn assert_conforms(document: &Document, request: (&Method, &str), reply: &Reply) {
    if let Err(fault) = document.check(request, (reply.status, &reply.headers), &reply.bytes) {
        let ((method, path), body) = (request, String::from_utf8_lossy(&reply.bytes));
        panic!("{method} {path} {}: not as documented: {fault}\n{body}", reply.status);
    }
}

mod tests {
    use super::*;

    /// A document with one operation, whose answer has these properties.
    fn with(properties: &Value) -> Document {
        let schemas = json!({
            "Item": { "type": "object", "required": ["id"], "properties": properties },
            "Named": { "allOf": [
                { "$ref": "#/components/schemas/Item" },
                { "type": "object", "properties": { "name": { "type": "string" } } },
            ] },
        });
        let schema = json!({ "$ref": "#/components/schemas/Named" });
        let responses = json!({ "200": { "content": { "application/json": { "schema": schema } } } });
        Document::new(json!({
            "openapi": "3.1.0",
            "paths": { "/items/{id}": { "get": { "responses": responses } }, "/items/new": {} },
            "components": { "schemas": schemas },
        }))
    }

    fn check(document: &Document, call: &str, status: u16, body: &Value) -> Result<(), String> {
        let (method, path) = call.split_once(' ').unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "application/json".parse().unwrap());
        let status = StatusCode::from_u16(status).unwrap();
        document.check((&method.parse().unwrap(), path), (status, &headers), body.to_string().as_bytes())
    }

    #[test]
    fn described_responses_conform() {
        let document = with(&json!({ "id": { "type": "string" }, "at": { "type": ["string", "null"] },
            "metadata": { "type": "object" } }));
        for body in [json!({ "id": "1" }), json!({ "id": "1", "name": "x", "at": null, "metadata": { "a": 1 } })] {
            check(&document, "GET /items/1", 200, &body).unwrap();
            check(&document, "GET /api/v1/items/1", 200, &body).unwrap();
        }
        check(&document, "POST /items/1", 405, &json!({})).unwrap();
        check(&document, "GET /nowhere", 404, &json!({})).unwrap();
    }

    #[test]
    fn undescribed_responses_are_found() {
        let inner = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
        let document = with(&json!({ "id": { "type": "string" }, "inner": inner, "when": { "type": "string" } }));
        for (call, status, body, fault) in [
            ("GET /items/1", 200, json!({ "id": "1", "more": 1 }), "more"),
            ("GET /items/1", 200, json!({ "id": "1", "inner": { "b": 1 } }), "'b'"),
            ("GET /items/1", 200, json!({ "id": "1", "when": null }), "null is not of type"),
            ("GET /items/1", 200, json!({}), "required"),
            ("GET /items/1", 201, json!({ "id": "1" }), "status"),
            ("POST /items/1", 200, json!({ "id": "1" }), "method"),
            ("GET /items/new", 200, json!({ "id": "1" }), "method"),
            ("GET /others/1", 200, json!({ "id": "1" }), "path"),
            ("GET /items/1", 200, json!({ "id": format!("0x{}", "ab".repeat(20)) }), "EIP-55"),
        ] {
            let found = check(&document, call, status, &body).unwrap_err();
            assert!(found.contains(fault), "{found}");
        }
    }
}
