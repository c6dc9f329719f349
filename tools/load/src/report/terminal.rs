//! The report as tables on a terminal.

use std::fmt::{self, Display, Formatter};

use super::{Achieved, LoadReport, LoadRequest, PayerRate, TIMED_OUT_NOTE};
use crate::compare::Comparison;
use crate::faults::InjectedFault;
use crate::thresholds::Judged;
use payferry_testkit::audit::Holding;
use payferry_testkit::audit::answers::AnswerFigures;
use payferry_testkit::audit::customers::{CustomerFigures, CustomerStageFigures};
use payferry_testkit::audit::findings::Finding;
use payferry_testkit::audit::outbound::{OutboundFigures, OutboundStageFigures};
use payferry_testkit::audit::stages::{LatencyFigures, StageFigures};
use payferry_testkit::audit::tally::Counted;

/// Largest number of findings. The JSON and the HTML file have all of them.
const FINDINGS_MAX: usize = 20;
const MEBIBYTE: u64 = 1_024 * 1_024;

#[derive(Debug)]
pub struct Terminal<'a>(pub &'a LoadReport);

impl Display for Terminal<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let LoadRequest { mix, target, .. } = &report.request;
        let (title, arrivals) = (report.request.title(), report.request.arrivals());
        writeln!(f, "{title} ({arrivals}), {mix}, against {target}\n")?;
        counts(f, report)?;
        stages(f, &report.stages)?;
        answers(f, &report.answers)?;
        outbound(f, &report.outbound)?;
        customers(f, report.customers.as_ref())?;
        thresholds(f, &report.thresholds)?;
        machine(f, report)?;
        comparison(f, report.comparison.as_ref())?;
        faults(f, report)?;
        holdings(f, report)?;
        errors(f, report)?;
        findings(f, &report.findings)?;
        for note in &report.notes {
            writeln!(f, "{note}\n")?;
        }
        writeln!(f, "{}", report.verdict())
    }
}

