//! Payers: real, signed ERC-20 transfers, sent through the JSON-RPC of a sandbox's chains.
//!
//! They have accounts of their own, made for the run and given money by the account that owns the test tokens, so that
//! their nonces are nobody else's. Transfers of one chain are signed and sent in batches, one batch after the other: what
//! piled up meanwhile is the next one. They cannot be signed ahead, since the wallet is only known from the answer to the
//! initiation. Deliberately absent: who is paid what.

mod funding;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes, U64, U256};
use alloy::sol_types::SolCall;
use anyhow::Context;
use payferry_contracts::Token as TokenContract;
use payferry_devchain::Wallet;
use payferry_domain::{Amount, Chain, Token};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::client::Client;
use super::ground::Ground;
use super::rpc::{Rpc, RpcFailure};

/// Accounts on each chain, so that no single nonce holds up all.
pub const PAYERS_PER_CHAIN: usize = 8;
/// Transfers in one request. Signing so many keeps a core busy for less than 5 ms.
const BATCH_MAX: usize = 50;
/// Transfers of one chain that wait to be sent; more are refused.
const WAITING_MAX: usize = 100_000;
/// How often a transfer is tried before it is given up.
const TRIES_MAX: u32 = 8;
/// Before the second try; doubled before each further one, up to the limit.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Gas that a token transfer surely fits in.
const TRANSFER_GAS: u64 = 120_000;
/// Wei per gas offered: far above what a sandbox's base fee climbs to.
const MAX_FEE_WEI: u128 = 100_000_000_000;
const PRIORITY_FEE_WEI: u128 = 1_000_000;

/// A transfer that the node took.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Its transaction.
    pub tx_hash: B256,
    /// When the node said so.
    pub at: Instant,
}

/// A transfer that was not sent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unsent {
    /// The chain or the token is not there.
    #[error("there is no such token on this chain")]
    NoToken,
    /// `WAITING_MAX` transfers wait already.
    #[error("too many transfers wait to be sent")]
    TooMany,
    /// The node did not take it in so many tries.
    #[error("the node did not take the transfer: {0}")]
    Refused(String),
    /// The payers have ended.
    #[error("the payers have ended")]
    Ended,
}

/// The payers on all chains. They end when this is dropped.
#[derive(Debug)]
pub struct Payers {
    chains: BTreeMap<Chain, Purse>,
}

#[derive(Debug)]
struct Purse {
    tokens: BTreeMap<Token, Address>,
    orders: mpsc::Sender<Order>,
    _sending: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Order {
    contract: Address,
    to: Address,
    units: U256,
    done: oneshot::Sender<Result<Sent, Unsent>>,
}

impl Payers {
    /// Makes accounts from `seed` and gives them money on every chain.
    pub async fn set_up(client: &Arc<Client>, ground: &Ground, seed: &str) -> anyhow::Result<Self> {
        let purses = ground.chains.iter().map(async |(chain, place)| {
            let rpc = Rpc::of_sandbox(client, *chain);
            let wallet = |n: usize| Wallet::from_seed(&format!("payferry load {seed} {n}"));
            let payers: Vec<Wallet> = (0..PAYERS_PER_CHAIN).map(wallet).collect();
            let funded = funding::fund(&rpc, place, &payers).await;
            funded.with_context(|| format!("the payers could not be given money on {chain}"))?;
            let (orders, waiting) = mpsc::channel(WAITING_MAX);
            let desk = Desk { rpc, chain_id: place.chain_id, payers, next_payer: 0 };
            let sending = AbortOnDropHandle::new(tokio::spawn(desk.run(waiting)));
            anyhow::Ok((*chain, Purse { tokens: place.tokens.clone(), orders, _sending: sending }))
        });
        Ok(Self { chains: futures::future::try_join_all(purses).await?.into_iter().collect() })
    }

