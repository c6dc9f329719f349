//! Plots of a run over time, with the injected faults.

use maud::{Markup, html};

use super::LoadReport;
use super::heat_map::HeatMap;
use super::html::{float, mebi};
use super::plot::{Line, Plot, Scale};
use payferry_testkit::audit::tally::Second;

/// Shortest period for a rate: the last second of a run may be very short.
const RATE_SECS_LEAST: f64 = 0.5;

type Of = fn(&Second) -> Option<f64>;

/// Draws all plots.
pub(super) fn plots(report: &LoadReport) -> Markup {
    let LoadReport { course, faults, .. } = report;
    let plot = |title, unit, scale, lines: &[(&str, Of)]| {
        let lines = lines.iter().map(|(name, of)| Line {
            name: (*name).to_owned(),
            // Zero has no position on a logarithmic axis.
            points: course
                .iter()
                .map(|second| Some((second.at_secs, of(second)?)))
                .map(|point| point.filter(|(_, value)| scale == Scale::Linear || *value > 0.0))
                .collect(),
        });
        let lines = lines.collect();
        Plot { title, unit, scale, lines, marks: Vec::new(), horizontal: "seconds", faults }.draw()
    };
    let knows_service = course.iter().any(|second| second.service_cores.is_some());
    html! {
        div.plots {
            (plot("Offered, accepted and completed", "payments a second", Scale::Linear, &[
                ("offered", |second| rate(second, second.counted.due)),
                ("accepted", |second| rate(second, second.counted.accepted)),
                ("completed", |second| rate(second, second.counted.complete)),
            ]))
            (HeatMap { title: "Latency until complete", course, of: |second| &second.complete_heat, faults }.draw())
            (HeatMap { title: "Latency until accepted", course, of: |second| &second.accepted_heat, faults }.draw())
            (plot("Latency by second", "ms", Scale::Logarithmic, &[
                ("accepted p50", |second| Some(second.accepted_p50_ms)),
                ("accepted p99", |second| Some(second.accepted_p99_ms)),
                ("complete p50", |second| Some(second.complete_p50_ms)),
                ("complete p99", |second| Some(second.complete_p99_ms)),
            ]))
            (plot("Settled payments and webhooks", "a second", Scale::Linear, &[
                ("settled", |second| rate(second, second.counted.settled)),
                ("webhooks", |second| rate(second, second.counted.webhooks)),
                ("refused by the receiver", |second| rate(second, second.counted.denied)),
            ]))
            (plot("Initiations in flight", "", Scale::Linear, &[
                ("in flight", |second| Some(float(second.in_flight as u64))),
            ]))
            (plot("Payments accepted and not complete", "", Scale::Linear, &[
                ("open", |second| Some(float(second.open))),
            ]))
            (plot("Errors", "a second", Scale::Linear, &[("errors", |second| rate(second, second.errors))]))
            @if knows_service {
                (plot("Busy cores", "", Scale::Linear, &[
                    ("service", |second| second.service_cores.filter(|_| has_rate(second))),
                    ("load tester", |second| second.own_cores.filter(|_| has_rate(second))),
                ]))
                (plot("Memory of the service", "MiB", Scale::Linear, &[
                    ("resident", |second| second.service_bytes.map(mebi)),
                ]))
            }
        }
    }
}

/// Converts a count to a rate per second. The period may be longer than a second.
fn rate(second: &Second, count: u64) -> Option<f64> {
    has_rate(second).then(|| float(count) / second.period_secs)
}

fn has_rate(second: &Second) -> bool {
    second.period_secs >= RATE_SECS_LEAST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_by_real_time() {
        let lasted = |period_secs: f64| Second { period_secs, ..Second::default() };
        assert_eq!([1.0, 4.0, 0.01].map(|secs| rate(&lasted(secs), 100)), [Some(100.0), Some(25.0), None]);
    }
}
