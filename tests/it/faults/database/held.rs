//! Another process locks the whole database.

use std::time::Duration;

use payferry_harness::database::{Held, Lock, TestDatabase};
use payferry_harness::short_or_long;

use super::fixture::Fixture;
use super::story;

#[tokio::test(flavor = "multi_thread")]
async fn database_locked_by_another_process() {
    let fixture = Fixture::on(TestDatabase::create().await).await;
    let begin = async |fixture: &Fixture| fixture.database.lock(Lock::Everything).await;
    let lasting = Duration::from_secs(short_or_long(5, 20));
    story(fixture, "held", lasting, begin, async |_, held: Held| held.release().await).await;
}
