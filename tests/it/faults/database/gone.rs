//! The server is unreachable, with refused connections or silently.

use std::time::Duration;

use payferry_harness::proxy::Line;

use super::fixture::Fixture;
use super::story;

async fn out_of_reach(line: Line, name: &str, lasting: Duration) {
    let fixture = Fixture::behind_proxy().await;
    let begin = async |fixture: &Fixture| fixture.proxy().set(line);
    story(fixture, name, lasting, begin, async |fixture, ()| fixture.proxy().set(Line::Open)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn server_refuses_connections_for_a_minute() {
    out_of_reach(Line::Gone, "refused", Duration::from_mins(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_refuses_connections_for_a_second() {
    out_of_reach(Line::Gone, "refused", Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn server_is_silent_for_15_seconds() {
    out_of_reach(Line::Silent, "silent", Duration::from_secs(15)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_silent_for_two_seconds() {
    out_of_reach(Line::Silent, "silent", Duration::from_secs(2)).await;
}
