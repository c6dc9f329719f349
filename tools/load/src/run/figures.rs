//! Figures of a run, from its course.
//!
//! Pure.

use std::time::Duration;

use crate::report::{Achieved, Host, Machine, PayerRate, WARM_UP_SECS, ratio};
use payferry_testkit::audit::behaviour::Behaviour;
use payferry_testkit::audit::record::Record;
use payferry_testkit::audit::tally::{Counted, Second};
use payferry_testkit::usage::Usage;

/// The seconds in which payments started, without the first ones. Rates and means are computed from these.
struct Steady<'a>(Vec<&'a Second>);

impl<'a> Steady<'a> {
    fn of(course: &'a [Second], arrived: Duration) -> Self {
        let secs = arrived.as_secs_f64();
        let warm_up = if secs > 2.0 * WARM_UP_SECS { WARM_UP_SECS } else { 0.0 };
        // A second belongs to the period that contains its middle. It may last longer than a second if the load tester
        // got no CPU time.
        let within: Vec<&Second> = course
            .iter()
            .filter(|second| (warm_up..=secs).contains(&second.middle_secs()) && second.period_secs > 0.0)
            .collect();
        // All arrivals were over before the middle of the first second.
        Self(if within.is_empty() { course.iter().take(1).collect() } else { within })
    }

    fn secs(&self) -> f64 {
        self.0.iter().map(|second| second.period_secs).sum()
    }

    fn sum(&self, of: impl Fn(&Counted) -> u64) -> u64 {
        self.0.iter().map(|second| of(&second.counted)).sum()
    }

    fn per_sec(&self, of: impl Fn(&Counted) -> u64) -> f64 {
        let secs = self.secs();
        if secs > 0.0 { ratio(self.sum(of), 1) / secs } else { 0.0 }
    }

    /// Returns the mean over time of a value that some seconds have. Long seconds weigh more.
    fn mean(&self, of: impl Fn(&Second) -> Option<f64>) -> Option<f64> {
        let known = self.0.iter().filter_map(|second| Some((of(second)?, second.period_secs)));
        let (sum, secs) = known.fold((0.0, 0.0), |(sum, all), (value, secs)| (sum + value * secs, all + secs));
        (secs > 0.0).then(|| sum / secs)
    }
}

/// `arrived` and `total` are the durations of the arrivals and of the run.
pub(super) fn achieved(course: &[Second], [arrived, total]: [Duration; 2], in_flight_most: usize) -> Achieved {
    let steady = Steady::of(course, arrived);
    Achieved {
        arrivals_secs: arrived.as_secs_f64(),
        total_secs: total.as_secs_f64(),
        steady_secs: steady.secs(),
        accepted_per_sec: steady.per_sec(|counted| counted.accepted),
        complete_per_sec: steady.per_sec(|counted| counted.complete),
        webhooks_per_sec: steady.per_sec(|counted| counted.webhooks),
        in_flight_most,
        open_most: course.iter().map(|second| second.open).max().unwrap_or(0),
    }
}

/// Returns the rate of each behaviour that pays in time. It counts from the first arrival to the last completion, so
/// that it includes the last blocks and webhooks.
pub(super) fn payer_rates<'a, R: Iterator<Item = &'a Record>>(records: impl Fn() -> R) -> Vec<PayerRate> {
    let rate = |payer: Behaviour| {
        let paid = || records().filter(|record| record.intent.behaviour == payer);
        let last = paid().filter_map(|record| record.completed).max()?;
        let secs = last.duration_since(paid().map(|record| record.intended).min()?).as_secs_f64();
        let complete = u32::try_from(paid().filter(|record| record.completed.is_some()).count()).unwrap_or(u32::MAX);
        Some(PayerRate { payer, complete, secs, complete_per_sec: f64::from(complete) / secs })
    };
    Behaviour::MIXED.into_iter().filter(|payer| !payer.expires()).filter_map(rate).collect()
}

/// Memory of the service before and after the held payments were made.
#[derive(Clone, Copy)]
pub(super) struct Holding {
    pub(super) before: Option<Usage>,
    pub(super) after: Option<Usage>,
    pub(super) payments: u64,
}

