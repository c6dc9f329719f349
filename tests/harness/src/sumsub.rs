//! A simulator of Sumsub: rejects requests that are not signed as documented, stores applicants by their external id,
//! and creates genuine and forged callbacks.
//!
//! Written from the public documentation (docs.sumsub.com), not from the client under test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use payferry_testkit::stub::serve_until_dropped;
use serde_json::{Value, json};
use sha2::Sha512;
use tokio_util::task::AbortOnDropHandle;

use crate::bucket::hmac_sha256;

/// App token of the client.
pub const APP_TOKEN: &str = "prd:stand-in.token-nobody-may-see";
/// Secret key that signs the client's requests.
pub const SECRET_KEY: &str = "secret-key-nobody-may-see";
/// Secret that signs callbacks.
pub const CALLBACK_SECRET: &str = "callback-secret-nobody-may-see";
/// Level of verifications. It contains a space, because Sumsub permits that.
pub const LEVEL: &str = "identity level";
/// Level of screenings.
pub const RESCREEN_LEVEL: &str = "screening-only";
/// Maximum clock difference of a request, in seconds.
const TIME_OFF_MAX_SECS: i64 = 60;

/// A running simulator.
pub struct SumsubStandIn {
    url: String,
    state: Arc<Data>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Data {
    applicants: Mutex<BTreeMap<String, Applicant>>,
    requests: Mutex<Vec<Request>>,
    refused: Mutex<Vec<String>>,
    is_down: AtomicBool,
    delay_ms: AtomicU64,
}

/// An applicant.
#[derive(Debug, Clone)]
pub struct Applicant {
    /// Sumsub's id of the applicant.
    pub id: String,
    /// The service's id of the applicant.
    pub external_id: String,
    /// Level of the checks.
    pub level: String,
    /// Data sent at creation.
    pub data: Value,
    /// `init`, `pending`, `completed`.
    pub status: String,
    /// The `reviewResult`.
    pub result: Option<Value>,
    /// Number of links created.
    pub links: u64,
}

/// A correctly signed request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Method, path and query.
    pub line: String,
    /// JSON, or null.
    pub body: Value,
}

/// A callback, ready to be sent.
#[derive(Debug, Clone)]
pub struct Callback {
    /// `X-Payload-Digest-Alg`.
    pub algorithm: &'static str,
    /// `X-Payload-Digest`.
    pub digest: String,
    /// The signed body.
    pub body: String,
}

impl SumsubStandIn {
    /// Starts a simulator on a free local port.
    pub async fn start() -> Self {
        let state = Arc::new(Data::default());
        let (url, serving) = serve_until_dropped(Router::new().fallback(serve).with_state(state.clone())).await;
        Self { url, state, _serving: serving }
    }

    /// URL of the API.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes every request fail with status 503, or ends that.
    pub fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Sets the delay of answers. The request is processed before the delay, so a client that gives up has still caused
    /// its effect.
    pub fn set_delay(&self, delay: Duration) {
        self.state.delay_ms.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Correctly signed requests.
    pub fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().clone()
    }

    /// Rejected requests with the reason.
    pub fn refused(&self) -> Vec<String> {
        self.state.refused.lock().clone()
    }

    /// All applicants.
    pub fn applicants(&self) -> Vec<Applicant> {
        self.state.applicants.lock().values().cloned().collect()
    }

    /// The applicant with this external id.
    pub fn applicant(&self, external_id: &str) -> Option<Applicant> {
        self.state.applicants.lock().get(external_id).cloned()
    }

    /// Removes an applicant.
    pub fn delete(&self, external_id: &str) {
        self.state.applicants.lock().remove(external_id).unwrap();
    }

    /// Sets the review that `GET .../status` returns from now on.
    pub fn review(&self, external_id: &str, status: &str, result: Value) {
        let mut applicants = self.state.applicants.lock();
        let applicant = applicants.get_mut(external_id).unwrap();
        status.clone_into(&mut applicant.status);
        applicant.result = Some(result);
    }

