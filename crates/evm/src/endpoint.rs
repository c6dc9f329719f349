//! One RPC endpoint of a chain and its health: verified chain id, rate limits, and time out of rotation.
//!
//! Deliberately absent: the choice of the endpoint (`failover`), and its address in any log, error or metric.

use std::time::{Duration, SystemTime};

use alloy::primitives::U64;
use alloy::rpc::client::RpcClient;
use alloy::transports::{RpcError, TransportError, TransportErrorKind};
use futures::future::join_all;
use parking_lot::Mutex;
use payferry_domain::Chain;
use payferry_runtime::supervise::doubled;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::metrics::EndpointLabels;
use super::pace;
use super::wire::{ClientError, Degradation, classify};

/// Attempts per call. A call that fails momentarily is repeated at once: where each call fails at times, a request of
/// many calls would rarely succeed as a whole.
const CALL_ATTEMPTS_MAX: u32 = 3;
/// Maximum number of calls in one JSON-RPC batch.
pub const BATCH_CALLS_MAX: usize = 100;
/// For this long, the reported chain id of an endpoint without batches is trusted.
const VERIFIED_FOR: Duration = Duration::from_secs(2);
/// Time after which an endpoint of the wrong chain is queried again.
const WRONG_CHAIN_ASK_AFTER: Duration = Duration::from_secs(1);
/// Upper limit of an endpoint's `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);
/// Initial time for which a failed endpoint is skipped while others are available; doubles with each failure.
const ASIDE_MIN: Duration = Duration::from_secs(1);
/// Upper limit of that time.
const ASIDE_MAX: Duration = Duration::from_secs(30);
/// The failure count resets after this time without a failure.
const STRIKES_FORGOTTEN_AFTER: Duration = Duration::from_mins(1);
/// A response slower than this moves the endpoint behind the others.
const SLOW_AFTER: Duration = Duration::from_secs(3);
/// Time for which an endpoint that rejected a batch receives none.
const BATCHES_AGAIN_AFTER: Duration = Duration::from_mins(10);

/// One call: method and parameters.
pub(super) type Call = (&'static str, Value);
/// Results of several calls, each with its own error.
pub type Answers<T = Box<RawValue>> = Vec<Result<T, ClientError>>;

/// Expectations that apply to all endpoints of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// Expected chain and chain id; `None` if not configured.
    pub(super) expected: Option<(Chain, u64)>,
    /// Index of the endpoint in the configuration.
    pub(super) index: usize,
    /// True if no other endpoint is configured.
    pub(super) is_only: bool,
    pub(super) timeout: Duration,
    pub(super) batches: bool,
}

impl Scope {
    fn labels(&self) -> EndpointLabels {
        EndpointLabels { chain: self.expected.map(|(chain, _)| chain), index: self.index }
    }
}

#[derive(Debug)]
pub(super) struct Endpoint {
    rpc: RpcClient,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    /// Time of the last response with the expected chain id; `None` before the first one and after an outage.
    verified: Option<Instant>,
    /// Time of the last response with another chain id, and that id.
    wrong: Option<(Instant, u64)>,
    /// No requests before this time.
    limited_until: Option<Instant>,
    /// Consecutive rate limits.
    limits: u32,
    /// Skipped until this time while other endpoints are available.
    aside_until: Option<Instant>,
    /// Failures, each within the reset time of the previous one.
    strikes: u32,
    struck: Option<Instant>,
    probing: bool,
    no_batches_until: Option<Instant>,
    /// Current problem, as logged.
    problem: Option<Problem>,
    /// Newest block that it reported.
    head: Option<u64>,
}

#[derive(Debug, Clone)]
struct Problem {
    kind: Degradation,
    since: SystemTime,
    why: String,
}

/// Problem of an endpoint that is skipped while others are available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointProblem {
    /// Index in the configuration.
    pub index: usize,
    /// Kind of the problem.
    pub kind: Degradation,
    /// Start of the problem.
    pub since: SystemTime,
    /// Description. Contains no address.
    pub why: String,
    /// Blocks by which it is behind the newest block that an endpoint of the chain reported, if it has reported any.
    pub lag_blocks: Option<u64>,
}

impl Endpoint {
    pub(super) fn new(rpc: RpcClient) -> Self {
        Self { rpc, health: Mutex::default() }
    }