fn counts(f: &mut Formatter<'_>, report: &LoadReport) -> fmt::Result {
    let Counted { held, due, turned_away, accepted, refused, overloaded, unanswered, .. } = report.counted;
    let not_made =
        format!("{refused} refused, {overloaded} of them overloaded, {unanswered} unanswered, {turned_away} rejected");
    writeln!(f, "made      {accepted} of {due} due ({not_made}), {held} of {} held", report.request.hold)?;
    let Counted { sent, unsent, mined, confirmed, settled, complete, .. } = report.counted;
    writeln!(f, "paid      {sent} transfers and authorizations accepted ({unsent} not), {mined} seen in blocks")?;
    writeln!(f, "outcome   {confirmed} confirmed, {settled} settled, {complete} complete")?;
    let Counted { webhooks, repeated, out_of_order, foreign, forged, denied, .. } = report.counted;
    let odd = format!("{repeated} repeated, {out_of_order} out of order, {foreign} of other payments");
    write!(f, "webhooks  {webhooks} genuine ({odd}), {forged} forged")?;
    if denied > 0 {
        write!(f, ", {denied} refused by the receiver")?;
    }
    writeln!(f)?;
    let Achieved { accepted_per_sec: accepted, complete_per_sec: complete, webhooks_per_sec: webhooks, .. } =
        report.achieved;
    let Achieved { steady_secs, arrivals_secs, total_secs, in_flight_most, open_most, .. } = report.achieved;
    write!(f, "rates     {accepted:.1} accepted/s, {complete:.1} complete/s, {webhooks:.1} webhooks/s, ")?;
    writeln!(f, "over {steady_secs:.1} of {arrivals_secs:.1} s of arrivals; {total_secs:.1} s in all")?;
    for PayerRate { payer, complete, secs, complete_per_sec } in &report.payers {
        writeln!(f, "          {payer}: {complete_per_sec:.1} complete/s ({complete} in {secs:.1} s)")?;
    }
    writeln!(f, "at once   at most {in_flight_most} initiations in flight, {open_most} payments open\n")
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
        let LatencyFigures { p50_ms, p90_ms, p99_ms, p99_9_ms, max_ms, .. } = from_intended;
        write!(f, "{stage:<10}{p50_ms:>9.1}{p90_ms:>9.1}{p99_ms:>9.1}{p99_9_ms:>9.1}{max_ms:>9.1}")?;
        let LatencyFigures { count, p50_ms, p99_ms, max_ms, .. } = step;
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

fn answers(f: &mut Formatter<'_>, answers: &[AnswerFigures]) -> fmt::Result {
    if answers.is_empty() {
        return Ok(());
    }
    writeln!(f, "{:<10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}", "answer", "p50", "p90", "p99", "p99.9", "max", "count")?;
    writeln!(f, "{}", "-".repeat(64))?;
    for AnswerFigures { answer, from_intended } in answers {
        let LatencyFigures { count, p50_ms, p90_ms, p99_ms, p99_9_ms, max_ms, .. } = from_intended;
        let answer = answer.as_str().replace('_', " ");
        writeln!(f, "{answer:<10}{p50_ms:>9.1}{p90_ms:>9.1}{p99_ms:>9.1}{p99_9_ms:>9.1}{max_ms:>9.1}{count:>9}")?;
    }
    writeln!(f)
}

fn outbound(f: &mut Formatter<'_>, outbound: &[OutboundFigures]) -> fmt::Result {
    if outbound.is_empty() {
        return Ok(());
    }
    writeln!(f, "{:<20}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}", "outbound", "p50", "p90", "p99", "p99.9", "max", "count")?;
    writeln!(f, "{}", "-".repeat(74))?;
    for OutboundFigures { kind, requested, not_accepted, stages, .. } in outbound {
        for OutboundStageFigures { stage, from_request, timed_out } in stages {
            latencies(f, &format!("{kind} {stage}"), from_request, *timed_out)?;
        }
        if *not_accepted > 0 {
            writeln!(f, "{not_accepted} of {requested} {kind}s not accepted")?;
        }
    }
    writeln!(f)
}

fn customers(f: &mut Formatter<'_>, customers: Option<&CustomerFigures>) -> fmt::Result {
    let Some(CustomerFigures { due, failed, stages }) = customers else { return Ok(()) };
    writeln!(f, "{:<20}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}", "customer", "p50", "p90", "p99", "p99.9", "max", "count")?;
    writeln!(f, "{}", "-".repeat(74))?;
    for CustomerStageFigures { stage, from_intended, timed_out } in stages {
        latencies(f, stage.as_str(), from_intended, *timed_out)?;
    }
    if *failed > 0 {
        writeln!(f, "{failed} of {due} customers not verified")?;
    }
    writeln!(f)
}

fn latencies(f: &mut Formatter<'_>, name: &str, figures: &LatencyFigures, timed_out: u64) -> fmt::Result {
    let LatencyFigures { count, p50_ms, p90_ms, p99_ms, p99_9_ms, max_ms, .. } = figures;
    write!(f, "{name:<20}{p50_ms:>9.1}{p90_ms:>9.1}{p99_ms:>9.1}{p99_9_ms:>9.1}{max_ms:>9.1}{count:>9}")?;
    match timed_out {
        0 => writeln!(f),
        timed_out => writeln!(f, "  {timed_out} timed out"),
    }
}

fn thresholds(f: &mut Formatter<'_>, thresholds: &[Judged]) -> fmt::Result {
    for judged in thresholds {
        let kept = if judged.passed { "kept" } else { "broken" };
        writeln!(f, "threshold {} is {kept}: {}", judged.threshold, judged.figure())?;
    }
    if thresholds.is_empty() { Ok(()) } else { writeln!(f) }
}

fn machine(f: &mut Formatter<'_>, report: &LoadReport) -> fmt::Result {
    let machine = &report.machine;
    let cores = |cores: Option<f64>| cores.map_or_else(|| "unknown".to_owned(), |cores| format!("{cores:.2}"));
    writeln!(f, "machine   {}", machine.title())?;
    writeln!(f, "version   {}", report.versions())?;
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

fn comparison(f: &mut Formatter<'_>, comparison: Option<&Comparison>) -> fmt::Result {
    let Some(Comparison { with, differs, figures }) = comparison else { return Ok(()) };
    writeln!(
        f,
        "{:<34}{:>12}{:>12}{:>8}{:>8}",
        format!("compared with run {with}"),
        "before",
        "now",
        "ratio",
        "noise"
    )?;
    writeln!(f, "{}", "-".repeat(82))?;
    for one in figures {
        let (name, noise, change) = (one.title(), one.noise(), one.change.as_str());
        writeln!(f, "{name:<34}{:>12.2}{:>12.2}{:>8.2}{noise:>8}  {change}", one.before, one.now, one.ratio)?;
    }
    for differs in differs {
        writeln!(f, "other {differs}")?;
    }
    writeln!(f)
}

fn faults(f: &mut Formatter<'_>, report: &LoadReport) -> fmt::Result {
    if let Some(receiver) = report.request.receiver() {
        writeln!(f, "{receiver}\n")?;
    }
    for InjectedFault { fault, at_secs, until_secs, number } in &report.faults {
        writeln!(f, "fault {number:<4}{fault:<36}{at_secs:>9.1} s to {until_secs:.1} s")?;
    }
    if !report.faults.is_empty() {
        let Counted { excused, reorged, .. } = report.counted;
        writeln!(f, "{excused} payments not made because of them, {reorged} events of reorganised payments\n")?;
    }
    Ok(())
}

fn holdings(f: &mut Formatter<'_>, report: &LoadReport) -> fmt::Result {
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
        let Holding { chain, token, vault_grew, vault_expected, treasury_grew, treasury_expected, .. } = holding;
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let (balance, postings) = (known(&holding.balance_grew), known(&holding.postings_say));
        write!(
            f,
            "{chain:<10}{token:<6}{vault_grew:>15}{vault_expected:>15}{treasury_grew:>13}{treasury_expected:>13}"
        )?;
        write!(f, "{balance:>15}{postings:>15}{}", if holding.is_ok() { "" } else { "  differs" })?;
        match &holding.psp_id {
            Some(psp_id) => writeln!(f, "  {psp_id}")?,
            None => writeln!(f)?,
        }
    }
    writeln!(f)
}

fn errors(f: &mut Formatter<'_>, report: &LoadReport) -> fmt::Result {
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
        let payer = payer.map_or_else(String::new, |payer| format!(" (payer: {payer})"));
        writeln!(f, "{kind:<12}{}{payer}", payment_id.as_deref().unwrap_or("-"))?;
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
