//! Definition of a metric: its name, unit and help text in one place.

use metrics::{Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

/// Labels of a metric. They are static, so that no metric has unbounded series.
pub type Labels<'a> = &'a [(&'static str, &'static str)];

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    /// It only grows.
    Counter,
    /// It may fall.
    Gauge,
    /// Distribution of values.
    Histogram,
}

/// A metric. [`metrics!`](crate::metrics!) defines them.
#[derive(Debug)]
pub struct Metric {
    /// Type.
    pub r#type: MetricType,
    /// Name.
    pub name: &'static str,
    /// Unit, where the exporter shows one.
    pub unit: Option<Unit>,
    /// Help text.
    pub help: &'static str,
}

impl Metric {
    /// Registers the help text.
    pub fn describe(&self) {
        let (name, unit, help) = (self.name, self.unit.unwrap_or(Unit::Count), self.help);
        match (self.r#type, self.unit) {
            (MetricType::Counter, None) => describe_counter!(name, help),
            (MetricType::Counter, Some(_)) => describe_counter!(name, unit, help),
            (MetricType::Gauge, None) => describe_gauge!(name, help),
            (MetricType::Gauge, Some(_)) => describe_gauge!(name, unit, help),
            (MetricType::Histogram, None) => describe_histogram!(name, help),
            (MetricType::Histogram, Some(_)) => describe_histogram!(name, unit, help),
        }
    }

    /// Exports the metric from now on: an alert on an increase does not fire if a counter first appears at 1.
    pub fn register(&self, labels: Labels<'_>) {
        match self.r#type {
            MetricType::Counter => self.add(labels, 0),
            MetricType::Gauge => drop(gauge!(self.name, labels)),
            MetricType::Histogram => drop(self.histogram(labels)),
        }
    }

    /// Adds to a counter.
    pub fn add(&self, labels: Labels<'_>, count: u64) {
        counter!(self.name, labels).increment(count);
    }

    /// Raises a counter to a total that is counted elsewhere.
    pub fn raise_to(&self, labels: Labels<'_>, total: u64) {
        counter!(self.name, labels).absolute(total);
    }

    /// Sets a gauge.
    pub fn set(&self, labels: Labels<'_>, value: f64) {
        gauge!(self.name, labels).set(value);
    }

    /// Sets a gauge to a whole number.
    #[allow(clippy::cast_precision_loss, reason = "numbers that a gauge shows are far below 2^52")]
    pub fn set_count(&self, labels: Labels<'_>, count: u64) {
        self.set(labels, count as f64);
    }

    /// Records a value in a histogram.
    pub fn record(&self, labels: Labels<'_>, value: f64) {
        self.histogram(labels).record(value);
    }

    /// Handle to a histogram.
    pub fn histogram(&self, labels: Labels<'_>) -> Histogram {
        histogram!(self.name, labels)
    }
}

/// Defines the metrics of a module as constants, and `describe`, which registers their help texts, and exports those that
/// are `exported`, for all values of their label.
///
/// ```
/// payferry_runtime::metrics! {
///     Counter ERRORS = "payferry_errors_total", "Errors, by kind.", exported by "kind" in ["timeout", "refused"];
///     Counter RUNS = "payferry_runs_total", "Runs.", exported;
///     Gauge(Seconds) AGE = "payferry_age_seconds", "Time since the last run.";
/// }
/// describe();
/// ERRORS.add(&[("kind", "timeout")], 1);
/// ```
#[macro_export]
macro_rules! metrics {
    ($($type:ident $(($unit:ident))? $constant:ident = $name:literal, $help:literal
        $(, $exported:ident $(by $label:literal in $values:expr)?)?;)+) => {
        $(pub(crate) const $constant: $crate::observe::Metric = $crate::observe::Metric {
            r#type: $crate::observe::MetricType::$type,
            name: $name,
            unit: $crate::metrics!(@unit $($unit)?),
            help: $help,
        };)+

        /// All metrics of this module.
        pub(crate) const ALL: &[$crate::observe::Metric] = &[$($constant),+];

        /// Registers the help texts, and exports the metrics that are known to have values.
        pub fn describe() {
            ALL.iter().for_each($crate::observe::Metric::describe);
            $($($crate::metrics!(@$exported $constant $(, $label, $values)?);)?)+
        }
    };
    (@exported $constant:ident) => { $constant.register(&[]) };
    (@exported $constant:ident, $label:literal, $values:expr) => {
        for value in $values {
            $constant.register(&[($label, value)]);
        }
    };
    (@unit) => { None };
    (@unit $unit:ident) => { Some($crate::observe::Unit::$unit) };
}
