//! Counters of one name whose label takes few values, each looked up once.

use std::collections::BTreeMap;
use std::fmt;

use metrics::{Counter, counter};
use parking_lot::RwLock;

/// The counters of one name, by the value of its one label.
pub struct Counters {
    name: &'static str,
    label: &'static str,
    handles: RwLock<BTreeMap<&'static str, Counter>>,
}

impl Counters {
    /// With values that are not known yet: each appears when it is first counted.
    pub fn new(name: &'static str, label: &'static str) -> Self {
        Self { name, label, handles: RwLock::default() }
    }

    /// With the values that the label can have, so that each stands at 0 from the start: an alarm on a rise sees none in a
    /// counter that appears as 1.
    pub fn closed(name: &'static str, label: &'static str, values: impl IntoIterator<Item = &'static str>) -> Self {
        let handles = values.into_iter().map(|value| (value, counter!(name, label => value))).collect();
        Self { name, label, handles: RwLock::new(handles) }
    }

    /// Counts one. Values are static: the label does not grow with use.
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
