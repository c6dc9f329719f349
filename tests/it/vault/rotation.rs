//! `payferry rotate-keys` and its effects.

use payferry::rotation::{Outcome, rotate};
use payferry_accounts::documents::{DocumentLocation, DocumentStore};
use payferry_domain::DocumentId;
use payferry_entities::{CheckStatus, checks, customer_documents, customers, payment_details};
use payferry_runtime::seal::{MasterKeys, Sealer};
use sea_orm::sea_query::Expr;

use super::{add_customer, dump};
use crate::prelude::*;
use crate::process::{Home, Running, payferry};

/// The first key and a second one.
fn both() -> MasterKeys {
    let mut keys = MasterKeys::one(MASTER_KEY);
    keys.add([8; 32]);
    keys
}

/// The second key alone, with the `hash` line.
fn second() -> MasterKeys {
    let lines: Vec<_> = both().expose().lines().filter(|line| !line.starts_with("1:")).map(str::to_owned).collect();
    lines.join("\n").parse().unwrap()
}

fn of<'a>(outcomes: &'a [Outcome], place: &str) -> &'a Outcome {
    outcomes.iter().find(|outcome| outcome.place == place).unwrap()
}

fn counts(outcomes: &[Outcome]) -> Vec<String> {
    let line = |outcome: &Outcome| {
        format!("{} {} {} {}", outcome.place, outcome.resealed, outcome.current, outcome.unopened_count)
    };
    outcomes.iter().map(line).collect()
}

struct Kept {
    customer: CustomerId,
    document: DocumentLocation,
}

/// Creates a sealed value in every place.
async fn fill(app: &TestApp) -> Kept {
    let hook = json!({ "webhook_url": "http://127.0.0.1:9/x" });
    app.request(Method::PATCH, "/api/v1/set_webhook").idempotency_key("hook-1").json(&hook).send().await;
    app.request(Method::POST, "/api/v1/webhook/rotate").send().await;
    let customer = add_customer(app, "the first").await;
    let (id, sealer) = (customer.to_string(), app.state.sealer());
    let details = payment_details::Model {
        customer_id: id.clone(),
        wallet_address: None,
        details: sealer.seal(&["payment_details", &id, "details"], b"an account"),
        created_at: 0,
        updated_at: 0,
    };
    app.insert(details).await;
    let check = CheckId::generate().to_string();
    let row = checks::Model {
        url: Some(sealer.seal(&["checks", &check, "url"], b"https://verify.example/secret")),
        id: check,
        customer_id: id.clone(),
        psp_id: app.psp_id.to_string(),
        purpose: "identity".to_owned(),
        revision: 1,
        status: CheckStatus::Open,
        provider: None,
        provider_ref: None,
        attempts: 0,
        next_attempt_at: None,
        last_error: None,
        created_at: 0,
        updated_at: 0,
    };
    app.insert(row).await;
    let document = DocumentLocation { customer_id: customer, document_id: DocumentId::generate() };
    app.state.config.documents.put(document, b"%PDF-1.7 one".to_vec()).await.unwrap();
    let row = customer_documents::Model {
        id: document.document_id.to_string(),
        customer_id: id,
        kind: "proof_of_residential_address".to_owned(),
        path: document.to_string(),
        media_type: "application/pdf".to_owned(),
        size: 12,
        uploaded_at: 0,
        replaced_at: None,
    };
    app.insert(row).await;
    Kept { customer, document }
}