    /// Sends calls, in one request if batches are supported. Returns nothing from an endpoint of another chain.
    pub(super) async fn exchange(&self, scope: &Scope, calls: Vec<Call>) -> Result<Answers, ClientError> {
        self.refusal(scope)?;
        let started = Instant::now();
        let outcome = self.believed(scope, calls).await;
        self.learn(scope, started.elapsed(), &outcome);
        outcome
    }

    /// True if the endpoint is skipped while others are available.
    pub(super) fn is_aside(&self) -> bool {
        let health = self.health.lock();
        let now = Instant::now();
        health.aside_until.is_some() || health.limited_until.is_some_and(|until| until > now)
    }

    /// True if the endpoint is due for a probe; then false until the probe has ended.
    pub(super) fn begin_probe(&self) -> bool {
        let mut health = self.health.lock();
        let due = !health.probing && health.aside_until.is_some_and(|until| until <= Instant::now());
        health.probing |= due;
        due
    }

    /// Sends a test request.
    pub(super) async fn probe(&self, scope: &Scope) {
        let _ = self.exchange(scope, vec![("eth_blockNumber", json!([]))]).await;
        self.health.lock().probing = false;
    }

    /// Records the newest block that the endpoint reports.
    pub(super) fn reported(&self, head: u64) {
        self.health.lock().head = Some(head);
    }

    /// Newest block that the endpoint reported.
    pub(super) fn head(&self) -> Option<u64> {
        self.health.lock().head
    }

    /// Current problem. `newest` is the newest block of the chain.
    pub(super) fn problem(&self, index: usize, newest: Option<u64>) -> Option<EndpointProblem> {
        let health = self.health.lock();
        let Problem { kind, since, why } = health.problem.clone()?;
        let lag_blocks = newest.zip(health.head).map(|(newest, head)| newest.saturating_sub(head));
        Some(EndpointProblem { index, kind, since, why, lag_blocks })
    }

    /// Records that the endpoint is behind the others, which are preferred for a while.
    pub(super) fn lags(&self, scope: &Scope) {
        scope.labels().failed(Degradation::Lagging.as_str());
        self.health.lock().strike(scope, Degradation::Lagging, "it lags behind the blocks already read");
    }

    /// Error that is known without a request.
    fn refusal(&self, scope: &Scope) -> Result<(), ClientError> {
        let health = self.health.lock();
        let now = Instant::now();
        if let Some(until) = health.limited_until.filter(|until| *until > now) {
            return Err(ClientError::RateLimited { retry_after: Some(until - now) });
        }
        match (health.wrong, scope.expected) {
            (Some((at, found)), Some((_, expected))) if now - at < WRONG_CHAIN_ASK_AFTER => {
                Err(ClientError::WrongChain { expected, found })
            }
            _ => Ok(()),
        }
    }

    async fn believed(&self, scope: &Scope, mut calls: Vec<Call>) -> Result<Answers, ClientError> {
        let Some((_, expected)) = scope.expected else { return self.send(scope, calls).await };
        let ask = || ("eth_chainId", json!([]));
        let check = |answer: Result<Box<RawValue>, ClientError>| {
            let id = super::failover::parse::<U64>(&answer?)?.to::<u64>();
            if id == expected { Ok(()) } else { Err(ClientError::WrongChain { expected, found: id }) }
        };
        let no_answer = || Err(ClientError::Malformed("a response is missing".to_owned()));
        // Before the first use and after an outage.
        let verified = self.health.lock().verified;
        if verified.is_none() {
            check(self.send_persistently(scope, vec![ask()]).await?.pop().unwrap_or_else(no_answer))?;
        }
        let mut answers = Vec::with_capacity(calls.len());
        while !calls.is_empty() {
            let rest = calls.split_off(calls.len().min(BATCH_CALLS_MAX));
            let mut some = std::mem::replace(&mut calls, rest);
            // Each batch also asks for the chain id: the node behind an address may change between two requests.
            let nonce = some.iter().any(|(method, _)| *method == "eth_getTransactionCount");
            let asked = self.may_batch(scope) || nonce || verified.is_none_or(|at| at.elapsed() > VERIFIED_FOR);
            if asked {
                some.insert(0, ask());
            }
            let mut answered = self.send_persistently(scope, some).await?.into_iter();
            if asked {
                check(answered.next().unwrap_or_else(no_answer))?;
            }
            answers.extend(answered);
        }
        Ok(answers)
    }