    /// Creates the callback for the applicant's current state.
    pub fn callback(&self, external_id: &str) -> Callback {
        self.callback_at(external_id, Utc::now())
    }

    /// Creates a callback with this time.
    pub fn callback_at(&self, external_id: &str, at: DateTime<Utc>) -> Callback {
        let applicant = self.applicant(external_id).unwrap();
        sign(&json!({
            "applicantId": applicant.id,
            "inspectionId": "5cb56e8e0a975a35f333cb84",
            "applicantType": "individual",
            "correlationId": "req-a260b669-4f14-4bb5-a4c5-ac0218acb9a4",
            "levelName": applicant.level,
            "sandboxMode": false,
            "externalUserId": applicant.external_id,
            "type": if applicant.status == "completed" { "applicantReviewed" } else { "applicantPending" },
            "reviewResult": applicant.result,
            "reviewStatus": applicant.status,
            "createdAtMs": at.format("%Y-%m-%d %H:%M:%S%.3f").to_string(),
            "clientId": "payferry",
        }))
    }
}

/// Review result without findings.
pub fn green() -> Value {
    json!({"reviewAnswer": "GREEN"})
}

/// Review result with a final rejection.
pub fn red(labels: &[&str]) -> Value {
    json!({
        "reviewAnswer": "RED", "reviewRejectType": "FINAL", "rejectLabels": labels,
        "moderationComment": "Dear Ada Lovelace, your document is not genuine.", "clientComment": "she lives in London",
    })
}

/// Creates a callback with this content, signed with the secret that the service knows.
pub fn sign(content: &Value) -> Callback {
    let body = content.to_string();
    let digest = hex::encode(hmac_sha256(CALLBACK_SECRET.as_bytes(), &body));
    Callback { algorithm: "HMAC_SHA256_HEX", digest, body }
}

impl Callback {
    /// Signs the callback with SHA-512 instead.
    #[must_use]
    pub fn by_sha512(self) -> Self {
        let mut mac = Hmac::<Sha512>::new_from_slice(CALLBACK_SECRET.as_bytes()).unwrap();
        mac.update(self.body.as_bytes());
        Self { algorithm: "HMAC_SHA512_HEX", digest: hex::encode(mac.finalize().into_bytes()), ..self }
    }

    /// Headers of the callback.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-payload-digest-alg", self.algorithm.parse().unwrap());
        headers.insert("x-payload-digest", self.digest.parse().unwrap());
        headers.insert("content-type", "application/json".parse().unwrap());
        headers
    }
}

async fn serve(State(state): State<Arc<Data>>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if state.is_down.load(Ordering::SeqCst) {
        return failure(StatusCode::SERVICE_UNAVAILABLE, "Service unavailable");
    }
    let line = format!("{method}{}", uri.path_and_query().unwrap());
    if let Err(why) = check_signature(&line, &headers, &body) {
        state.refused.lock().push(format!("{line}: {why}"));
        return failure(StatusCode::UNAUTHORIZED, &why);
    }
    let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    state.requests.lock().push(Request { line: line.clone(), body: body.clone() });
    let answer = answer(&state, &method, &uri, &body);
    tokio::time::sleep(Duration::from_millis(state.delay_ms.load(Ordering::SeqCst))).await;
    answer
}

/// Verifies a request as in <https://docs.sumsub.com/reference/authentication>.
fn check_signature(line: &str, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).ok_or(format!("no {name}"));
    if text("x-app-token")? != APP_TOKEN {
        return Err("unknown app token".to_owned());
    }
    let at = text("x-app-access-ts")?;
    let off = (Utc::now().timestamp() - at.parse::<i64>().map_err(|_| "the time is not a number")?).abs();
    if off > TIME_OFF_MAX_SECS {
        return Err(format!("the time is off by {off} s"));
    }
    let expected = hex::encode(hmac_sha256(SECRET_KEY.as_bytes(), [at.as_bytes(), line.as_bytes(), body].concat()));
    if text("x-app-access-sig")? == expected { Ok(()) } else { Err("Request signature mismatch".to_owned()) }
}