#[tokio::test]
async fn rotation_reseals_everything_and_retires_the_old_key() {
    let app = TestApp::start().await;
    let kept = fill(&app).await;
    let database = app.state.database();
    let connection = app.database.connect().await;
    let before = dump(&connection).await;
    assert_eq!(before.matches(": v1.").count(), 6, "one in every place: {before}");

    let sealer = Sealer::of(&both());
    let documents = DocumentStore::in_folder(&app.documents_folder(), sealer.clone()).unwrap();
    let mut steps = 0;
    let outcomes = rotate(database, &sealer, &documents, |_| steps += 1).await.unwrap();
    let expected = [
        "webhook_endpoints.secret",
        "webhook_endpoints.previous_secret",
        "idempotency_keys.response_body",
        "customers.particulars",
        "payment_details.details",
        "checks.url",
        "documents",
    ];
    assert_eq!(counts(&outcomes), expected.map(|place| format!("{place} 1 0 0")));
    assert_eq!(steps, 7);
    let after = dump(&connection).await;
    assert!(!after.contains(": v1.") && after.matches(": v2.").count() == 6, "{after}");

    // The first key is no longer needed, including for hashes.
    let second = Sealer::of(&second());
    let row = customers::Entity::find_by_id(kept.customer.to_string()).one(database.reader()).await.unwrap().unwrap();
    let place = ["customers", &row.id, "particulars"];
    assert_eq!(*second.open(&place, &row.particulars).unwrap(), b"the first");
    let documents = DocumentStore::in_folder(&app.documents_folder(), second.clone()).unwrap();
    assert_eq!(documents.get(kept.document).await.unwrap().as_slice(), b"%PDF-1.7 one");
    assert_eq!(second.keyed_hash(&[b"x"]), app.state.sealer().keyed_hash(&[b"x"]));
    assert!(app.state.sealer().open(&place, &row.particulars).unwrap_err().to_string().contains("version 2"));

    let again = rotate(database, &second, &documents, |_| {}).await.unwrap();
    assert_eq!(counts(&again), expected.map(|place| format!("{place} 0 1 0")), "a second run has nothing to do");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_during_rotation_are_kept() {
    const ROWS: usize = 450;
    let app = TestApp::start().await;
    let mut ids = Vec::new();
    for _ in 0..ROWS {
        ids.push(add_customer(&app, "before").await);
    }
    let sealer = Sealer::of(&both());
    let documents = DocumentStore::in_folder(&app.documents_folder(), sealer.clone()).unwrap();
    let write = |id: CustomerId, sealer: Sealer| {
        let (id, app) = (id.to_string(), &app);
        async move {
            let sealed = sealer.seal(&["customers", &id, "particulars"], b"changed");
            let update = customers::Entity::update_many()
                .col_expr(customers::Column::Particulars, Expr::value(sealed))
                .filter(customers::Column::Id.eq(id));
            update.exec(app.writer()).await.unwrap();
        }
    };
    // One service already seals with the new key, another one still with the old key.
    let changing = async {
        for (index, id) in ids.iter().enumerate().filter(|(index, _)| index % 3 == 0) {
            write(*id, if index % 2 == 0 { sealer.clone() } else { app.state.sealer().clone() }).await;
        }
    };
    let (outcomes, ()) = tokio::join!(rotate(app.state.database(), &sealer, &documents, |_| {}), changing);
    let outcomes = outcomes.unwrap();
    let customers = of(&outcomes, "customers.particulars");
    assert_eq!((customers.checked_len(), customers.unopened_count), (ROWS as u64, 0));
    // Values that the latter wrote after the scan are found by the next run.
    rotate(app.state.database(), &sealer, &documents, |_| {}).await.unwrap();
    let second = Sealer::of(&second());
    for (index, id) in ids.iter().enumerate() {
        let id = id.to_string();
        let row = customers::Entity::find_by_id(&id).one(app.reader()).await.unwrap().unwrap();
        let opened = second.open(&["customers", &id, "particulars"], &row.particulars).unwrap();
        assert_eq!(*opened, if index % 3 == 0 { &b"changed"[..] } else { b"before" }, "no change is lost");
    }
}

#[tokio::test]
async fn unopenable_values_are_listed_and_unchanged() {
    let app = TestApp::start().await;
    let kept = fill(&app).await;
    let other = add_customer(&app, "the second").await;
    let particulars = |value: String, id: CustomerId| {
        let update = customers::Entity::update_many().col_expr(customers::Column::Particulars, Expr::value(value));
        update.filter(customers::Column::Id.eq(id.to_string()))
    };
    let damaged = "v1.AAAAAAAAAAAAAAAA.MARKED".to_owned();
    particulars(damaged.clone(), kept.customer).exec(app.writer()).await.unwrap();
    let unknown = app.state.sealer().seal(&["x"], b"x").replacen("v1.", "v9.", 1);
    particulars(unknown, other).exec(app.writer()).await.unwrap();
    let object = app.documents_folder().join(kept.document.to_string());
    std::fs::remove_file(&object).unwrap();

    let sealer = Sealer::of(&both());
    let documents = DocumentStore::in_folder(&app.documents_folder(), sealer.clone()).unwrap();
    let outcomes = rotate(app.state.database(), &sealer, &documents, |_| {}).await.unwrap();
    let customers = of(&outcomes, "customers.particulars");
    assert_eq!((customers.resealed, customers.unopened_count), (0, 2));
    let notified = |id: CustomerId| &customers.unopened.iter().find(|one| one.row == id.to_string()).unwrap().why;
    assert!(notified(kept.customer).contains("does not open") && !notified(kept.customer).contains("MARKED"));
    assert!(notified(other).contains("version 9"));
    assert_eq!(of(&outcomes, "documents").unopened[0].row, kept.document.document_id.to_string());
    assert_eq!(of(&outcomes, "payment_details.details").resealed, 1, "the other values are done");
    let rows = dump(&app.database.connect().await).await;
    assert!(rows.contains(&damaged), "unchanged");
}

#[tokio::test]
async fn keys_of_a_sandbox_are_rotated() {
    let home = Home::embedded();
    let folder = home.path().to_str().unwrap().to_owned();
    let run = |args: &[&str]| payferry().arg("rotate-keys").args(args).args(["--data-dir", &folder]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut sandbox = Running::start(&home);
    let hook = format!("{}/sandbox/inbox/mine", sandbox.text("api_url"));
    sandbox.ok(Method::PATCH, "/api/v1/set_webhook", Some(json!({ "webhook_url": hook }))).await;
    sandbox.stop();

    let added = run(&["--add-key"]);
    assert!(added.status.success() && text(&added.stdout).contains("key version 2"), "{added:?}");
    sandbox = Running::start(&home);
    let rotated = run(&[]);
    let table = text(&rotated.stdout);
    assert!(rotated.status.success(), "{table} {}", text(&rotated.stderr));
    let line = table.lines().find(|line| line.starts_with("webhook_endpoints.secret ")).unwrap();
    assert_eq!(line.split_whitespace().skip(1).collect::<Vec<_>>(), ["1", "0", "0"], "{table}");
    assert!(table.contains("everything is sealed with key version 2"), "{table}");
    sandbox.stop();

    // Removes the first key.
    let file = home.path().join("keys.json");
    let mut keys: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let lines = keys["master_key"].as_str().unwrap().lines().filter(|line| !line.starts_with("1:"));
    keys["master_key"] = lines.collect::<Vec<_>>().join("\n").into();
    std::fs::write(&file, keys.to_string()).unwrap();
    sandbox = Running::start(&home);
    // It has another port now; the secret stays.
    let hook = format!("{}/sandbox/inbox/mine", sandbox.text("api_url"));
    sandbox.ok(Method::PATCH, "/api/v1/set_webhook", Some(json!({ "webhook_url": hook }))).await;
    sandbox.ok(Method::POST, "/api/v1/webhook/test", None).await;
    let inbox = sandbox.until("/sandbox/inbox/mine", |inbox| inbox["received"] == 1).await;
    assert_eq!(inbox["webhooks"][0]["verified"], true, "the key, the secret and its signature are unchanged");
    sandbox.stop();

    let connection = sea_orm::Database::connect(format!("sqlite://{}", home.path().join("payferry.db").display()));
    let connection = connection.await.unwrap();
    connection.execute_unprepared("UPDATE webhook_endpoints SET secret = 'v1.AAAA.AAAA'").await.unwrap();
    connection.close().await.unwrap();
    let refused = run(&[]);
    let complaint = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("webhook_endpoints.secret of psp_") && complaint.contains("version 1"), "{complaint}");
}
