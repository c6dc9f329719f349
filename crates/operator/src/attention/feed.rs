//! The last known numbers of entries, for the navigation bar, the metric and the ticks.
//!
//! They are read when something asks for them and they are old, by one task at a time: an unwatched service reads nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Operator;
use crate::attention::acknowledged::Acknowledged;
use crate::attention::{AttentionKind, NeedsAttention, needs_attention};
use crate::query::Count;

payferry_runtime::metrics! {
    Gauge ATTENTION = "payferry_attention", "Entries of the attention feed that no operator has acknowledged, by kind.",
        exported by "kind" in AttentionKind::ALL.map(AttentionKind::as_str);
}

/// Age from which the numbers are read again.
const OLD_AFTER: Duration = Duration::from_secs(2);
/// Longest wait of a page or a scrape for the first numbers.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

/// The last known numbers, and the acknowledgements for the time of an outage of the database.
#[derive(Default)]
pub(crate) struct AttentionFeed {
    latest: Mutex<Option<(Instant, Count)>>,
    acknowledged: Mutex<Acknowledged>,
    /// Held by the task that reads the numbers.
    reading: Arc<tokio::sync::Mutex<()>>,
}

impl AttentionFeed {
    /// Records what was read.
    pub(super) fn store(&self, found: &NeedsAttention) {
        *self.latest.lock() = Some((Instant::now(), found.total));
        for kind in AttentionKind::ALL {
            // The number of a kind that could not be read is unchanged.
            if !found.unread.contains(&kind) {
                let group = found.kinds.iter().find(|group| group.kind == kind);
                ATTENTION.set_count(&[("kind", kind.as_str())], group.map_or(0, |group| group.total.counted));
            }
        }
    }

    /// Has the next page read the numbers.
    pub(super) fn forget(&self) {
        *self.latest.lock() = None;
    }

    /// The acknowledgements of the database, or the last known ones if it does not answer.
    pub(super) fn acknowledged(&self, read: Option<Acknowledged>) -> Acknowledged {
        let mut known = self.acknowledged.lock();
        if let Some(read) = read {
            *known = read;
        }
        known.clone()
    }

    fn latest(&self) -> (Option<Count>, bool) {
        let latest = *self.latest.lock();
        (latest.map(|(_, count)| count), latest.is_none_or(|(at, _)| at.elapsed() > OLD_AFTER))
    }
}

impl Operator {
    /// The number of entries. Has it read again if it is old; waits for it only if none is known.
    pub(crate) async fn entries(&self) -> Option<Count> {
        let (known, is_old) = self.attention.latest();
        let turn = is_old.then(|| Arc::clone(&self.attention.reading).try_lock_owned().ok()).flatten();
        if let Some(turn) = turn {
            let operator = self.clone();
            let reading = tokio::spawn(async move {
                needs_attention(&operator, 1).await;
                drop(turn);
            });
            if known.is_none() {
                let _ = tokio::time::timeout(FIRST_PATIENCE, reading).await;
                return self.attention.latest().0;
            }
        }
        known
    }
}