fn answer(state: &Data, method: &Method, uri: &Uri, body: &Value) -> Response {
    let mut applicants = state.applicants.lock();
    let path: Vec<&str> = uri.path().trim_start_matches('/').split('/').collect();
    match (method.as_str(), path.as_slice()) {
        ("POST", ["resources", "applicants"]) => {
            let query: BTreeMap<String, String> =
                url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
            let external_id = body["externalUserId"].as_str().unwrap().to_owned();
            if let Some(existing) = applicants.get(&external_id) {
                let id = &existing.id;
                return failure(
                    StatusCode::CONFLICT,
                    &format!("Applicant with external user id '{external_id}' already exists: {id}"),
                );
            }
            let id = format!("{:024x}", rand::random::<u64>());
            let level = query["levelName"].clone();
            let applicant = Applicant {
                id,
                external_id: external_id.clone(),
                level,
                data: body.clone(),
                status: "init".to_owned(),
                result: None,
                links: 0,
            };
            let shown = view(&applicant);
            applicants.insert(external_id, applicant);
            (StatusCode::CREATED, axum::Json(shown)).into_response()
        }
        ("GET", ["resources", "applicants", key, "one"]) => {
            let external_id = key.strip_prefix("-;externalUserId=").unwrap_or_default();
            applicants.get(external_id).map_or_else(missing, |applicant| axum::Json(view(applicant)).into_response())
        }
        ("POST", ["resources", "sdkIntegrations", "levels", "-", "websdkLink"]) => {
            let external_id = body["userId"].as_str().unwrap();
            let Some(applicant) = applicants.get_mut(external_id).filter(|one| body["levelName"] == one.level) else {
                return missing();
            };
            applicant.links += 1;
            let url = format!("https://in.sumsub.example/websdk/p/{}-{}", applicant.id, applicant.links);
            axum::Json(json!({ "url": url })).into_response()
        }
        ("GET", ["resources", "applicants", id, "status"]) => {
            let applicant = applicants.values().find(|applicant| applicant.id == *id);
            applicant.map_or_else(missing, |applicant| axum::Json(review(applicant)).into_response())
        }
        ("POST", ["resources", "applicants", id, "status", "pending"]) => {
            let Some(applicant) = applicants.values_mut().find(|applicant| applicant.id == *id) else {
                return missing();
            };
            if applicant.status != "init" {
                return failure(StatusCode::CONFLICT, "Applicant is being checked");
            }
            "pending".clone_into(&mut applicant.status);
            axum::Json(json!({"ok": 1})).into_response()
        }
        _ => missing(),
    }
}

fn view(applicant: &Applicant) -> Value {
    json!({
        "id": applicant.id, "createdAt": "2026-11-22 00:00:00", "clientId": "payferry",
        "externalUserId": applicant.external_id, "type": "individual", "review": review(applicant),
    })
}

fn review(applicant: &Applicant) -> Value {
    let mut review = json!({
        "reviewId": "AlzvL", "attemptId": "BGAri", "attemptCnt": 1, "levelName": applicant.level,
        "createDate": "2026-11-22 00:00:00+0000", "reviewStatus": applicant.status, "priority": 0,
    });
    if let Some(result) = &applicant.result {
        review["reviewResult"] = result.clone();
    }
    review
}

fn missing() -> Response {
    failure(StatusCode::NOT_FOUND, "Not found")
}

fn failure(status: StatusCode, description: &str) -> Response {
    let body = json!({
        "description": description, "code": status.as_u16(), "correlationId": "a84e297715e56b57fa9ff9a6cc68d341",
    });
    (status, axum::Json(body)).into_response()
}
