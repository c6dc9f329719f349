//! Evidence at the end of a run, collected from outside: the PSP's view of all payments and outbound transfers, the
//! event feed, the deliveries, the ledger, and the chains. It is complete once all work is.

pub mod chain;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use payferry_domain::Chain;
use reqwest::Method;
use serde_json::Value;

use chain::ChainEvidence;

use super::behaviour::{Behaviour, EXPIRES_SOON_SECS};
use super::load::{Stories, Story};
use super::outgoing::Outgoing;
use crate::deployment::{Accounts, Deployment};
use crate::psp::Psp;
use crate::receiver::{Delivery, Receiver};

/// Maximum number of concurrent requests while evidence is collected.
const IN_FLIGHT: usize = 16;
/// Maximum time without any change before the wait ends.
const STILL_MAX: Duration = Duration::from_secs(45);
const POLL: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Requests, acknowledgements, transfers and final reads of payments and transfers to customers, with their
    /// refunds.
    pub stories: Vec<Story>,
    /// The same for payouts and withdrawals.
    pub orders: Vec<Outgoing>,
    /// Ids of all payments and transfers to customers that the service lists.
    pub listed: Vec<String>,
    /// Ids of all payouts and withdrawals that the service lists.
    pub listed_orders: Vec<String>,
    pub feed: Vec<Value>,
    pub deliveries: Vec<Delivery>,
    /// The `webhook-id`s of deliveries that did not verify.
    pub unverified: Vec<String>,
    /// When processes were killed or frozen: deliveries that were in flight then may be repeated.
    pub interrupted_at: Vec<Instant>,
    /// The PSP's balances and ledger.
    pub ledger: PspLedger,
    pub chains: BTreeMap<Chain, ChainEvidence>,
}

/// The PSP's balances and ledger as reported by the service.
#[derive(Debug, Clone, Default)]
pub struct PspLedger {
    pub balances: Vec<Value>,
    /// All ledger entries, oldest first.
    pub entries: Vec<Value>,
    /// Output of `payferry reconcile` if it reports a problem.
    pub complaint: Option<String>,
}

impl Evidence {
    /// All outbound transfers that the PSP requested.
    pub fn outgoing(&self) -> impl Iterator<Item = &Outgoing> {
        self.stories.iter().flat_map(|story| &story.refunds).chain(&self.orders)
    }
}

/// Reads everything again, and repeats every request with its idempotency key.
pub async fn gather(
    psp: &Psp,
    psp_id: &str,
    receiver: &Receiver,
    deployments: &[Deployment],
    accounts: &Accounts,
    mut stories: Stories,
) -> Evidence {
    // First, because anything that a repeated request creates must be visible in the later reads.
    let payments = futures::stream::iter(&mut stories.payments).for_each_concurrent(IN_FLIGHT, async |story| {
        for refund in &mut story.refunds {
            refund.creation.read_again(psp).await;
        }
        story.creation.read_again(psp).await;
    });
    payments.await;
    let orders = futures::stream::iter(&mut stories.orders);
    orders.for_each_concurrent(IN_FLIGHT, async |order| order.creation.read_again(psp).await).await;
    let mut chains = BTreeMap::new();
    for deployment in deployments {
        let evidence = ChainEvidence::of(deployment, psp_id, accounts);
        chains.insert(deployment.chain, evidence.await);
    }
    let ids = |listed: Vec<Value>, key: &str| -> Vec<String> {
        listed.iter().filter_map(|item| item[key].as_str().map(str::to_owned)).collect()
    };
    let mut listed = ids(psp.payments().await, "payment_id");
    listed.extend(ids(psp.list("/transfers", "transfers").await, "payment_id"));
    let mut listed_orders = ids(psp.list("/payouts", "payouts").await, "id");
    listed_orders.extend(ids(psp.list("/withdrawals", "withdrawals").await, "id"));
    let balances = psp.ok(Method::GET, "/balances", Value::Null).await["balances"].take();
    let balances = balances.as_array().cloned().unwrap_or_default();
    Evidence {
        stories: stories.payments,
        orders: stories.orders,
        listed,
        listed_orders,
        feed: psp.feed().await,
        deliveries: receiver.deliveries(),
        unverified: receiver.unverified(),
        interrupted_at: Vec::new(),
        ledger: PspLedger { balances, entries: psp.entries().await, complaint: None },
        chains,
    }
}

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
