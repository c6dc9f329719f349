//! The past of every figure, in memory: the last hour in steps of 10 s, and the last 48 h in steps of 5 min.
//!
//! A figure costs 4 kB. Figures of actors that are gone end an hour later. Nothing is stored: a restart begins anew.

mod figures;
pub(crate) mod page;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use payferry_accounts::Moment;
use payferry_domain::Timestamp;
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Problem, QueryFields, query, rule};
use serde::Serialize;
use tokio::time::MissedTickBehavior;
use utoipa::ToSchema;

use crate::Operator;
use figures::Sampler;

/// Interval of the samples.
pub(crate) const STEP: Duration = Duration::from_secs(10);
/// Samples of the last hour.
pub(crate) const FINE_STEPS: usize = 360;
/// Samples in a coarse step.
const COARSE_SAMPLES: usize = 30;
/// Coarse steps of the last 48 h.
pub(crate) const COARSE_STEPS: usize = 576;
/// Maximum number of figures. Beyond it, new ones are left out.
const FIGURES_MAX: usize = 8_000;
/// Maximum memory of all figures.
const HISTORY_BYTES_MAX: usize = 64 * 1024 * 1024;

// The capacity of a deque is a power of two.
const _: () = assert!(
    FIGURES_MAX * (FINE_STEPS.next_power_of_two() + COARSE_STEPS.next_power_of_two()) * size_of::<f32>()
        < HISTORY_BYTES_MAX
);

/// The past of all figures.
#[derive(Default)]
pub(crate) struct History(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    series: BTreeMap<String, Series>,
    sampler: Sampler,
    /// Time of the newest sample.
    at: Option<Timestamp>,
    /// Samples since the last coarse step.
    samples: usize,
}

/// The past of one figure; the newest value is the last one, and a gap is not a number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    pub(crate) fine: VecDeque<f32>,
    pub(crate) coarse: VecDeque<f32>,
}

impl Series {
    fn push(&mut self, value: f32, ends_coarse_step: bool) {
        append(&mut self.fine, value, FINE_STEPS);
        if ends_coarse_step {
            let newest = self.fine.iter().rev().take(COARSE_SAMPLES).filter(|value| value.is_finite());
            let (sum, count) = newest.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
            append(&mut self.coarse, if count > 0.0 { sum / count } else { f32::NAN }, COARSE_STEPS);
        }
    }
}

fn append(values: &mut VecDeque<f32>, value: f32, max: usize) {
    if values.len() == max {
        values.pop_front();
    }
    values.push_back(value);
}

impl History {
    /// Records one sample of all figures.
    fn record(&self, figures: Vec<(String, f64)>, at: Timestamp) {
        let mut inner = self.0.lock();
        inner.at = Some(at);
        inner.samples = (inner.samples + 1) % COARSE_SAMPLES;
        let ends_coarse_step = inner.samples == 0;
        let mut figures: BTreeMap<String, f64> = figures.into_iter().collect();
        for (name, series) in &mut inner.series {
            #[allow(clippy::cast_possible_truncation, reason = "a plot has less than three digits")]
            let value = figures.remove(name).map_or(f32::NAN, |value| value as f32);
            series.push(value, ends_coarse_step);
        }
        inner.series.retain(|_, series| series.fine.iter().any(|value| value.is_finite()));
        for (name, value) in figures {
            if inner.series.len() < FIGURES_MAX {
                let mut series = Series::default();
                #[allow(clippy::cast_possible_truncation, reason = "a plot has less than three digits")]
                series.push(value as f32, ends_coarse_step);
                inner.series.insert(name, series);
            }
        }
    }

    /// The past of a figure, with the time of its newest value.
    pub(crate) fn of(&self, figure: &str) -> Option<(Series, Timestamp)> {
        let inner = self.0.lock();
        Some((inner.series.get(figure)?.clone(), inner.at?))
    }

    /// Names of all figures.
    fn names(&self) -> Vec<String> {
        self.0.lock().series.keys().cloned().collect()
    }
}

impl Operator {
    /// Records the figures as they are now. The service does this every 10 s.
    pub async fn sample(&self) {
        let waiting = figures::webhooks_waiting(self).await;
        let now: Timestamp = self.system.clock().real_now();
        let figures = self.history.0.lock().sampler.figures(&self.system, waiting);
        self.history.record(figures, now);
    }

