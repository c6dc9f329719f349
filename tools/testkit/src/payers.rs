//! Payers: signed ERC-20 transfers, sent through the JSON-RPC of a sandbox's chains, and signed authorizations.
//!
//! The payers have accounts of their own, made for the run and funded by the account that owns the test tokens, so that
//! no other program uses their nonces. Transfers of one chain are signed and sent in batches, one batch after another:
//! the transfers that arrive during one batch form the next. They cannot be signed ahead, because the wallet is only
//! known from the response to the initiation. Deliberately absent: which payment is paid how.

mod authorization;
mod funding;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes, U64, U256};
use alloy::sol_types::SolCall;
use anyhow::Context;
use payferry_contracts::Token as TokenContract;
use payferry_devchain::DevWallet;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::client::Client;
use crate::psp::Initiated;
use crate::rpc::{Rpc, RpcFailure};
use crate::sandbox::SandboxInfo;
use crate::wire::{Amount, Chain, Token};

/// Accounts on each chain, so that one blocked nonce does not delay all transfers.
pub const PAYERS_PER_CHAIN: usize = 8;
/// Largest number of transfers in one request. Signing them takes less than 5 ms of CPU time.
const BATCH_MAX: usize = 50;
/// Largest number of transfers of one chain in the queue. More are refused.
const WAITING_MAX: usize = 100_000;
/// Attempts to send a transfer, and attempts if the service may be down for a while: about two minutes.
const TRIES_MAX: u32 = 8;
const TRIES_THROUGH_OUTAGES_MAX: u32 = 66;
/// Pause before the second attempt. It doubles before each further one, up to the limit.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Gas limit of a token transfer.
const TRANSFER_GAS: u64 = 120_000;
/// Offered fees: far above any base fee of a sandbox.
const FEES: Fees = Fees { most: 100_000_000_000, priority: 1_000_000 };

/// Fees of a transaction, in wei per gas.
#[derive(Debug, Clone, Copy)]
pub struct Fees {
    /// Both together.
    pub most: u128,
    /// For the block's producer.
    pub priority: u128,
}

/// A transfer that the node accepted.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Account of the payer.
    pub from: Address,
    /// Transaction hash.
    pub tx_hash: B256,
    /// Time of the node's response.
    pub at: Instant,
}

/// A transfer or an authorization that was not sent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unsent {
    /// The sandbox does not have the chain or the token.
    #[error("there is no such token on this chain")]
    NoToken,
    /// The queue is full (`WAITING_MAX`).
    #[error("too many transfers wait to be sent")]
    TooMany,
    /// The node refused every attempt.
    #[error("the node did not take the transfer: {0}")]
    Refused(String),
    /// The response to the initiation has no authorization to sign.
    #[error("the payment takes no authorization: the service has found no EIP-3009 support of the token")]
    NothingToSign,
    /// The service did not accept the authorization, with this kind of error.
    #[error("the service did not take the authorization: {0}")]
    Unauthorized(String),
    /// The payers have stopped.
    #[error("the payers have ended")]
    Ended,
}

/// How long payers try to pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Persistence {
    /// A few seconds.
    #[default]
    Usual,
    /// Also while the service or the node is down, as a run with injected faults needs.
    ThroughOutages,
}

/// Payers on all chains. Dropping them stops them.
#[derive(Debug)]
pub struct Payers {
    chains: BTreeMap<Chain, ChainPayers>,
}

