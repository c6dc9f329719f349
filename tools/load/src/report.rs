//! Report of a run: everything that was measured and found. `--json` prints it. The terminal's tables and the HTML file
//! are made from it.

mod course;
pub mod csv;
mod fault_marks;
mod heat_map;
pub mod html;
mod plot;
pub mod prometheus;
pub mod terminal;

use std::collections::BTreeMap;

use serde::Serialize;

use super::arrivals::Arrivals;
use super::compare::Comparison;
use super::faults::{FaultPlan, InjectedFault, in_words};
use super::schedule::Schedule;
use super::thresholds::{Judged, Threshold};
use payferry_testkit::audit::Holding;
use payferry_testkit::audit::answers::AnswerFigures;
use payferry_testkit::audit::behaviour::{Behaviour, Intent, Mix};
use payferry_testkit::audit::customers::CustomerFigures;
use payferry_testkit::audit::findings::{Finding, FindingKind};
use payferry_testkit::audit::outbound::OutboundFigures;
use payferry_testkit::audit::reception::Conduct;
use payferry_testkit::audit::stages::{Stage, StageFigures};
use payferry_testkit::audit::tally::{Counted, Second};
use payferry_testkit::rate::Rate;

#[derive(Debug, Clone, Serialize)]
pub struct LoadRequest {
    /// Payments per second; the highest rate of `stages`.
    pub rate: Rate,
    /// Rates over time; null for one rate and a number of payments.
    pub stages: Option<Schedule>,
    pub payments: u32,
    /// `constant` or `poisson`.
    pub pacing: &'static str,
    /// Seed of `poisson`; null for `constant`.
    pub seed: Option<u32>,
    /// Behaviours of the payers, in percent.
    pub mix: Mix,
    /// Number of PSPs, which share the payments.
    pub psps: u8,
    /// True if the behaviours arrived one after another.
    pub in_turn: bool,
    /// Payments that were accepted and not complete at once, if arrivals waited for that.
    pub open_max: Option<u32>,
    /// Payments that were made before the load and stayed live.
    pub hold: u32,
    /// Largest allowed number of initiations in flight.
    pub in_flight_max: usize,
    /// Longest wait after the last arrival, in seconds.
    pub settle_timeout_secs: u64,
    /// Conditions on the figures of the run.
    pub thresholds: Vec<Threshold>,
    /// Faults that were to be injected.
    pub faults: FaultPlan,
    /// Behaviour of the webhook receiver.
    pub receiver: Conduct,
    /// The new sandbox, or the URL.
    pub target: String,
}

/// Rates and durations of the run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Achieved {
    /// Seconds from the first to the last arrival.
    pub arrivals_secs: f64,
    /// Seconds from the first arrival until no payment was open.
    pub total_secs: f64,
    /// Seconds of the rates below: those of the arrivals, in a longer run without the first [`WARM_UP_SECS`].
    pub steady_secs: f64,
    /// Payments accepted per second in that time.
    pub accepted_per_sec: f64,
    /// Payments completed per second in that time.
    pub complete_per_sec: f64,
    pub webhooks_per_sec: f64,
    pub in_flight_most: usize,
    /// Largest number of payments that were accepted and not complete at the end of a second, without held payments.
    pub open_most: u64,
}

/// Completed payments of one behaviour of payers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PayerRate {
    pub payer: Behaviour,
    pub complete: u32,
    /// Seconds from the first arrival to the last completion.
    pub secs: f64,
    pub complete_per_sec: f64,
}

/// Seconds at the beginning that do not count for rates: a payment takes some seconds to complete.
pub const WARM_UP_SECS: f64 = 5.0;

/// Explanation of timeouts below the stages.
const TIMED_OUT_NOTE: &str = "the expected response, block or webhook did not arrive; the wait counts as a lower bound";

