//! Latencies of the initiations by kind of answer, from the scheduled start.
//!
//! A refusal or a broken connection is often faster than an answer. Apart from the others, it improves no percentile.

use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use super::stages::{Latencies, LatencyFigures};
use crate::psp::{InitiateFailed, Initiated};

crate::names! {
    /// Kind of the answer to an initiation.
    AnswerKind, "a kind of answer" {
        /// Accepted with 201.
        Accepted = "accepted",
        /// Refused with the code `overloaded`.
        Overloaded = "overloaded",
        /// Refused for another reason.
        Refused = "refused",
        /// No answer in time.
        TimedOut = "timed_out",
        /// No connection, a broken connection, or an answer that cannot be read.
        Failed = "failed",
    }
}

impl AnswerKind {
    /// Returns the kind of this answer.
    pub fn of(answer: &Result<Initiated, InitiateFailed>) -> Self {
        match answer {
            Ok(_) => Self::Accepted,
            Err(failed) if failed.is_overloaded() => Self::Overloaded,
            Err(InitiateFailed::Refused(..)) => Self::Refused,
            Err(failed) if failed.is_timeout() => Self::TimedOut,
            Err(_) => Self::Failed,
        }
    }
}

/// Latencies of all kinds of answers. Shared by reference.
#[derive(Debug, Default)]
pub struct Answers([Mutex<Latencies>; AnswerKind::ALL.len()]);

/// One kind of answer in a report.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct AnswerFigures {
    /// Kind.
    pub answer: AnswerKind,
    /// Latencies from the scheduled start.
    pub from_intended: LatencyFigures,
}

impl Answers {
    /// Records an answer.
    pub fn record(&self, kind: AnswerKind, from_intended: Duration) {
        self.0[kind as usize].lock().record(from_intended);
    }

    /// Returns the figures of the kinds that occurred.
    pub fn figures(&self) -> Vec<AnswerFigures> {
        let of = |answer: AnswerKind| AnswerFigures { answer, from_intended: self.0[answer as usize].lock().figures() };
        AnswerKind::ALL.into_iter().map(of).filter(|figures| figures.from_intended.count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::CallError;

    #[test]
    fn refusals_and_failures_are_apart_from_answers() {
        let refused = |code: &str| Err(InitiateFailed::Refused(503, code.to_owned()));
        for (answer, kind) in [
            (refused("overloaded"), AnswerKind::Overloaded),
            (refused("database_unavailable"), AnswerKind::Refused),
            (Err(InitiateFailed::Unanswered(CallError::TimedOut)), AnswerKind::TimedOut),
            (Err(InitiateFailed::Unanswered(CallError::NotSent)), AnswerKind::TimedOut),
            (Err(InitiateFailed::Unanswered(CallError::Unconnected)), AnswerKind::Failed),
            (Err(InitiateFailed::Unanswered(CallError::Broken)), AnswerKind::Failed),
            (Err(InitiateFailed::Unreadable), AnswerKind::Failed),
        ] {
            assert_eq!(AnswerKind::of(&answer), kind, "{answer:?}");
        }
        let answers = Answers::default();
        for (kind, ms) in [(AnswerKind::Failed, 1), (AnswerKind::Accepted, 40), (AnswerKind::Failed, 2)] {
            answers.record(kind, Duration::from_millis(ms));
        }
        let found: Vec<_> = answers.figures().iter().map(|one| (one.answer, one.from_intended.count)).collect();
        assert_eq!(found, [(AnswerKind::Accepted, 1), (AnswerKind::Failed, 2)]);
        assert!(answers.figures()[0].from_intended.min_ms >= 39.9);
    }
}
