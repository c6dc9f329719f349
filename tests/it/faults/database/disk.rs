//! The disk is full.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use payferry_harness::database::{Filled, TestDatabase};
use payferry_harness::short_or_long;

use super::site::Site;
use super::story;

/// Names the folder on a small disk, in the process that has one.
const SMALL_DISK: &str = "PAYFERRY_TEST_SMALL_DISK";
const LASTING_SECS: u64 = 10;
const LASTING_SHORT_SECS: u64 = 3;

async fn filled(database: TestDatabase) {
    let site = Site::on(database).await;
    let lasting = Duration::from_secs(short_or_long(LASTING_SHORT_SECS, LASTING_SECS));
    let begin = async |site: &Site| site.database.fill().await;
    story(site, "full", lasting, begin, async |_, filled: Filled| filled.empty().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_below_postgres() {
    filled(TestDatabase::on_small_tablespace().await).await;
}

/// Only a process of its own can have a disk of its own: this test, run once more within one.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_below_sqlite() {
    if let Ok(folder) = std::env::var(SMALL_DISK) {
        filled(TestDatabase::sqlite_in(Path::new(&folder))).await;
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Room for a write-ahead log as long as it becomes before it is taken over into the database.
    let mount = "mount -t tmpfs -o size=64m tmpfs \"$0\" && exec \"$@\"";
    let test = "faults::database::disk::a_full_disk_below_sqlite";
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
