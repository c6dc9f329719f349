//! Requests to the service of a test, and assertions about their answers.

use std::collections::BTreeMap;
use std::ops::Deref;

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use payferry_harness::{eventually, expect};
use payferry_httpkit::ClientAddress;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::conformance;

/// Numbers that differ in every run.
const VARYING: [&str; 12] = [
    "block_number",
    "log_index",
    "confirmations",
    "duration_ms",
    "head_age_ms",
    "age_ms",
    "messages",
    "wait_ms",
    "wait_ms_max",
    "handling_ms",
    "handling_ms_max",
    "validBefore",
];
/// Numbers that are times, in milliseconds since the epoch: years 2020 to 2100.
const MOMENTS_MS: std::ops::Range<u64> = 1_577_836_800_000..4_102_444_800_000;

/// Repeats `ask` until it returns a value.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    eventually(what, async || ask().await.ok_or("the condition was not met")).await
}

/// Repeats the read of `path` until the answer is as wanted.
pub async fn get_until(path: &str, get: impl AsyncFn() -> Reply, wanted: impl Fn(&Reply) -> bool) -> Reply {
    let look = async || expect(get().await, &wanted).map_err(|reply| format!("{} {}", reply.status, reply.text()));
    eventually(format!("{path} is as wanted"), look).await
}

/// `body` with some fields changed.
pub fn with(body: &Value, changes: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    body
}

/// This field of every item of a list.
pub fn column(list: &Value, field: &str) -> Vec<Value> {
    list.as_array().unwrap_or_else(|| panic!("not a list: {list:#}")).iter().map(|item| item[field].clone()).collect()
}

/// Returns `true` if the payment has this label.
pub fn has_label(payment: &Value, label: &str) -> bool {
    payment["labels"].as_array().unwrap().contains(&json!(label))
}

/// Asserts that each request is refused because of exactly these field errors, in order: `a: empty, b: required`.
pub async fn assert_refused<S: AsRef<str>>(cases: &[(Value, S)], send: impl AsyncFn(&Value) -> Reply) {
    for (request, faults) in cases {
        let refused = send(request).await;
        assert_eq!(refused.faults(), faults.as_ref(), "{request}: {}", refused.text());
        refused.assert_problem(422, "validation_failed");
    }
}

/// Asserts that each of these values of a field is refused with this error of that field, such as `amount: wrong_type`.
pub async fn assert_values_refused(cases: &[(&str, Value)], send: impl AsyncFn(&Value) -> Reply) {
    for (fault, values) in cases {
        let field = fault.split(':').next().unwrap();
        for value in values.as_array().unwrap() {
            assert_refused(&[(json!({ field: value }), *fault)], &send).await;
        }
    }
}

/// Asserts that `value` has these fields; others may have any value. A name is a path such as `transfers/0/status`.
#[track_caller]
pub fn assert_has(value: &Value, fields: Value) {
    let Value::Object(fields) = fields else { panic!("not named fields: {fields}") };
    for (path, wanted) in fields {
        let found = value.pointer(&format!("/{path}")).unwrap_or(&Value::Null);
        assert_eq!(*found, wanted, "{path} in {value:#}");
    }
}

/// A request to be sent.
pub struct Call {
    router: Router,
    parts: axum::http::request::Parts,
    body: Vec<u8>,
}

impl Call {
    pub fn new(router: Router, method: Method, path: &str) -> Self {
        let mut parts = Request::new(()).into_parts().0;
        (parts.method, parts.uri) = (method, path.parse().unwrap());
        Self { router, parts, body: Vec::new() }
    }

    pub fn key(self, key: &str) -> Self {
        self.header(AUTHORIZATION.as_str(), &format!("Bearer {key}"))
    }

    pub fn without_key(self) -> Self {
        self.without(AUTHORIZATION.as_str())
    }

    pub fn without(mut self, name: &str) -> Self {
        self.parts.headers.remove(name);
        self
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.parts.headers.insert(name, value.parse().unwrap());
        self
    }

    /// Sets the client's address, as a listener does.
    pub fn client_address(mut self, address: [u8; 4]) -> Self {
        self.parts.extensions.insert(ClientAddress(address.into()));
        self
    }

    pub fn idempotency_key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub fn json(self, body: &Value) -> Self {
        self.bytes(body.to_string())
    }

    /// Sets any bytes as the body, with the JSON content type.
    pub fn bytes(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header(CONTENT_TYPE.as_str(), "application/json")
    }

    /// Sends the request and returns the response without reading its body.
    pub async fn begin(self) -> Response<Body> {
        let request = Request::from_parts(self.parts, Body::from(self.body));
        self.router.oneshot(request).await.unwrap()
    }

    /// Sends the request, and checks the response against the OpenAPI document.
    pub async fn send(self) -> Reply {
        let (router, method, path) = (self.router.clone(), self.parts.method.clone(), self.parts.uri.path().to_owned());
        let read = Self::new(router, Method::GET, "/openapi.json");
        let document = conformance::document(async { Reply::of(read.begin().await).await.json }).await;
        let reply = Reply::of(self.begin().await).await;
        conformance::assert_conforms(document, (&method, &path), &reply);
        reply
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
    pub json: Value,
}

/// The body.
impl Deref for Reply {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.json
    }
}

