//! The operator's view in tests: log lines and metrics of the whole test process.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use payferry_harness::endpoint::SECRET;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

#[derive(Clone, Default)]
struct Numbers {
    values: Arc<Mutex<BTreeMap<String, Number>>>,
}

/// Gauge flag, and the bits of the value.
type Number = (bool, Arc<AtomicU64>);

static SENSES: OnceLock<(Lines, Numbers)> = OnceLock::new();

fn senses() -> &'static (Lines, Numbers) {
    SENSES.get_or_init(|| {
        let (lines, numbers) = (Lines::default(), Numbers::default());
        // Listens to everything that a library could log about an address.
        let filter = EnvFilter::new("debug,sqlx=off,sea_orm=off");
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(lines.clone());
        log.init();
        assert!(metrics::set_global_recorder(numbers.clone()).is_ok());
        (lines, numbers)
    })
}

/// Where tests share a process, a test that counts lines or asserts absence needs it alone.
static PROCESS: RwLock<()> = RwLock::const_new(());

/// A test's lock on the process's log and metrics.
pub enum Hold {
    Alone(#[allow(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
    Shared(#[allow(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
}

/// Use that a test makes of the process's log and metrics.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Senses {
    Unused,
    /// Lines and metrics of other tests do no harm.
    Shared,
    Alone,
}

/// Takes the lock and, if the test uses them, starts to record lines and metrics; [`Senses::Alone`] clears earlier ones.
pub async fn hold(wanted: Senses) -> Hold {
    if wanted == Senses::Alone {
        let (lines, numbers) = senses();
        let hold = PROCESS.write().await;
        lines.0.lock().clear();
        numbers.values.lock().clear();
        Hold::Alone(hold)
    } else {
        if wanted == Senses::Shared {
            senses();
        }
        Hold::Shared(PROCESS.read().await)
    }
}

/// Returns `true` if a log line contains all these words.
pub fn logged(words: &[&str]) -> bool {
    logged_times(words) > 0
}

/// Number of log lines with all these words.
pub fn logged_times(words: &[&str]) -> usize {
    log_lines().iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

fn log_lines() -> Vec<String> {
    let Some((lines, _)) = SENSES.get() else { return Vec::new() };
    let bytes = lines.0.lock();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

/// Last log lines, for a failing test.
pub fn log_tail() -> String {
    let lines: Vec<String> = log_lines().into_iter().filter(|line| !line.contains(" DEBUG ")).collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Sum of the counters or gauges with these labels (as `chain=base`), in whole numbers; 0 if none exists.
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
pub fn metric(name: &str, labels: &[&str]) -> i64 {
    let values = senses().1.values.lock();
    let fits = |key: &&String| {
        key.split('|').next() == Some(name) && labels.iter().all(|label| key.split('|').any(|part| part == *label))
    };
    let found = values.iter().filter(|(key, _)| fits(key));
    let value = |(is_gauge, value): &Number| {
        let bits = value.load(Ordering::Relaxed);
        if *is_gauge { f64::from_bits(bits) as i64 } else { i64::try_from(bits).unwrap() }
    };
    found.map(|(_, entry)| value(entry)).sum()
}

/// Asserts that no log line or metric contains an endpoint's key.
pub fn assert_discreet() {
    assert!(!logged(&[SECRET]), "{:?}", log_lines().iter().find(|line| line.contains(SECRET)));
    assert!(senses().1.values.lock().keys().all(|key| !key.contains(SECRET)));
}

impl Numbers {
    fn value(&self, key: &Key, is_gauge: bool) -> Arc<AtomicU64> {
        let mut name = key.name().to_owned();
        for label in key.labels() {
            name.push('|');
            name.push_str(label.key());
            name.push('=');
            name.push_str(label.value());
        }
        Arc::clone(&self.values.lock().entry(name).or_insert_with(|| (is_gauge, Arc::default())).1)
    }
}

impl Recorder for Numbers {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.value(key, false))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.value(key, true))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
