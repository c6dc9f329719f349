//! Subscriptions of one WebSocket: `eth_subscribe` to `newHeads` and `logs`, and `eth_unsubscribe`.
//!
//! A subscription is the newest block that its client has seen, like a filter, so a slow client needs no queue.

use alloy::primitives::{B256, U128};
use alloy::rpc::types::Filter;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use super::filters::Ids;
use super::logs::Follow;
use super::read::rpc_header;
use super::view::View;
use super::{Answer, Params, json};
use crate::engine::Engine;
use crate::error::RpcError;
use crate::faults::Faults;

/// Maximum number of subscriptions of a WebSocket.
const SUBSCRIPTIONS_MAX: usize = 100;

/// Maximum number of new blocks that are reported to a subscription at once.
const BLOCKS_MAX: usize = 64;

/// Method of the messages, and name in the list of methods that faults affect.
const MESSAGE: &str = "eth_subscription";

/// The subscriptions of a WebSocket.
#[derive(Default)]
pub(crate) struct Session(Mutex<Subscriptions>);

#[derive(Default)]
struct Subscriptions {
    active: Vec<Subscription>,
    /// Subscriptions whose ids the client does not know yet.
    new: Vec<Subscription>,
    ids: Ids,
}

struct Subscription {
    id: U128,
    kind: Kind,
    seen: B256,
}

enum Kind {
    NewHeads,
    Logs(Box<Follow>),
}

/// The client has not read for so long that the blocks that it has seen are no longer known.
#[derive(Debug)]
pub(crate) struct TooFarBehind;

impl Session {
    pub(super) fn subscribe(&self, view: &View<'_>, mut params: Params) -> Answer {
        let kind = match params.take::<String>(0, "subscription")?.as_str() {
            "newHeads" => Kind::NewHeads,
            "logs" => {
                let filter: Option<Filter> = params.optional(1, "filter")?;
                Kind::Logs(Box::new(Follow::new(filter.unwrap_or_default())?))
            }
            other => {
                let message = format!("no \"{other}\" subscription in eth namespace: use newHeads or logs");
                return Err(RpcError::new(-32_601, message));
            }
        };
        let mut subscriptions = self.0.lock();
        if subscriptions.active.len() + subscriptions.new.len() >= SUBSCRIPTIONS_MAX {
            let message = format!("there are {SUBSCRIPTIONS_MAX} subscriptions already: end one with eth_unsubscribe");
            return Err(RpcError::new(-32_005, message));
        }
        let id = subscriptions.ids.next();
        subscriptions.new.push(Subscription { id, kind, seen: view.head_block().hash });
        json(&id)
    }

    pub(super) fn unsubscribe(&self, mut params: Params) -> Answer {
        let id: U128 = params.take(0, "subscription id")?;
        let Subscriptions { active, new, .. } = &mut *self.0.lock();
        let count = active.len() + new.len();
        for subscriptions in [&mut *active, &mut *new] {
            subscriptions.retain(|subscription| subscription.id != id);
        }
        if active.len() + new.len() == count {
            return Err(RpcError::server("subscription not found"));
        }
        json(&true)
    }

    /// Starts to report the new subscriptions. Called after the client was sent their ids.
    pub(crate) fn activate(&self) {
        let Subscriptions { active, new, .. } = &mut *self.0.lock();
        active.append(new);
    }

    /// Returns the next messages for the client; none if it has seen everything.
    pub(crate) fn messages(&self, engine: &Engine) -> Result<Vec<String>, TooFarBehind> {
        let faults = engine.faults.get();
        let none = Faults::default();
        let chain = engine.chain.read();
        let view = View::new(engine, &chain, if faults.hits(MESSAGE) { &faults } else { &none });
        let mut messages = Vec::new();
        for Subscription { id, kind, seen } in &mut self.0.lock().active {
            let difference = chain.difference(*seen, view.head).ok_or(TooFarBehind)?.limited(BLOCKS_MAX);
            *seen = difference.seen;
            let mut push = |result| messages.push(message(*id, &result));
            match kind {
                Kind::NewHeads => difference.added.iter().map(rpc_header).map(value).for_each(&mut push),
                Kind::Logs(follow) => follow.changes(&difference).iter().map(value).for_each(&mut push),
            }
        }
        Ok(messages)
    }
}

fn value(result: impl Serialize) -> Value {
    serde_json::to_value(result).unwrap_or_default()
}

fn message(id: U128, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": MESSAGE, "params": {"subscription": id, "result": result}}).to_string()
}
