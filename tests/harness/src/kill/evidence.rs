//! What can be known in the end, from outside: the PSP's view of every payment and of all money out, the feed, what was
//! delivered, the books, and the chains themselves.

mod chain;
mod rest;

use std::collections::BTreeMap;

use futures::StreamExt;
use payferry_domain::Chain;
use reqwest::Method;
use serde_json::Value;

pub use chain::{ChainEvidence, Movement, RefusedLog, SentLog, SettledLog};
pub use rest::rest;

use super::load::{Stories, Story};
use super::outgoing::Outgoing;
use crate::deployment::{Accounts, Deployment};
use crate::psp::Psp;
use crate::receiver::{Delivery, Receiver};

/// Requests of the gathering at once.
const IN_FLIGHT: usize = 16;

/// All that the audit goes by.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// The PSP.
    pub psp_id: String,
    /// What was asked, acknowledged, paid and read again: payments and transfers to customers, with their refunds.
    pub stories: Vec<Story>,
    /// The same of payouts and withdrawals.
    pub orders: Vec<Outgoing>,
    /// The ids of all payments and transfers to customers that the service lists.
    pub listed: Vec<String>,
    /// The ids of all payouts and withdrawals that it lists.
    pub listed_orders: Vec<String>,
    /// Every event that it announced.
    pub feed: Vec<Value>,
    /// Every delivery that verified.
    pub deliveries: Vec<Delivery>,
    /// The `webhook-id`s of those that did not.
    pub unverified: Vec<String>,
    /// What it says of the PSP's money.
    pub books: Books,
    /// The chains.
    pub chains: BTreeMap<Chain, ChainEvidence>,
}

/// What the service says of the PSP's money.
#[derive(Debug, Clone, Default)]
pub struct Books {
    /// Its balances.
    pub balances: Vec<Value>,
    /// Every entry of its ledger, oldest first.
    pub entries: Vec<Value>,
    /// What `payferry reconcile` complains of, if it does.
    pub complaint: Option<String>,
}

impl Evidence {
    /// All money that the PSP asked to be sent out.
    pub fn outgoing(&self) -> impl Iterator<Item = &Outgoing> {
        self.stories.iter().flat_map(|story| &story.refunds).chain(&self.orders)
    }
}

/// Reads everything again, and repeats every request with its key.
pub async fn gather(
    psp: &Psp,
    psp_id: &str,
    receiver: &Receiver,
    deployments: &[Deployment],
    accounts: &Accounts,
    stories: Stories,
) -> Evidence {
    // First: a repeated request that makes something must show in all that follows.
    let Stories { payments, orders } = stories;
    let payments = futures::stream::iter(payments).map(|story| read_again(psp, story));
    let payments = payments.buffer_unordered(IN_FLIGHT).collect().await;
    let orders = futures::stream::iter(orders).map(|order| order_again(psp, order));
    let orders = orders.buffer_unordered(IN_FLIGHT).collect().await;
    let mut chains = BTreeMap::new();
    for deployment in deployments {
        let evidence = ChainEvidence::of(deployment, psp_id, accounts.operator.address(), Accounts::treasury());
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
        psp_id: psp_id.to_owned(),
        stories: payments,
        orders,
        listed,
        listed_orders,
        feed: psp.feed().await,
        deliveries: receiver.deliveries(),
        unverified: receiver.unverified(),
        books: Books { balances, entries: psp.entries().await, complaint: None },
        chains,
    }
}

async fn read_again(psp: &Psp, mut story: Story) -> Story {
    let mut refunds = Vec::with_capacity(story.refunds.len());
    for refund in story.refunds {
        refunds.push(order_again(psp, refund).await);
    }
    story.refunds = refunds;
    let Some(id) = story.payment_id() else { return story };
    let behaviour = story.intent.behaviour;
    let below = if behaviour.is_transfer() { "/transfers" } else { "/payments" };
    story.read = read(psp, &format!("{below}/{id}")).await;
    story.replayed = replay(psp, behaviour.path(), &story.request, &story.intent.key).await;
    story
}

async fn order_again(psp: &Psp, mut order: Outgoing) -> Outgoing {
    let Some(id) = order.id() else { return order };
    order.read = read(psp, &format!("{}/{id}", order.path)).await;
    order.replayed = replay(psp, &order.path, &order.request, &order.key).await;
    order
}

async fn read(psp: &Psp, path: &str) -> Option<Value> {
    let (status, read) = psp.call(Method::GET, path, Value::Null).await;
    status.is_success().then_some(read)
}

async fn replay(psp: &Psp, path: &str, body: &Value, key: &str) -> Option<Value> {
    let replayed = psp.try_call(Method::POST, path, body, Some(key)).await;
    replayed.ok().filter(|(status, _)| status.is_success()).map(|(_, answer)| answer)
}
