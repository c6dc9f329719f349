//! Verification over HTTP: requested by the PSP, decided by the provider's callbacks.

use std::sync::Arc;
use std::time::Duration;

use payferry_actors::compliance::identity::{ComplianceConfig, Sumsub, SumsubSettings};
use payferry_domain::customer::{Command, CustomerKind, DocumentKind, Documents};
use payferry_entities::{checks, customers};
use payferry_harness::sumsub::{
    APP_TOKEN, CALLBACK_SECRET, Callback, LEVEL, RESCREEN_LEVEL, SECRET_KEY, SumsubStandIn, green, red, sign,
};
use payferry_journal::audit::Actor;
use payferry_runtime::clock::Clock;

use crate::prelude::*;

const PATH: &str = "/customers/compliance";
const CALLBACKS: &str = "/compliance/callbacks/sumsub";

/// A service with an identity provider.
pub struct Fixture {
    pub app: TestApp,
    pub remote: SumsubStandIn,
}

impl Fixture {
    pub async fn new() -> Self {
        let remote = SumsubStandIn::start().await;
        let settings = SumsubSettings {
            base_url: remote.url().to_owned(),
            app_token: APP_TOKEN.to_owned(),
            secret_key: SECRET_KEY.to_owned(),
            callback_secret: CALLBACK_SECRET.to_owned(),
            level: LEVEL.to_owned(),
            rescreen_level: RESCREEN_LEVEL.to_owned(),
            timeout: Duration::from_secs(30),
        };
        let provider = Sumsub::new(settings, Clock::default()).unwrap();
        let brief = Duration::from_millis(50);
        let compliance = ComplianceConfig { retry_min: brief, sweep_interval: brief, ..ComplianceConfig::default() };
        let config = TestConfig { identity: Some(Arc::new(provider)), compliance, ..TestConfig::default() };
        Self { app: TestApp::start_with(config).await, remote }
    }

    async fn request(&self, customer: CustomerId) -> Reply {
        self.app.post(PATH, &json!({ "customer_id": customer })).await
    }

    async fn send(&self, callback: &Callback) -> Reply {
        let call = self.app.request(Method::POST, CALLBACKS).without_key().bytes(callback.body.clone());
        let call = call.header("x-payload-digest-alg", callback.algorithm);
        call.header("x-payload-digest", &callback.digest).send().await
    }

    /// Decides at the provider and returns the callback with the verdict.
    fn decide(&self, verification: &str, result: Value) -> Callback {
        self.remote.review(verification, "completed", result);
        self.remote.callback(verification)
    }
}

/// Creates a customer of the first PSP and applies these commands.
async fn customer(app: &TestApp, kind: CustomerKind, commands: &[Command]) -> CustomerId {
    let particulars = json!({"first_name": "Ada", "last_name": "Lovelace", "dob": "1990-12-10"}).to_string();
    let id = app.add_customer(kind, &particulars).await;
    for command in commands {
        change(app, id, command).await;
    }
    id
}

/// Applies a command to a customer, without checking permissions.
pub async fn change(app: &TestApp, id: CustomerId, command: &Command) {
    app.change_customer(id, command, &Actor::Service).await;
}

fn residence() -> Command {
    Command::AddDocuments(Documents::NONE.with(DocumentKind::ProofOfResidentialAddress))
}

/// Creates a person with all required data.
pub async fn ready(app: &TestApp) -> CustomerId {
    customer(app, CustomerKind::Individual, &[Command::AcceptTerms, residence()]).await
}

async fn kyc_status(app: &TestApp, id: CustomerId) -> String {
    let row = customers::Entity::find_by_id(id.to_string()).one(app.reader()).await.unwrap().unwrap();
    row.kyc_status
}

/// Redacts the link, which differs each time.
fn shown(reply: &Reply) -> Value {
    let mut shown = reply.redacted();
    if let Some(url) = shown["body"]["verification_url"].as_str() {
        assert!(url.starts_with("https://in.sumsub.example/websdk/p/"), "{url}");
        shown["body"]["verification_url"] = json!("[link]");
    }
    shown
}

