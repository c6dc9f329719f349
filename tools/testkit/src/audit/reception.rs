//! How the receiver of a run answers webhooks: at once, slowly, or with errors.
//!
//! A refused webhook does not count as received, so the service must deliver it again. No webhook is refused so often
//! that the service gives up: each must still arrive.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

/// Longest delay of an answer: shorter than the time that the service waits for one, by default.
pub const SLOW_MAX: Duration = Duration::from_secs(4);
/// Largest number of refusals of one webhook: fewer than the retries of the service.
pub const REFUSALS_OF_ONE_MAX: u8 = 2;

/// Behaviour of the receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Conduct {
    /// Delay before each answer.
    #[serde(rename = "slow_ms", serialize_with = "millis")]
    pub slow: Duration,
    /// Share of the requests that it refuses, from 0 to 1.
    pub fail: f64,
}

fn millis<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Behaviour of the receiver at the moment, and the webhooks that it refused.
#[derive(Debug, Default)]
pub struct Reception(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    conduct: Conduct,
    /// Refusals that are due by the share and were not made yet.
    owed: f64,
    refused: HashMap<String, u8>,
}

/// Answer to one webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Delay before it.
    pub after: Duration,
    /// True if the webhook is refused.
    pub is_refusal: bool,
}

impl Reception {
    /// Returns the behaviour.
    pub fn conduct(&self) -> Conduct {
        self.0.lock().conduct
    }

    /// Changes the behaviour.
    pub fn change(&self, change: impl FnOnce(&mut Conduct)) {
        change(&mut self.0.lock().conduct);
    }

    /// Decides the answer to a webhook. The refusals are spread evenly, so that their share is exact.
    pub fn reply(&self, webhook_id: &str) -> Reply {
        let inner = &mut *self.0.lock();
        let Conduct { slow: after, fail } = inner.conduct;
        if fail <= 0.0 {
            return Reply { after, is_refusal: false };
        }
        // At most one is owed, so that a time of repetitions leaves no debt for later webhooks.
        inner.owed = (inner.owed + fail).min(1.0);
        let refusals = inner.refused.get(webhook_id).copied().unwrap_or(0);
        let is_refusal = inner.owed >= 1.0 - f64::EPSILON && refusals < REFUSALS_OF_ONE_MAX;
        if is_refusal {
            inner.owed = (inner.owed - 1.0).max(0.0);
            inner.refused.insert(webhook_id.to_owned(), refusals + 1);
        }
        Reply { after, is_refusal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reception: &Reception, ids: impl Iterator<Item = u32>) -> usize {
        ids.filter(|id| reception.reply(&format!("evt_{id}")).is_refusal).count()
    }

    #[test]
    fn refuses_the_share_and_no_webhook_for_ever() {
        let reception = Reception::default();
        assert_eq!(refused(&reception, 0..100), 0);
        reception.change(|conduct| conduct.fail = 0.25);
        assert!((24..=25).contains(&refused(&reception, 0..100)));
        reception.change(|conduct| conduct.fail = 1.0);
        assert_eq!(refused(&reception, 100..200), 100);
        assert_eq!(refused(&reception, std::iter::repeat_n(7_000, 10)), usize::from(REFUSALS_OF_ONE_MAX));
        reception.change(|conduct| *conduct = Conduct { slow: SLOW_MAX, fail: 0.0 });
        assert_eq!(reception.reply("evt_1"), Reply { after: SLOW_MAX, is_refusal: false });
    }
}