impl Reply {
    async fn of(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec();
        let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Self { status: parts.status, headers: parts.headers, bytes, json }
    }

    /// Asserts the status.
    #[track_caller]
    pub fn ok(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Asserts the status and these fields of the body.
    #[track_caller]
    pub fn assert(&self, status: u16, fields: Value) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_has(&self.json, fields);
    }

    /// Asserts that it is the stored answer to an earlier request with the same idempotency key.
    #[track_caller]
    pub fn assert_replays(&self, first: &Self) {
        assert_eq!((self.header("idempotent-replayed"), self.status), (Some("true"), first.status), "{}", self.text());
        assert_eq!(self.bytes, first.bytes);
    }

    /// Asserts that the request is refused because of exactly these field errors, in order.
    #[track_caller]
    pub fn assert_invalid(&self, faults: &str) {
        self.assert_problem(422, "validation_failed");
        assert_eq!(self.faults(), faults, "{}", self.text());
    }

    /// Id of the payment or transfer.
    pub fn id(&self) -> &str {
        self.string("payment_id")
    }

    /// Path of the payment.
    pub fn path(&self) -> String {
        format!("/payments/{}", self.id())
    }

    /// Wallet of the payment.
    pub fn wallet(&self) -> &str {
        self.string("intermediary_wallet")
    }

    /// Path of the payment's page.
    pub fn page_path(&self) -> &str {
        self.string("magic_link").strip_prefix("https://pay.example").unwrap()
    }

    /// A field with a text.
    #[track_caller]
    pub fn string(&self, field: &str) -> &str {
        self.json[field].as_str().unwrap_or_else(|| panic!("no {field} in {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or_default()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }

    /// Returns `field: code` of every field error, in order, separated by commas.
    pub fn faults(&self) -> String {
        self.fault_list().join(", ")
    }

    /// Like [`Self::faults`], in alphabetical order.
    pub fn faults_sorted(&self) -> String {
        let mut faults = self.fault_list();
        faults.sort();
        faults.join(", ")
    }

    fn fault_list(&self) -> Vec<String> {
        let errors = self.json["errors"].as_array().into_iter().flatten();
        errors.map(|e| format!("{}: {}", e["field"].as_str().unwrap(), e["code"].as_str().unwrap())).collect()
    }

    /// Asserts that the page contains all of these texts.
    #[track_caller]
    pub fn assert_shows(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.text().contains(text), "{text} is missing in {}", self.text());
        }
    }

    /// Asserts that the page contains none of these texts.
    #[track_caller]
    pub fn assert_hides(&self, texts: &[&str]) {
        for text in texts {
            assert!(!self.text().contains(text), "{text} is shown in {}", self.text());
        }
    }

    /// Status and body, with ids, times, addresses and secrets redacted.
    pub fn redacted(&self) -> Value {
        serde_json::json!({ "body": redact(&self.json), "status": self.status.as_u16() })
    }

    /// Asserts that it is a problem document with this status and code.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.code()), (status, code), "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.json["status"], status);
        assert_eq!(self.json["message"], self.json["detail"]);
        assert_eq!(self.json["request_id"].as_str(), self.header("x-request-id"));
        for field in ["type", "title", "detail", "code"] {
            assert!(!self.json[field].as_str().unwrap().is_empty(), "{field}");
        }
        assert!(self.json["errors"].is_array());
    }
}

/// `value` with ids, times, addresses and secrets redacted and its keys sorted.
pub fn redact(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(redact_text(text)),
        Value::Number(number) if number.as_u64().is_some_and(|number| MOMENTS_MS.contains(&number)) => json!("[time]"),
        Value::Array(items) => items.iter().map(redact).collect(),
        Value::Object(fields) => {
            let redacted = |(key, value): (&String, &Value)| {
                let value = match key.as_str() {
                    key if VARYING.contains(&key) => json!("[number]"),
                    // The source line of a panic.
                    "location" => json!("[location]"),
                    // The position of an entry, with its time.
                    "item" => json!("[item]"),
                    _ => redact(value),
                };
                (key.clone(), value)
            };
            let sorted: BTreeMap<_, _> = fields.iter().map(redacted).collect();
            sorted.into_iter().collect()
        }
        other => other.clone(),
    }
}

fn redact_text(text: &str) -> String {
    if text.starts_with("customers/") || text.starts_with("/ops/") {
        return text.split('/').map(redact_text).collect::<Vec<_>>().join("/");
    }
    let ulid = |text: &str| text.len() == 26 && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    if let Some((prefix, rest)) = text.rsplit_once('_')
        && ulid(rest)
    {
        return format!("[{prefix}]");
    }
    if text.starts_with("whsec_") {
        return "[secret]".to_owned();
    }
    if text.len() == 24 && text.ends_with('Z') && text.as_bytes()[10] == b'T' {
        return "[time]".to_owned();
    }
    if let Some(link) = text.strip_prefix("https://pay.example/pay/") {
        return format!("https://pay.example/pay/[{} characters]", link.len());
    }
    redact_hex(text)
}

/// Redacts addresses and hashes anywhere in the text.
fn redact_hex(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut redacted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        match digits {
            40 => redacted.push_str("[address]"),
            64 => redacted.push_str("[hash]"),
            _ => redacted.extend(["0x", &part[..digits]]),
        }
        redacted.push_str(&part[digits..]);
    }
    redacted
}