/// The computer of the load tester.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Host {
    /// Model of the CPU; null on systems that do not say.
    pub cpu_model: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Operating system, kernel and architecture.
    pub os: String,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Machine {
    /// Cores that programs may use.
    pub cores: usize,
    #[serde(flatten)]
    pub host: Host,
    /// Average number of cores that the service kept busy in the seconds of the rates; null if its process is unknown.
    pub service_cores: Option<f64>,
    /// Average number of cores that the load tester kept busy.
    pub own_cores: Option<f64>,
    /// Milliseconds of CPU time of the service for each payment that was accepted in these seconds.
    pub service_ms_a_payment: Option<f64>,
    /// Memory of the service at the beginning, in bytes.
    pub service_bytes_before: Option<u64>,
    /// Memory with the held payments, before the load.
    pub service_bytes_held: Option<u64>,
    /// Largest memory.
    pub service_bytes_most: Option<u64>,
    /// Memory of each held payment.
    pub service_bytes_a_held: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    /// Version of the load tester.
    pub version: &'static str,
    /// Version in the service's description of its API; null if that cannot be read.
    pub service_version: Option<String>,
    /// Name of the run. Its merchant is `load-<run>`, and its references begin with it.
    pub run: String,
    /// Start of the run, in ISO 8601.
    pub began_at: String,
    #[serde(rename = "asked")]
    pub request: LoadRequest,
    pub achieved: Achieved,
    /// Rates of the behaviours that pay in time, if they arrived one after another.
    pub payers: Vec<PayerRate>,
    pub counted: Counted,
    pub stages: Vec<StageFigures>,
    /// Latencies of the initiations by kind of answer.
    pub answers: Vec<AnswerFigures>,
    /// Outbound transfers by kind.
    pub outbound: Vec<OutboundFigures>,
    /// Customers of payments with the behaviour `customer`; null if there were none.
    pub customers: Option<CustomerFigures>,
    pub thresholds: Vec<Judged>,
    /// Comparison with an older report, if one was given.
    pub comparison: Option<Comparison>,
    /// Points of the percentile curves: stage, and (percent, milliseconds from the scheduled start).
    pub curves: Vec<(&'static str, Vec<(f64, f64)>)>,
    pub machine: Machine,
    pub errors: BTreeMap<String, u64>,
    /// Injected faults, in the order of their begins.
    pub faults: Vec<InjectedFault>,
    /// Amounts on-chain and balances, compared with the payments.
    pub holdings: Vec<Holding>,
    pub read_back: usize,
    /// True if webhooks, payments, chains and ledger were compared. False after an interruption, or if something could
    /// not be read; a finding says what.
    pub audited: bool,
    /// Further information, such as what was not compared, or what could not be restored.
    pub notes: Vec<String>,
    /// True if the run was interrupted.
    pub interrupted: bool,
    /// Percentage of the due payments that were not made.
    pub not_made_percent: f64,
    /// Percentage of the held payments that were not made.
    pub not_held_percent: f64,
    /// Largest allowed percentage of both.
    pub not_made_percent_max: f64,
    pub findings: Vec<Finding>,
    /// Last lines of the service's log, if the run started it.
    pub service_log: Vec<String>,
    pub course: Vec<Second>,
}

impl LoadRequest {
    pub fn schedule(&self) -> Arrivals {
        let schedule = self.stages.clone().unwrap_or_else(|| Schedule::endless(self.rate));
        Arrivals { schedule, count: self.payments, seed: self.seed }
    }

    /// Returns the payments in the order of their arrival.
    pub fn intents(&self) -> impl Iterator<Item = Intent> + use<> {
        let pattern = self.mix.pattern();
        (0..self.payments).map(move |number| Intent::nth(number, pattern[number as usize % pattern.len()]))
    }

    pub fn title(&self) -> String {
        match &self.stages {
            Some(stages) => format!("{} payments at {stages} per second", self.payments),
            None => format!("{} payments at {}/s", self.payments, self.rate.get()),
        }
    }

    /// Returns the behaviour of the receiver as text, if it differs from the usual one.
    pub fn receiver(&self) -> Option<String> {
        let Conduct { slow, fail } = self.receiver;
        let slow = (!slow.is_zero()).then(|| format!("answers after {} ms", slow.as_millis()));
        let fail = (fail > 0.0).then(|| format!("refuses {:.0} % of the webhooks", fail * 100.0));
        let words: Vec<String> = slow.into_iter().chain(fail).collect();
        (!words.is_empty()).then(|| format!("The receiver {}", words.join(" and ")))
    }

    pub fn arrivals(&self) -> String {
        let seed = self.seed.map(|seed| format!(" (seed {seed})")).unwrap_or_default();
        let psps = if self.psps > 1 { format!(", {} PSPs", self.psps) } else { String::new() };
        let open = self.open_max.map(|open| format!(", at most {open} open")).unwrap_or_default();
        format!("{}{seed}{}{open}{psps}", self.pacing, if self.in_turn { ", in turn" } else { "" })
    }
}

impl Machine {
    /// Returns the computer as text.
    pub fn title(&self) -> String {
        let Host { cpu_model, memory_bytes, os } = &self.host;
        let model = cpu_model.as_deref().map(|model| format!(" of {model}")).unwrap_or_default();
        let memory =
            memory_bytes.map(|bytes| format!(", {:.1} GiB of memory", ratio(bytes, 1 << 30))).unwrap_or_default();
        format!("{} cores{model}{memory}, {os}", self.cores)
    }
}

impl LoadReport {
    /// Returns true if every payment is as expected, enough payments were made, and the thresholds are kept.
    pub fn is_ok(&self) -> bool {
        self.audited && !self.interrupted && self.wrong().is_empty()
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Printed<'a> {
            passed: bool,
            #[serde(flatten)]
            report: &'a LoadReport,
        }
        serde_json::to_string(&Printed { passed: self.is_ok(), report: self })
    }

    pub fn count(&self, kind: FindingKind) -> usize {
        self.findings.iter().filter(|finding| finding.kind == kind).count()
    }

    pub fn verdict(&self) -> String {
        let wrong = self.wrong();
        if self.interrupted {
            let known = if wrong.is_empty() { String::new() } else { format!(" Wrong so far: {}.", wrong.join(", ")) };
            return format!(
                "Interrupted: the report shows the state at the interruption; payments were not compared.{known}"
            );
        }
        if !self.audited {
            return format!("Payments were not compared. Failed: {}.", wrong.join(", "));
        }
        if !wrong.is_empty() {
            return format!("Failed: {}.", wrong.join(", "));
        }
        let payments = self.counted.accepted + self.counted.held;
        let ledger = if self.holdings.iter().any(|holding| holding.balance_grew.is_some()) {
            "on-chain and in the service's ledger"
        } else {
            "and on-chain"
        };
        let not_made = self.not_made();
        let not_made = if not_made.is_empty() { not_made } else { format!(" Not made: {not_made}.") };
        let as_expected = format!("payments are as expected: read back, by webhook, {ledger}");
        match in_words(&self.faults, &self.request.faults) {
            none if none.is_empty() => format!("All {payments} {as_expected}.{not_made}"),
            faults => format!("Nothing is lost{}: {faults}. All {payments} {as_expected}.{not_made}", self.at_p99()),
        }
    }

    /// Returns the 99th percentiles of the run in words.
    fn at_p99(&self) -> String {
        let p99 = |stage: Stage| {
            let figures = self.stages.iter().find(|of| of.stage == stage && of.from_intended.count > 0)?;
            let ms = figures.from_intended.p99_ms;
            let p99 = if ms >= 1_000.0 { format!("{:.1} s", ms / 1_000.0) } else { format!("{ms:.0} ms") };
            Some(format!("{stage} {p99}"))
        };
        let known: Vec<String> = [Stage::Accepted, Stage::Complete].into_iter().filter_map(p99).collect();
        if known.is_empty() { String::new() } else { format!(" at p99 {}", known.join(", ")) }
    }

    /// Returns true if payments are lost or wrong, or could not be compared, and not only because the service was too
    /// slow: payments that are incomplete at the end are findings as well.
    pub fn has_defect(&self) -> bool {
        let complete = self.stages.iter().find(|figures| figures.stage == Stage::Complete);
        let is_late_run = complete.is_some_and(|figures| figures.timed_out > 0);
        !self.audited || self.findings.iter().any(|finding| !(is_late_run && finding.is_late))
    }

    /// Returns the versions of load tester and service as text.
    pub fn versions(&self) -> String {
        match self.service_version.as_deref() {
            Some(service) if service != self.version => format!("{}, service {service}", self.version),
            Some(_) => self.version.to_owned(),
            None => format!("{}, service unknown", self.version),
        }
    }

    /// Returns the payments that were due and not made, by reason. Empty if all were made.
    fn not_made(&self) -> String {
        let Counted { due, accepted, refused, overloaded, unanswered, turned_away, .. } = self.counted;
        let reasons = [
            (overloaded, "overloaded"),
            (refused.saturating_sub(overloaded), "refused"),
            (unanswered, "unanswered"),
            (turned_away, "rejected"),
        ];
        let excused = self.counted.excused;
        let reasons: Vec<String> =
            reasons.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect();
        let missing = due.saturating_sub(accepted);
        let excused = if excused > 0 { format!("; {excused} of them because of a fault") } else { String::new() };
        if missing == 0 { String::new() } else { format!("{missing} of {due} ({}{excused})", reasons.join(", ")) }
    }

    /// Returns the payments that were due and not made, except those that a threshold judges or a fault explains.
    fn missing(&self) -> u64 {
        let Counted { due, accepted, overloaded, excused, .. } = self.counted;
        let judged = self.request.thresholds.iter().any(Threshold::judges_refusals);
        // A disturbance explains no refusal with the code `overloaded`, so that no payment is subtracted twice.
        due.saturating_sub(accepted).saturating_sub(excused).saturating_sub(if judged { overloaded } else { 0 })
    }

    /// Returns the faults, counted by kind.
    fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = FindingKind::ALL
            .into_iter()
            .filter(|kind| self.count(*kind) > 0)
            .map(|kind| format!("{} {}", self.count(kind), kind.as_str()))
            .collect();
        let not_held = u64::from(self.request.hold).saturating_sub(self.counted.held);
        for (missing, whole, what) in [
            (self.missing(), self.counted.due, "not made"),
            (not_held, u64::from(self.request.hold), "held payments not made"),
        ] {
            let percent = percent(missing, whole);
            if percent > self.not_made_percent_max {
                wrong.push(format!("{missing} {what} ({percent:.2} %)"));
            }
        }
        let broken = self.thresholds.iter().filter(|judged| !judged.passed);
        wrong.extend(broken.map(|judged| format!("{} is broken ({})", judged.threshold, judged.figure())));
        wrong
    }
}

pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { ratio(part, whole) * 100.0 }
}

/// Exact for all counts here.
#[allow(clippy::cast_precision_loss)]
pub fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests;
