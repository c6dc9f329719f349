//! KYT provider with constant lists of addresses, for the sandbox.

use std::collections::HashSet;

use payferry_domain::Address;
use payferry_domain::payment::{Decision, Verdict};
use payferry_runtime::clock::Clock;

use super::kyt::{KytError, KytScreener, ScreenRequest};
use super::verdict;

/// Score of doubtful addresses.
const DOUBTFUL_SCORE: u8 = 50;

/// Blocks transfers from listed addresses, leaves those from doubtful ones to the operator, and allows the rest.
#[derive(Debug, Clone)]
pub struct ListScreener {
    name: String,
    version: String,
    addresses: HashSet<Address>,
    doubtful: HashSet<Address>,
    clock: Clock,
}

impl ListScreener {
    /// Creates a screener over `addresses`; each verdict contains the `name` and `version` of the list.
    pub fn new(name: &str, version: &str, addresses: impl IntoIterator<Item = Address>, clock: Clock) -> Self {
        let (name, version) = (name.to_owned(), version.to_owned());
        Self { name, version, addresses: addresses.into_iter().collect(), doubtful: HashSet::new(), clock }
    }

    /// Answers `review` for these addresses.
    #[must_use]
    pub fn with_doubtful(self, addresses: impl IntoIterator<Item = Address>) -> Self {
        Self { doubtful: addresses.into_iter().collect(), ..self }
    }
}

#[async_trait::async_trait]
impl KytScreener for ListScreener {
    fn name(&self) -> &str {
        &self.name
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let (address, now) = (&request.address, self.clock.now());
        let verdict = if self.doubtful.contains(address) {
            let verdict = verdict::bare(&self.name, Decision::Review, now);
            Verdict { risk_level: Some("medium".to_owned()), score: Some(DOUBTFUL_SCORE), ..verdict }
        } else {
            verdict::of_listing(&self.name, self.addresses.contains(address), now)
        };
        Ok(Verdict { list_version: Some(self.version.clone()), ..verdict })
    }
}
