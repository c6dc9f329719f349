//! The connection is cut during commits: before the server gets them, and after it has committed.

use std::time::Instant;

use payferry_harness::{PATIENCE, short_or_long};

use super::fixture::Fixture;
use super::load::Load;

/// Percentage of commits that are cut.
const CUT_PERCENT: usize = 30;
/// Minimum number of cuts of either kind.
const CUTS_MIN: usize = 25;
const CUTS_MIN_SHORT: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn commits_with_an_unknown_outcome() {
    let fixture = Fixture::behind_proxy().await;
    let mut load = Load::start(&fixture);
    load.until_made(4).await;
    fixture.proxy().cut_commits(CUT_PERCENT);
    let (since, cuts_min) = (Instant::now(), short_or_long(CUTS_MIN_SHORT, CUTS_MIN));
    let (before, after) = loop {
        load.until_made_since(Instant::now()).await;
        let (before, after) = fixture.proxy().commits_cut();
        if before.min(after) >= cuts_min {
            break (before, after);
        }
        assert!(since.elapsed() < PATIENCE, "only {before} and {after} cut");
    };
    fixture.proxy().cut_commits(0);
    let made = load.stop().await;
    println!("{before} commits cut before and {after} after, {} payments, {} refusals", made.made.len(), made.refused);
    fixture.until_ready(true).await;
    fixture.check(&made).await;
    fixture.stop().await;
}
