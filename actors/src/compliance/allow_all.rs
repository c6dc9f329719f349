//! KYT provider that allows everything, for networks whose tokens have no value.

use payferry_domain::payment::{Decision, Verdict};
use payferry_runtime::clock::Clock;

use super::kyt::{KytError, KytScreener, ScreenRequest};
use super::verdict;

/// Name in each verdict, so that no verdict is mistaken for a screening.
const NAME: &str = "allow_everything_unscreened";

/// Screens nothing. Only for test networks; the provider name in each verdict says so.
#[derive(Debug, Clone)]
pub struct AllowAll {
    clock: Clock,
}

impl AllowAll {
    /// Creates the provider; it uses only the clock.
    pub const fn new(clock: Clock) -> Self {
        Self { clock }
    }
}

#[async_trait::async_trait]
impl KytScreener for AllowAll {
    fn name(&self) -> &str {
        NAME
    }

    async fn screen(&self, _: &ScreenRequest) -> Result<Verdict, KytError> {
        Ok(verdict::bare(NAME, Decision::Allow, self.clock.now()))
    }
}
