//! Data of earlier versions is refused: transfers, operations and addresses of vaults differ.
//!
//! `tests/compat/7996220.tar.gz` contains a sandbox's data folder and the databases of two services (SQLite and PostgreSQL),
//! made by the binary of commit 7996220.

use std::process::Command;

use payferry_harness::database::TestDatabase;
use tempfile::TempDir;

use crate::prelude::*;
use crate::process::{complaint, payferry};

const ARCHIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/7996220.tar.gz");

fn unpacked() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar").arg("-xzf").arg(ARCHIVE).arg("-C").arg(folder.path()).status().unwrap();
    assert!(unpacked.success(), "{ARCHIVE} cannot be unpacked");
    folder
}

fn assert_refused(arguments: &[&str], reason: &str) {
    let refused = payferry().args(arguments).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let complaint = complaint(&refused);
    assert!(complaint.contains(reason), "{complaint}");
}

fn assert_database_refused(url: &str) {
    for arguments in [&["migrate", "--database-url", url][..], &["migrate", "--check", "--database-url", url]] {
        assert_refused(arguments, "another version of Payferry made this database");
    }
}

#[test]
fn a_sandbox_folder_with_the_ids_of_mainnet_is_refused() {
    let archive = unpacked();
    let folder = archive.path().join("sandbox");
    let arguments = ["sandbox", "--listen", "127.0.0.1:0", "--data-dir", folder.to_str().unwrap()];
    assert_refused(&arguments, "start with a new data folder (--data-dir)");
}

#[test]
fn a_sqlite_database_is_refused() {
    let archive = unpacked();
    assert_database_refused(archive.path().join("sqlite/payferry.db").to_str().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_database_is_refused() {
    let archive = unpacked();
    let database = TestDatabase::empty_postgres().await;
    let dump = std::fs::read_to_string(archive.path().join("postgres/dump.sql")).unwrap();
    let connection = database.connect().await;
    connection.execute_unprepared(&dump).await.unwrap();
    connection.close().await.unwrap();
    assert_database_refused(database.url());
}
