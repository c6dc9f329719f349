//! Properties of the OpenAPI documents of both listeners.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::{Map, Value, json};

use crate::call::Reply;

/// Asserts that operations are named, references resolve, schemas say what they describe, and codes exist.
pub fn assert_sound(document: &Value, codes_min: usize) {
    let mut names = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(
                operation.as_object().unwrap().values().all(|part| !part.is_null()),
                "{method} {path} has an empty part"
            );
            assert!(operation["summary"].is_string() && operation["tags"][0].is_string(), "{method} {path}");
            assert!(names.insert(operation["operationId"].as_str().unwrap()), "{method} {path} shares its name");
            let is_open = operation["security"].is_array();
            assert_ne!(operation["responses"]["401"].is_object(), is_open, "{method} {path}");
        }
    }
    let text = document.to_string();
    for name in text.split("\"#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
    let mut found = Vec::new();
    find_any(document, "", &mut found);
    assert!(found.is_empty(), "{found:#?}");
    assert_codes_exist(document, codes_min);
}

/// Finds schemas that allow any value. Objects with any content say so with `additionalProperties`.
fn find_any(value: &Value, at: &str, found: &mut Vec<String>) {
    const HOLDS_SCHEMAS: [&str; 4] = ["properties", "schemas", "patternProperties", "$defs"];
    const DESCRIBES: [&str; 7] = ["type", "$ref", "oneOf", "anyOf", "allOf", "enum", "const"];
    let is_schema = at.ends_with("/schema")
        || at.ends_with("/items")
        || at
            .rsplit('/')
            .nth(1)
            .is_some_and(|parent| HOLDS_SCHEMAS.contains(&parent) || ["oneOf", "anyOf", "allOf"].contains(&parent));
    if is_schema {
        let says = DESCRIBES.iter().any(|keyword| value.get(keyword).is_some());
        let is_empty_object = value["type"] == "object"
            && ["properties", "additionalProperties"].iter().all(|keyword| value.get(keyword).is_none());
        if !says || is_empty_object {
            found.push(at.to_owned());
        }
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| !name.starts_with("example")) {
                find_any(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                find_any(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Every code of an error in the document is in the list of all errors.
fn assert_codes_exist(document: &Value, codes_min: usize) {
    let list = include_str!("../../docs/src/reference/errors.md");
    let mut codes = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let operations = item.as_object().unwrap().values();
        let responses = operations.flat_map(|operation| operation["responses"].as_object().unwrap());
        for (status, response) in responses.filter(|(status, _)| status.starts_with(['4', '5'])) {
            let schema = &response["content"]["application/problem+json"]["schema"];
            let described = schema["properties"]["code"]["enum"].as_array().unwrap();
            assert!(!described.is_empty(), "{path} {status}");
            for code in described.iter().map(|code| code.as_str().unwrap()) {
                let is_listed = list.contains(&format!("| {status} | `{code}` |"));
                assert!(is_listed || code.ends_with("_not_found"), "{path} {status}: {code}");
                codes += 1;
            }
        }
    }
    assert!(codes > codes_min, "{codes} codes");
}

/// A body of which every field has a wrong type.
pub struct WrongBody {
    pub method: Method,
    /// Path of the operation, with its parameters.
    pub path: String,
    pub body: Value,
    /// The wrong fields: those without a constant value.
    pub fields: BTreeSet<String>,
}

/// Wrong bodies of every operation with a JSON body.
pub fn wrong_bodies(document: &Value) -> Vec<WrongBody> {
    let resolve = |schema: &Value| match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap().clone(),
        None => schema.clone(),
    };
    let mut bodies = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if schema.is_null() {
                continue;
            }
            let mut schemas = vec![resolve(schema)];
            while let Some(found) = schemas.iter().position(|schema| schema.get("oneOf").is_some()) {
                let union = schemas.remove(found);
                schemas.extend(union["oneOf"].as_array().unwrap().iter().map(resolve));
            }
            for schema in schemas.iter().filter(|schema| schema["type"] == "object") {
                let (body, fields) = wrong_body(schema);
                bodies.push(WrongBody {
                    method: method.to_uppercase().parse().unwrap(),
                    path: path.clone(),
                    body: Value::Object(body),
                    fields,
                });
            }
        }
    }
    bodies
}

fn wrong_body(schema: &Value) -> (Map<String, Value>, BTreeSet<String>) {
    let (mut body, mut fields) = (Map::new(), BTreeSet::new());
    for (name, property) in schema["properties"].as_object().unwrap() {
        let constant = property["enum"].as_array().filter(|values| values.len() == 1);
        let wrong = if property["type"].to_string().contains("array") { json!("x") } else { json!([[0]]) };
        if constant.is_none() {
            fields.insert(name.clone());
        }
        body.insert(name.clone(), constant.map_or(wrong, |values| values[0].clone()));
    }
    (body, fields)
}

/// Asserts that the request is refused because of exactly these fields.
#[track_caller]
pub fn assert_names(reply: &Reply, fields: &BTreeSet<String>) {
    assert_eq!(reply.status, 422, "{}", reply.text());
    let named = reply["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap().to_owned());
    assert_eq!(named.collect::<BTreeSet<_>>(), *fields, "{}", reply.text());
}
