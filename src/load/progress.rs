//! How far a run is: bars where somebody looks, a line now and then where it goes to a file.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::tally::Counted;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows how far a run is, on standard error. Clones show on the same bar.
#[derive(Debug, Clone)]
pub struct Progress {
    shown: Option<Arc<Shown>>,
}

#[derive(Debug)]
struct Shown {
    bar: ProgressBar,
    last_line: Mutex<Instant>,
}

impl Progress {
    /// A bar, or lines without a terminal.
    pub fn new() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos:>6}/{len} {elapsed:>4}  {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { shown: Some(Arc::new(Shown { bar, last_line: Mutex::new(Instant::now()) })) }
    }

    /// Shows nothing.
    pub const fn none() -> Self {
        Self { shown: None }
    }

    /// Something else is under way.
    pub fn say(&self, what: &str) {
        let Some(shown) = &self.shown else { return };
        if shown.bar.is_hidden() {
            eprintln!("{what}");
        }
        shown.bar.set_message(what.to_owned());
    }

    /// Something of so many steps begins.
    pub fn begin(&self, what: &str, steps: u64) {
        self.say(what);
        let Some(shown) = &self.shown else { return };
        shown.bar.set_length(steps);
        shown.bar.set_position(0);
    }

    /// One step is done.
    pub fn step(&self) {
        if let Some(shown) = &self.shown {
            shown.bar.inc(1);
        }
    }

    /// How the payments of the load stand.
    pub fn show(&self, counted: &Counted, in_flight: usize) {
        let Some(shown) = &self.shown else { return };
        let Counted { due, accepted, complete, webhooks, .. } = counted;
        let line =
            format!("{due} due, {in_flight} in flight, {accepted} accepted, {complete} complete, {webhooks} webhooks");
        if shown.bar.is_hidden() {
            let mut last = shown.last_line.lock();
            if last.elapsed() >= LINE_EVERY {
                *last = Instant::now();
                eprintln!("{line}");
            }
        } else {
            shown.bar.set_position(*complete);
            shown.bar.set_message(line);
        }
    }

    /// Takes the bar away.
    pub fn done(&self) {
        if let Some(shown) = &self.shown {
            shown.bar.finish_and_clear();
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}