    /// Records the figures until the listener closes.
    pub(crate) async fn keep_sampling(self) {
        let mut every = tokio::time::interval(STEP);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.config.closing.cancelled() => return,
                _ = every.tick() => self.sample().await,
            }
        }
    }
}

query! {
    /// The figure.
    pub struct HistoryQuery {
        /// Name of the figure. Without it, the names of all figures are returned.
        figure: String = rule::short::<200>(),
    }
}

/// The past of a figure.
#[derive(Serialize, ToSchema)]
pub struct FigureHistory {
    /// Its name; null in a list of names.
    figure: Option<String>,
    /// Names of all figures, if none was named.
    figures: Vec<String>,
    /// The last hour, oldest first. A gap is null.
    hour: Vec<HistoryPoint>,
    /// The last 48 hours, oldest first: means of 5 minutes.
    days: Vec<HistoryPoint>,
}

/// A value of a figure.
#[derive(Serialize, ToSchema)]
pub struct HistoryPoint {
    #[schema(value_type = String, format = DateTime)]
    at: Moment,
    value: Option<f32>,
}

/// Read the past of a figure
#[utoipa::path(
    get, path = "/ops/history", tag = "Service", operation_id = "getHistory", params(HistoryQuery),
    responses(
        (status = 200, description = "The figure, or the names of all figures.", body = FigureHistory),
        UnreadableQuery,
        (status = 404, description = "`figure_not_found`.", body = Problem),
    ),
)]
pub(crate) async fn data(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let HistoryQuery { figure } = HistoryQuery::read(&mut query);
    query.finish()?;
    let Some(figure) = figure else {
        let figures = operator.history.names();
        return Answer::ok(&FigureHistory { figure: None, figures, hour: Vec::new(), days: Vec::new() });
    };
    let (series, at) = operator.history.of(&figure).ok_or(ApiError::NotFound("figure"))?;
    let step_ms = i64::try_from(STEP.as_millis()).unwrap_or(i64::MAX);
    let coarse_ms = step_ms * i64::try_from(COARSE_SAMPLES).unwrap_or(1);
    Answer::ok(&FigureHistory {
        figure: Some(figure),
        figures: Vec::new(),
        hour: points(&series.fine, at, step_ms),
        days: points(&series.coarse, at, coarse_ms),
    })
}

fn points(values: &VecDeque<f32>, newest: Timestamp, step_ms: i64) -> Vec<HistoryPoint> {
    let steps = (0_i64..).zip(values.iter().rev());
    let point = |(age, value): (i64, &f32)| HistoryPoint {
        at: Moment(newest.plus_millis(-age * step_ms)),
        value: Some(*value).filter(|value| value.is_finite()),
    };
    let mut points: Vec<HistoryPoint> = steps.map(point).collect();
    points.reverse();
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_an_hour_in_fine_steps_and_two_days_in_coarse_ones() {
        let history = History::default();
        for sample in 0..400_i32 {
            history.record(vec![("a".to_owned(), sample.into())], Timestamp(sample.into()));
        }
        let (series, at) = history.of("a").unwrap();
        assert_eq!((series.fine.len(), at), (FINE_STEPS, Timestamp(399)));
        assert_eq!(format!("{:?} {:?}", series.fine[0], series.fine[FINE_STEPS - 1]), "40.0 399.0");
        // Coarse steps end at each thirtieth sample: the first has the samples 0 to 29.
        assert_eq!(format!("{} {:?}", series.coarse.len(), series.coarse[0]), "13 14.5");
    }

    #[test]
    fn a_figure_without_values_has_gaps_and_ends_after_an_hour() {
        let history = History::default();
        history.record(vec![("a".to_owned(), 1.0), ("b".to_owned(), 2.0)], Timestamp(0));
        history.record(vec![("b".to_owned(), 3.0)], Timestamp(1));
        let (series, _) = history.of("a").unwrap();
        assert_eq!(format!("{:?}", series.fine), "[1.0, NaN]");
        for _ in 0..FINE_STEPS {
            history.record(vec![("b".to_owned(), 3.0)], Timestamp(2));
        }
        assert!(history.of("a").is_none());
        assert_eq!(history.names(), ["b"]);
    }
}
