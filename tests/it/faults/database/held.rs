//! Another process locks the whole database.

use std::time::Duration;

use payferry_harness::database::{Held, Lock, TestDatabase};

use super::site::Site;
use super::story;

#[tokio::test(flavor = "multi_thread")]
async fn database_locked_by_another_process() {
    let site = Site::on(TestDatabase::create().await).await;
    let begin = async |site: &Site| site.database.lock(Lock::Everything).await;
    story(site, "held", Duration::from_secs(20), begin, async |_, held: Held| held.release().await).await;
}
