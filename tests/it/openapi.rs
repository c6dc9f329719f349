//! Properties of the OpenAPI documents of both listeners.

use std::collections::BTreeSet;

use serde_json::Value;

/// Asserts that operations are named, references resolve, schemas say what they describe, and codes exist.
pub fn assert_sound(document: &Value, codes_min: usize) {
    let mut names = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
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
