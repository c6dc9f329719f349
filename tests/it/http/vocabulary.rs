//! The vocabulary that the OpenAPI document promises: lists have cursors, and records have an id and their times.

use std::collections::BTreeSet;

use crate::prelude::*;

/// Lists without cursors, and why.
const WHOLE_LISTS: [(&str, &str); 2] = [
    ("/balances", "there is at most one balance for each chain and token"),
    ("/ledger/statement", "one document, whose period bounds it"),
];
/// Reads whose records have no id or no times, and why.
const OTHER_RECORDS: [(&str, &str); 2] = [
    ("/balances", "a sum that is computed for the response"),
    ("/ledger/statement", "a document that is computed for the response"),
];

/// A read of the document: its path, its parameters, and the schema of its response.
struct Read<'a> {
    path: &'a str,
    parameters: BTreeSet<&'a str>,
    response: &'a Value,
}

/// Follows references.
fn resolved<'a>(document: &'a Value, mut schema: &'a Value) -> &'a Value {
    while let Some(reference) = schema["$ref"].as_str() {
        schema = document.pointer(reference.trim_start_matches('#')).unwrap();
    }
    schema
}

fn reads(document: &Value) -> Vec<Read<'_>> {
    let paths = document["paths"].as_object().unwrap().iter();
    let reads = paths.filter_map(|(path, item)| {
        let get = item.get("get")?;
        let parameters = get["parameters"].as_array().into_iter().flatten();
        let response = get.pointer("/responses/200/content/application~1json/schema")?;
        Some(Read {
            path,
            parameters: parameters.filter_map(|parameter| parameter["name"].as_str()).collect(),
            response: resolved(document, response),
        })
    });
    reads.collect()
}

impl<'a> Read<'a> {
    fn has(&self, field: &str) -> bool {
        self.response["properties"].get(field).is_some()
    }

    /// Schema of the items, if the response is a list: it has no id of its own, and one field with items.
    fn items(&self) -> Option<&'a Value> {
        if self.has("id") {
            return None;
        }
        let fields = self.response["properties"].as_object()?.values();
        fields
            .filter(|field| field["type"] == "array" && field["items"]["type"] != "string")
            .map(|field| &field["items"])
            .next()
    }

    /// Schema of the record, if the response is no list: the response itself, or its only field that is a record.
    fn record(&self) -> &'a Value {
        let fields = self.response["properties"].as_object().into_iter().flatten();
        let mut records = fields.map(|(_, field)| field).filter(|field| field.get("$ref").is_some());
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
fn assert_only(exceptions: &[(&str, &str)], others: &BTreeSet<&str>, expected: &str) {
    let exceptions: BTreeSet<_> = exceptions.iter().map(|(path, _)| *path).collect();
    let others: Vec<_> = others.symmetric_difference(&exceptions).collect();
    assert!(others.is_empty(), "{others:?} should have {expected}, or should no longer be an exception");
}

/// Asserts that all lists of a document except `whole_lists` have cursors, and that all records except `other_records` have
/// an id and their times.
pub(crate) fn assert_vocabulary(document: &Value, whole_lists: &[(&str, &str)], other_records: &[(&str, &str)]) {
    let reads = reads(document);
    let (lists, records): (Vec<_>, Vec<_>) = reads.iter().partition(|read| read.items().is_some());
    assert!(lists.len() >= 8 && records.len() >= 6, "{} lists, {} records", lists.len(), records.len());

    let is_paged = |read: &&&Read<'_>| {
        read.parameters.contains("cursor") && read.parameters.contains("limit") && read.has("next_cursor")
    };
    let whole = lists.iter().filter(|read| !is_paged(read)).map(|read| read.path).collect();
    assert_only(whole_lists, &whole, "the parameters `limit` and `cursor` and the field `next_cursor`");

    let items = lists.iter().map(|read| (read.path, read.items().unwrap()));
    let records = items.chain(records.iter().map(|read| (read.path, read.record())));
    let is_other = |record: &Value| !has_all(document, record, &["id", "created_at", "updated_at"]);
    let others = records.filter(|(_, record)| is_other(record)).map(|(path, _)| path).collect();
    assert_only(other_records, &others, "`id`, `created_at` and `updated_at`");
}

#[tokio::test]
async fn openapi_lists_have_cursors_and_records_have_an_id_and_times() {
    let app = TestApp::start().await;
    assert_vocabulary(&app.get("/openapi.json").await.json, &WHOLE_LISTS, &OTHER_RECORDS);
}