    /// Sends a transfer; answers when the node has taken it, which is before it is in a block.
    pub async fn pay(&self, chain: Chain, token: Token, to: Address, amount: Amount) -> Result<Sent, Unsent> {
        let purse = self.chains.get(&chain).ok_or(Unsent::NoToken)?;
        let contract = *purse.tokens.get(&token).ok_or(Unsent::NoToken)?;
        let (done, sent) = oneshot::channel();
        let order = Order { contract, to, units: U256::from(amount.units().unsigned_abs()), done };
        purse.orders.try_send(order).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Unsent::TooMany,
            mpsc::error::TrySendError::Closed(_) => Unsent::Ended,
        })?;
        sent.await.unwrap_or(Err(Unsent::Ended))
    }
}

/// The payers of one chain: signs and sends.
struct Desk {
    rpc: Rpc,
    chain_id: u64,
    payers: Vec<Wallet>,
    next_payer: usize,
}

/// A signed transfer on its way.
struct Signed {
    order: Order,
    payer: usize,
    raw: Bytes,
    tx_hash: B256,
    why: String,
}

impl Desk {
    async fn run(mut self, mut waiting: mpsc::Receiver<Order>) {
        let mut orders = Vec::with_capacity(BATCH_MAX);
        while waiting.recv_many(&mut orders, BATCH_MAX).await > 0 {
            let batch: Vec<Signed> = orders.drain(..).map(|order| self.sign_as_next(order)).collect();
            self.send(batch).await;
        }
    }

    fn sign_as_next(&mut self, order: Order) -> Signed {
        let payer = self.next_payer;
        self.next_payer = (payer + 1) % self.payers.len();
        self.sign(order, payer)
    }

    fn sign(&self, order: Order, payer: usize) -> Signed {
        let wallet = &self.payers[payer];
        let call = TokenContract::transferCall { to: order.to, value: order.units }.abi_encode();
        let (raw, tx_hash) = wallet.sign_call(
            self.chain_id,
            wallet.next_nonce(),
            order.contract,
            call.into(),
            TRANSFER_GAS,
            MAX_FEE_WEI,
            PRIORITY_FEE_WEI,
        );
        Signed { order, payer, raw, tx_hash, why: String::new() }
    }

    /// Sends until all are taken or given up.
    async fn send(&mut self, mut batch: Vec<Signed>) {
        let mut pause = PAUSE;
        for number in 1..=TRIES_MAX {
            batch = self.try_once(batch).await;
            if batch.is_empty() {
                return;
            }
            if number < TRIES_MAX {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                batch = self.sign_again(batch).await;
            }
        }
        for Signed { order, payer, tx_hash, why, .. } in batch {
            // It may have taken it all the same, and every answer was lost.
            let sent = if self.knows(tx_hash).await == Some(true) {
                Ok(Sent { tx_hash, at: Instant::now() })
            } else {
                Err(Unsent::Refused(why))
            };
            let _ = order.done.send(sent);
            // Its nonce may be free again.
            self.ask_nonce(payer).await;
        }
    }

    /// Answers those that the node did not take.
    async fn try_once(&self, batch: Vec<Signed>) -> Vec<Signed> {
        let results =
            self.rpc.batch("eth_sendRawTransaction", batch.iter().map(|one| format!("[\"{}\"]", one.raw))).await;
        let at = Instant::now();
        let results = match results {
            Ok(results) => results,
            Err(failure) => batch.iter().map(|_| Err(failure.clone())).collect(),
        };
        let mut left = Vec::new();
        for (mut one, result) in batch.into_iter().zip(results) {
            match result.map(|_| ()) {
                Ok(()) => {
                    let _ = one.order.done.send(Ok(Sent { tx_hash: one.tx_hash, at }));
                }
                Err(RpcFailure::Refused(said)) if said == "already known" => {
                    let _ = one.order.done.send(Ok(Sent { tx_hash: one.tx_hash, at }));
                }
                Err(failure) => {
                    one.why = failure.to_string();
                    left.push(one);
                }
            }
        }
        left
    }

    /// Gives a new nonce to those that the node refused for theirs, unless they were mined meanwhile. Where that is not known the
    /// signature stays: with another nonce it would be paid twice.
    async fn sign_again(&self, batch: Vec<Signed>) -> Vec<Signed> {
        let mut again = Vec::new();
        for one in batch {
            let clashes = one.why.starts_with("nonce too low") || one.why.contains("underpriced");
            if !clashes {
                again.push(one);
                continue;
            }
            match self.knows(one.tx_hash).await {
                Some(true) => {
                    let _ = one.order.done.send(Ok(Sent { tx_hash: one.tx_hash, at: Instant::now() }));
                }
                Some(false) => {
                    self.ask_nonce(one.payer).await;
                    again.push(self.sign(one.order, one.payer));
                }
                None => again.push(one),
            }
        }
        again
    }

