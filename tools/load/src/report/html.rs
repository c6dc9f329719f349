//! The report as one self-contained HTML file with style and plots.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::{Line, Plot, Scale};
use super::{LoadReport, PayerRate, TIMED_OUT_NOTE, course};
use crate::compare::Comparison;
use crate::thresholds::Judged;
use payferry_testkit::audit::answers::AnswerFigures;
use payferry_testkit::audit::customers::CustomerFigures;
use payferry_testkit::audit::outbound::OutboundFigures;
use payferry_testkit::audit::stages::{LatencyFigures, StageFigures};

const STYLE: &str = include_str!("style.css");
/// Largest number of listed findings.
const FINDINGS_MAX: usize = 1_000;
pub(super) const MEBIBYTE: f64 = 1_024.0 * 1_024.0;

/// Returns the content of the file.
pub fn page(report: &LoadReport) -> String {
    let request = &report.request;
    let title = request.title();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Payferry load test: " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    header {
                        p.over { "Payferry " (report.versions()) " · load test " (report.run) " · " (report.began_at) }
                        h1 { (title) }
                        p.asked {
                            (request.arrivals()) " arrivals, " (request.mix) ", " (request.hold) " held, against " (request.target)
                        }
                        @if let Some(receiver) = request.receiver() { p.asked { (receiver) } }
                        p.asked { (report.machine.title()) }
                        @for note in &report.notes { p.asked { (note) } }
                        p class=(if report.is_ok() { "verdict well" } else { "verdict ill" }) { (report.verdict()) }
                    }
                    (cards(report))
                    @if !report.thresholds.is_empty() { section { h2 { "Thresholds" } (thresholds(&report.thresholds)) } }
                    @if let Some(comparison) = &report.comparison { section { h2 { "Comparison" } (compared(comparison)) } }
                    @if !report.faults.is_empty() { section { h2 { "Injected faults" } (faults(report)) } }
                    section { h2 { "Course" } (course::plots(report)) }
                    section { h2 { "Latency" } (latency(report)) (stages(&report.stages)) @if !report.answers.is_empty() { (answers(&report.answers)) } @if !report.outbound.is_empty() { (outbound(&report.outbound)) } @if let Some(of) = &report.customers { (customers(of)) } }
                    section { h2 { "Counts" } (counts(report)) }
                    @if !report.errors.is_empty() { section { h2 { "Errors by kind" } (errors(report)) } }
                    @if !report.holdings.is_empty() { section { h2 { "Money on-chain and in the ledger" } (holdings(report)) } }
                    @if !report.findings.is_empty() { section { h2 { "Findings" } (findings(report)) } }
                    @if !report.service_log.is_empty() {
                        section { h2 { "Last lines of the service's log" } pre { (report.service_log.join("\n")) } }
                    }
                    footer { "Latencies count from the scheduled start of a payment, so that waiting is not hidden." }
                }
            }
        }
    };
    page.into_string()
}

fn cards(report: &LoadReport) -> Markup {
    let stage = |name: &str| report.stages.iter().find(|figures| figures.stage.as_str() == name);
    let p99 = |name: &str| stage(name).map_or_else(|| "-".to_owned(), |found| ms(found.from_intended.p99_ms));
    let cores = |cores: Option<f64>| cores.map_or_else(|| "-".to_owned(), |cores| format!("{cores:.2}"));
    let memory =
        report.machine.service_bytes_most.map_or_else(|| "-".to_owned(), |bytes| format!("{:.0} MiB", mebi(bytes)));
    let card = |value: String, what: &str| html! { div.card { b { (value) } span { (what) } } };
    html! {
        div.cards {
            (card(format!("{:.0}/s", report.achieved.accepted_per_sec), "accepted"))
            (card(format!("{:.0}/s", report.achieved.complete_per_sec), "complete"))
            (card(p99("accepted"), "p99 until accepted"))
            (card(p99("complete"), "p99 until complete"))
            (card(cores(report.machine.service_cores), "busy cores of the service"))
            (card(cores(report.machine.own_cores), "of the load tester"))
            (card(memory, "memory of the service"))
        }
    }
}

