//! Progress of a run on standard error: a bar on a terminal, lines otherwise.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Shortest time between two lines of [`Progress::show`] without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress bar on standard error. Clones share the bar.
#[derive(Debug, Clone)]
pub struct Progress {
    shown: Option<Arc<Bar>>,
}

#[derive(Debug)]
struct Bar {
    bar: ProgressBar,
    last_line: Mutex<Instant>,
}

impl Progress {
    /// Makes a bar, or writes lines without a terminal.
    pub fn shown() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos:>6}/{len} {elapsed:>4}  {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { shown: Some(Arc::new(Bar { bar, last_line: Mutex::new(Instant::now()) })) }
    }

    /// Makes a progress that shows nothing.
    pub const fn none() -> Self {
        Self { shown: None }
    }

    /// Names the step that begins.
    pub fn say(&self, what: &str) {
        let Some(shown) = &self.shown else { return };
        if shown.bar.is_hidden() {
            eprintln!("{what}");
        }
        shown.bar.set_message(what.to_owned());
    }

    /// Names the step that begins, which has `steps` parts.
    pub fn begin(&self, what: &str, steps: u64) {
        self.say(what);
        let Some(shown) = &self.shown else { return };
        shown.bar.set_length(steps);
        shown.bar.set_position(0);
    }

    /// Counts one part as done.
    pub fn step(&self) {
        if let Some(shown) = &self.shown {
            shown.bar.inc(1);
        }
    }

    /// Shows the state of a long step: its position on the bar, or a line now and then without a terminal.
    pub fn show(&self, position: u64, line: String) {
        let Some(shown) = &self.shown else { return };
        if shown.bar.is_hidden() {
            let mut last = shown.last_line.lock();
            if last.elapsed() >= LINE_EVERY {
                *last = Instant::now();
                eprintln!("{line}");
            }
        } else {
            shown.bar.set_position(position);
            shown.bar.set_message(line);
        }
    }

    /// Removes the bar.
    pub fn done(&self) {
        if let Some(shown) = &self.shown {
            shown.bar.finish_and_clear();
        }
    }
}
