//! Screens against a list of addresses: the sandbox's provider.

use std::collections::HashSet;

use payferry_domain::Address;
use payferry_domain::payment::{Decision, Verdict};

use super::kyt::{KytError, KytScreener, ScreenRequest};
use crate::clock::Clock;

/// Blocks what comes from a listed address, allows the rest.
#[derive(Debug, Clone)]
pub struct ListScreener {
    name: String,
    version: String,
    addresses: HashSet<Address>,
    clock: Clock,
}

impl ListScreener {
    /// A screener over `addresses`; `name` and `version` of the list stand in each verdict.
    pub fn new(name: &str, version: &str, addresses: impl IntoIterator<Item = Address>, clock: Clock) -> Self {
        Self { name: name.to_owned(), version: version.to_owned(), addresses: addresses.into_iter().collect(), clock }
    }
}

#[async_trait::async_trait]
impl KytScreener for ListScreener {
    fn name(&self) -> &str {
        &self.name
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let listed = self.addresses.contains(&request.from);
        let (decision, level, score, flags) = if listed {
            (Decision::Block, "severe", 100, vec!["sanctions".to_owned()])
        } else {
            (Decision::Allow, "low", 0, Vec::new())
        };
        Ok(Verdict {
            decision,
            by_operator: false,
            risk_level: Some(level.to_owned()),
            score: Some(score),
            flags,
            provider: self.name.clone(),
            provider_ref: None,
            list_version: Some(self.version.clone()),
            plain_sender: None,
            checked_at: self.clock.now(),
        })
    }
}
