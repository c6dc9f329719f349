//! Waits until all work of a run is complete.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::Value;

use super::super::behaviour::{Behaviour, EXPIRES_SOON_SECS};
use super::super::load::Stories;
use crate::deployment::Deployment;
use crate::psp::Psp;

/// Maximum time without any change before the wait ends.
const STILL_MAX: Duration = Duration::from_secs(45);
/// Polling interval.
const POLL: Duration = Duration::from_millis(200);

/// Waits until every payment and outbound transfer is complete and every event is delivered, or until no further change
/// happens.
pub async fn rest(psp: &Psp, deployments: &[Deployment], stories: &Stories) {
    let never_pay = stories.payments.iter().filter(|story| story.intent.behaviour == Behaviour::NeverPays);
    let mismatched = stories.payments.iter().filter(|story| story.intent.behaviour.ends().status == "mismatched");
    let (never_pay, mismatched) = (never_pay.count() as u64, mismatched.count() as u64);
    let mut open = open(stories);
    at_rest(psp, never_pay, mismatched, &mut open).await;
    // Then the unpaid payments may expire.
    for deployment in deployments {
        deployment.node.advance_time(EXPIRES_SOON_SECS + 15).await;
    }
    at_rest(psp, 0, mismatched, &mut open).await;
}

/// Paths of refunds and transfers to customers, which no total includes.
fn open(stories: &Stories) -> Vec<String> {
    let refunds = stories.payments.iter().flat_map(|story| &story.refunds);
    let refunds = refunds.filter_map(|refund| Some(format!("{}/{}", refund.creation.path, refund.creation.id()?)));
    let transfers = stories.payments.iter().filter(|story| story.intent.behaviour.is_transfer());
    let transfers = transfers.filter_map(|story| Some(format!("/transfers/{}", story.creation.id()?)));
    refunds.chain(transfers).collect()
}

/// Uses totals where available, because they cost the service little. The audit checks each object.
async fn at_rest(psp: &Psp, pending_max: u64, mismatched: u64, open: &mut Vec<String>) {
    let total = async |path: &str| {
        let page = psp.ok(Method::GET, path, Value::Null).await;
        page["total"].as_u64().unwrap_or_else(|| panic!("{path} has no total: {page}"))
    };
    let (mut last, mut since) = ([u64::MAX; 7], Instant::now());
    loop {
        drop_ended(psp, open).await;
        let now = [
            total("/payments?status=pending&limit=1").await,
            total("/payments?status=confirmed&limit=1").await,
            total("/payments?status=mismatched&limit=1").await,
            total("/payouts?status=pending&limit=1").await,
            total("/withdrawals?status=pending&limit=1").await,
            open.len() as u64,
            // Last, because a final status is published in the same commit.
            total("/api/v1/webhook/undelivered?limit=1").await,
        ];
        if now[0] <= pending_max && now[1..] == [0, mismatched, 0, 0, 0, 0] {
            return;
        }
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > STILL_MAX {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn drop_ended(psp: &Psp, open: &mut Vec<String>) {
    let mut left = Vec::new();
    for path in open.drain(..) {
        let (_, read) = psp.call(Method::GET, &path, Value::Null).await;
        if !matches!(read["status"].as_str(), Some("sent" | "settled" | "failed")) {
            left.push(path);
        }
    }
    *open = left;
}
