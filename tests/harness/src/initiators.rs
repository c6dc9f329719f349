//! Clients that initiate payments until they are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use payferry_domain::Token;
use reqwest::Method;
use tokio::task::JoinHandle;

use crate::PATIENCE;
use crate::psp::Psp;

/// Concurrent clients.
const CLIENTS: usize = 4;
/// Pause of a client without retries between two requests: the test measures the response time, not the throughput.
const PAUSE: Duration = Duration::from_millis(20);

/// An acknowledged payment.
#[derive(Debug, Clone)]
pub struct Initiated {
    /// Id of the payment.
    pub id: String,
    /// Time of the first request.
    pub sent_at: Instant,
    /// Time of the answer.
    pub answered_at: Instant,
}

/// Running clients. Each initiates one payment after the other, of 10 USDC on Base.
#[derive(Debug)]
pub struct Initiators {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Initiated>>>,
}

impl Initiators {
    /// Starts clients that repeat a request until it is accepted. They take the nodes of `psps` in turn.
    pub fn start(psps: &[Arc<Psp>]) -> Self {
        Self::start_with(psps, true)
    }

    /// Starts clients that fail at the first request that is not accepted.
    pub fn without_retries(psps: &[Arc<Psp>]) -> Self {
        Self::start_with(psps, false)
    }

    fn start_with(psps: &[Arc<Psp>], is_patient: bool) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let clients = (0..CLIENTS).map(|client| {
            let (psp, is_over) = (Arc::clone(&psps[client % psps.len()]), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut initiated = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let (key, sent_at) = (format!("initiator-{client}-{}", initiated.len()), Instant::now());
                    let id = if is_patient { patiently(&psp, &key).await } else { once(&psp, &key).await };
                    initiated.push(Initiated { id, sent_at, answered_at: Instant::now() });
                    if !is_patient {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                initiated
            })
        });
        Self { clients: clients.collect(), is_over }
    }

    /// Waits for the requests that are running, and returns all payments. Panics if a client failed.
    pub async fn stop(self) -> Vec<Initiated> {
        self.is_over.store(true, Ordering::Relaxed);
        join_all(self.clients).await.into_iter().flat_map(Result::unwrap).collect()
    }
}

/// Has clients initiate payments during `fault`. Returns the acknowledged payments, each of which must exist.
pub async fn under_load(psps: &[Arc<Psp>], fault: impl Future<Output = ()>) -> Vec<Initiated> {
    let clients = Initiators::start(psps);
    tokio::time::sleep(Duration::from_secs(1)).await;
    fault.await;
    let initiated = clients.stop().await;
    for Initiated { id, .. } in &initiated {
        assert_eq!(psps[0].read(id).await["id"], id.as_str());
    }
    initiated
}

/// Initiates a payment of 10 USDC on Base; repeats the request until it is accepted. Returns its id.
pub async fn patiently(psp: &Psp, key: &str) -> String {
    let body = psp.initiation("10", Token::Usdc, "base");
    let (made, _) = psp.post_until_accepted("/payments/initiate", &body, key, PATIENCE).await.unwrap();
    made["payment_id"].as_str().unwrap().to_owned()
}

async fn once(psp: &Psp, key: &str) -> String {
    let body = psp.initiation("10", Token::Usdc, "base");
    let answer = psp.try_call(Method::POST, "/payments/initiate", &body, Some(key)).await;
    let (status, made) = answer.expect("an answer");
    assert!(status.is_success(), "{status} {made}");
    made["payment_id"].as_str().unwrap().to_owned()
}

/// Time from `since` to the first answer after it.
pub fn first_answer_after(initiated: &[Initiated], since: Instant) -> Duration {
    let after = initiated.iter().filter_map(|payment| payment.answered_at.checked_duration_since(since));
    after.min().expect("an answer")
}
