//! Personal data is nowhere in plain text: neither in the database files nor in the documents nor in the log.

use std::path::Path;

use payferry_domain::customer::{Command, IdentityVerdict};
use payferry_journal::audit::Actor;
use sea_orm::Statement;

use super::dump;
use super::uploads::{form, upload};
use crate::http::compliance::Fixture;
use crate::http::logs::{heard, listen};
use crate::prelude::*;

/// Sealed values, each unique.
const SEALED: [&str; 17] = [
    "GOVID-ZX81-PERSON",
    "TAXID-ZX82-PERSON",
    "1937-03-29",
    "GOVID-ZX83-CONTACT",
    "1938-04-28",
    "TAXID-ZX84-BUSINESS",
    "GOVID-ZX85-OWNER",
    "TAXID-ZX86-OWNER",
    "1939-05-27",
    "98765432109876",
    "ZX87-DOCUMENT-FIRST",
    "ZX88-DOCUMENT-SECOND",
    "ZX89-GARBAGE",
    "Zerubbabel",
    "Quicksilver Lane",
    "+447700900987",
    "INC-ZX90",
];
/// Stored in plain text, for lists and searches.
const OPEN: &str = "zx91.person@example.com";

/// Performs every operation with a customer.
async fn story(app: &TestApp) {
    let address = json!({ "street_line_1": "7 Quicksilver Lane", "city": "London", "country": "GBR" });
    let person = json!({
        "type": "individual", "country": "GBR", "currency": "GBP", "email": OPEN, "first_name": "Zerubbabel",
        "last_name": "Smith", "dob": "1937-03-29", "government_id_number": "GOVID-ZX81-PERSON",
        "tax_id": "TAXID-ZX82-PERSON", "residential_address": address,
    });
    let create = app.request(Method::POST, "/api/v1/customers").idempotency_key("make-1").json(&person);
    let made = create.send().await.ok(201);
    let id = made["customers"][0]["id"].as_str().unwrap().to_owned();
    let owner = json!({
        "first_name": "Zerubbabel", "last_name": "Owner", "dob": "1939-05-27", "email": "owner@example.com",
        "phone_number": "+447700900123", "ownership_percentage": "30", "address": address,
        "government_id_type": "passport", "government_id_number": "GOVID-ZX85-OWNER", "tax_id": "TAXID-ZX86-OWNER",
    });
    let business = json!({
        "type": "business", "country": "GBR", "currency": "GBP", "email": "zx92@example.com",
        "first_name": "Zerubbabel", "last_name": "Contact", "dob": "1938-04-28",
        "government_id_number": "GOVID-ZX83-CONTACT",
        "residential_address": address, "business_name": "Engines", "incorporation_certificate_number": "INC-ZX90",
        "business_tax_id": "TAXID-ZX84-BUSINESS", "ownership_percentage": "60",
        "registered_business_address": address, "beneficiary_owners": [owner],
    });
    let made = app.post("/api/v1/customers", &business).await.ok(201);
    let company = made["customers"][0]["id"].as_str().unwrap().to_owned();

    let details = json!({ "customer_id": id, "bank_name": "Bank", "account_number": "98765432109876" });
    let set = app.request(Method::PATCH, "/api/v1/customers/payment-details").idempotency_key("pay-1").json(&details);
    assert_eq!(set.send().await.status, 200);
    let phone = app.request(Method::PATCH, &format!("/api/v1/customers/{id}")).idempotency_key("phone-1");
    assert_eq!(phone.json(&json!({ "phone_number": "+447700900987" })).send().await.status, 200);
    for content in ["%PDF-1.7 ZX87-DOCUMENT-FIRST", "%PDF-1.7 ZX88-DOCUMENT-SECOND"] {
        let residence = ("proof_of_residential_address", Some("Zerubbabel.pdf"), content.as_bytes());
        let sent = upload(app, form(&[("customer_id", None, id.as_bytes()), residence]));
        sent.idempotency_key(if content.ends_with("FIRST") { "doc-1" } else { "doc-2" }).send().await.ok(200);
    }
    // Rejected content is nowhere either.
    let garbage = [("customer_id", None, id.as_bytes()), ("proof_of_residential_address", None, b"ZX89-GARBAGE")];
    assert_eq!(upload(app, form(&garbage)).send().await.status, 422);
    let torn = form(&garbage);
    assert_eq!(upload(app, torn[..torn.len() - 40].to_vec()).send().await.status, 400);
    let wrong =
        json!({ "type": "individual", "government_id_number": "ZX89-GARBAGE", "dob": "1937-03-29", "email": "x" });
    assert_eq!(app.post("/api/v1/customers", &wrong).await.status, 422);
    let cut = app.request(Method::POST, "/api/v1/customers").bytes("{\"tax_id\": \"TAXID-ZX82-PERSON\", ");
    assert_eq!(cut.send().await.status, 400);

    decide(app, &id, IdentityVerdict::Approved).await;
    decide(app, &company, IdentityVerdict::Rejected { reasons: vec!["document_expired".to_owned()] }).await;
    for path in [
        format!("/api/v1/customers/{id}"),
        format!("/api/v1/customers/{company}"),
        format!("/api/v1/customers/{id}/documents/proof_of_residential_address"),
        "/api/v1/customers?search=zx91".to_owned(),
    ] {
        assert_eq!(app.get(&path).await.status, 200, "{path}");
    }
    assert_eq!(app.request(Method::DELETE, &format!("/api/v1/customers/{company}")).send().await.status, 200);
}

