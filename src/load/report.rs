//! The report of a run: everything that was measured and found, as one value. `--json` prints it; the terminal's table and
//! the HTML file are made from it.

pub mod html;
mod plot;
pub mod terminal;

use std::collections::BTreeMap;

use serde::Serialize;

use super::arrivals::Rate;
use super::findings::{Finding, Kind};
use super::moved::Holding;
use super::stages::StageFigures;
use super::tally::{Counted, Second};

/// What was asked of the run.
#[derive(Debug, Clone, Serialize)]
pub struct Asked {
    /// Payments a second.
    pub rate: Rate,
    /// Payments in all.
    pub payments: u32,
    /// constant or poisson.
    pub pacing: &'static str,
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
    /// Payments accepted a second, while they arrived.
    pub accepted_per_sec: f64,
    /// Payments complete a second, while they arrived: the first [`WARM_UP_SECS`] are left out.
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

/// What the machine gave.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Machine {
    /// Cores that programs may use.
    pub cores: usize,
    /// Cores that the service kept busy while payments arrived, on average; null if its process is not known.
    pub service_cores: Option<f64>,
    /// Cores that the load tester did.
    pub own_cores: Option<f64>,
    /// Milliseconds of processor time of the service for each payment that was accepted while they arrived.
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
    pub asked: Asked,
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
    /// What chains and payments say of the money.
    pub holdings: Vec<Holding>,
    /// Payments that were read back.
    pub read_back: usize,
    /// Whether webhooks, payments and chains were compared: not after an interruption.
    pub audited: bool,
    /// It was interrupted.
    pub interrupted: bool,
    /// Percent of the due payments that were not made, and how many may be.
    pub not_made_percent: f64,
    /// How many may be.
    pub not_made_percent_max: f64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// The last lines of the service's log, if it is the run's own.
    pub service_log: Vec<String>,
    /// Second by second.
    pub course: Vec<Second>,
}

impl Report {
    /// Whether every payment is as it must be, and as many were made as were asked for.
    pub fn is_well(&self) -> bool {
        !self.interrupted && self.findings.is_empty() && self.not_made_percent <= self.not_made_percent_max
    }

    /// Findings of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.findings.iter().filter(|finding| finding.kind == kind).count()
    }

    /// The whole in one line.
    pub fn verdict(&self) -> String {
        if self.interrupted {
            return "Interrupted: what is told is what was known; payments were not compared.".to_owned();
        }
        let mut wrong: Vec<String> = [Kind::Lost, Kind::Wrong, Kind::Undelivered, Kind::Unpaid]
            .into_iter()
            .filter(|kind| self.count(*kind) > 0)
            .map(|kind| format!("{} {}", self.count(kind), kind.as_str()))
            .collect();
        if self.not_made_percent > self.not_made_percent_max {
            let not_made = self.counted.due.saturating_sub(self.counted.accepted);
            wrong.push(format!("{not_made} not made ({:.2} %)", self.not_made_percent));
        }
        if wrong.is_empty() {
            format!(
                "All {} payments are as they must be: read back, told by webhook, and on-chain.",
                self.counted.accepted + self.counted.held
            )
        } else {
            format!("Not as it must be: {}.", wrong.join(", "))
        }
    }
}
