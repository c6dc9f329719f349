//! Screening provider of tests: returns the configured decision for each address.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use payferry_actors::compliance::{KytError, KytScreener, ScreenRequest};
use payferry_domain::Address;
use payferry_domain::payment::{Decision, Verdict};
use payferry_runtime::clock::Clock;

use super::{PAYERS, account, verdict};

/// Allows everything except the account `outlaw`, unless configured otherwise.
pub struct TestScreener {
    said: RwLock<HashMap<Address, Decision>>,
    /// Decision about every other address.
    others: RwLock<Decision>,
    is_away: RwLock<bool>,
    /// Answers to the next requests, before the decisions above; `None`: no answer.
    next: Mutex<VecDeque<Option<Decision>>>,
    requests: AtomicUsize,
    clock: Clock,
}

impl TestScreener {
    pub fn new(clock: Clock) -> Self {
        let said = RwLock::new(HashMap::from([(account(PAYERS[2]), Decision::Block)]));
        let (others, is_away, next) = (RwLock::new(Decision::Allow), RwLock::default(), Mutex::default());
        Self { said, others, is_away, next, requests: AtomicUsize::new(0), clock }
    }

    pub fn say(&self, address: Address, decision: Decision) {
        self.said.write().insert(address, decision);
    }

    /// Sets the decision about every address without an own one.
    pub fn say_of_others(&self, decision: Decision) {
        *self.others.write() = decision;
    }

    /// Sets the answers to the next requests; `None`: no answer.
    pub fn answer_next(&self, answers: impl IntoIterator<Item = Option<Decision>>) {
        self.next.lock().extend(answers);
    }

    /// Sets whether the provider is down.
    pub fn set_away(&self, is_away: bool) {
        *self.is_away.write() = is_away;
    }

    /// Number of requests so far.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

#[async_trait::async_trait]
impl KytScreener for TestScreener {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let next = self.next.lock().pop_front();
        let said = || self.said.read().get(&request.address).copied().unwrap_or_else(|| *self.others.read());
        match next.unwrap_or_else(|| Some(said())).filter(|_| !*self.is_away.read()) {
            Some(decision) => Ok(verdict(decision, false, self.clock.now())),
            None => Err(KytError("the provider is unavailable".to_owned())),
        }
    }
}
