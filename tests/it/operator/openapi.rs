//! The OpenAPI document of the operator's listener.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use payferry_operator::table;

use super::{concrete, reply};
use crate::conformance::Document;
use crate::http::vocabulary::assert_vocabulary;
use crate::openapi::{WrongBody, assert_names, assert_sound, wrong_bodies};
use crate::prelude::*;

/// Lists without cursors, and why.
const WHOLE_LISTS: [(&str, &str); 10] = [
    ("GET /ops/bulk", "at most 1,000 subjects, which are confirmed together"),
    ("GET /ops/bulk/jobs", "the last 20 jobs"),
    ("GET /ops/messages", "at most one edge for each pair of kinds of actors"),
    ("GET /ops/history", "one figure of limited length"),
    ("GET /ops/search", "at most 50 results of each kind"),
    ("GET /ops/payments/{payment_id}/replay", "one history of limited size, which is replayed from its start"),
    ("GET /ops/actors", "a summary of limited size; `/ops/stuck` lists what is quarantined"),
    ("GET /ops/overview", "a summary of limited size"),
    ("POST /ops/psps/{psp_id}/withdrawal-wallets", "the response to a change; there are at most two for each chain"),
    ("GET /ops/stuck", "each kind is a list with a `next_cursor` of its own"),
];
/// Reads whose records have no id or no times, and why.
const OTHER_RECORDS: [(&str, &str); 15] = [
    ("/ops/bulk", "subjects of several kinds, each named by its id"),
    ("/ops/messages", "counters of pairs of kinds of actors"),
    ("/ops/history", "values of a figure"),
    ("/ops/search", "results of any kind, each with its page"),
    ("/ops/payments/{payment_id}/replay", "transitions, named by their version"),
    ("/healthz", "the state of the process"),
    ("/readyz", "the state of the service"),
    ("/ops/actors", "the state of the service"),
    ("/ops/overview", "the state of the service"),
    ("/ops/leases", "permanent rows, named by the work"),
    ("/ops/openapi.json", "the document itself"),
    ("/ops/psps/{psp_id}/withdrawal-wallets", "settings of the PSP, named by chain and status"),
    ("/ops/sendings", "the state of actors"),
    ("/ops/shards/{shard}", "the state of actors"),
    ("/ops/stuck", "findings about objects of several kinds"),
];

fn json() -> Value {
    serde_json::from_str(&payferry_httpkit::openapi::to_json(&payferry_operator::document())).unwrap()
}

/// The document with which the responses of every test are compared.
pub(super) fn document() -> &'static Document {
    static DOCUMENT: LazyLock<Document> = LazyLock::new(|| Document::new(json()));
    &DOCUMENT
}

#[test]
fn document_describes_every_json_route() {
    let document = json();
    assert_sound(&document, 300);
    assert_vocabulary(&document, &WHOLE_LISTS, &OTHER_RECORDS);
    let is_page = |path: &str| matches!(path, "/ops" | "/ops/login" | "/ops/logout") || path.starts_with("/ops/view/");
    let routes = table().into_iter().filter(|route| !is_page(&route.path));
    let routes: BTreeSet<_> = routes.map(|route| format!("{} {}", route.method, route.path)).collect();
    let items = document["paths"].as_object().unwrap().iter();
    let described = items.flat_map(|(path, item)| {
        item.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    assert_eq!(described.collect::<BTreeSet<_>>(), routes);
}

#[tokio::test]
async fn viewers_read_the_document() {
    let service = ServiceFixture::start().await;
    let reply = service.get("/ops/openapi.json").await.ok(200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.json, json());
}

/// Sends each described field with a value of a wrong type. The error names all of them, and nothing else.
#[tokio::test]
async fn every_described_field_is_read() {
    let service = ServiceFixture::start_with_chains().await;
    let bodies = wrong_bodies(&json());
    assert_eq!(bodies.len(), 20);
    for WrongBody { method, path, body, fields } in bodies {
        let path = concrete(&path);
        assert_names(&reply(service.call(method, &path).json(&body)).await, &fields);
    }
}