#[derive(Debug)]
struct ChainPayers {
    tokens: BTreeMap<Token, Address>,
    payers: Arc<[DevWallet]>,
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
    /// Makes accounts from `seed` and funds them on every chain of a sandbox. On a test network, uses the given ones.
    pub async fn set_up(
        client: &Arc<Client>,
        sandbox: &SandboxInfo,
        seed: &str,
        persistence: Persistence,
    ) -> anyhow::Result<Self> {
        let tries_max = match persistence {
            Persistence::Usual => TRIES_MAX,
            Persistence::ThroughOutages => TRIES_THROUGH_OUTAGES_MAX,
        };
        let chains = sandbox.chains.iter().map(async |(chain, info)| {
            let rpc = info.rpc(client, *chain);
            let payers = if let Some(network) = &info.network {
                Arc::clone(&network.payers)
            } else {
                let wallet = |n: usize| DevWallet::from_seed(&format!("payferry load {seed} {n}"));
                let payers: Arc<[DevWallet]> = (0..PAYERS_PER_CHAIN).map(wallet).collect();
                let funded = funding::fund(&rpc, info, &payers).await;
                funded.with_context(|| format!("the payers could not be funded on {chain}"))?;
                payers
            };
            let (orders, waiting) = mpsc::channel(WAITING_MAX);
            let (chain_id, payers_of) = (info.chain_id, Arc::clone(&payers));
            let fees = info.network.as_ref().map_or(FEES, |network| network.fees);
            let sender = Sender { rpc, chain_id, payers: payers_of, fees, next_payer: 0, tries_max };
            let sending = AbortOnDropHandle::new(tokio::spawn(sender.run(waiting)));
            anyhow::Ok((*chain, ChainPayers { tokens: info.tokens.clone(), payers, orders, _sending: sending }))
        });
        Ok(Self { chains: futures::future::try_join_all(chains).await?.into_iter().collect() })
    }

    /// Sends a transfer. Returns when the node has accepted it, before it is in a block.
    pub async fn pay(&self, chain: Chain, token: Token, to: Address, amount: Amount) -> Result<Sent, Unsent> {
        let payers = self.chains.get(&chain).ok_or(Unsent::NoToken)?;
        let contract = *payers.tokens.get(&token).ok_or(Unsent::NoToken)?;
        let (done, sent) = oneshot::channel();
        let order = Order { contract, to, units: U256::from(amount.units().unsigned_abs()), done };
        payers.orders.try_send(order).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Unsent::TooMany,
            mpsc::error::TrySendError::Closed(_) => Unsent::Ended,
        })?;
        sent.await.unwrap_or(Err(Unsent::Ended))
    }

    /// Signs a payment as one of the payers. Returns the body of the request that submits the authorization.
    pub fn authorization(&self, chain: Chain, made: &Initiated) -> Result<String, Unsent> {
        let payers = &self.chains.get(&chain).ok_or(Unsent::NoToken)?.payers;
        let payer = &payers[usize::from(made.intermediary_wallet.0[0]) % payers.len()];
        let methods = made.payment_methods.as_ref().ok_or(Unsent::NothingToSign)?;
        authorization::sign(payer, methods).ok_or(Unsent::NothingToSign)
    }
}

/// Signs and sends the transfers of one chain.
struct Sender {
    rpc: Rpc,
    chain_id: u64,
    payers: Arc<[DevWallet]>,
    fees: Fees,
    next_payer: usize,
    tries_max: u32,
}

/// A signed transfer that is not accepted yet.
struct Signed {
    order: Order,
    payer: usize,
    from: Address,
    raw: Bytes,
    tx_hash: B256,
    why: String,
}

impl Signed {
    /// Reports that the node accepted the transfer.
    fn accepted(self, at: Instant) {
        let _ = self.order.done.send(Ok(Sent { from: self.from, tx_hash: self.tx_hash, at }));
    }
}

