//! Traces: from the request to the webhooks, across a crash, and without a collector.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::prelude::*;
use crate::process::{Home, Running};

/// Trace and context of the caller.
pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub(crate) const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Attributes of spans. None holds personal data or a secret.
const ATTRIBUTES: [&str; 11] = [
    "batch.operations",
    "block.number",
    "chain",
    "event.id",
    "http.request.method",
    "http.response.status_code",
    "http.route",
    "operation",
    "operation.kind",
    "payment",
    "tx.hash",
];

/// A server that answers 200 to every request.
pub(crate) async fn server() -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    server
}

/// The contexts that the receiver was sent, by event.
async fn contexts(receiver: &MockServer) -> BTreeMap<String, Option<String>> {
    let text = |request: &wiremock::Request, name: &str| {
        request.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    let requests = receiver.received_requests().await.unwrap();
    let events = requests.iter().filter(|request| !request.body.is_empty());
    events.map(|request| (text(request, "webhook-id").unwrap(), text(request, "traceparent"))).collect()
}

async fn until_delivered(receiver: &MockServer, count: usize) -> BTreeMap<String, Option<String>> {
    let delivered = async || Some(contexts(receiver).await).filter(|found| found.len() >= count);
    until("the webhooks are delivered", delivered).await
}

fn text(value: Option<AnyValue>) -> String {
    match value.unwrap().value {
        Some(any_value::Value::StringValue(text)) => text,
        other => panic!("not a text: {other:?}"),
    }
}

/// The exported spans, with the attributes of their service.
pub(crate) async fn spans(collector: &MockServer) -> Vec<(Span, BTreeMap<String, String>)> {
    let mut found = Vec::new();
    for request in collector.received_requests().await.unwrap() {
        let export = ExportTraceServiceRequest::decode(&*request.body).unwrap();
        for resource in export.resource_spans {
            let service = resource.resource.unwrap().attributes.into_iter();
            let service: BTreeMap<String, String> =
                service.map(|attribute| (attribute.key, text(attribute.value))).collect();
            let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            found.extend(spans.map(|span| (span, service.clone())));
        }
    }
    found
}

/// The trace began in the caller's program. The service is killed before the payer pays.
#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_request_across_a_crash_to_the_webhooks() {
    let (collector, receiver) = (MockServer::start().await, server().await);
    let taken = Mock::given(method("POST")).and(path("/v1/traces")).and(header("authorization", "let-me-in"));
    taken.respond_with(ResponseTemplate::new(200)).mount(&collector).await;
    let endpoint = format!("{}/v1/traces", collector.uri());
    let env = [
        ("PAYFERRY_TRACES__ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=let-me-in"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
    ];
    let home = Home::new().await;
    let running = Running::start_with(&home, [0, 0], &env);
    running.ok(Method::PATCH, "/api/v1/set_webhook", Some(json!({ "webhook_url": receiver.uri() }))).await;
    let initiation = json!({
        "merchant_id": running.merchant().await, "amount": "10", "currency": "USDC", "chain": "base",
    });
    let request = reqwest::Client::new().post(format!("{}/payments/initiate", running.text("api_url")));
    let request = request.bearer_auth(running.text("api_key")).header("traceparent", CALLER);
    let made: Value = request.json(&initiation).send().await.unwrap().json().await.unwrap();
    let id = made["payment_id"].as_str().unwrap();
    let is_exported = async || {
        let found = spans(&collector).await;
        found.iter().any(|(span, _)| span.name == "POST /payments/initiate").then_some(())
    };
    until("the span of the request is exported", is_exported).await;
    running.kill();

    let running = Running::start_with(&Arc::clone(&home), [0, 0], &env);
    running.pay(id).await;
    running.until_settled(id).await;
    let events = until_delivered(&receiver, 4).await;
    // The last spans are exported at the end.
    running.stop();
    let found = spans(&collector).await;
    assert!(
        found
            .iter()
            .all(|(_, service)| service["service.name"] == "payferry" && !service["service.version"].is_empty())
    );
    let trace: Vec<&Span> =
        found.iter().map(|(span, _)| span).filter(|span| hex::encode(&span.trace_id) == TRACE).collect();
    let names: BTreeSet<&str> = trace.iter().map(|span| span.name.as_str()).collect();
    for step in [
        "POST /payments/initiate",
        "journal.commit",
        "watcher.transfer",
        "observe_transfer",
        "watcher.finality",
        "finalise_transfers",
        "settler.submit",
        "settler.confirm",
        "complete_settlement",
        "webhook.attempt",
    ] {
        assert!(names.contains(step), "{step} is missing in {names:?}");
    }
    let ids: BTreeSet<String> = trace.iter().map(|span| hex::encode(&span.span_id)).collect();
    assert_eq!(ids.len(), trace.len());
    for span in &trace {
        let parent = hex::encode(&span.parent_span_id);
        let is_first = span.name == "POST /payments/initiate";
        assert!(if is_first { CALLER.contains(&parent) } else { ids.contains(&parent) }, "{} has no parent", span.name);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        for attribute in &span.attributes {
            assert!(ATTRIBUTES.contains(&attribute.key.as_str()), "{}: {}", span.name, attribute.key);
        }
    }
    let attempts = trace.iter().filter(|span| span.name == "webhook.attempt");
    let attempts: BTreeSet<Option<String>> =
        attempts.map(|span| Some(format!("00-{TRACE}-{}-01", hex::encode(&span.span_id)))).collect();
    assert_eq!(events.into_values().collect::<BTreeSet<_>>(), attempts, "each webhook names its attempt");
}

/// Without a collector, the context of the caller is passed on.
#[tokio::test]
async fn webhooks_pass_on_the_context_of_the_request() {
    let app = TestApp::start_with_chains().await;
    let receiver = server().await;
    app.patch("/api/v1/set_webhook", &json!({ "webhook_url": receiver.uri() })).await.ok(200);
    let merchant = app.add_merchant().await;
    let body = json!({ "merchant_id": merchant, "amount": "10", "currency": "USDC", "chain": "base" });
    let initiate = |contexts: &[&str]| {
        let request = app.request(Method::POST, "/payments/initiate").json(&body);
        contexts.iter().fold(request, |request, context| request.header("traceparent", context))
    };
    for (sent, kept) in [
        (&[CALLER][..], Some(CALLER)),
        (&[][..], None),
        (&["00-not-a-trace-01"][..], None),
        (&["00-00000000000000000000000000000000-00f067aa0ba902b7-01"][..], None),
    ] {
        receiver.reset().await;
        Mock::given(method("POST")).respond_with(ResponseTemplate::new(200)).mount(&receiver).await;
        let made = initiate(sent).send().await.ok(201);
        app.pay(&made, "10").await;
        app.payment_when(&made, "settled").await;
        let events = until_delivered(&receiver, 4).await;
        assert_eq!(events.into_values().collect::<BTreeSet<_>>(), [kept.map(ToOwned::to_owned)].into(), "{sent:?}");
    }
}
