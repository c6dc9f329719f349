//! KYT provider with a constant list of addresses, for the sandbox.

use std::collections::HashSet;

use payferry_domain::Address;
use payferry_domain::payment::Verdict;
use payferry_runtime::clock::Clock;

use super::kyt::{KytError, KytScreener, ScreenRequest};
use super::verdict;

/// Blocks transfers from listed addresses and allows the rest.
#[derive(Debug, Clone)]
pub struct ListScreener {
    name: String,
    version: String,
    addresses: HashSet<Address>,
    clock: Clock,
}

impl ListScreener {
    /// Creates a screener over `addresses`; each verdict contains the `name` and `version` of the list.
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
        let listed = self.addresses.contains(&request.address);
        let verdict = verdict::of_listing(&self.name, listed, self.clock.now());
        Ok(Verdict { list_version: Some(self.version.clone()), ..verdict })
    }
}
