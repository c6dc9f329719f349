//! Customers of a sandbox process: verification on its page and through its route, automatic screening, also across a
//! kill.

use std::time::{Duration, Instant};

use payferry_domain::customer::{Command, DocumentKind, Documents};
use payferry_entities::Database;
use payferry_harness::psp;
use payferry_journal::audit::Actor;
use payferry_journal::customers::Opened;
use payferry_runtime::clock::Clock;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::call::{assert_has, with};
use crate::process::{Home, Running};

/// Submits a button of the verification page.
async fn press(page: &str, decision: &str) -> StatusCode {
    let form = ("content-type", "application/x-www-form-urlencoded");
    let sent = reqwest::Client::new().post(page).header(form.0, form.1).body(format!("decision={decision}"));
    sent.send().await.unwrap().status()
}

/// Time limit of a screening in the sandbox by the interface, and a margin for a busy machine.
const SCREENED_WITHIN: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(10);

/// Creates a person.
pub(crate) async fn person(sandbox: &Running) -> String {
    let body = with(&psp::person("ada@example.com"), &json!({ "phone_number": "+442079460000" }));
    let made = sandbox.ok(Method::POST, "/api/v1/customers", Some(body)).await;
    made["customers"][0]["id"].as_str().unwrap().to_owned()
}

/// Accepts the terms on their page and adds the required documents directly in the database.
pub(crate) async fn make_ready(sandbox: &Running, customer: &str) {
    sandbox.psp().accept_terms(customer).await;
    let database = Database::open(&sandbox.home.database_url()).await.unwrap();
    let mut opened = Opened::find(&database, customer.parse().unwrap(), None).await.unwrap();
    let documents = Command::AddDocuments(Documents::NONE.with(DocumentKind::ProofOfResidentialAddress));
    opened.apply(&documents, &Actor::Service, Clock::default().now()).await.unwrap();
    opened.commit().await.unwrap();
    database.close().await.unwrap();
}

/// Requests the verification of a customer.
pub(crate) async fn verify(sandbox: &Running, customer: &str) -> Value {
    sandbox.ok(Method::POST, "/customers/compliance", Some(json!({ "customer_id": customer }))).await
}

async fn status(sandbox: &Running, customer: &str) -> Value {
    let read = sandbox.ok(Method::GET, &format!("/api/v1/customers/{customer}"), None).await;
    read["customer"]["kyc_status"].clone()
}

#[tokio::test]
async fn verification_survives_a_kill_and_is_decided_on_its_page() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let customer = person(&sandbox).await;
    make_ready(&sandbox, &customer).await;
    let asked = verify(&sandbox, &customer).await;
    let path = |asked: &Value| {
        let url = asked["verification_url"].as_str().unwrap();
        url[url.find("/sandbox/verify/").unwrap()..].to_owned()
    };
    sandbox.kill();

    let sandbox = Running::start(&home);
    let again = verify(&sandbox, &customer).await;
    assert_eq!(again["verification_id"], asked["verification_id"]);
    assert_eq!(path(&again), path(&asked), "the earlier link still works");
    let page = format!("{}{}", sandbox.text("api_url"), path(&asked));
    let http = reqwest::Client::new();
    let shown = http.get(&page).send().await.unwrap();
    assert_eq!(shown.status(), StatusCode::OK);
    assert!(shown.text().await.unwrap().contains("Approve"));
    for forged in [format!("{page}0"), page.replace("/ver_", "/VER_"), format!("{}x", &page[..page.len() - 1])] {
        assert_eq!(http.get(&forged).send().await.unwrap().status(), StatusCode::NOT_FOUND, "{forged}");
        assert_eq!(press(&forged, "approve").await, StatusCode::NOT_FOUND, "{forged}");
    }
    assert_eq!(press(&page, "perhaps").await, StatusCode::BAD_REQUEST);
    assert_eq!(status(&sandbox, &customer).await, "pending");
    assert_eq!(press(&page, "approve").await, StatusCode::OK);
    sandbox.kill();

    let sandbox = Running::start(&home);
    assert_eq!(status(&sandbox, &customer).await, "approved");
    let page = format!("{}{}", sandbox.text("api_url"), path(&asked));
    assert_eq!(press(&page, "reject").await, StatusCode::CONFLICT);
    assert_eq!(status(&sandbox, &customer).await, "approved");
}

#[tokio::test]
async fn route_decides_and_a_change_is_screened_automatically() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let customer = person(&sandbox).await;
    let kyc = format!("/sandbox/customers/{customer}/kyc");
    let call = async |body: Value| sandbox.call(Method::POST, &kyc, Some(body)).await;
    let (refused, problem) = call(json!({"outcome": "approved"})).await;
    assert_eq!((refused, &problem["code"]), (StatusCode::CONFLICT, &json!("tos_not_accepted")));
    make_ready(&sandbox, &customer).await;
    for (body, field) in [
        (json!({}), "outcome"),
        (json!({"outcome": "perhaps"}), "outcome"),
        (json!({"outcome": "rejected", "reasons": []}), "reasons"),
        (json!({"outcome": "rejected", "reasons": [7]}), "reasons"),
    ] {
        let (status, problem) = call(body.clone()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
        assert_eq!(problem["errors"][0]["field"], field, "{body}");
    }
    let (_, rejected) = call(json!({"outcome": "rejected", "reasons": ["blurred"]})).await;
    assert_eq!(rejected["kyc_status"], "rejected", "{rejected:#}");
    let read = sandbox.ok(Method::GET, &format!("/api/v1/customers/{customer}"), None).await;
    assert_eq!(read["customer"]["rejection_reasons"], json!(["blurred"]));
    let anew = verify(&sandbox, &customer).await;
    let (_, approved) = call(json!({"outcome": "approved"})).await;
    assert_has(&approved, json!({ "kyc_status": "approved", "verification_id": anew["verification_id"] }));
    let (refused, problem) = call(json!({"outcome": "approved"})).await;
    assert_eq!((refused, &problem["code"]), (StatusCode::CONFLICT, &json!("already_cleared")));

    let path = format!("/api/v1/customers/{customer}");
    let changed = sandbox.ok(Method::PATCH, &path, Some(json!({"phone_number": "+442079460001"}))).await;
    assert_eq!(changed["customer"]["kyc_status"], "pending_update");
    let since = Instant::now();
    sandbox.until(&path, |read| read["customer"]["kyc_status"] == "approved").await;
    println!("screened within {:?}", since.elapsed());
    assert!(since.elapsed() < SCREENED_WITHIN + SLACK, "{:?}", since.elapsed());

    // A screening is in progress when the process is killed.
    sandbox.ok(Method::PATCH, &path, Some(json!({"phone_number": "+442079460002"}))).await;
    sandbox.kill();
    let sandbox = Running::start(&home);
    sandbox.until(&path, |read| read["customer"]["kyc_status"] == "approved").await;
}
