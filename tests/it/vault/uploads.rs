//! Documents: uploads, refusals, and access to stored documents.

use futures::FutureExt;
use payferry_accounts::documents::{AT_ONCE_MAX, DOCUMENT_BYTES_MAX, delete_replaced};
use payferry_entities::{audit_log, customer_documents};
use reqwest::StatusCode;

use crate::prelude::*;

const BOUNDARY: &str = "----payferry-test";
const PDF: &[u8] = b"%PDF-1.7\nMARKED RESIDENCE";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\nMARKED PICTURE";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x10JFIF MARKED PHOTO";

/// Encodes a form of these parts: name, file name, content.
pub(super) fn form(parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, content) in parts {
        let file = file.map(|file| format!("; filename=\"{file}\"\r\nContent-Type: text/html")).unwrap_or_default();
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

pub(super) fn upload(app: &TestApp, body: Vec<u8>) -> Call {
    let call = app.request(Method::PATCH, "/api/v1/customers/uploads").bytes(body);
    call.header("content-type", &format!("multipart/form-data; boundary={BOUNDARY}"))
}

/// Creates a customer of the first PSP.
async fn customer(app: &TestApp, kind: &str) -> String {
    let address = json!({ "street_line_1": "1 High Street", "city": "London", "country": "GBR" });
    let mut made = json!({
        "type": kind, "country": "GBR", "currency": "GBP", "email": "ada@example.com", "first_name": "Ada",
        "last_name": "Lovelace", "dob": "1990-12-10", "government_id_number": "P1234567",
        "residential_address": address,
    });
    if kind == "business" {
        let business = json!({ "business_name": "Engines", "incorporation_certificate_number": "INC-1",
            "business_tax_id": "12", "ownership_percentage": "60", "registered_business_address": address });
        made = with(&made, &business);
    }
    let reply = app.post("/api/v1/customers", &made).await.ok(201);
    reply["customers"][0]["id"].as_str().unwrap().to_owned()
}

/// All stored data: objects in the folder, rows in the table.
async fn stored(app: &TestApp) -> (usize, Vec<customer_documents::Model>) {
    fn files(folder: &std::path::Path) -> usize {
        let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
        entries.map(|entry| entry.unwrap().path()).map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
    }
    let rows = customer_documents::Entity::find().order_by_asc(customer_documents::Column::Id);
    (files(&app.documents_folder()), rows.all(app.reader()).await.unwrap())
}

async fn read(app: &TestApp, id: &str, kind: &str) -> Reply {
    app.get(&format!("/api/v1/customers/{id}/documents/{kind}")).await
}

#[tokio::test]
async fn documents_are_stored_listed_and_read_back() {
    let app = TestApp::start().await;
    let id = customer(&app, "business").await;
    let id_field = ("customer_id", None, id.as_bytes());
    let first = form(&[
        // The customer field comes last: nothing is stored before it is known.
        ("proof_of_residential_address", Some("residence.html"), PDF),
        ("incorporation_certificate", Some("../../../etc/passwd"), PNG),
        id_field,
    ]);
    let taken = upload(&app, first).send().await;
    insta::assert_json_snapshot!("uploaded", taken.redacted());
    let (files, rows) = stored(&app).await;
    assert_eq!((files, rows.len()), (2, 2));
    let record = &taken["customer"];
    for row in &rows {
        assert_eq!(record[&row.kind], row.path.as_str());
        assert_eq!(row.path, format!("customers/{id}/{}", row.id), "the service chooses the names");
        let sealed = std::fs::read(app.documents_folder().join(&row.path)).unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"MARKED"));
    }
    assert_eq!(app.get(&format!("/api/v1/customers/{id}")).await["customer"], *record);

    for (kind, content, media, name) in [
        ("proof_of_residential_address", PDF, "application/pdf", "proof_of_residential_address.pdf"),
        ("incorporation_certificate", PNG, "image/png", "incorporation_certificate.png"),
    ] {
        let back = read(&app, &id, kind).await;
        assert_eq!((back.status, back.bytes.as_slice()), (StatusCode::OK, content));
        for (header, value) in [
            ("content-type", media),
            ("content-disposition", &format!("attachment; filename=\"{name}\"")),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(back.header(header), Some(value));
        }
    }
    read(&app, &id, "verification_document").await.assert_problem(404, "document_not_found");
    read(&app, &id, "..%2F..%2Fpasswd").await.assert_problem(404, "document_not_found");

    let again = form(&[id_field, ("incorporation_certificate", Some("x"), JPEG)]);
    assert_eq!(upload(&app, again).send().await.status, 200);
    let back = read(&app, &id, "incorporation_certificate").await;
    assert_eq!((back.bytes.as_slice(), back.header("content-type")), (JPEG, Some("image/jpeg")));
    let (files, rows) = stored(&app).await;
    assert_eq!((files, rows.len()), (3, 3), "replaced documents are kept");
    assert_eq!(
        rows.iter().filter(|row| row.replaced_at.is_some()).map(|row| row.kind.as_str()).collect::<Vec<_>>(),
        ["incorporation_certificate"]
    );
}

