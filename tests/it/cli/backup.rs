//! `payferry backup` and `payferry restore` on a sandbox's folder, and an older copy beside chains that have gone on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use age::secrecy::ExposeSecret;
use payferry_harness::database::TestDatabase;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::reconcile::{reconcile_until_lifted, refunded, report, unknown_sent, until_paused};
use super::{Home, Running, complaint, printed, run};

/// An object in the folder of documents.
const DOCUMENT: &str = "customers/cr_01JABCDEFGHJKMNPQRSTVWXYZ0/doc_01JABCDEFGHJKMNPQRSTVWXYZ0";

fn back_up(home: &Home, out: &Path, more: &[&str]) -> Output {
    run(&[["backup", "--out", out.to_str().unwrap()].as_slice(), more, &home.args()].concat())
}

fn restore(home: &Home, file: &Path, more: &[&str]) -> Output {
    run(&[["restore", "--file", file.to_str().unwrap()].as_slice(), more, &home.args()].concat())
}

/// Removes the database, as if its disk were lost.
fn lose_database(home: &Home) {
    for name in ["payferry.db", "payferry.db-wal", "payferry.db-shm"] {
        let _ = fs::remove_file(home.path().join(name));
    }
}

/// A file with a new age identity; also returns its recipient.
fn identity(folder: &Path, name: &str) -> (PathBuf, String) {
    let identity = age::x25519::Identity::generate();
    let file = folder.join(name);
    fs::write(&file, identity.to_string().expose_secret()).unwrap();
    (file, identity.to_public().to_string())
}

/// Names of the entries that `tar` finds.
fn entries(file: &Path) -> Vec<String> {
    let listed = printed(&Command::new("tar").arg("-tzf").arg(file).output().unwrap());
    listed.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_beside_a_running_service_is_restored_with_its_documents() {
    let home = Home::embedded();
    let sandbox = Arc::new(Running::start(&home));
    let documents = home.path().join("documents");
    let document = documents.join(DOCUMENT);
    fs::create_dir_all(document.parent().unwrap()).unwrap();
    fs::write(&document, vec![7; 100_000]).unwrap();
    fs::write(document.with_extension("x#1"), "an upload in progress").unwrap();
    let (identities, recipient) = identity(home.path(), "identity.txt");
    let (stranger, _) = identity(home.path(), "stranger.txt");
    let made = sandbox.payment().await;

    // Both kinds, while payments are made.
    let busy = tokio::spawn({
        let sandbox = Arc::clone(&sandbox);
        async move {
            loop {
                sandbox.payment().await;
            }
        }
    });
    let [plain, sealed] = ["backup.tar.gz", "backup.age"].map(|name| home.path().join(name));
    let said = printed(&tokio::task::block_in_place(|| back_up(&home, &plain, &[])));
    assert!(said.starts_with("backed up: database of ") && said.contains(" and 1 documents"), "{said}");
    printed(&tokio::task::block_in_place(|| back_up(&home, &sealed, &["--recipient", &recipient])));
    busy.abort();
    let _ = busy.await;
    assert_eq!(entries(&plain), ["payferry.db", &format!("documents/{DOCUMENT}"), "manifest.json"]);
    let content = fs::read(&sealed).unwrap();
    assert!(
        content.starts_with(b"age-encryption.org/v1") && !content.windows(15).any(|part| part == b"SQLite format 3")
    );
    // No secret is in it: not even encrypted.
    let keys: Value = serde_json::from_slice(&fs::read(home.path().join("keys.json")).unwrap()).unwrap();
    let unpacked = Command::new("tar").arg("-xzOf").arg(&plain).output().unwrap().stdout;
    for secret in ["master_key", "api_key", "operator_token"] {
        let secret = keys[secret].as_str().unwrap().as_bytes();
        assert!(!unpacked.windows(secret.len()).any(|part| part == secret));
    }
    let again = back_up(&home, &plain, &[]);
    assert!(complaint(&again).contains("exists already"), "{}", complaint(&again));

    // Nothing is overwritten.
    let refused = restore(&home, &plain, &[]);
    assert!(complaint(&refused).contains("payferry.db exists already; move it away first"), "{}", complaint(&refused));
    Arc::into_inner(sandbox).unwrap().stop();
    lose_database(&home);
    let refused = restore(&home, &plain, &[]);
    assert!(complaint(&refused).contains("documents is not empty; move it away first"), "{}", complaint(&refused));
    fs::remove_dir_all(&documents).unwrap();

    let key = |file: &Path| ["--identity".to_owned(), file.to_str().unwrap().to_owned()];
    for (file, options, why) in [
        (&sealed, &[][..], "the backup is encrypted"),
        (&sealed, &key(&stranger)[..], "cannot be decrypted with this identity"),
        (&identities, &[][..], "error: "),
    ] {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let refused = restore(&home, file, &options);
        assert!(!refused.status.success() && complaint(&refused).contains(why), "{why}: {}", complaint(&refused));
    }
    // Every damage is found.
    for (file, permille) in [(&plain, 500), (&plain, 999), (&sealed, 500), (&sealed, 999)] {
        let mut content = fs::read(file).unwrap();
        let place = content.len() * permille / 1_000;
        content[place] ^= 1;
        let damaged = home.path().join("damaged");
        fs::write(&damaged, &content).unwrap();
        let with = key(&identities).map(|part| part);
        let refused = restore(&home, &damaged, &[&with[0], &with[1]]);
        assert!(!refused.status.success(), "{} with a damage at {place}", file.display());
        fs::write(&damaged, &content[..place]).unwrap();
        assert!(!restore(&home, &damaged, &[&with[0], &with[1]]).status.success(), "cut at {place}");
    }
    assert!(!home.path().join("payferry.db").exists() && !documents.exists(), "a refusal leaves nothing behind");
    let left = fs::read_dir(home.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".payferry-"));
    assert_eq!(left.count(), 0);

    let with = key(&identities);
    let said = printed(&restore(&home, &sealed, &[&with[0], &with[1], "--verify-only"]));
    assert!(said.starts_with("verified: "), "{said}");
    assert!(!home.path().join("payferry.db").exists());
    printed(&restore(&home, &sealed, &[&with[0], &with[1]]));
    assert_eq!(fs::read(&document).unwrap(), vec![7; 100_000]);
    let sandbox = Running::start(&home);
    sandbox.ok(Method::POST, &format!("/sandbox/payments/{made}/pay"), None).await;
    sandbox.until(&format!("/payments/{made}"), |payment| payment["status"] == "settled").await;
}

