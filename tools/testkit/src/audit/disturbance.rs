//! Disturbances of a run: times in which an injected fault explains that payments are not made.
//!
//! A disturbance explains only the failures that it can cause, so that every other failure still counts.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::CallError;
use crate::psp::InitiateFailed;

/// Time after a disturbance in which its consequences still end.
const AFTERMATH: Duration = Duration::from_secs(2);
/// Problem code of a service that cannot reach a chain, or has not read it since its start.
const OF_THE_CHAIN: &str = "chain_unavailable";

/// Kind of a disturbance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    /// The service does not run.
    Down,
    /// The service has trouble with a chain.
    Chain,
}

/// Disturbances so far. Shared by reference.
#[derive(Debug, Default)]
pub struct Disturbances(Mutex<Vec<Window>>);

#[derive(Debug)]
struct Window {
    kind: Disturbance,
    from: Instant,
    /// `None` while it lasts.
    to: Option<Instant>,
}

impl Disturbances {
    /// Begins a disturbance. Returns its number.
    pub fn begin(&self, kind: Disturbance) -> usize {
        let mut windows = self.0.lock();
        windows.push(Window { kind, from: Instant::now(), to: None });
        windows.len() - 1
    }

    /// Ends a disturbance.
    pub fn end(&self, number: usize) {
        if let Some(window) = self.0.lock().get_mut(number) {
            window.to = Some(Instant::now());
        }
    }

    /// Returns true if a disturbance explains that an initiation failed at this time.
    pub fn explain(&self, failed: &InitiateFailed, at: Instant) -> bool {
        let explains = |window: &Window| {
            let is_then = window.from <= at && window.to.is_none_or(|to| at <= to + AFTERMATH);
            is_then && window.kind.explains(failed)
        };
        self.0.lock().iter().any(explains)
    }
}

impl Disturbance {
    fn explains(self, failed: &InitiateFailed) -> bool {
        let of_the_chain = |status: u16, code: &str| status == 503 && code == OF_THE_CHAIN;
        match (self, failed) {
            (Self::Down, InitiateFailed::Unanswered(error)) => *error != CallError::TooLong,
            (Self::Down | Self::Chain, InitiateFailed::Refused(status, code)) => of_the_chain(*status, code),
            (Self::Chain, InitiateFailed::Unanswered(_)) | (_, InitiateFailed::Unreadable) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_disturbance_explains_its_own_failures_in_its_own_time() {
        let disturbances = Disturbances::default();
        let broken = InitiateFailed::Unanswered(CallError::Broken);
        let refused = |code: &str| InitiateFailed::Refused(503, code.to_owned());
        let explain = |failed: &InitiateFailed| disturbances.explain(failed, Instant::now());
        assert!(!explain(&broken));
        let down = disturbances.begin(Disturbance::Down);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(explain(&broken) && explain(&refused("chain_unavailable")));
        assert!(!explain(&refused("overloaded")) && !explain(&InitiateFailed::Unreadable));
        disturbances.end(down);
        tokio::time::advance(AFTERMATH).await;
        assert!(explain(&broken));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!explain(&broken));
        disturbances.begin(Disturbance::Chain);
        assert!(explain(&refused("chain_unavailable")) && !explain(&broken));
    }
}