/// Concludes the verification of a customer as the operator.
async fn decide(app: &TestApp, id: &str, verdict: IdentityVerdict) {
    for command in [Command::AcceptTerms, Command::Decide(verdict)] {
        app.change_customer(id.parse().unwrap(), &command, &Actor::Operator).await;
    }
}

#[track_caller]
fn assert_hidden(place: &str, bytes: &[u8]) {
    // Non-text bytes do not matter: all values are ASCII.
    let text = String::from_utf8_lossy(bytes);
    for hidden in SEALED {
        assert!(!text.contains(hidden), "{hidden} is in {place}");
    }
}

/// Calls `each` for every readable file below a folder.
fn files(folder: &Path, each: &mut impl FnMut(&Path, &[u8])) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files(&path, each);
        } else if let Ok(bytes) = std::fs::read(&path) {
            each(&path, &bytes);
        }
    }
}

#[tokio::test]
async fn database_and_documents_contain_no_personal_data() {
    let app = TestApp::start().await;
    story(&app).await;
    let connection = app.database.connect().await;
    let rows = dump(&connection).await;
    assert!(rows.contains(OPEN) && rows.contains("payment_details.details: v1."), "the search works");
    assert_hidden("the tables", rows.as_bytes());

    let (mut documents, mut found_open) = (0, false);
    files(&app.documents_folder(), &mut |path, bytes| {
        documents += 1;
        assert_hidden(&path.display().to_string(), bytes);
    });
    assert_eq!(documents, 2);
    let mut raw = |path: &Path, bytes: &[u8]| {
        found_open |= String::from_utf8_lossy(bytes).contains(OPEN);
        assert_hidden(&path.display().to_string(), bytes);
    };
    let folder = if let Some(folder) = app.database.folder() {
        // The main file, the write-ahead log and the other files in the folder.
        folder.to_owned()
    } else {
        let sql = "SELECT current_setting('data_directory') || '/base/' || oid FROM pg_database \
                   WHERE datname = current_database()";
        let statement = Statement::from_string(connection.get_database_backend(), sql);
        let folder = connection.query_one_raw(statement).await.unwrap().unwrap();
        connection.execute_unprepared("CHECKPOINT").await.unwrap();
        folder.try_get_by_index::<String>(0).unwrap().into()
    };
    files(&folder, &mut raw);
    if app.database.is_postgres() && std::fs::read_dir(&folder).is_err() {
        // The server's files are not readable for the test; its tables were checked.
        return;
    }
    assert!(found_open, "the search works");
}

#[tokio::test]
async fn log_contains_no_personal_data() {
    listen();
    let app = TestApp::start_with_chains().await;
    story(&app).await;
    let log = heard();
    for shown in ["TRACE", "/api/v1/customers/uploads", &app.psp_id.to_string()] {
        assert!(log.contains(shown), "{shown} is not logged");
    }
    assert_hidden("the log", log.as_bytes());
    for hidden in [OPEN, "owner@example.com", "search=zx91", "+447700900123", "doc-1"] {
        assert!(!log.contains(hidden), "{hidden} is logged");
    }
}

#[tokio::test]
async fn log_contains_no_data_sent_to_a_provider() {
    listen();
    let fixture = Fixture::new().await;
    let app = &fixture.app;
    story(app).await;
    // A new number is screened: with it, name and date of birth go to the provider.
    let found = app.get("/api/v1/customers?search=zx91").await;
    let path = format!("/api/v1/customers/{}", found["customers"][0]["id"].as_str().unwrap());
    let notified = fixture.remote.applicants().len();
    let changed = app.patch(&path, &json!({ "phone_number": "+447700900986" })).await;
    assert_eq!(changed["customer"]["kyc_status"], "pending_update", "{}", changed.text());
    until("the provider receives the data", async || (fixture.remote.applicants().len() > notified).then_some(()))
        .await;
    let log = heard();
    assert!(log.contains("TRACE"));
    assert_hidden("the log", log.as_bytes());
    assert!(!log.contains("+447700900986"));
}
