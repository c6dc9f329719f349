//! The figures of a run, from its course.
//!
//! Pure.

use std::time::Duration;

use crate::load::report::{Achieved, Machine, WARM_UP_SECS};
use crate::load::tally::{Counted, Second};
use crate::load::usage::Usage;

/// How long a run took, and what it took of the machine.
#[derive(Clone, Copy)]
pub(super) struct Achievement {
    pub(super) arrived: Duration,
    pub(super) total: Duration,
    pub(super) machine: Machine,
    pub(super) interrupted: bool,
}

pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { ratio(part, whole) * 100.0 }
}

/// Exact for whatever is counted here.
#[allow(clippy::cast_precision_loss)]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// What happened in the seconds while payments arrived, the first ones left out, and how many seconds that was.
fn steady(course: &[Second], arrived: Duration) -> (Counted, f64) {
    let secs = arrived.as_secs_f64();
    let warm_up = if secs > 2.0 * WARM_UP_SECS { WARM_UP_SECS } else { 0.0 };
    // A second is told at its end.
    let within = course.iter().filter(|second| second.at_secs > warm_up + 0.5 && second.at_secs <= secs + 0.5);
    let (mut sum, mut count) = (Counted::default(), 0_u32);
    for second in within {
        sum.accepted += second.counted.accepted;
        sum.complete += second.counted.complete;
        sum.webhooks += second.counted.webhooks;
        count += 1;
    }
    (sum, f64::from(count.max(1)))
}

pub(super) fn achieved(course: &[Second], achievement: &Achievement, in_flight_most: usize) -> Achieved {
    let (sum, secs) = steady(course, achievement.arrived);
    Achieved {
        arrivals_secs: achievement.arrived.as_secs_f64(),
        total_secs: achievement.total.as_secs_f64(),
        accepted_per_sec: ratio(sum.accepted, 1) / secs,
        complete_per_sec: ratio(sum.complete, 1) / secs,
        webhooks_per_sec: ratio(sum.webhooks, 1) / secs,
        in_flight_most,
        open_most: course.iter().map(|second| second.open).max().unwrap_or(0),
    }
}

pub(super) fn machine(
    course: &[Second],
    before: Option<Usage>,
    held: Option<Usage>,
    hold: u32,
    arrived: Duration,
) -> Machine {
    let within: Vec<&Second> = course.iter().filter(|second| second.at_secs <= arrived.as_secs_f64() + 0.5).collect();
    let mean = |of: fn(&Second) -> Option<f64>| {
        let known: Vec<f64> = within.iter().filter_map(|second| of(second)).collect();
        let count = u32::try_from(known.len()).unwrap_or(u32::MAX);
        (count > 0).then(|| known.iter().sum::<f64>() / f64::from(count))
    };
    let (sum, secs) = steady(course, arrived);
    let service_cores = mean(|second| second.service_cores);
    let bytes = |usage: Option<Usage>| usage.map(|usage| usage.resident_bytes);
    let grew = bytes(held).zip(bytes(before)).map(|(held, before)| held.saturating_sub(before));
    Machine {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        service_cores,
        own_cores: mean(|second| second.own_cores),
        service_ms_a_payment: service_cores
            .filter(|_| sum.accepted > 0)
            .map(|cores| cores * 1_000.0 * secs / ratio(sum.accepted, 1)),
        service_bytes_before: bytes(before),
        service_bytes_held: bytes(held),
        service_bytes_most: course.iter().filter_map(|second| second.service_bytes).max(),
        service_bytes_a_held: grew.filter(|_| hold > 0).map(|grew| grew / u64::from(hold.max(1))),
    }
}
