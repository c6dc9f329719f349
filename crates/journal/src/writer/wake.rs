//! Notifications of commits. Open pages and long polls are woken by a commit, so that they need not poll the database.
//! The webhook sender is notified before the results of the writes are returned, so that webhooks are not delayed by
//! other actors.
//!
//! A subject is the id of a payment, or of a PSP whose feed grows. Not here: the committed data. A subscriber reads it
//! after the wake-up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::RwLock;
use tokio::sync::watch;

use super::{JournalWrite, Submitted};

/// Subjects with subscribers.
#[derive(Default)]
pub(super) struct CommitSubscriptions {
    by_subject: DashMap<String, watch::Sender<()>>,
    /// Number of subjects, so that a commit without subscribers costs only one check.
    subjects: AtomicUsize,
    /// Callback for the ids of PSPs with announcements.
    sender: RwLock<Option<Sender>>,
}

type Sender = Box<dyn Fn(&str) + Send + Sync>;

impl CommitSubscriptions {
    /// Registers the callback for PSPs with announcements; replaces an earlier one.
    pub(super) fn on_announced(&self, sender: Sender) {
        *self.sender.write() = Some(sender);
    }

    /// Subscribes to commits about `subject`.
    pub(super) fn subscribe(self: &Arc<Self>, subject: String) -> Wake {
        let receiver = match self.by_subject.entry(subject.clone()) {
            Entry::Occupied(entry) => entry.get().subscribe(),
            Entry::Vacant(entry) => {
                let (sender, receiver) = watch::channel(());
                entry.insert(sender);
                self.subjects.fetch_add(1, Ordering::SeqCst);
                receiver
            }
        };
        Wake { receiver, subject, wakes: Arc::clone(self) }
    }

    /// Notifies about writes that were committed, or may have been.
    pub(super) fn committed(&self, part: &[Submitted]) {
        let announced = part.iter().filter_map(|submitted| submitted.write.announcements().first());
        self.announced(announced.map(|event| event.psp_id.as_str()));
        if self.subjects.load(Ordering::SeqCst) == 0 {
            return;
        }
        for write in part.iter().map(|submitted| &submitted.write) {
            if let JournalWrite::Transition(transition) = write {
                self.wake(&transition.payment.id);
            }
            if let Some(event) = write.announcements().first() {
                self.wake(&event.psp_id);
            }
        }
    }

    /// Notifies about announcements to these PSPs.
    pub(super) fn announced<'a>(&self, psp_ids: impl IntoIterator<Item = &'a str>) {
        if let Some(notify) = &*self.sender.read() {
            psp_ids.into_iter().collect::<BTreeSet<_>>().into_iter().for_each(notify);
        }
    }

    fn wake(&self, subject: &str) {
        if let Some(sender) = self.by_subject.get(subject) {
            sender.send_replace(());
        }
    }

    /// Returns the number of subjects with subscribers.
    pub(super) fn len(&self) -> usize {
        self.subjects.load(Ordering::SeqCst)
    }
}

/// A subscription to commits about a subject. Subscribe first, then read, so that nothing is missed.
pub struct Wake {
    receiver: watch::Receiver<()>,
    subject: String,
    wakes: Arc<CommitSubscriptions>,
}

impl Wake {
    /// Resolves when something about the subject was committed since the subscription or the last wake-up. Several
    /// commits lead to one wake-up.
    pub async fn woken(&mut self) {
        // The sender exists as long as this subscription.
        let _ = self.receiver.changed().await;
    }
}

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wake").field("subject", &self.subject).finish_non_exhaustive()
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        // The receiver of this subscription still exists.
        let last = self.wakes.by_subject.remove_if(&self.subject, |_, sender| sender.receiver_count() <= 1);
        if last.is_some() {
            self.wakes.subjects.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn each_subscriber_is_woken_once_and_subjects_are_removed() {
        let wakes = Arc::new(CommitSubscriptions::default());
        let (mut one, mut two) = (wakes.subscribe("pay_1".to_owned()), wakes.subscribe("pay_1".to_owned()));
        let mut other = wakes.subscribe("pay_2".to_owned());
        assert_eq!(wakes.len(), 2);
        wakes.wake("pay_1");
        wakes.wake("pay_1");
        wakes.wake("pay_3");
        one.woken().await;
        two.woken().await;
        assert!(one.woken().now_or_never().is_none(), "two commits lead to one wake-up");
        assert!(other.woken().now_or_never().is_none());
        drop(one);
        wakes.wake("pay_1");
        two.woken().await;
        drop((two, other));
        assert_eq!((wakes.len(), wakes.by_subject.len()), (0, 0));
    }
}