fn latency(report: &LoadReport) -> Markup {
    // Positions of the percentiles: each further nine has the same width.
    let place = |percent: f64| if percent >= 100.0 { 4.6 } else { -(1.0 - percent / 100.0).log10() };
    let lines = report.curves.iter().map(|(stage, points)| Line {
        name: (*stage).to_owned(),
        points: points.iter().map(|(percent, ms)| Some((place(*percent), *ms))).collect(),
    });
    let marks =
        [(0.0, "0"), (50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9"), (99.99, "p99.99"), (100.0, "max")];
    let marks = marks.map(|(percent, name)| (place(percent), name.to_owned()));
    let plot = Plot {
        title: "From the scheduled start to each stage",
        unit: "ms",
        scale: Scale::Logarithmic,
        lines: lines.collect(),
        marks: marks.to_vec(),
        horizontal: "",
        faults: &[],
    };
    html! { div.plots { (plot.draw()) } }
}

fn faults(report: &LoadReport) -> Markup {
    html! {
        div.wide { table {
            thead { tr { th.number { "" } th { "fault" } @for head in ["begin s", "end s"] { th.number { (head) } } } }
            tbody { @for fault in &report.faults { tr {
                td.number { (fault.number) } td { code { (fault.fault) } }
                td.number { (format!("{:.1}", fault.at_secs)) } td.number { (format!("{:.1}", fault.until_secs)) }
            } } }
        } }
        p.asked { "A line in a plot is the begin of the fault with this number, a band its duration. A kill ends when the service answers again." }
    }
}

fn stages(stages: &[StageFigures]) -> Markup {
    html! {
        div.wide { table {
            thead {
                tr { th {} th.group colspan="5" { "ms from the scheduled start" } th {} th.group colspan="4" { "ms of the step" } }
                tr {
                    th { "stage" }
                    @for head in ["p50", "p90", "p99", "p99.9", "max"] { th.number { (head) } }
                    th { "after" }
                    @for head in ["p50", "p99", "max", "count"] { th.number { (head) } }
                }
            }
            tbody {
                @for StageFigures { stage, from_intended: total, step_from, step, timed_out } in stages {
                    tr {
                        td { (stage.as_str()) }
                        @for figure in [total.p50_ms, total.p90_ms, total.p99_ms, total.p99_9_ms, total.max_ms] {
                            td.number { (format!("{figure:.1}")) }
                        }
                        td { (step_from) }
                        @for figure in [step.p50_ms, step.p99_ms, step.max_ms] { td.number { (format!("{figure:.1}")) } }
                        td.number { (step.count) @if *timed_out > 0 { ", " (timed_out) " timed out" } }
                    }
                }
            }
        } }
        @if stages.iter().any(|stage| stage.timed_out > 0) { p { "Timed out: " (TIMED_OUT_NOTE) "." } }
    }
}

fn answers(answers: &[AnswerFigures]) -> Markup {
    let row = |one: &AnswerFigures| (one.answer.as_str().replace('_', " "), one.from_intended);
    latencies("answer", answers.iter().map(row))
}

fn outbound(outbound: &[OutboundFigures]) -> Markup {
    let rows = outbound.iter().flat_map(|OutboundFigures { kind, stages, .. }| {
        stages.iter().map(move |of| (format!("{kind} {}{}", of.stage, timed_out(of.timed_out)), of.from_request))
    });
    latencies("outbound transfer", rows)
}

fn customers(customers: &CustomerFigures) -> Markup {
    let rows = customers.stages.iter().map(|of| (format!("{}{}", of.stage, timed_out(of.timed_out)), of.from_intended));
    latencies("customer", rows)
}

fn timed_out(count: u64) -> String {
    if count > 0 { format!(" ({count} timed out)") } else { String::new() }
}

fn latencies(what: &str, rows: impl Iterator<Item = (String, LatencyFigures)>) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { (what) }
                @for head in ["count", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"] { th.number { (head) } }
            } }
            tbody { @for (name, figures) in rows { tr {
                td { (name) } td.number { (figures.count) }
                @for figure in [figures.p50_ms, figures.p90_ms, figures.p99_ms, figures.p99_9_ms, figures.max_ms] {
                    td.number { (format!("{figure:.1}")) }
                }
            } } }
        } }
    }
}

