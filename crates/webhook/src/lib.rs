//! Webhooks: the sender, one endpoint actor per PSP with a lane for each endpoint, and the parts of an attempt.
//!
//! The queue is the database: rows of `deliveries`, written in the commit that creates their event. A message to an
//! actor is only a nudge. Not here: the content of events (`domain` decides) and the routes of the configuration.

mod delivery;
mod endpoint;
pub mod endpoints;
mod first_attempts;
mod lane;
mod load;
mod metrics;
mod queue;
mod recorder;
mod schedule;
mod sender;
#[cfg(test)]
mod tests;
pub mod url_guard;
mod window;

pub use payferry_journal::webhooks::{log, retention};

pub use delivery::{BadSecret, Secret};
pub use endpoint::{EndpointView, NO_URL};
pub use first_attempts::FirstAttempts;
pub use lane::LaneView;
pub use load::{BreakerState, IN_FLIGHT_MAX, IN_FLIGHT_MIN, OPEN_MAX, OPEN_MIN, TRIP_AFTER};
pub use schedule::{JITTER_PERCENT, RETRY_AFTER_MAX, Schedule};
pub use sender::{TestError, TestOutcome, WebhookSender};
pub use url_guard::{UrlPolicy, UrlRejection};

use std::time::Duration;

/// Time within which a receiver must answer.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes kept of a receiver's answer.
pub const RESPONSE_KEPT_BYTES: usize = 1_024;

/// Attempts in progress beyond the [`IN_FLIGHT_MIN`] of each endpoint, shared by all endpoints. It limits connections;
/// because of the minimum, no endpoint waits for another.
pub const IN_FLIGHT_SHARED_MAX: usize = 512;
/// Time that attempts in progress may take to end when the sender stops; shorter than its supervisor's timeout.
pub const STOP_PATIENCE: Duration = Duration::from_millis(1_500);

/// Limits and schedule of webhooks.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// Delays before retries.
    pub schedule: Schedule,
    /// Time within which a receiver must answer.
    pub timeout: Duration,
    /// Policy for webhook URLs.
    pub url_policy: UrlPolicy,
}

impl Default for WebhookConfig {
    /// Production: the interface's schedule, five seconds, public HTTPS only.
    fn default() -> Self {
        Self { schedule: Schedule::default(), timeout: ATTEMPT_TIMEOUT, url_policy: UrlPolicy::Production }
    }
}
