//! What a run says in the end: figures, and everything that is wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::psp::decimal;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The payment, or what else it is about.
    pub about: String,
    /// What is wrong with it.
    pub what: String,
}

impl Finding {
    /// `what` is wrong with `about`.
    pub fn of(about: impl Into<String>, what: impl Into<String>) -> Self {
        Self { about: about.into(), what: what.into() }
    }
}

/// All that is wrong.
pub type Findings = Vec<Finding>;

/// A run's figures.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// What rows were kept in.
    pub database: String,
    /// What the chains were.
    pub chains: String,
    /// Repeats the run, as far as chance goes.
    pub seed: u64,
    /// Payments a second.
    pub rate: f64,
    /// How long it took, whole.
    pub took_secs: f64,
    /// Of that, until the last death.
    pub dying_secs: f64,
    /// From then until everything had come to its end.
    pub resting_secs: f64,
    /// How often the service was killed.
    pub kills: u32,
    /// In which way, how often.
    pub kills_by_kind: BTreeMap<String, u32>,
    /// How often it was started again and became ready.
    pub restarts: usize,
    /// From such a start until it was ready, milliseconds.
    pub ready_ms: Percentiles,
    /// How often a chain took its newest block back while nobody was there.
    pub reorgs: u32,
    /// Requests that change something.
    pub requests: u64,
    /// How often one was sent again.
    pub requests_retried: u64,
    /// Payments that were acknowledged.
    pub payments: usize,
    /// By their status in the end.
    pub payments_by_status: BTreeMap<String, usize>,
    /// Transfers of payers.
    pub transfers: usize,
    /// Settlements on-chain.
    pub settlements: usize,
    /// Transactions that carried them.
    pub settlement_txs: usize,
    /// Refunds, payouts, withdrawals and transfers to customers that were sent, by kind.
    pub moved_out: BTreeMap<String, usize>,
    /// Base units that left on-chain with them, of all tokens together.
    pub moved_out_units: i64,
    /// Transactions that carried them.
    pub sent_txs: usize,
    /// Payouts that the token refused, as was meant: their money is where it was.
    pub refused: usize,
    /// Events that were announced.
    pub events: usize,
    /// Deliveries of them that were taken.
    pub deliveries: usize,
    /// Of those, how many had come before.
    pub duplicate_deliveries: usize,
    /// Everything that is wrong.
    pub findings: Findings,
}

/// How long something took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Half took less.
    pub p50: u128,
    /// One in a hundred took more.
    pub p99: u128,
    /// The longest.
    pub max: u128,
}

impl Percentiles {
    /// Of these, in milliseconds.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times.get(index).map_or(0, Duration::as_millis)
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}

/// Findings shown one by one.
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
        line(f, "reorganisations meanwhile", self.reorgs.to_string())?;
        line(f, "payments", format!("{} at {}/s: {}", self.payments, self.rate, list(&self.payments_by_status)))?;
        line(f, "requests", format!("{}, sent again {} times", self.requests, self.requests_retried))?;
        line(f, "transfers", self.transfers.to_string())?;
        line(f, "settlements", format!("{} in {} transactions", self.settlements, self.settlement_txs))?;
        let out = format!("{} in {} transactions", decimal(self.moved_out_units), self.sent_txs);
        line(f, "moved out", format!("{out}: {}; {} refused", list(&self.moved_out), self.refused))?;
        line(f, "events", self.events.to_string())?;
        line(f, "deliveries", format!("{}, {} of them repeated", self.deliveries, self.duplicate_deliveries))?;
        let Self { took_secs, dying_secs, resting_secs, .. } = self;
        let parts = format!("{dying_secs:.0} s of dying and {resting_secs:.0} s of coming to rest");
        line(f, "took", format!("{took_secs:.0} s, with {parts}"))?;
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
    fn percentiles_are_taken_from_what_was_measured() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(Percentiles::of(times), Percentiles { p50: 100, p99: 198, max: 200 });
        assert_eq!(Percentiles::of(vec![Duration::from_millis(7)]), Percentiles { p50: 7, p99: 7, max: 7 });
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
    }

    #[test]
    fn the_table_names_what_is_wrong_and_counts_what_was_moved_out() {
        let findings = vec![Finding::of("pay_1", "was lost")];
        let moved_out = [("payout".to_owned(), 4), ("refund".to_owned(), 2)].into();
        let report = Report { database: "sqlite".into(), kills: 3, findings, moved_out, ..Report::default() };
        let text = Report { moved_out_units: 7_500_000, sent_txs: 3, refused: 1, ..report }.to_string();
        assert!(text.starts_with("Killed 3 times on sqlite") && text.contains("pay_1: was lost"), "{text}");
        assert!(text.contains("7.50 in 3 transactions: 4 payout, 2 refund; 1 refused"), "{text}");
    }
}