fn thresholds(thresholds: &[Judged]) -> Markup {
    html! {
        div.wide { table {
            thead { tr { th { "threshold" } th.number { "measured" } th {} } }
            tbody { @for judged in thresholds { tr {
                td { code { (judged.threshold) } } td.number { (judged.figure()) }
                td { @if judged.passed { "kept" } @else { strong { "broken" } } }
            } } }
        } }
    }
}

fn compared(comparison: &Comparison) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { "compared with run " (comparison.with) }
                @for head in ["before", "now", "ratio", "noise"] { th.number { (head) } }
                th {}
            } }
            tbody { @for one in &comparison.figures { tr {
                td { (one.title()) }
                @for figure in [one.before, one.now, one.ratio] { td.number { (format!("{figure:.2}")) } }
                td.number { (one.noise()) } td { (one.change.as_str()) }
            } } }
        } }
        @for differs in &comparison.differs { p.asked { "Other " (differs) } }
    }
}

fn counts(report: &LoadReport) -> Markup {
    html! {
        div.columns {
            @for (name, count) in report.counted.entries() { div { span { (name.replace('_', " ")) } b { (count) } } }
            @for PayerRate { payer, complete_per_sec, .. } in &report.payers {
                div { span { (payer) " complete/s" } b { (format!("{complete_per_sec:.1}")) } }
            }
        }
    }
}

fn errors(report: &LoadReport) -> Markup {
    html! {
        table { tbody { @for (kind, count) in &report.errors { tr { td.number { (count) } td { (kind) } } } } }
    }
}

fn holdings(report: &LoadReport) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { "chain" } th { "token" } th.number { "vault grew" } th.number { "payments say" }
                th.number { "treasury grew" } th.number { "payments say" }
                th.number { "balance grew" } th.number { "postings say" } th {}
            } }
            tbody { @for holding in &report.holdings { tr {
                td { (holding.chain.as_str()) } td { (holding.token.as_str()) }
                td.number { (holding.vault_grew) } td.number { (holding.vault_expected) }
                td.number { (holding.treasury_grew) } td.number { (holding.treasury_expected) }
                td.number { (holding.balance_grew.as_deref().unwrap_or("-")) }
                td.number { (holding.postings_say.as_deref().unwrap_or("-")) }
                td { @if holding.is_ok() { "equal" } @else { strong { "differs" } } }
                @if let Some(psp_id) = &holding.psp_id { td { code { (psp_id) } } }
            } } }
        } }
    }
}

fn findings(report: &LoadReport) -> Markup {
    let left = report.findings.len().saturating_sub(FINDINGS_MAX);
    html! {
        div.wide { table.findings {
            thead { tr { th { "what" } th { "payment" } th { "payer" } th { "expected" } th { "found" } } }
            tbody { @for finding in report.findings.iter().take(FINDINGS_MAX) { tr {
                td { strong { (finding.kind.as_str()) } }
                td { code { (finding.payment_id.as_deref().unwrap_or("-")) } }
                td { (finding.payer.map_or("-", |payer| payer.as_str())) }
                td { (finding.expected) } td { (finding.found) }
            } } }
        } }
        @if left > 0 { p { "... and " (left) " more, see the JSON." } }
    }
}

fn ms(ms: f64) -> String {
    if ms >= 1_000.0 { format!("{:.2} s", ms / 1_000.0) } else { format!("{ms:.1} ms") }
}

pub(super) fn mebi(bytes: u64) -> f64 {
    float(bytes) / MEBIBYTE
}

/// Exact for all plotted values.
#[allow(clippy::cast_precision_loss)]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}
