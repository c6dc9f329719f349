//! Allows everything: for networks whose money is worth nothing.

use payferry_domain::payment::{Decision, Verdict};
use payferry_runtime::clock::Clock;

use super::kyt::{KytError, KytScreener, ScreenRequest};
use super::verdict;

/// The name that stands in each verdict, so that nobody takes it for a screening.
const NAME: &str = "allow_everything_unscreened";

/// Screens nothing. Only for test networks; each verdict says so by its provider's name.
#[derive(Debug, Clone)]
pub struct AllowAll {
    clock: Clock,
}

impl AllowAll {
    /// A provider that looks at nothing but the clock.
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