pub(super) fn machine(course: &[Second], holding: Holding, arrived: Duration) -> Machine {
    let steady = Steady::of(course, arrived);
    let service_cores = steady.mean(|second| second.service_cores);
    let accepted = steady.sum(|counted| counted.accepted);
    let bytes = |usage: Option<Usage>| usage.map(|usage| usage.resident_bytes);
    let (before, held) = (bytes(holding.before), bytes(holding.after));
    let grew = held.zip(before).map(|(held, before)| held.saturating_sub(before));
    Machine {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        host: Host::default(),
        service_cores,
        own_cores: steady.mean(|second| second.own_cores),
        service_ms_a_payment: service_cores
            .filter(|_| accepted > 0)
            .map(|cores| cores * 1_000.0 * steady.secs() / ratio(accepted, 1)),
        service_bytes_before: before,
        service_bytes_held: held,
        service_bytes_most: course.iter().filter_map(|second| second.service_bytes).max(),
        service_bytes_a_held: grew.and_then(|grew| grew.checked_div(holding.payments)),
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use tokio::time::Instant;

    use super::*;
    use payferry_testkit::audit::behaviour::Intent;

    /// Returns seconds that end at these times, with this rate of accepted payments and these busy cores.
    fn course(ends: &[f64], per_sec: u32, cores: impl Fn(f64) -> f64) -> Vec<Second> {
        let begins = std::iter::once(0.0).chain(ends.iter().copied());
        let second = |(begin, end): (f64, &f64)| {
            let period_secs = end - begin;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let accepted = (f64::from(per_sec) * period_secs).round() as u64;
            let counted = Counted { accepted, complete: accepted, webhooks: accepted * 4, ..Counted::default() };
            Second {
                at_secs: *end,
                period_secs,
                counted,
                service_cores: Some(cores(*end)),
                own_cores: Some(0.5),
                ..Second::default()
            }
        };
        begins.zip(ends).map(second).collect()
    }

    fn close(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() < 1e-9
    }

    #[test]
    fn a_starved_load_tester_does_not_raise_the_rates() {
        let nothing = Holding { before: None, after: None, payments: 0 };
        let time = Duration::from_secs(20);
        let steady: Vec<f64> = (1..=22).map(f64::from).collect();
        // The same load, sampled every second, and sampled seldom with one sample of four seconds.
        for ends in [&steady[..], &[2.0, 4.0, 6.0, 8.0, 12.0, 14.0, 17.0, 20.0, 22.0]] {
            let course = course(ends, 100, |_| 1.0);
            let achieved = achieved(&course, [time; 2], 0);
            assert!(close(achieved.accepted_per_sec, 100.0), "{achieved:?}");
            assert!(close(achieved.webhooks_per_sec, 400.0), "{achieved:?}");
            assert!(achieved.steady_secs >= 14.0 && achieved.steady_secs <= 16.0, "{achieved:?}");
            let machine = machine(&course, nothing, time);
            assert!(machine.service_ms_a_payment.is_some_and(|ms| close(ms, 10.0)), "{machine:?}");
        }
    }

    #[test]
    fn cores_are_of_the_same_seconds_as_the_rates() {
        let nothing = Holding { before: None, after: None, payments: 0 };
        let time = Duration::from_secs(11);
        // The warm-up keeps two cores busy. Then five seconds keep half a core busy, and one keeps one and a half.
        let ends = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 11.0, 12.0];
        let cores = |end: f64| match end {
            ..=5.0 => 2.0,
            ..=10.0 => 0.5,
            _ => 1.5,
        };
        let machine = machine(&course(&ends, 100, cores), nothing, time);
        assert!(machine.service_cores.is_some_and(|cores| close(cores, (5.0 * 0.5 + 1.5) / 6.0)), "{machine:?}");
        assert!(machine.own_cores.is_some_and(|cores| close(cores, 0.5)), "{machine:?}");
    }

    #[test]
    fn a_short_run_has_a_rate() {
        let arrived = Duration::from_millis(300);
        let figures = achieved(&course(&[1.0, 2.0], 40, |_| 1.0), [arrived; 2], 0);
        assert!(close(figures.accepted_per_sec, 40.0), "{figures:?}");
        let figures = achieved(&[], [arrived; 2], 0);
        assert!(close(figures.accepted_per_sec, 0.0), "{figures:?}");
    }

    #[test]
    fn rates_of_payers_count_from_the_first_arrival_to_the_last_completion() {
        let began = Instant::now();
        let record = |payer, arrived_secs, completed_secs: Option<u64>| {
            let after = |secs| began + Duration::from_secs(secs);
            let mut record = Record::new(Intent::nth(0, payer), after(arrived_secs), DateTime::UNIX_EPOCH, 0);
            record.completed = completed_secs.map(after);
            record
        };
        let records = [
            record(Behaviour::Exact, 1, Some(11)),
            record(Behaviour::Exact, 0, Some(5)),
            record(Behaviour::Authorized, 3, Some(4)),
            record(Behaviour::Authorized, 2, None),
            record(Behaviour::Late, 0, Some(60)),
        ];
        let rate = |payer, complete, secs: f64, complete_per_sec| PayerRate { payer, complete, secs, complete_per_sec };
        let rates = payer_rates(|| records.iter());
        assert_eq!(rates, [rate(Behaviour::Exact, 2, 11.0, 2.0 / 11.0), rate(Behaviour::Authorized, 1, 2.0, 0.5)]);
    }

    #[test]
    fn memory_counts_only_created_payments() {
        let of = |resident_bytes| Some(Usage { resident_bytes, ..Usage::default() });
        let holding = Holding { before: of(1_000), after: of(11_000), payments: 5 };
        assert_eq!(machine(&[], holding, Duration::ZERO).service_bytes_a_held, Some(2_000));
        let none = Holding { payments: 0, ..holding };
        assert_eq!(machine(&[], none, Duration::ZERO).service_bytes_a_held, None);
    }
}