    /// Sends calls, and repeats those that fail momentarily; a request that fails as a whole only if there is no other
    /// endpoint.
    async fn send_persistently(&self, scope: &Scope, calls: Vec<Call>) -> Result<Answers, ClientError> {
        let mut outcome = self.send(scope, calls.clone()).await;
        for _ in 1..CALL_ATTEMPTS_MAX {
            match &mut outcome {
                Ok(answers) => {
                    let is_momentary = |place: &usize| answers[*place].as_ref().is_err_and(ClientError::is_momentary);
                    let failed: Vec<usize> = (0..answers.len()).filter(is_momentary).collect();
                    if failed.is_empty() {
                        break;
                    }
                    // The calls of a request fail for the same reason.
                    if let Some(Err(error)) = answers.get(failed[0]) {
                        scope.labels().failed(Degradation::of_call(error).as_str());
                    }
                    let again = failed.iter().filter_map(|place| calls.get(*place).cloned()).collect();
                    let Ok(repeated) = self.send(scope, again).await else { break };
                    for (place, answer) in failed.into_iter().zip(repeated) {
                        answers[place] = answer;
                    }
                }
                Err(error) if scope.is_only && error.is_momentary() => {
                    scope.labels().failed(Degradation::of_call(error).as_str());
                    outcome = self.send(scope, calls.clone()).await;
                }
                Err(_) => break,
            }
        }
        outcome
    }

    fn may_batch(&self, scope: &Scope) -> bool {
        scope.batches && self.health.lock().no_batches_until.is_none_or(|until| until <= Instant::now())
    }

    async fn send(&self, scope: &Scope, calls: Vec<Call>) -> Result<Answers, ClientError> {
        if calls.len() > 1 && self.may_batch(scope) {
            if let Some(answers) = self.batch(scope, &calls).await? {
                return Ok(answers);
            }
            let answers = self.singly(scope, calls).await;
            if answers.iter().any(Result::is_ok) {
                tracing::warn!(chain = %scope.labels(), endpoint = scope.index,
                    "endpoint {} of {} rejects JSON-RPC batches; calls are sent singly", scope.index, scope.labels());
                self.health.lock().no_batches_until = Some(Instant::now() + BATCHES_AGAIN_AFTER);
            }
            return Ok(answers);
        }
        Ok(self.singly(scope, calls).await)
    }

    async fn singly(&self, scope: &Scope, calls: Vec<Call>) -> Answers {
        join_all(calls.into_iter().map(|call| self.one(scope, call))).await
    }

    async fn one(&self, scope: &Scope, (method, params): Call) -> Result<Box<RawValue>, ClientError> {
        let request = self.rpc.request::<Value, Box<RawValue>>(method, params);
        match tokio::time::timeout(scope.timeout, request).await {
            Ok(answer) => answer.map_err(|error| classify(method, &error)),
            Err(_) => Err(ClientError::Timeout),
        }
    }

    /// Sends the calls as one batch; `None` if the endpoint rejects batches.
    async fn batch(&self, scope: &Scope, calls: &[Call]) -> Result<Option<Answers>, ClientError> {
        let mut batch = self.rpc.new_batch();
        let mut waiters = Vec::with_capacity(calls.len());
        // An error of the whole batch is attributed to the last call, because the first one may be the chain id.
        let last = calls.last().map_or("", |(method, _)| *method);
        for (method, params) in calls {
            let waiter = batch.add_call::<Value, Box<RawValue>>(*method, params);
            waiters.push((*method, waiter.map_err(|error| classify(method, &error))?));
        }
        let exchange = async {
            match batch.send().await.map_err(|error| (classify(last, &error), refuses_batches(&error))) {
                Ok(()) => {}
                Err((ClientError::Refused { .. }, _) | (ClientError::Unavailable(_), true)) => return Ok(None),
                Err((error, _)) => return Err(error),
            }
            let answers = waiters.into_iter().map(|(method, waiter)| async move { (method, waiter.await) });
            Ok(Some(join_all(answers).await))
        };
        let answers = tokio::time::timeout(scope.timeout, exchange).await.map_err(|_| ClientError::Timeout)??;
        let is_missing = |answer: &Result<_, TransportError>| {
            matches!(answer, Err(RpcError::Transport(TransportErrorKind::MissingBatchResponse(_))))
        };
        // One error instead of all responses.
        let answers = answers.filter(|answers| !answers.iter().all(|(_, answer)| is_missing(answer)));
        let classified = |(method, answer): (_, Result<_, _>)| answer.map_err(|error| classify(method, &error));
        Ok(answers.map(|answers| answers.into_iter().map(classified).collect()))
    }