#[tokio::test]
async fn verification_is_requested_and_decided() {
    let fixture = Fixture::new().await;
    let id = ready(&fixture.app).await;
    let asked = fixture.request(id).await;
    insta::assert_json_snapshot!("compliance_asked", shown(&asked));
    let verification = asked["verification_id"].as_str().unwrap();
    let again = fixture.app.post("/api/v1/customers/compliance", &json!({ "customer_id": id })).await;
    assert_eq!((again.status.as_u16(), &again.json), (202, &asked.json), "the same verification");
    assert_eq!(fixture.remote.applicants().len(), 1);

    let callback = fixture.decide(verification, green());
    let taken = fixture.send(&callback).await;
    insta::assert_json_snapshot!("compliance_callback_taken", taken.redacted());
    assert_eq!(kyc_status(&fixture.app, id).await, "approved");
    let cleared = fixture.request(id).await;
    insta::assert_json_snapshot!("compliance_already_cleared", cleared.redacted());

    // A repeated callback, and a rejection after the verdict.
    let late = fixture.decide(verification, red(&["FORGERY"]));
    for callback in [&callback, &late, &callback] {
        assert_eq!(fixture.send(callback).await.status, 200);
        assert_eq!(kyc_status(&fixture.app, id).await, "approved");
    }
    change(&fixture.app, id, &Command::ChangePhone(CheckId::generate())).await;
    let busy = fixture.request(id).await;
    insta::assert_json_snapshot!("compliance_update_in_progress", busy.redacted());
    // A rejection allows a new verification.
    let id = ready(&fixture.app).await;
    let first = fixture.request(id).await["verification_id"].as_str().unwrap().to_owned();
    assert_eq!(fixture.send(&fixture.decide(&first, red(&["FORGERY"]))).await.status, 200);
    assert_eq!(kyc_status(&fixture.app, id).await, "rejected");
    let anew = fixture.request(id).await;
    anew.assert(202, json!({ "kyc_status": "pending" }));
    assert_ne!(anew["verification_id"], first.as_str());
    assert_eq!(fixture.send(&fixture.decide(&first, green())).await.status, 200);
    assert_eq!(kyc_status(&fixture.app, id).await, "pending", "the old check has ended");
    // An outage of the provider delays only the link.
    fixture.remote.set_down(true);
    let id = ready(&fixture.app).await;
    let asked = fixture.request(id).await;
    insta::assert_json_snapshot!("compliance_asked_without_link", shown(&asked));
    fixture.remote.set_down(false);
    let linked = async || {
        let again = fixture.request(id).await;
        assert_eq!(again["verification_id"], asked["verification_id"]);
        again["verification_url"].is_string().then_some(())
    };
    until("there is a link", linked).await;
}

#[tokio::test]
async fn missing_requirements_are_named() {
    let fixture = Fixture::new().await;
    let app = &fixture.app;
    let fresh = customer(app, CustomerKind::Business, &[]).await;
    let reply = fixture.request(fresh).await;
    insta::assert_json_snapshot!("compliance_tos_not_accepted", reply.redacted());
    change(app, fresh, &Command::AcceptTerms).await;
    change(app, fresh, &residence()).await;
    let reply = fixture.request(fresh).await;
    insta::assert_json_snapshot!("compliance_documents_missing", reply.redacted());
    change(app, fresh, &Command::Deactivate).await;
    fixture.request(fresh).await.assert_problem(409, "customer_inactive");

    let key = app.stranger().await;
    let own = ready(app).await;
    let body = json!({ "customer_id": own });
    let reply = app.post_as(&key, PATH, &body).await;
    insta::assert_json_snapshot!("compliance_foreign_customer", reply.redacted());
    fixture.request(CustomerId::generate()).await.assert_problem(404, "customer_not_found");
    let cases = [
        (json!({}), "customer_id: required"),
        (json!({ "customer_id": 7 }), "customer_id: wrong_type"),
        (json!({ "customer_id": "cr_1" }), "customer_id: invalid_id"),
    ];
    assert_refused(&cases, async |body| app.post(PATH, body).await).await;
    let reader = app.add_key(app.psp_id, &[Scope::Read, Scope::Payments]).await;
    app.post_as(&reader, PATH, &body).await.assert_problem(403, "missing_scope");
    assert_eq!(app.count::<checks::Entity>().await, 0);
    // Without a provider.
    let app = TestApp::start().await;
    let id = ready(&app).await;
    let reply = app.post(PATH, &json!({ "customer_id": id })).await;
    insta::assert_json_snapshot!("compliance_unconfigured", reply.redacted());
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(app.count::<checks::Entity>().await, 0);
    let callback = app.request(Method::POST, CALLBACKS).without_key().bytes("{}").send().await;
    callback.assert_problem(404, "provider_not_found");
}