#[tokio::test]
async fn invalid_uploads_are_refused_and_nothing_is_stored() {
    let app = TestApp::start().await;
    let (id, business) = (customer(&app, "individual").await, customer(&app, "business").await);
    let gone = customer(&app, "individual").await;
    app.request(Method::DELETE, &format!("/api/v1/customers/{gone}")).send().await;
    let other = app.stranger().await;
    let own = ("customer_id", None, id.as_bytes());
    let pdf = ("proof_of_residential_address", Some("a.pdf"), PDF);
    let six_mib = [PDF, &vec![b'x'; 6 * 1024 * 1024]].concat();
    let just_too_large = [PDF, &vec![b'x'; DOCUMENT_BYTES_MAX + 1 - PDF.len()]].concat();
    let residence = "proof_of_residential_address";
    let (invalid, large) = ((422, "validation_failed"), (413, "document_too_large"));
    for (parts, (status, code), faults) in [
        (vec![own, (residence, Some("a.pdf"), b"<html>")], invalid, "proof_of_residential_address: unsupported_type"),
        (vec![own, (residence, Some("a.pdf"), b"")], invalid, "proof_of_residential_address: empty"),
        (vec![own, (residence, Some("a.pdf"), &six_mib)], large, "proof_of_residential_address: too_large"),
        (vec![own, (residence, None, &just_too_large)], large, "proof_of_residential_address: too_large"),
        (vec![own, pdf, pdf], invalid, "proof_of_residential_address: duplicate"),
        (vec![own, own, pdf], invalid, "customer_id: duplicate"),
        (vec![own, pdf, ("passport", None, PDF)], invalid, "passport: unknown_field"),
        (vec![own], invalid, "documents: required"),
        (vec![pdf], invalid, "customer_id: required"),
        (vec![], invalid, "customer_id: required, documents: required"),
        (vec![("customer_id", None, b"cr_x"), pdf], invalid, "customer_id: invalid_id"),
        (vec![("customer_id", None, b"cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3"), pdf], (404, "customer_not_found"), ""),
        (vec![own, ("incorporation_certificate", None, PDF)], invalid, "incorporation_certificate: not_for_this_type"),
        (vec![("customer_id", None, gone.as_bytes()), pdf], (409, "customer_inactive"), ""),
    ] {
        let refused = upload(&app, form(&parts)).send().await;
        refused.assert_problem(status, code);
        assert_eq!(refused.faults(), faults);
    }
    let whole = form(&[own, pdf]);
    for cut in [0, 10, 100, whole.len() / 2, whole.len() - 30, whole.len() - 5] {
        upload(&app, whole[..cut].to_vec()).send().await.assert_problem(400, "malformed_multipart");
    }
    for (sort, status, code) in [
        ("multipart/form-data", 400, "malformed_multipart"),
        ("multipart/form-data; boundary=another", 400, "malformed_multipart"),
        ("application/json", 415, "unsupported_media_type"),
    ] {
        upload(&app, whole.clone()).header("content-type", sort).send().await.assert_problem(status, code);
    }
    let many: Vec<_> = (0..50).map(|_| ("x", None, &b"y"[..])).collect();
    upload(&app, form(&many)).send().await.assert_problem(400, "malformed_multipart");
    let huge = vec![b'x'; 33 * 1024 * 1024];
    upload(&app, form(&[own, (residence, None, &huge)])).send().await.assert_problem(413, "body_too_large");
    upload(&app, whole).key(&other).send().await.assert_problem(404, "customer_not_found");
    assert_eq!(stored(&app).await, (0, Vec::new()));
    let untouched = app.get(&format!("/api/v1/customers/{business}")).await;
    assert!(untouched["customer"]["proof_of_residential_address"].is_null());

    let largest = [PDF, &vec![b'x'; DOCUMENT_BYTES_MAX - PDF.len()]].concat();
    assert_eq!(upload(&app, form(&[own, (residence, None, &largest)])).send().await.status, 200);
    assert_eq!(read(&app, &id, residence).await.bytes.len(), DOCUMENT_BYTES_MAX);
}