    /// Updates the health after a request.
    fn learn(&self, scope: &Scope, took: Duration, outcome: &Result<Answers, ClientError>) {
        let labels = scope.labels();
        labels.exchanged(took);
        let mut kinds: Vec<&ClientError> = match outcome {
            Ok(answers) => answers.iter().filter_map(|answer| answer.as_ref().err()).collect(),
            Err(error) => vec![error],
        };
        kinds.sort_unstable_by_key(|error| Degradation::of_call(error).as_str());
        kinds.dedup_by_key(|error| Degradation::of_call(error));
        for error in &kinds {
            labels.failed(Degradation::of_call(error).as_str());
        }
        let mut health = self.health.lock();
        let now = Instant::now();
        let serious = kinds.into_iter().find(|error| error.discredits_the_endpoint());
        match serious {
            Some(ClientError::RateLimited { retry_after }) => {
                let wait = retry_after.map_or_else(|| pace::backoff(health.limits), |wait| wait.min(RETRY_AFTER_MAX));
                health.limits = health.limits.saturating_add(1);
                health.limited_until = Some(now + wait);
                health.say(scope, Degradation::RateLimited, "it limits the rate of requests");
            }
            Some(error) => {
                match error {
                    ClientError::WrongChain { found, .. } => {
                        health.wrong = Some((now, *found));
                        labels.wrong_chain(true);
                        health.verified = None;
                    }
                    ClientError::Malformed(_) => {}
                    // The endpoint was down and may come back as a node of another chain.
                    _ => health.verified = None,
                }
                health.strike(scope, Degradation::of_call(error), &error.to_string());
            }
            None if outcome.is_err() => {}
            None => {
                if scope.expected.is_some() {
                    labels.wrong_chain(false);
                    health.verified = Some(now);
                }
                (health.limits, health.limited_until, health.wrong) = (0, None, None);
                if took > SLOW_AFTER {
                    health.strike(scope, Degradation::Slow, "its responses are slow");
                } else if health.problem.as_ref().is_none_or(|problem| problem.kind != Degradation::Lagging)
                    || health.aside_until.is_none_or(|until| until <= now)
                {
                    health.recover(scope);
                }
            }
        }
    }
}

/// True if the HTTP status of a response to a batch can mean that batches are not supported.
fn refuses_batches(error: &TransportError) -> bool {
    const STATUSES: [u16; 5] = [400, 405, 413, 422, 501];
    matches!(error, RpcError::Transport(kind) if kind.as_http_error().is_some_and(|http| STATUSES.contains(&http.status)))
}

impl Health {
    fn strike(&mut self, scope: &Scope, kind: Degradation, why: &str) {
        let now = Instant::now();
        if self.struck.is_none_or(|struck| now - struck > STRIKES_FORGOTTEN_AFTER) {
            self.strikes = 0;
        }
        let wait = doubled(ASIDE_MIN, ASIDE_MAX, self.strikes);
        self.strikes = self.strikes.saturating_add(1);
        self.struck = Some(now);
        self.aside_until = Some(now + wait);
        scope.labels().usable(false);
        self.say(scope, kind, why);
    }

    fn recover(&mut self, scope: &Scope) {
        self.aside_until = None;
        scope.labels().usable(true);
        if self.problem.take().is_some() {
            tracing::info!(chain = %scope.labels(), endpoint = scope.index,
                "endpoint {} of {} is healthy again", scope.index, scope.labels());
        }
    }

    /// Logs a problem once per change.
    fn say(&mut self, scope: &Scope, kind: Degradation, why: &str) {
        let known = self.problem.take();
        let is_new = known.as_ref().is_none_or(|known| known.kind != kind);
        let since = known.map_or_else(SystemTime::now, |known| known.since);
        self.problem = Some(Problem { kind, since, why: why.to_owned() });
        if is_new {
            tracing::warn!(chain = %scope.labels(), endpoint = scope.index, kind = kind.as_str(),
                "endpoint {} of {} is skipped: {why}", scope.index, scope.labels());
        }
    }
}
