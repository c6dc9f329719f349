//! Proxy between the load tester and a sandbox that changes requests and responses as a test needs.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::run;
use crate::process::Running;

/// Largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Path for webhooks.
const HOOK: &str = "/hook";

/// Changes of the proxy; none by default.
#[derive(Default)]
pub(super) struct Changes {
    /// Number of lists of payments that are refused with 503.
    pub(super) lists_refused: usize,
    /// Fee in the settings.
    pub(super) fee_bps: Option<u16>,
    /// Number of initiations that are forwarded and get another response.
    pub(super) initiations_denied: usize,
    pub(super) denied_with: Option<(StatusCode, Value)>,
    /// Number of initiations that are not forwarded and get a response of their own.
    pub(super) initiations_kept: usize,
    pub(super) kept_with: Option<KeptWith>,
    /// Payments of a run that are forwarded; later ones are refused as by a service with too much load.
    pub(super) payments_max: Option<u32>,
    /// Number of initiations that are forwarded together, when the last of them has arrived.
    pub(super) gathered: Option<usize>,
    /// Every webhook is delivered twice.
    pub(super) repeats: bool,
    /// Number of the webhook that is also delivered with a wrong signature, before the right one.
    pub(super) forges: Option<usize>,
}

/// Id of a payment that does not exist.
const INVENTED: &str = "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3";

/// Response to an initiation that the service never got.
#[derive(Clone, Copy)]
pub(super) enum KeptWith {
    /// The refusal of a service with too much load.
    Overloaded,
    /// An acknowledgement of a payment that does not exist.
    Invented,
}

impl KeptWith {
    fn response(self) -> Response {
        let (status, body) = match self {
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, json!({"code": "overloaded"})),
            Self::Invented => {
                let wallet = format!("0x{:040x}", 1);
                (StatusCode::CREATED, json!({"payment_id": INVENTED, "intermediary_wallet": wallet}))
            }
        };
        (status, body.to_string()).into_response()
    }
}

/// Result of a load.
pub(super) struct Loaded {
    pub(super) output: Output,
    /// Lists that were refused.
    pub(super) lists_refused: usize,
    /// Payments that were made and got another response.
    pub(super) denied: Vec<String>,
}

struct Between {
    sandbox_url: String,
    own_url: String,
    client: reqwest::Client,
    changes: Changes,
    gathering: Barrier,
    lists: AtomicUsize,
    initiations: AtomicUsize,
    webhooks: AtomicUsize,
    denied: Mutex<Vec<String>>,
    /// Original URL of the webhook endpoint.
    receiver_url: Mutex<String>,
}

impl Between {
    async fn send(&self, method: Method, url: &str, mut headers: HeaderMap, body: Bytes) -> (StatusCode, Bytes) {
        for own in ["host", "content-length", "connection"] {
            headers.remove(own);
        }
        match self.client.request(method, url).headers(headers).body(body).send().await {
            Ok(answer) => (answer.status(), answer.bytes().await.unwrap_or_default()),
            Err(_) => (StatusCode::BAD_GATEWAY, Bytes::new()),
        }
    }

    /// Returns true if an initiation is beyond the largest number of payments. The reference has its number.
    fn is_over(&self, body: &Bytes) -> bool {
        let Some(max) = self.changes.payments_max else { return false };
        let initiation: Value = serde_json::from_slice(body).unwrap();
        let (_, number) = initiation["reference"].as_str().unwrap().rsplit_once('-').unwrap();
        number.parse::<u32>().unwrap() >= max
    }

    /// Forwards a webhook to the load tester.
    async fn deliver(&self, headers: HeaderMap, body: Bytes) -> Response {
        let url = self.receiver_url.lock().clone();
        if self.changes.forges == Some(self.webhooks.fetch_add(1, Ordering::SeqCst)) {
            let mut forged = headers.clone();
            forged.insert("webhook-signature", HeaderValue::from_static("v1,AAAA"));
            self.send(Method::POST, &url, forged, body.clone()).await;
        }
        if self.changes.repeats {
            self.send(Method::POST, &url, headers.clone(), body.clone()).await;
        }
        self.send(Method::POST, &url, headers, body).await.into_response()
    }