/// Replaces every `old` in `bytes` by `new`, of equal length.
fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let mut bytes = bytes.to_vec();
    for at in 0..=bytes.len() - old.len() {
        if bytes[at..].starts_with(old) {
            bytes[at..at + new.len()].copy_from_slice(new);
        }
    }
    bytes
}

#[tokio::test]
async fn repeated_form_is_one_upload() {
    let app = TestApp::start().await;
    let id = customer(&app, "individual").await;
    let parts = [("customer_id", None, id.as_bytes()), ("verification_document", Some("p"), PNG)];
    let first = upload(&app, form(&parts)).idempotency_key("up-1").send().await.ok(200);
    // From a client that creates a new boundary each time and changes the order.
    let again = replaced(&form(&[parts[1], parts[0]]), BOUNDARY.as_bytes(), b"----another-one00");
    let call = upload(&app, again).header("content-type", "multipart/form-data; boundary=----another-one00");
    let replayed = call.idempotency_key("up-1").send().await;
    replayed.assert_replays(&first);
    let another = form(&[parts[0], ("verification_document", Some("p"), PDF)]);
    upload(&app, another).idempotency_key("up-1").send().await.assert_problem(422, "idempotency_key_reused");
    assert_eq!(stored(&app).await.1.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_uploads_is_current() {
    let app = TestApp::start().await;
    let id = customer(&app, "individual").await;
    let all = (0..12).map(|number| {
        let content = [PDF, format!("{number}").as_bytes()].concat();
        upload(&app, form(&[("customer_id", None, id.as_bytes()), ("verification_document", None, &content)])).send()
    });
    for reply in futures::future::join_all(all).await {
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let (files, rows) = stored(&app).await;
    assert_eq!((files, rows.iter().filter(|row| row.replaced_at.is_none()).count()), (12, 1));
}

#[tokio::test]
async fn only_owner_and_operator_read_documents_and_reads_are_audited() {
    let service = ServiceFixture::start().await;
    let app = &service.app;
    let id = customer(app, "individual").await;
    let residence = "proof_of_residential_address";
    upload(app, form(&[("customer_id", None, id.as_bytes()), (residence, None, PDF)])).send().await;
    let path = format!("/api/v1/customers/{id}/documents/{residence}");
    let stranger = app.stranger().await;
    let reader = app.add_key(app.psp_id, &[Scope::Read, Scope::Payments]).await;
    let call = || app.request(Method::GET, &path);
    call().key(&stranger).send().await.assert_problem(404, "customer_not_found");
    call().key(&reader).send().await.assert_problem(403, "missing_scope");
    call().without_key().send().await.assert_problem(401, "api_key_missing");
    let ops = format!("/ops/customers/{id}/documents/{residence}");
    let bare = service.bare(Method::GET, &ops).send().await.unwrap();
    assert_eq!(bare.status(), 401);
    let with_key = service.bare(Method::GET, &ops).bearer_auth(&app.key).send().await.unwrap();
    assert_eq!(with_key.status(), 401);

    assert_eq!(call().send().await.bytes, PDF);
    let operator = service.get(&ops).await;
    assert_eq!((operator.status, operator.bytes.as_slice()), (StatusCode::OK, PDF));
    assert_eq!(operator.header("content-disposition"), Some(&*format!("attachment; filename=\"{residence}.pdf\"")));
    service.get(&ops.replace(residence, "verification_document")).await.assert_problem(404, "document_not_found");
    service.get("/ops/customers/cr_x/documents/verification_document").await.assert_problem(404, "customer_not_found");

    let entries = audit_log::Entity::find().order_by_asc(audit_log::Column::Number);
    let entries = entries.all(app.reader()).await.unwrap();
    let read: Vec<_> = entries.iter().filter(|entry| entry.action == "customer.document_read").collect();
    assert_eq!(read.iter().map(|entry| entry.actor_kind.as_str()).collect::<Vec<_>>(), ["api_key", "operator"]);
    assert!(read.iter().all(|entry| entry.subject == id && entry.detail.contains(residence)));
}

#[tokio::test]
async fn quota_of_a_psp_counts_replaced_documents() {
    let documents_of_psp_max = Some(2 * PDF.len() as u64);
    let app = TestApp::start_with(TestConfig { documents_of_psp_max, ..TestConfig::default() }).await;
    let id = customer(&app, "individual").await;
    let document = form(&[("customer_id", None, id.as_bytes()), ("verification_document", None, PDF)]);
    for _ in 0..2 {
        assert_eq!(upload(&app, document.clone()).send().await.status, 200);
    }
    upload(&app, document.clone()).send().await.assert_problem(409, "document_quota_exceeded");
    assert_eq!(stored(&app).await.0, 2, "nothing was stored");

    // When replaced documents are deleted, there is room again.
    let (store, database) = (&app.state.config.documents, app.state.system.database());
    let now: Timestamp = app.state.system.clock().real_now();
    assert_eq!(delete_replaced(store, database, now.plus_secs(-3_600)).await.unwrap(), 0, "it was replaced just now");
    assert_eq!(delete_replaced(store, database, now.plus_secs(1)).await.unwrap(), 1);
    let (files, rows) = stored(&app).await;
    assert_eq!((files, rows.len(), rows[0].replaced_at), (1, 1, None));
    assert_eq!(read(&app, &id, "verification_document").await.bytes, PDF);
    assert_eq!(upload(&app, document).send().await.status, 200);
}

#[tokio::test]
async fn requests_of_one_psp_leave_documents_to_others_and_the_operator() {
    let app = TestApp::start().await;
    let (store, psp) = (&app.state.config.documents, app.psp_id);
    let own = [store.turn(Some(psp)).await, store.turn(Some(psp)).await];
    assert!(own.iter().all(Result::is_ok));
    assert!(store.turn(Some(psp)).now_or_never().is_none(), "it waits");
    let mut others = Vec::new();
    while let Some(turn) = store.turn(Some(PspId::generate())).now_or_never() {
        others.push(turn.unwrap());
    }
    assert_eq!(others.len(), AT_ONCE_MAX - own.len());
    assert!(store.turn(None).now_or_never().is_some_and(|turn| turn.is_ok()), "the operator has its own");
    drop(own);
    assert!(store.turn(Some(psp)).now_or_never().is_some());
}