impl Sender {
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
            self.fees.most,
            self.fees.priority,
        );
        Signed { order, payer, from: wallet.address(), raw, tx_hash, why: String::new() }
    }

    /// Sends a batch until the node has accepted each transfer or the attempts are used up.
    async fn send(&mut self, mut batch: Vec<Signed>) {
        let mut pause = PAUSE;
        for number in 1..=self.tries_max {
            batch = self.try_once(batch).await;
            if batch.is_empty() {
                return;
            }
            if number < self.tries_max {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                batch = self.sign_again(batch).await;
            }
        }
        for one in batch {
            let payer = one.payer;
            // The node may have accepted it although every response was lost.
            if self.knows(one.tx_hash).await == Some(true) {
                one.accepted(Instant::now());
            } else {
                let _ = one.order.done.send(Err(Unsent::Refused(one.why)));
            }
            // The nonce may be free again.
            self.ask_nonce(payer).await;
        }
    }

    /// Sends a batch once. Returns the transfers that the node did not accept.
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
            match result {
                Ok(_) => one.accepted(at),
                Err(RpcFailure::Refused(said)) if said == "already known" => one.accepted(at),
                Err(failure) => {
                    one.why = failure.to_string();
                    left.push(one);
                }
            }
        }
        left
    }

    /// Signs transfers with nonce conflicts again, unless the node has them. If the node does not say, the signature
    /// stays: with another nonce the transfer could be paid twice.
    async fn sign_again(&self, batch: Vec<Signed>) -> Vec<Signed> {
        let mut again = Vec::new();
        for one in batch {
            let clashes = one.why.starts_with("nonce too low") || one.why.contains("underpriced");
            if !clashes {
                again.push(one);
                continue;
            }
            match self.knows(one.tx_hash).await {
                Some(true) => one.accepted(Instant::now()),
                Some(false) => {
                    self.ask_nonce(one.payer).await;
                    again.push(self.sign(one.order, one.payer));
                }
                None => again.push(one),
            }
        }
        again
    }

    /// Returns true if the node has this transaction. `None` if it does not say.
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
mod tests {
    use axum::extract::State;
    use axum::http::StatusCode;
    use axum::routing::post;
    use axum::{Json, Router};
    use parking_lot::Mutex;
    use serde_json::Value;

    use super::*;
    use crate::stub::serve;

    /// A node that accepts the first transfer, loses the response, and refuses its nonce afterwards.
    #[derive(Default)]
    struct Node {
        /// Transactions that it got, in order.
        sent: Vec<String>,
        /// Number of requests for a transaction. The first ones fail.
        lookups: u32,
        nonce_requests: u32,
    }

    /// Number of requests for a transaction that fail: more than one, so that a single request without a retry is not
    /// enough.
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
                node.lookups += 1;
                if node.lookups <= UNKNOWN {
                    refused("internal error")
                } else {
                    json!([{"id": 0, "result": {"nonce": "0x0"}}])
                }
            }
            _ => {
                node.nonce_requests += 1;
                json!([{"id": 0, "result": "0x1"}])
            }
        };
        (StatusCode::OK, Json(body))
    }

    #[tokio::test]
    async fn a_transfer_with_unknown_outcome_keeps_its_signature() {
        let node = Arc::new(Mutex::new(Node::default()));
        let router = Router::new().fallback(post(answer)).with_state(Arc::clone(&node));
        let client = Arc::new(Client::new(&serve(router).await, 1, Duration::from_secs(5)).unwrap());
        let rpc = Rpc::of_sandbox(&client, Chain::Base);
        let mut sender = Sender {
            rpc,
            chain_id: 8453,
            payers: [DevWallet::from_seed("payer")].into(),
            fees: FEES,
            next_payer: 0,
            tries_max: TRIES_MAX,
        };
        let (done, sent) = oneshot::channel();
        let (contract, to) = (Address::repeat_byte(1), Address::repeat_byte(2));
        let signed = sender.sign_as_next(Order { contract, to, units: U256::from(5_000_000), done });
        let (raw, tx_hash) = (signed.raw.to_string(), signed.tx_hash);
        sender.send(vec![signed]).await;
        assert_eq!(sent.await.unwrap().unwrap().tx_hash, tx_hash);
        let node = node.lock();
        assert!(node.sent.iter().all(|sent| *sent == raw), "{:#?}", node.sent);
        assert_eq!((node.lookups, node.nonce_requests), (UNKNOWN + 1, 0));
    }
}
