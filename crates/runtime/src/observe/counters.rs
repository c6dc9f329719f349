//! Counters with one label that takes few values, each looked up once.

use std::collections::BTreeMap;
use std::fmt;

use metrics::{Counter, counter};
use parking_lot::RwLock;

/// Counters of one name, by the value of their label.
pub struct Counters {
    name: &'static str,
    label: &'static str,
    handles: RwLock<BTreeMap<&'static str, Counter>>,
}

impl Counters {
    /// Creates counters without known values: each appears on its first increment.
    pub fn new(name: &'static str, label: &'static str) -> Self {
        Self { name, label, handles: RwLock::default() }
    }

    /// Creates counters for all values of the label, so that each is exported as 0 from the start: an alert on an
    /// increase does not fire if a counter first appears at 1.
    pub fn closed(name: &'static str, label: &'static str, values: impl IntoIterator<Item = &'static str>) -> Self {
        let handles = values.into_iter().map(|value| (value, counter!(name, label => value))).collect();
        Self { name, label, handles: RwLock::new(handles) }
    }

    /// Increments the counter of a value. Values are static, so the label is bounded.
    pub fn increment(&self, value: &'static str) {
        if let Some(counter) = self.handles.read().get(value) {
            return counter.increment(1);
        }
        let fresh = || counter!(self.name, self.label => value);
        self.handles.write().entry(value).or_insert_with(fresh).increment(1);
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").field("name", &self.name).finish_non_exhaustive()
    }
}
