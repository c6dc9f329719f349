//! Counters of one name whose label takes few values, each looked up once.

use std::collections::BTreeMap;
use std::fmt;

use metrics::{Counter, counter};
use parking_lot::RwLock;

/// The counters of one name, by the value of its one label.
pub(crate) struct Counters {
    name: &'static str,
    label: &'static str,
    handles: RwLock<BTreeMap<&'static str, Counter>>,
}

impl Counters {
    pub(crate) fn new(name: &'static str, label: &'static str) -> Self {
        Self { name, label, handles: RwLock::default() }
    }

    /// Counts one. Values are static: the label does not grow with use.
    pub(crate) fn increment(&self, value: &'static str) {
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
