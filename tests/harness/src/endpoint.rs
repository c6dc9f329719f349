//! A JSON-RPC endpoint over HTTP in front of a devchain, with scripted provider faults by method, time and probability.
//!
//! It serves each connection itself, so that it can refuse connections, truncate answers and close connections. Faults
//! of the chain itself (reorgs, outages) are injected in the devchain.

mod fault;
mod view;
mod wire;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, to_bytes};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use payferry_devchain::Devchain;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

pub use fault::{Fault, ReportedHead, What};
use view::View;
use wire::Reply;

/// Part of every endpoint's URL: no log, error or metric may contain it.
pub const SECRET: &str = "s3cret-api-key";

/// A scripted endpoint. It stops on drop.
pub struct Endpoint {
    script: Arc<Script>,
    address: SocketAddr,
    server: Mutex<Option<AbortOnDropHandle<()>>>,
}

struct Script {
    chain: Devchain,
    faults: Mutex<Vec<Planned>>,
    calls: Mutex<HashMap<String, u64>>,
    exchanges: Mutex<u64>,
    dice: Mutex<u64>,
}

/// A fault and the number of times it was applied.
struct Planned {
    fault: Fault,
    since: Instant,
    shown: u32,
}

impl Endpoint {
    /// Starts an endpoint without faults in front of this chain.
    pub async fn before(chain: &Devchain) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Script {
            chain: chain.clone(),
            faults: Mutex::default(),
            calls: Mutex::default(),
            exchanges: Mutex::default(),
            dice: Mutex::new(1),
        });
        let server = AbortOnDropHandle::new(tokio::spawn(serve(listener, Arc::clone(&script))));
        Self { script, address, server: Mutex::new(Some(server)) }
    }

    /// URL of the endpoint, with an API key in the path as providers use it.
    pub fn url(&self) -> Url {
        format!("http://{}/v2/{SECRET}", self.address).parse().unwrap()
    }

    /// Replaces the active faults. The first one that matches a request is applied.
    pub fn show(&self, faults: impl IntoIterator<Item = Fault>) {
        let since = Instant::now();
        *self.script.faults.lock() = faults.into_iter().map(|fault| Planned { fault, since, shown: 0 }).collect();
    }

    /// Removes all faults.
    pub fn behave(&self) {
        self.show([]);
    }

    /// Seeds the random choice of probabilistic faults.
    pub fn seed(&self, seed: u64) {
        *self.script.dice.lock() = seed;
    }

    /// Closes every connection and refuses new ones.
    pub async fn close_connections(&self) {
        let server = self.server.lock().take();
        if let Some(server) = server {
            server.abort();
            let _ = server.await;
        }
    }

    /// Listens again at the same address.
    pub async fn listen_again(&self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        let server = AbortOnDropHandle::new(tokio::spawn(serve(listener, Arc::clone(&self.script))));
        *self.server.lock() = Some(server);
    }

    /// Number of received calls of a method, answered or not.
    pub fn calls(&self, method: &str) -> u64 {
        self.script.calls.lock().get(method).copied().unwrap_or(0)
    }
}

async fn serve(listener: TcpListener, script: Arc<Script>) {
    // Connections close with the server.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        let script = Arc::clone(&script);
        let answer = service_fn(move |request: Request<Incoming>| {
            let script = Arc::clone(&script);
            async move {
                let body = to_bytes(Body::new(request.into_body()), usize::MAX).await.map_err(io::Error::other)?;
                script.reply(&body).await
            }
        });
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

impl Script {
    async fn reply(&self, body: &[u8]) -> Reply {
        let Ok(packet) = serde_json::from_slice::<Value>(body) else {
            return wire::json(&error(&Value::Null, -32_700, "parse error"));
        };
        let requests: Vec<&Value> = packet.as_array().map_or_else(|| vec![&packet], |all| all.iter().collect());
        let methods: Vec<&str> = requests.iter().map(|request| request["method"].as_str().unwrap_or("")).collect();
        for method in &methods {
            *self.calls.lock().entry((*method).to_owned()).or_default() += 1;
        }
        let exchange = {
            let mut exchanges = self.exchanges.lock();
            *exchanges += 1;
            *exchanges
        };
        if let Some(delay) = self.shown(&methods, |what| match what {
            What::Slow(delay) => Some(*delay),
            _ => None,
        }) {
            tokio::time::sleep(delay).await;
        }
        if let Some(reply) = self.shown(&methods, |what| wire::replacement(what, packet.is_array())) {
            return reply;
        }
        // Providers that report their range limit as an HTTP status.
        let refused = requests.iter().any(|request| {
            let method = request["method"].as_str().unwrap_or("");
            let status = |what: &What| what.error(method, &request["params"]).filter(|(code, _)| *code == 413);
            self.shown(&[method], status).is_some()
        });
        if refused {
            return wire::too_large();
        }
        let truncated = self.shown(&methods, |what| matches!(what, What::Truncated).then_some(())).is_some();
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let method = request["method"].as_str().unwrap_or("");
            let answer = match self.answer(method, request["params"].clone(), exchange).await {
                Ok(result) => json!({"jsonrpc": "2.0", "id": request["id"], "result": result}),
                Err((code, message)) => error(&request["id"], code, &message),
            };
            answers.push(answer);
        }
        let answer = if packet.is_array() { Value::Array(answers) } else { answers.remove(0) };
        if truncated { wire::truncated(&answer) } else { wire::json(&answer) }
    }

    async fn answer(&self, method: &str, params: Value, exchange: u64) -> Result<Value, (i64, String)> {
        let only = [method];
        if let Some((code, message)) = self.shown(&only, |what| what.error(method, &params)) {
            return Err((code, message));
        }
        let head = self.shown(&only, |what| match what {
            What::Head(shown) => Some(shown.number(self.chain.head().number, exchange)),
            _ => None,
        });
        if method == "eth_chainId"
            && let Some(id) = self.shown(&only, |what| match what {
                What::ChainId(id) => Some(*id),
                _ => None,
            })
        {
            return Ok(json!(format!("{id:#x}")));
        }
        let nulls = |what: &What| match what {
            What::NullBlocks => method.starts_with("eth_getBlockBy").then_some(()),
            What::NullReceipts => (method == "eth_getTransactionReceipt").then_some(()),
            _ => None,
        };
        if self.shown(&only, nulls).is_some() {
            return Ok(Value::Null);
        }
        let view = View { chain: &self.chain, head };
        let answer = view.call(method, params.clone()).await?;
        if method == "eth_getLogs"
            && let Some(logs) = answer.as_array()
            && let Some(logs) = {
                let dice = self.roll();
                self.shown(&only, |what| what.distort(logs, dice))
            }
        {
            return Ok(view.placed(logs, &params[0]).await);
        }
        Ok(answer)
    }

    /// Applies the first active fault that matches these methods and that `pick` accepts.
    fn shown<T>(&self, methods: &[&str], pick: impl Fn(&What) -> Option<T>) -> Option<T> {
        let mut faults = self.faults.lock();
        for planned in faults.iter_mut() {
            if !planned.fault.fits(methods, planned.since.elapsed(), planned.shown) {
                continue;
            }
            let Some(picked) = pick(&planned.fault.what) else { continue };
            if planned.fault.one_in > 1 && !self.roll().is_multiple_of(u64::from(planned.fault.one_in)) {
                continue;
            }
            planned.shown += 1;
            return Some(picked);
        }
        None
    }

    /// splitmix64: pseudo-random and repeatable.
    fn roll(&self) -> u64 {
        let mut dice = self.dice.lock();
        *dice = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = *dice;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}
