//! The operator's view in tests: log lines and metrics of the whole test process.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use payferry_harness::endpoint::SECRET;
use tokio::sync::RwLock;
use tracing_subscriber::EnvFilter;

/// Gauge flag, and the bits of the value.
type Number = (bool, Arc<AtomicU64>);

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static VALUES: Mutex<BTreeMap<String, Number>> = Mutex::new(BTreeMap::new());
static LISTENING: Once = Once::new();

fn listen() {
    LISTENING.call_once(|| {
        // Listens to everything that a library could log about an address.
        let filter = EnvFilter::new("debug,sqlx=off,sea_orm=off");
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(|| Lines).init();
        assert!(metrics::set_global_recorder(Numbers).is_ok());
    });
}

/// Where tests share a process, a test that counts lines or asserts absence needs it alone.
static PROCESS: RwLock<()> = RwLock::const_new(());

/// A test's lock on the process's log and metrics.
pub type Hold = Box<dyn Any + Send + Sync>;

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
    if wanted != Senses::Unused {
        listen();
    }
    if wanted != Senses::Alone {
        return Box::new(PROCESS.read().await);
    }
    let hold = PROCESS.write().await;
    LINES.lock().clear();
    VALUES.lock().clear();
    Box::new(hold)
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
    String::from_utf8_lossy(&LINES.lock()).lines().map(str::to_owned).collect()
}

/// Last log lines, for a failing test.
pub fn log_tail() -> String {
    let lines: Vec<String> = log_lines().into_iter().filter(|line| !line.contains(" DEBUG ")).collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Sum of the counters or gauges with these labels (as `chain=base`), in whole numbers; 0 if none exists.
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
pub fn metric(name: &str, labels: &[&str]) -> i64 {
    let values = VALUES.lock();
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
    assert!(VALUES.lock().keys().all(|key| !key.contains(SECRET)));
}

struct Numbers;

impl Numbers {
    fn value(key: &Key, is_gauge: bool) -> Arc<AtomicU64> {
        let mut name = key.name().to_owned();
        for label in key.labels() {
            name.push('|');
            name.push_str(label.key());
            name.push('=');
            name.push_str(label.value());
        }
        Arc::clone(&VALUES.lock().entry(name).or_insert_with(|| (is_gauge, Arc::default())).1)
    }
}

impl Recorder for Numbers {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Self::value(key, false))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Self::value(key, true))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

struct Lines;

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
