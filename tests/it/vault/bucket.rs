//! Documents in an S3-compatible bucket, and removal of orphans from both kinds of store.

use std::path::Path;
use std::time::Duration;

use payferry::config::{Config, DocumentsSection};
use payferry_accounts::documents::{DocumentError, DocumentLocation, ORPHAN_AGE, sweep};
use payferry_domain::DocumentId;
use payferry_entities::customer_documents;
use payferry_harness::bucket::{BUCKET, Bucket, REGION};
use payferry_runtime::seal::Sealer;

use super::add_customer;
use crate::prelude::*;

const KEY_ID: &str = "AKIATEST";

fn config(folder: &Path, bucket: &Bucket, secret: &str) -> DocumentsSection {
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        Some(folder.join(name))
    };
    DocumentsSection {
        bucket: Some(BUCKET.to_owned()),
        endpoint: Some(bucket.url().parse().unwrap()),
        region: REGION.to_owned(),
        allow_http: true,
        access_key_id_file: file("id", &format!("{KEY_ID}\n")),
        secret_access_key_file: file("secret", secret),
        ..Config::default().documents
    }
}

fn somewhere() -> DocumentLocation {
    DocumentLocation { customer_id: CustomerId::generate(), document_id: DocumentId::generate() }
}

#[tokio::test]
async fn bucket_stores_documents_sealed() {
    let (temp, bucket) = (tempfile::tempdir().unwrap(), Bucket::start(KEY_ID, "the right secret").await);
    let open = |secret: &str, master: [u8; 32]| {
        payferry::service::documents::store(&config(temp.path(), &bucket, secret), Sealer::new(&master)).unwrap()
    };
    let (store, place) = (open("the right secret", MASTER_KEY), somewhere());
    store.put(place, b"%PDF-1.7 MARKED".to_vec()).await.unwrap();
    assert_eq!(store.get(place).await.unwrap().as_slice(), b"%PDF-1.7 MARKED");
    let objects = bucket.objects();
    assert_eq!(objects.keys().collect::<Vec<_>>(), [&place.to_string()]);
    let sealed = &objects[&place.to_string()];
    assert!(!sealed.windows(6).any(|window| window == b"MARKED"));

    let stranger = open("the right secret", [9; 32]).get(place).await;
    assert!(matches!(stranger, Err(DocumentError::Sealed(..))), "{stranger:?}");
    let forged = open("another secret", MASTER_KEY).put(somewhere(), b"%PDF-1.7".to_vec()).await;
    assert!(matches!(forged, Err(DocumentError::Store(_))), "{forged:?}");
    assert!(bucket.refused().iter().any(|refused| refused.ends_with("another signature")), "{:?}", bucket.refused());
    assert_eq!(bucket.objects().len(), 1);

    bucket.set_broken(true);
    assert!(matches!(store.get(place).await, Err(DocumentError::Store(_))));
    bucket.set_broken(false);
    store.delete(place).await.unwrap();
    store.delete(place).await.unwrap();
    assert!(matches!(store.get(place).await, Err(DocumentError::Missing(_))));
}

#[tokio::test]
async fn old_objects_without_a_row_are_removed() {
    let app = TestApp::start().await;
    let (temp, bucket) = (tempfile::tempdir().unwrap(), Bucket::start(KEY_ID, "secret").await);
    let config = config(temp.path(), &bucket, "secret");
    let store = payferry::service::documents::store(&config, Sealer::new(&MASTER_KEY)).unwrap();
    let customer_id = add_customer(&app, "x").await;
    let named = DocumentLocation { customer_id, document_id: DocumentId::generate() };
    let row = customer_documents::Model {
        id: named.document_id.to_string(),
        customer_id: customer_id.to_string(),
        kind: "verification_document".to_owned(),
        path: named.to_string(),
        media_type: "image/png".to_owned(),
        size: 1,
        uploaded_at: 0,
        replaced_at: Some(1),
    };
    app.insert(row).await;
    let (orphan, foreign) = (somewhere(), somewhere());
    store.put(named, b"%PDF-1.7".to_vec()).await.unwrap();
    store.put(orphan, b"%PDF-1.7".to_vec()).await.unwrap();
    let theirs = payferry::service::documents::store(&config, Sealer::new(&[9; 32])).unwrap();
    theirs.put(foreign, b"%PDF-1.7".to_vec()).await.unwrap();

    let sweep_now = async || sweep(&store, app.state.database(), ORPHAN_AGE).await.unwrap();
    assert_eq!(sweep_now().await, 0, "an upload may still be in progress");
    bucket.age(chrono::Duration::from_std(ORPHAN_AGE).unwrap() + chrono::Duration::minutes(1));
    assert_eq!(sweep_now().await, 1);
    let left: Vec<_> = bucket.objects().into_keys().collect();
    assert!(!left.contains(&orphan.to_string()) && left.contains(&named.to_string()), "{left:?}");
    assert!(left.contains(&foreign.to_string()), "objects that another service sealed are not removed");
}

#[tokio::test]
async fn folder_is_swept_likewise_and_other_files_stay() {
    let app = TestApp::start().await;
    let (store, orphan) = (&app.state.config.documents, somewhere());
    store.put(orphan, b"%PDF-1.7".to_vec()).await.unwrap();
    let folder = app.documents_folder();
    std::fs::write(folder.join("customers/notes.txt"), "mine").unwrap();
    assert!(folder.join(orphan.to_string()).exists());
    assert_eq!(sweep(store, app.state.database(), ORPHAN_AGE).await.unwrap(), 0);
    assert_eq!(sweep(store, app.state.database(), Duration::ZERO).await.unwrap(), 1);
    assert!(!folder.join(orphan.to_string()).exists());
    assert_eq!(std::fs::read_to_string(folder.join("customers/notes.txt")).unwrap(), "mine");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
