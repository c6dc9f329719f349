//! The report as tables on a terminal.

use std::fmt::{self, Display, Formatter};

use super::{Report, TIMED_OUT_NOTE};
use payferry_testkit::audit::findings::Finding;
use payferry_testkit::audit::stages::{Figures, StageFigures};

/// Largest number of findings. The JSON and the HTML file have all of them.
const FINDINGS_MAX: usize = 20;
const MEBIBYTE: u64 = 1_024 * 1_024;

#[derive(Debug)]
pub struct Terminal<'a>(pub &'a Report);

impl Display for Terminal<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let asked = &report.asked;
        writeln!(
            f,
            "{} payments at {}/s ({}), {}, against {}\n",
            asked.payments,
            asked.rate.get(),
            asked.arrivals(),
            asked.mix,
            asked.target
        )?;
        counts(f, report)?;
        stages(f, &report.stages)?;
        machine(f, report)?;
        holdings(f, report)?;
        errors(f, report)?;
        findings(f, &report.findings)?;
        for note in &report.notes {
            writeln!(f, "{note}\n")?;
        }
        writeln!(f, "{}", report.verdict())
    }
}

fn counts(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    let (counted, achieved) = (&report.counted, &report.achieved);
    writeln!(
        f,
        "made      {} of {} due ({} refused, {} unanswered, {} rejected), {} of {} held",
        counted.accepted,
        counted.due,
        counted.refused,
        counted.unanswered,
        counted.turned_away,
        counted.held,
        report.asked.hold
    )?;
    writeln!(
        f,
        "paid      {} transfers accepted by the chains' nodes ({} not), {} seen in blocks",
        counted.sent, counted.unsent, counted.mined
    )?;
    writeln!(
        f,
        "outcome   {} confirmed, {} settled, {} complete",
        counted.confirmed, counted.settled, counted.complete
    )?;
    writeln!(
        f,
        "webhooks  {} genuine ({} repeated, {} out of order, {} of other payments), {} forged",
        counted.webhooks, counted.repeated, counted.out_of_order, counted.foreign, counted.forged
    )?;
    writeln!(
        f,
        "rates     {:.1} accepted/s, {:.1} complete/s, {:.1} webhooks/s, over {:.1} of {:.1} s of arrivals; {:.1} s in all",
        achieved.accepted_per_sec,
        achieved.complete_per_sec,
        achieved.webhooks_per_sec,
        achieved.steady_secs,
        achieved.arrivals_secs,
        achieved.total_secs
    )?;
    writeln!(
        f,
        "at once   at most {} initiations in flight, {} payments open\n",
        achieved.in_flight_most, achieved.open_most
    )
}

fn stages(f: &mut Formatter<'_>, stages: &[StageFigures]) -> fmt::Result {
    if stages.is_empty() {
        return Ok(());
    }
    writeln!(f, "{:<10}{:>45}{:>6}{:>37}", "", "ms from the scheduled start", "", "ms of the step")?;
    writeln!(
        f,
        "{:<10}{:>9}{:>9}{:>9}{:>9}{:>9}  {:<11}{:>9}{:>9}{:>9}{:>9}",
        "stage", "p50", "p90", "p99", "p99.9", "max", "after", "p50", "p99", "max", "count"
    )?;
    writeln!(f, "{}", "-".repeat(104))?;
    for StageFigures { stage, from_intended, step_from, step, timed_out } in stages {
        let Figures { p50_ms, p90_ms, p99_ms, p99_9_ms, max_ms, .. } = from_intended;
        write!(f, "{:<10}{p50_ms:>9.1}{p90_ms:>9.1}{p99_ms:>9.1}{p99_9_ms:>9.1}{max_ms:>9.1}", stage.as_str())?;
        let Figures { count, p50_ms, p99_ms, max_ms, .. } = step;
        write!(f, "  {step_from:<11}{p50_ms:>9.1}{p99_ms:>9.1}{max_ms:>9.1}{count:>9}")?;
        match timed_out {
            0 => writeln!(f)?,
            timed_out => writeln!(f, "  {timed_out} timed out")?,
        }
    }
    if stages.iter().any(|stage| stage.timed_out > 0) {
        writeln!(f, "timed out: {TIMED_OUT_NOTE}")?;
    }
    writeln!(f)
}

fn machine(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    let machine = &report.machine;
    let cores = |cores: Option<f64>| cores.map_or_else(|| "unknown".to_owned(), |cores| format!("{cores:.2}"));
    write!(f, "cores     {}; {} busy with the service", machine.cores, cores(machine.service_cores))?;
    if let Some(ms) = machine.service_ms_a_payment {
        write!(f, " ({ms:.2} ms a payment)")?;
    }
    writeln!(f, ", {} with the load tester", cores(machine.own_cores))?;
    if let (Some(before), Some(most)) = (machine.service_bytes_before, machine.service_bytes_most) {
        write!(f, "memory    of the service {} MiB before, {} MiB at most", before / MEBIBYTE, most / MEBIBYTE)?;
        if let (Some(held), Some(each)) = (machine.service_bytes_held, machine.service_bytes_a_held) {
            write!(f, "; {} MiB with those held, {each} bytes each", held / MEBIBYTE)?;
        }
        writeln!(f)?;
    }
    writeln!(f)
}

fn holdings(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    if report.holdings.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "{:<10}{:<6}{:>15}{:>15}{:>13}{:>13}{:>15}{:>15}",
        "on-chain", "", "vault grew", "payments say", "treasury", "say", "balance grew", "postings say"
    )?;
    writeln!(f, "{}", "-".repeat(104))?;
    for holding in &report.holdings {
        let mark = if holding.is_ok() { "" } else { "  differs" };
        writeln!(
            f,
            "{:<10}{:<6}{:>15}{:>15}{:>13}{:>13}{:>15}{:>15}{mark}",
            holding.chain.as_str(),
            holding.token.as_str(),
            holding.vault_grew,
            holding.vault_expected,
            holding.treasury_grew,
            holding.treasury_expected,
            holding.balance_grew.as_deref().unwrap_or("-"),
            holding.postings_say.as_deref().unwrap_or("-")
        )?;
    }
    writeln!(f)
}

fn errors(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    if report.errors.is_empty() {
        return Ok(());
    }
    writeln!(f, "errors by kind")?;
    for (kind, count) in &report.errors {
        writeln!(f, "{count:>8}  {kind}")?;
    }
    writeln!(f)
}

fn findings(f: &mut Formatter<'_>, findings: &[Finding]) -> fmt::Result {
    for Finding { payment_id, kind, payer, expected, found, .. } in findings.iter().take(FINDINGS_MAX) {
        let payer = payer.map_or_else(String::new, |payer| format!(" (payer: {})", payer.as_str()));
        writeln!(f, "{:<12}{}{payer}", kind.as_str(), payment_id.as_deref().unwrap_or("-"))?;
        writeln!(f, "  expected  {expected}\n  found     {found}")?;
    }
    if findings.len() > FINDINGS_MAX {
        writeln!(f, "... and {} more, see --json or --report", findings.len() - FINDINGS_MAX)?;
    }
    if !findings.is_empty() {
        writeln!(f)?;
    }
    Ok(())
}
