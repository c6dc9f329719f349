//! Report of a run: figures and findings.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::psp::decimal;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The payment or other object.
    pub about: String,
    pub what: String,
}

impl Finding {
    /// Creates a finding about an object.
    pub fn of(about: impl Into<String>, what: impl Into<String>) -> Self {
        Self { about: about.into(), what: what.into() }
    }
}

pub type Findings = Vec<Finding>;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    pub database: String,
    pub chains: String,
    /// Seed, to repeat the random choices of the run.
    pub seed: u64,
    /// Payments per second.
    pub rate: f64,
    pub took_secs: f64,
    /// Duration from the first to the last kill.
    pub dying_secs: f64,
    /// Duration from the last kill until all work was complete.
    pub resting_secs: f64,
    pub kills: u32,
    pub kills_by_kind: BTreeMap<String, u32>,
    pub restarts: usize,
    /// Time from a restart until ready, in milliseconds.
    pub ready_ms: Percentiles,
    /// Number of reorgs of a chain while the service was down.
    pub reorgs: u32,
    /// Requests that change data.
    pub requests: u64,
    pub requests_retried: u64,
    pub payments: usize,
    pub payments_by_status: BTreeMap<String, usize>,
    pub transfers: usize,
    pub settlements: usize,
    pub settlement_txs: usize,
    /// Refunds, payouts, withdrawals and transfers to customers that were sent, by kind.
    pub moved_out: BTreeMap<String, usize>,
    /// Total amount of outbound transfers on-chain, in base units over all tokens.
    pub moved_out_units: i64,
    /// Transactions with outbound transfers.
    pub sent_txs: usize,
    /// Payouts that the token refused as expected; their money was returned.
    pub refused: usize,
    pub events: usize,
    pub deliveries: usize,
    /// Accepted deliveries of events that were already delivered.
    pub duplicate_deliveries: usize,
    pub findings: Findings,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    pub p50: u128,
    /// 99th percentile.
    pub p99: u128,
    pub max: u128,
}

impl Percentiles {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times.get(index).map_or(0, Duration::as_millis)
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}

/// Maximum number of findings that are printed.
const FINDINGS_SHOWN_MAX: usize = 100;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, what: &str, value: String| writeln!(f, "  {what:<28} {value}");
        let list = |counts: &BTreeMap<String, usize>| {
            counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "Killed {} times on {} with {} (seed {})", self.kills, self.database, self.chains, self.seed)?;
        for (kind, count) in &self.kills_by_kind {
            line(f, &format!("  {kind}"), count.to_string())?;
        }
        let Percentiles { p50, p99, max } = self.ready_ms;
        line(f, "restarts", self.restarts.to_string())?;
        line(f, "ready after a kill", format!("p50 {p50} ms, p99 {p99} ms, max {max} ms"))?;
        line(f, "reorgs while down", self.reorgs.to_string())?;
        line(f, "payments", format!("{} at {}/s: {}", self.payments, self.rate, list(&self.payments_by_status)))?;
        line(f, "requests", format!("{}, sent again {} times", self.requests, self.requests_retried))?;
        line(f, "transfers", self.transfers.to_string())?;
        line(f, "settlements", format!("{} in {} transactions", self.settlements, self.settlement_txs))?;
        let out = format!("{} in {} transactions", decimal(self.moved_out_units), self.sent_txs);
        line(f, "moved out", format!("{out}: {}; {} refused", list(&self.moved_out), self.refused))?;
        line(f, "events", self.events.to_string())?;
        line(f, "deliveries", format!("{}, {} of them repeated", self.deliveries, self.duplicate_deliveries))?;
        let Self { took_secs, dying_secs, resting_secs, .. } = self;
        let parts = format!("{dying_secs:.0} s of kills and {resting_secs:.0} s until all work was complete");
        line(f, "duration", format!("{took_secs:.0} s, with {parts}"))?;
        line(f, "findings", self.findings.len().to_string())?;
        for Finding { about, what } in self.findings.iter().take(FINDINGS_SHOWN_MAX) {
            writeln!(f, "    {about}: {what}")?;
        }
        if let Some(more) = self.findings.len().checked_sub(FINDINGS_SHOWN_MAX).filter(|more| *more > 0) {
            writeln!(f, "    and {more} more")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_computed_from_the_durations() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(Percentiles::of(times), Percentiles { p50: 100, p99: 198, max: 200 });
        assert_eq!(Percentiles::of(vec![Duration::from_millis(7)]), Percentiles { p50: 7, p99: 7, max: 7 });
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
    }

    #[test]
    fn table_lists_findings_and_counts_outbound_transfers() {
        let findings = vec![Finding::of("pay_1", "was lost")];
        let moved_out = [("payout".to_owned(), 4), ("refund".to_owned(), 2)].into();
        let report = Report { database: "sqlite".into(), kills: 3, findings, moved_out, ..Report::default() };
        let text = Report { moved_out_units: 7_500_000, sent_txs: 3, refused: 1, ..report }.to_string();
        assert!(text.starts_with("Killed 3 times on sqlite") && text.contains("pay_1: was lost"), "{text}");
        assert!(text.contains("7.50 in 3 transactions: 4 payout, 2 refund; 1 refused"), "{text}");
    }
}