/// Copies the database while the service uses it: a backup of SQLite, or a dump of PostgreSQL.
fn copied(home: &Home) -> PathBuf {
    let file = home.path().join("copy");
    if home.database().is_some() {
        let mut dump = Command::new("pg_dump");
        dump.args(["--format=custom", "--file"]).arg(&file).arg(home.database_url());
        printed(&dump.output().unwrap());
    } else {
        printed(&back_up(home, &file, &[]));
    }
    file
}

/// Replaces the database of a stopped service by the copy.
async fn replaced_by(home: &Home, copy: &Path) {
    if home.database().is_some() {
        let new = TestDatabase::empty_postgres().await;
        let mut restore = Command::new("pg_restore");
        restore.args(["--exit-on-error", "--no-owner", "--dbname", new.url()]).arg(copy);
        printed(&restore.output().unwrap());
        home.restore_database(new).await;
        return;
    }
    lose_database(home);
    let said = printed(&restore(home, copy, &[]));
    assert!(said.contains("if the service ran after"), "{said}");
}

/// A restore drill.
#[tokio::test]
async fn older_copy_names_what_is_missing_and_pays_nothing_twice() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let settled = sandbox.settled_payment().await["payment_id"].as_str().unwrap().to_owned();
    let short = sandbox.payment().await;
    sandbox.ok(Method::POST, &format!("/sandbox/payments/{short}/pay"), Some(json!({ "amount": "4" }))).await;
    sandbox.until(&format!("/payments/{short}"), |payment| payment["status"] == "mismatched").await;
    let copy = copied(&home);

    // Later than the copy: two refunds and a settled payment.
    refunded(&sandbox, &settled, "2.5").await;
    refunded(&sandbox, &short, "1").await;
    let unknown = sandbox.settled_payment().await["payment_id"].as_str().unwrap().to_owned();
    sandbox.stop();
    replaced_by(&home, &copy).await;

    let sandbox = Running::start(&home);
    let pause = until_paused(&sandbox).await;
    assert!(pause["id"].as_str().unwrap().starts_with("unreconciled:base:0x"), "{pause:#}");
    let (status, _) = sandbox.psp().call(Method::GET, &format!("/payments/{unknown}"), Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    sandbox.ok(Method::POST, "/sandbox/chains/base/mine", Some(json!({ "blocks": 100 }))).await;
    let mut posted = Vec::new();
    reconcile_until_lifted(&home, &mut posted).await;
    assert_eq!(posted, ["1.00", "2.50"], "exactly what is missing");
    let lost = [json!(["payment", "external", "1.00"]), json!(["psp", "external", "2.50"])];
    assert_eq!(unknown_sent(&sandbox).await, lost);
    // The money of the unknown payment is in the vault, and no settlement is sent a second time.
    let clean = report(&home, 0);
    assert_eq!(clean["differences_total"], 0, "{clean:#}");
    let listed = sandbox.ok(Method::GET, "/ledger/entries?limit=50", None).await;
    let deposited = listed["entries"].as_array().unwrap().iter().filter(|entry| entry["kind"] == "deposited");
    assert_eq!(deposited.count(), 1, "{listed:#}");
}
