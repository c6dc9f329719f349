//! The server is out of reach, and says so or does not.

use std::time::Duration;

use payferry_harness::proxy::Line;

use super::site::Site;
use super::story;

async fn out_of_reach(line: Line, name: &str, lasting: Duration) {
    let site = Site::behind_proxy().await;
    let begin = async |site: &Site| site.proxy().set(line);
    story(site, name, lasting, begin, async |site, ()| site.proxy().set(Line::Open)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn a_minute_without_a_server() {
    out_of_reach(Line::Gone, "refused", Duration::from_mins(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moment_without_a_server() {
    out_of_reach(Line::Gone, "refused", Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn a_server_that_falls_silent() {
    out_of_reach(Line::Silent, "silent", Duration::from_secs(15)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_silent_for_a_moment() {
    out_of_reach(Line::Silent, "silent", Duration::from_secs(2)).await;
}
