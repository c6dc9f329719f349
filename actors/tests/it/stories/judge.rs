//! Screening provider of stories: returns the configured decision for each address.

use std::collections::HashMap;

use parking_lot::RwLock;
use payferry_actors::compliance::{KytError, KytScreener, ScreenRequest};
use payferry_domain::Address;
use payferry_domain::payment::{Decision, Verdict};
use payferry_runtime::clock::Clock;

use crate::env::{PAYERS, account, verdict};

/// Allows everything except the account `outlaw`, unless configured otherwise.
pub struct StoryScreener {
    /// Decision per address; `None`: no answer.
    said: RwLock<HashMap<Address, Option<Decision>>>,
    is_away: RwLock<bool>,
    clock: Clock,
}

impl StoryScreener {
    pub fn new(clock: Clock) -> Self {
        let outlaw = (account(PAYERS[2]), Some(Decision::Block));
        Self { said: RwLock::new(HashMap::from([outlaw])), is_away: RwLock::new(false), clock }
    }

    /// Sets the decision for an address; `None`: no answer.
    pub fn say(&self, address: Address, decision: Option<Decision>) {
        self.said.write().insert(address, decision);
    }

    /// Sets whether the provider is down.
    pub fn set_away(&self, is_away: bool) {
        *self.is_away.write() = is_away;
    }
}

#[async_trait::async_trait]
impl KytScreener for StoryScreener {
    #[allow(clippy::unnecessary_literal_bound, reason = "as the trait has it")]
    fn name(&self) -> &str {
        "judge"
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let said = self.said.read().get(&request.address).copied().unwrap_or(Some(Decision::Allow));
        match said.filter(|_| !*self.is_away.read()) {
            Some(decision) => Ok(verdict(decision, false, self.clock.now())),
            None => Err(KytError("the judge is unavailable".to_owned())),
        }
    }
}
