//! Another process locks the whole database.

use std::time::Duration;

use payferry_harness::database::{Held, Lock, TestDatabase};
use payferry_harness::short_or_long;

use super::site::Site;
use super::story;

#[tokio::test(flavor = "multi_thread")]
async fn database_locked_by_another_process() {
    let site = Site::on(TestDatabase::create().await).await;
    let begin = async |site: &Site| site.database.lock(Lock::Everything).await;
    let lasting = Duration::from_secs(short_or_long(5, 20));
    story(site, "held", lasting, begin, async |_, held: Held| held.release().await).await;
}