    /// Returns the body of a request as it is forwarded.
    fn asked(&self, path: &str, body: Bytes) -> Bytes {
        if path != "/api/v1/set_webhook" {
            return body;
        }
        let mut endpoint: Value = serde_json::from_slice(&body).unwrap();
        let url = endpoint["webhook_url"].as_str().unwrap().to_owned();
        // At the end the endpoint becomes an inbox of the sandbox.
        if !url.contains("/sandbox/") {
            *self.receiver_url.lock() = url;
            endpoint["webhook_url"] = json!(format!("{}{HOOK}", self.own_url));
        }
        endpoint.to_string().into()
    }

    /// Returns a response as it is forwarded.
    fn answered(&self, path: &str, status: StatusCode, body: Bytes) -> (StatusCode, Bytes) {
        let value = || serde_json::from_slice::<Value>(&body).unwrap();
        if let Some(fee_bps) = self.changes.fee_bps.filter(|_| path == "/api/v1/settings") {
            let mut settings = value();
            settings["settings"]["fee_bps"] = json!(fee_bps);
            return (status, settings.to_string().into());
        }
        let denied = self.changes.denied_with.as_ref().filter(|_| path == "/payments/initiate");
        match denied.filter(|_| self.initiations.fetch_add(1, Ordering::SeqCst) < self.changes.initiations_denied) {
            Some((status, with)) => {
                self.denied.lock().push(value()["payment_id"].as_str().unwrap().to_owned());
                (*status, with.to_string().into())
            }
            None => (status, body),
        }
    }
}

async fn pass(State(between): State<Arc<Between>>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().to_string();
    if path.starts_with("/payments?") && between.lists.load(Ordering::SeqCst) < between.changes.lists_refused {
        between.lists.fetch_add(1, Ordering::SeqCst);
        return (StatusCode::SERVICE_UNAVAILABLE, "{}").into_response();
    }
    let (parts, body) = request.into_parts();
    let body: Bytes = to_bytes(body, BODY_BYTES_MAX).await.unwrap();
    if path == HOOK {
        return between.deliver(parts.headers, body).await;
    }
    if between.changes.gathered.is_some() && path == "/payments/initiate" {
        between.gathering.wait().await;
    }
    if path == "/payments/initiate" && between.is_over(&body) {
        return KeptWith::Overloaded.response();
    }
    if let Some(with) = between.changes.kept_with.filter(|_| path == "/payments/initiate")
        && between.initiations.fetch_add(1, Ordering::SeqCst) < between.changes.initiations_kept
    {
        return with.response();
    }
    let (body, url) = (between.asked(&path, body), format!("{}{path}", between.sandbox_url));
    let (status, answer) = between.send(parts.method, &url, parts.headers, body).await;
    between.answered(&path, status, answer).into_response()
}

/// Puts a load of exact payments on the sandbox through the proxy. `further` are more arguments.
pub(super) async fn load_through(sandbox: &Running, changes: Changes, further: &str) -> Loaded {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own_url = format!("http://{}", listener.local_addr().unwrap());
    let between = Arc::new(Between {
        sandbox_url: sandbox.text("api_url").to_owned(),
        own_url: own_url.clone(),
        client: reqwest::Client::new(),
        gathering: Barrier::new(changes.gathered.unwrap_or(1)),
        changes,
        lists: AtomicUsize::new(0),
        initiations: AtomicUsize::new(0),
        webhooks: AtomicUsize::new(0),
        denied: Mutex::default(),
        receiver_url: Mutex::default(),
    });
    let router = Router::new().fallback(pass).with_state(Arc::clone(&between));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let key = sandbox.text("api_key");
    let output = run(&format!("--url {own_url} --key {key} --mix exact=100 --json {further}")).await;
    serving.abort();
    let denied = between.denied.lock().clone();
    Loaded { output, lists_refused: between.lists.load(Ordering::SeqCst), denied }
}