#[tokio::test]
async fn repeated_request_returns_the_first_answer() {
    let fixture = Fixture::new().await;
    let id = ready(&fixture.app).await;
    let ask = async || fixture.app.post_keyed("k", PATH, &json!({ "customer_id": id })).await;
    let first = ask().await.ok(202);
    let callback = fixture.decide(first["verification_id"].as_str().unwrap(), green());
    assert_eq!(fixture.send(&callback).await.status, 200);
    ask().await.assert_replays(&first);
    let other = json!({ "customer_id": ready(&fixture.app).await });
    fixture.app.post_keyed("k", PATH, &other).await.assert_problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn forged_callbacks_change_nothing() {
    let fixture = Fixture::new().await;
    let id = ready(&fixture.app).await;
    let verification = fixture.request(id).await["verification_id"].as_str().unwrap().to_owned();
    let genuine = fixture.decide(&verification, green());
    let forged = fixture.send(&Callback { digest: "ab".repeat(32), ..genuine.clone() }).await;
    insta::assert_json_snapshot!("compliance_callback_forged", forged.redacted());
    let stale = fixture.remote.callback_at(&verification, chrono::Utc::now() - chrono::TimeDelta::days(3));
    fixture.send(&stale).await.assert_problem(401, "callback_not_genuine");
    let unsigned = fixture.app.request(Method::POST, CALLBACKS).without_key().bytes(genuine.body.clone()).send().await;
    unsigned.assert_problem(401, "callback_not_genuine");
    // The PSP's API key proves nothing here.
    let keyed = fixture.app.request(Method::POST, CALLBACKS).bytes(genuine.body.clone()).send().await;
    keyed.assert_problem(401, "callback_not_genuine");
    let unreadable = fixture.send(&sign(&json!({"type": "applicantReviewed"}))).await;
    insta::assert_json_snapshot!("compliance_callback_unreadable", unreadable.redacted());
    let elsewhere = fixture.app.request(Method::POST, "/compliance/callbacks/didit").without_key();
    let elsewhere = elsewhere.bytes(genuine.body.clone()).send().await;
    insta::assert_json_snapshot!("compliance_callback_unknown_provider", elsewhere.redacted());
    let huge = fixture.app.request(Method::POST, CALLBACKS).without_key().bytes("x".repeat(70_000)).send().await;
    huge.assert_problem(413, "body_too_large");
    assert_eq!(kyc_status(&fixture.app, id).await, "pending");
    // A check of another system, correctly signed.
    let mut foreign: Value = serde_json::from_str(&genuine.body).unwrap();
    foreign["externalUserId"] = json!(CheckId::generate());
    assert_eq!(fixture.send(&sign(&foreign)).await.status, 200);
    let mut other_session: Value = serde_json::from_str(&genuine.body).unwrap();
    other_session["applicantId"] = json!("000000000000000000000000");
    assert_eq!(fixture.send(&sign(&other_session)).await.status, 200);
    assert_eq!(kyc_status(&fixture.app, id).await, "pending");
    assert_eq!(fixture.send(&genuine).await.status, 200);
    assert_eq!(kyc_status(&fixture.app, id).await, "approved");
    // A callback that cannot be recorded gets 503.
    let id = ready(&fixture.app).await;
    let verification = fixture.request(id).await["verification_id"].as_str().unwrap().to_owned();
    let genuine = fixture.decide(&verification, green());
    fixture.app.state.database().clone().close().await.unwrap();
    fixture.send(&genuine).await.assert_problem(503, "database_unavailable");
    // A forged callback is refused without a database query.
    fixture.send(&Callback { digest: "ab".repeat(32), ..genuine }).await.assert_problem(401, "callback_not_genuine");
}

#[tokio::test]
async fn callbacks_are_rate_limited_per_address() {
    let callbacks_per_minute = std::num::NonZeroU32::new(2);
    let limits = Some(payferry_httpkit::Limits { callbacks_per_minute, ..payferry_httpkit::Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { limits, ..TestConfig::default() }).await;
    let send = || app.request(Method::POST, CALLBACKS).without_key().bytes("{}").send();
    for _ in 0..2 {
        send().await.assert_problem(404, "provider_not_found");
    }
    let refused = send().await;
    refused.assert_problem(429, "rate_limited");
    assert!(refused.header("retry-after").is_some());
}