    /// Whether the node has this transaction, if it says so.
    async fn knows(&self, tx_hash: B256) -> Option<bool> {
        let known: Result<serde_json::Value, _> = self.rpc.read("eth_getTransactionByHash", &json!([tx_hash])).await;
        known.ok().map(|known| !known.is_null())
    }

    async fn ask_nonce(&self, payer: usize) {
        let wallet = &self.payers[payer];
        let count: Result<U64, _> =
            self.rpc.call("eth_getTransactionCount", &json!([wallet.address(), "pending"])).await;
        if let Ok(nonce) = count {
            wallet.set_nonce(nonce.to());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::extract::State;
    use axum::http::StatusCode;
    use axum::routing::post;
    use axum::{Json, Router};
    use parking_lot::Mutex;
    use serde_json::Value;
    use tokio::net::TcpListener;

    use super::*;

    /// A node that took the first transfer, whose answer was lost, and refuses its nonce from then on.
    #[derive(Default)]
    struct Node {
        /// What was sent, in this order.
        sent: Vec<String>,
        /// How often it was asked for a transaction; that it cannot say at first.
        asked: u32,
        nonces_asked: u32,
    }

    /// Questions for a transaction that are answered with an error: one round of those of [`Client::read`] would be over in
    /// one that is not asked again.
    const UNKNOWN: u32 = 2;

    async fn answer(State(node): State<Arc<Mutex<Node>>>, Json(calls): Json<Value>) -> (StatusCode, Json<Value>) {
        let mut node = node.lock();
        let [call] = calls.as_array().unwrap().as_slice() else { panic!("{calls}") };
        let refused = |message: &str| json!([{"id": 0, "error": {"code": -32000, "message": message}}]);
        let body = match call["method"].as_str().unwrap() {
            "eth_sendRawTransaction" => {
                node.sent.push(call["params"][0].as_str().unwrap().to_owned());
                if node.sent.len() == 1 {
                    return (StatusCode::BAD_GATEWAY, Json(Value::Null));
                }
                refused("nonce too low: next nonce 1, tx nonce 0")
            }
            "eth_getTransactionByHash" => {
                node.asked += 1;
                if node.asked <= UNKNOWN {
                    refused("internal error")
                } else {
                    json!([{"id": 0, "result": {"nonce": "0x0"}}])
                }
            }
            _ => {
                node.nonces_asked += 1;
                json!([{"id": 0, "result": "0x1"}])
            }
        };
        (StatusCode::OK, Json(body))
    }

    #[tokio::test]
    async fn a_transfer_of_which_it_is_not_known_whether_it_was_taken_is_not_signed_anew() {
        let node = Arc::new(Mutex::new(Node::default()));
        let router = Router::new().fallback(post(answer)).with_state(Arc::clone(&node));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = Arc::new(Client::new(&url, 1, Duration::from_secs(5)).unwrap());
        let rpc = Rpc::of_sandbox(&client, Chain::Base);
        let mut desk = Desk { rpc, chain_id: 8453, payers: vec![Wallet::from_seed("payer")], next_payer: 0 };
        let (done, sent) = oneshot::channel();
        let (contract, to) = (Address::repeat_byte(1), Address::repeat_byte(2));
        let signed = desk.sign_as_next(Order { contract, to, units: U256::from(5_000_000), done });
        let (raw, tx_hash) = (signed.raw.to_string(), signed.tx_hash);
        desk.send(vec![signed]).await;
        assert_eq!(sent.await.unwrap().unwrap().tx_hash, tx_hash);
        let node = node.lock();
        assert!(node.sent.iter().all(|sent| *sent == raw), "{:#?}", node.sent);
        assert_eq!((node.asked, node.nonces_asked), (UNKNOWN + 1, 0));
    }
}
