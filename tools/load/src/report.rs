//! The report of a run: everything that was measured and found, as one value. `--json` prints it; the terminal's table and
//! the HTML file are made from it.

pub mod html;
mod plot;
pub mod terminal;

use std::collections::BTreeMap;

use serde::Serialize;

use super::arrivals::Rate;
use super::findings::{Finding, FindingKind};
use super::stages::StageFigures;
use super::tally::{Counted, Second};
use crate::audit::Holding;

/// What was asked of the run.
#[derive(Debug, Clone, Serialize)]
pub struct LoadRequest {
    /// Payments a second.
    pub rate: Rate,
    /// Payments in all.
    pub payments: u32,
    /// constant or poisson.
    pub pacing: &'static str,
    /// What decided the gaps of poisson; null of constant.
    pub seed: Option<u32>,
    /// Who pays how, in percent.
    pub mix: String,
    /// Payments that are made beforehand and stay live.
    pub hold: u32,
    /// Most initiations without an answer at once.
    pub in_flight_max: usize,
    /// Seconds that everything may take after the last arrival.
    pub settle_timeout_secs: u64,
    /// own sandbox, or the URL.
    pub target: String,
}

/// What the run came to.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Achieved {
    /// Seconds from the first to the last arrival.
    pub arrivals_secs: f64,
    /// Seconds from the first arrival until nothing was open.
    pub total_secs: f64,
    /// Seconds of the rates below: those of the arrivals, in a longer run without the first [`WARM_UP_SECS`].
    pub steady_secs: f64,
    /// Payments accepted a second, in that time.
    pub accepted_per_sec: f64,
    /// Payments complete a second, in the same time.
    pub complete_per_sec: f64,
    /// Webhooks a second, in the same time.
    pub webhooks_per_sec: f64,
    /// Most initiations without an answer at once.
    pub in_flight_most: usize,
    /// Most payments that were accepted and not complete at the end of a second, those that are held left out.
    pub open_most: u64,
}

/// Seconds at the beginning that are left out where a steady rate is told: a payment takes some seconds to be complete.
pub const WARM_UP_SECS: f64 = 5.0;

/// What it means that somebody waited in vain, beside the stages.
const TIMED_OUT_NOTE: &str = "what was waited for did not come, so that the wait, counted as it is, is a lower bound";

/// What the machine gave.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Machine {
    /// Cores that programs may use.
    pub cores: usize,
    /// Cores that the service kept busy in the seconds of the rates, on average; null if its process is not known.
    pub service_cores: Option<f64>,
    /// Cores that the load tester did.
    pub own_cores: Option<f64>,
    /// Milliseconds of processor time of the service for each payment that was accepted in these seconds.
    pub service_ms_a_payment: Option<f64>,
    /// Memory of the service before anything, in bytes.
    pub service_bytes_before: Option<u64>,
    /// With those that are held, before the load.
    pub service_bytes_held: Option<u64>,
    /// At most.
    pub service_bytes_most: Option<u64>,
    /// Bytes for each payment that is held.
    pub service_bytes_a_held: Option<u64>,
}

/// A run, whole.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Of the load tester.
    pub version: &'static str,
    /// Names the run; its merchant is `load-<run>`, its references begin with it.
    pub run: String,
    /// ISO 8601.
    pub began_at: String,
    /// What was asked for.
    pub asked: LoadRequest,
    /// What came of it.
    pub achieved: Achieved,
    /// Everything that was counted.
    pub counted: Counted,
    /// How long the stages took.
    pub stages: Vec<StageFigures>,
    /// Points of the percentile curves: stage, and (percent, milliseconds from the intended beginning).
    pub curves: Vec<(&'static str, Vec<(f64, f64)>)>,
    /// What the machine gave.
    pub machine: Machine,
    /// Errors by kind.
    pub errors: BTreeMap<String, u64>,
    /// What chains, balances and payments say of the money.
    pub holdings: Vec<Holding>,
    /// Payments that were read back.
    pub read_back: usize,
    /// Whether webhooks, payments, chains and the service's books were compared: not after an interruption, nor where
    /// something could not be read. A finding says what.
    pub audited: bool,
    /// What else is to be known: what was not compared, say, or what is not as it was before.
    pub notes: Vec<String>,
    /// It was interrupted.
    pub interrupted: bool,
    /// Percent of the due payments that were not made.
    pub not_made_percent: f64,
    /// Percent of the payments to be held that were not made.
    pub not_held_percent: f64,
    /// How many percent of either may not be.
    pub not_made_percent_max: f64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// The last lines of the service's log, if it is the run's own.
    pub service_log: Vec<String>,
    /// Second by second.
    pub course: Vec<Second>,
}

impl LoadRequest {
    /// How payments arrive, in words.
    pub fn arrivals(&self) -> String {
        self.seed.map_or_else(|| self.pacing.to_owned(), |seed| format!("{} (seed {seed})", self.pacing))
    }
}

impl Report {
    /// Whether every payment is as it must be, and as many were made as were asked for.
    pub fn is_ok(&self) -> bool {
        self.audited && !self.interrupted && self.wrong().is_empty()
    }

    /// Findings of a kind.
    pub fn count(&self, kind: FindingKind) -> usize {
        self.findings.iter().filter(|finding| finding.kind == kind).count()
    }

    /// The whole in one line.
    pub fn verdict(&self) -> String {
        let wrong = self.wrong();
        if self.interrupted {
            let known = if wrong.is_empty() { String::new() } else { format!(" Wrong by then: {}.", wrong.join(", ")) };
            return format!("Interrupted: what is told is what was known; payments were not compared.{known}");
        }
        if !self.audited {
            return format!("Payments were not compared. Not as it must be: {}.", wrong.join(", "));
        }
        if !wrong.is_empty() {
            return format!("Not as it must be: {}.", wrong.join(", "));
        }
        let payments = self.counted.accepted + self.counted.held;
        let books = if self.holdings.iter().any(|holding| holding.balance_grew.is_some()) {
            "on-chain and in the service's books"
        } else {
            "and on-chain"
        };
        format!("All {payments} payments are as they must be: read back, told by webhook, {books}.")
    }

    /// What is wrong, counted by kind.
    fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> =
            [FindingKind::Lost, FindingKind::Wrong, FindingKind::Undelivered, FindingKind::Unpaid]
                .into_iter()
                .filter(|kind| self.count(*kind) > 0)
                .map(|kind| format!("{} {}", self.count(kind), kind.as_str()))
                .collect();
        let Counted { due, accepted, held, .. } = self.counted;
        for (missing, percent, what) in [
            (due.saturating_sub(accepted), self.not_made_percent, "not made"),
            (u64::from(self.asked.hold).saturating_sub(held), self.not_held_percent, "of those to be held not made"),
        ] {
            if percent > self.not_made_percent_max {
                wrong.push(format!("{missing} {what} ({percent:.2} %)"));
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests;
