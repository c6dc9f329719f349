//! The disk is full.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use payferry_harness::database::{DatabaseFault, TestDatabase};
use payferry_harness::short_or_long;

use super::fixture::Fixture;
use super::story;

/// Environment variable with the folder on a small disk, for the child process.
const SMALL_DISK: &str = "PAYFERRY_TEST_SMALL_DISK";
const LASTING_SECS: u64 = 10;
const LASTING_SHORT_SECS: u64 = 3;

async fn filled(database: TestDatabase) {
    let fixture = Fixture::on(database).await;
    let lasting = Duration::from_secs(short_or_long(LASTING_SHORT_SECS, LASTING_SECS));
    let begin = async |fixture: &Fixture| fixture.database.fill().await;
    story(fixture, "full", lasting, begin, async |_, filled: DatabaseFault| filled.end().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_under_postgres() {
    Box::pin(filled(TestDatabase::on_small_tablespace().await)).await;
}

/// Only a child process can have a disk of its own: the test runs itself again within one.
#[tokio::test(flavor = "multi_thread")]
async fn full_disk_under_sqlite() {
    if let Ok(folder) = std::env::var(SMALL_DISK) {
        Box::pin(filled(TestDatabase::sqlite_in(Path::new(&folder)))).await;
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Enough for the longest write-ahead log before a checkpoint.
    let mount = "mount -t tmpfs -o size=64m tmpfs \"$0\" && exec \"$@\"";
    let test = "faults::database::disk::full_disk_under_sqlite";
    let mut command = Command::new("unshare");
    let ran = command
        .args(["--map-root-user", "--mount", "sh", "-c", mount])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(SMALL_DISK, folder.path())
        .output()
        .unwrap();
    let (said, complained) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    println!("{said}");
    assert!(ran.status.success() && said.contains("1 passed"), "{said}\n{complained}");
}
