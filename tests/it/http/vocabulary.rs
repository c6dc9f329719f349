//! The vocabulary that the OpenAPI document promises: lists have cursors, and records have an id and their times.

use std::collections::BTreeSet;

use crate::prelude::*;

/// Lists without cursors, and why.
const WHOLE_LISTS: [(&str, &str); 3] = [
    ("GET /balances", "there is at most one balance for each chain and token"),
    ("GET /ledger/statement", "one document, whose period bounds it"),
    ("POST /merchants/sync", "one line for each merchant of the request"),
];
/// Reads whose records have no id or no times, and why.
const OTHER_RECORDS: [(&str, &str); 2] = [
    ("/balances", "a sum that is computed for the response"),
    ("/ledger/statement", "a document that is computed for the response"),
];

/// An operation with a JSON response: its parameters, and the fields of its response with their schemas.
struct Operation<'a> {
    method: String,
    path: &'a str,
    parameters: BTreeSet<&'a str>,
    response: &'a Value,
    fields: Vec<(&'a str, &'a Value)>,
}

/// Follows references.
fn resolved<'a>(document: &'a Value, mut schema: &'a Value) -> &'a Value {
    while let Some(reference) = schema["$ref"].as_str() {
        schema = document.pointer(reference.trim_start_matches('#')).unwrap();
    }
    schema
}

/// Fields of a schema and of its parts.
fn fields_of<'a>(document: &'a Value, schema: &'a Value) -> Vec<(&'a str, &'a Value)> {
    let schema = resolved(document, schema);
    let parts = ["allOf", "oneOf", "anyOf"].iter().filter_map(|parts| schema[*parts].as_array()).flatten();
    let own = schema["properties"].as_object().into_iter().flatten().map(|(name, field)| (name.as_str(), field));
    own.chain(parts.flat_map(|part| fields_of(document, part))).collect()
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let items = document["paths"].as_object().unwrap().iter();
    let all = items.flat_map(|(path, item)| item.as_object().unwrap().iter().map(move |of| (path, of)));
    let described = all.filter_map(|(path, (method, operation))| {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let response = operation.pointer("/responses/200/content/application~1json/schema")?;
        Some(Operation {
            method: method.to_uppercase(),
            path,
            parameters: parameters.filter_map(|parameter| parameter["name"].as_str()).collect(),
            response: resolved(document, response),
            fields: fields_of(document, response),
        })
    });
    described.collect()
}

impl<'a> Operation<'a> {
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|(name, _)| *name == field)
    }

    /// Schema of the items, if the response is a list: an array, or an object without an id that has an array of records.
    fn items(&self, document: &'a Value) -> Option<&'a Value> {
        let is_array = |schema: &Value| {
            schema["type"] == "array" || schema["type"].as_array().is_some_and(|types| types.contains(&json!("array")))
        };
        if is_array(self.response) {
            return Some(&self.response["items"]);
        }
        let arrays = self.fields.iter().map(|(_, field)| resolved(document, field)).filter(|field| is_array(field));
        let mut items = arrays.map(|field| resolved(document, &field["items"]));
        items.find(|item| !self.has("id") && !["string", "integer", "number"].iter().any(|kind| item["type"] == *kind))
    }

    /// Schema of the record, if the response is no list: the response itself, or its only field that is a record.
    fn record(&self) -> &'a Value {
        let mut records = self.fields.iter().map(|(_, field)| *field).filter(|field| field.get("$ref").is_some());
        if self.has("id") { self.response } else { records.next().unwrap_or(self.response) }
    }
}

/// True if the record has these fields in each of its forms.
fn has_all(document: &Value, record: &Value, fields: &[&str]) -> bool {
    let record = resolved(document, record);
    if let Some(forms) = record.get("oneOf").or_else(|| record.get("anyOf")).and_then(Value::as_array) {
        return forms.iter().all(|form| has_all(document, form, fields));
    }
    let parts = record.get("allOf").and_then(Value::as_array);
    let parts: Vec<_> = parts.map_or_else(|| vec![record], |parts| parts.iter().collect());
    let has = |field: &&str| parts.iter().any(|part| resolved(document, part)["properties"].get(*field).is_some());
    fields.iter().all(has)
}

/// Asserts that exactly the exceptions are not as they should be.
fn assert_only(exceptions: &[(&str, &str)], others: &BTreeSet<String>, expected: &str) {
    let exceptions: BTreeSet<_> = exceptions.iter().map(|(name, _)| (*name).to_owned()).collect();
    let others: Vec<_> = others.symmetric_difference(&exceptions).collect();
    assert!(others.is_empty(), "{others:?} should have {expected}, or should no longer be an exception");
}

/// Asserts that all lists of a document except `whole_lists` have cursors, and that all records that it reads, except those
/// of the paths in `other_records`, have an id and their times.
pub(crate) fn assert_vocabulary(document: &Value, whole_lists: &[(&str, &str)], other_records: &[(&str, &str)]) {
    let operations = operations(document);
    let lists: Vec<_> = operations.iter().filter(|operation| operation.items(document).is_some()).collect();
    assert!((8..operations.len() - 6).contains(&lists.len()), "{} lists of {}", lists.len(), operations.len());

    let is_paged = |list: &&&Operation<'_>| {
        list.parameters.contains("cursor") && list.parameters.contains("limit") && list.has("next_cursor")
    };
    let whole = lists.iter().filter(|list| !is_paged(list)).map(|list| list.name()).collect();
    assert_only(whole_lists, &whole, "the parameters `limit` and `cursor` and the field `next_cursor`");

    let reads = operations.iter().filter(|operation| operation.method == "GET");
    let records = reads.map(|read| (read.path, read.items(document).unwrap_or_else(|| read.record())));
    let is_other = |record: &Value| !has_all(document, record, &["id", "created_at", "updated_at"]);
    let others = records.filter(|(_, record)| is_other(record)).map(|(path, _)| path.to_owned()).collect();
    assert_only(other_records, &others, "`id`, `created_at` and `updated_at`");
}

#[tokio::test]
async fn openapi_lists_have_cursors_and_records_have_an_id_and_times() {
    let app = TestApp::start().await;
    assert_vocabulary(&app.get("/openapi.json").await.json, &WHOLE_LISTS, &OTHER_RECORDS);
}
