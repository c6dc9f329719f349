//! Who waits for something to be committed: open pages and long polls are woken by the commit, so that none of them
//! looks at the database again and again; and the webhook sender is told what for, before those are who announced it, so
//! that a webhook waits behind nobody's turn.
//!
//! A subject is the id of a payment, or of a PSP whose feed grows. Deliberately absent: what was committed. Whoever is
//! woken reads it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::RwLock;
use tokio::sync::watch;

use super::{Submitted, Unit};

/// The subjects that somebody waits for.
#[derive(Default)]
pub(super) struct Wakes {
    by_subject: DashMap<String, watch::Sender<()>>,
    /// How many there are: a commit that nobody waits for costs one look at it.
    subjects: AtomicUsize,
    /// Told the ids of PSPs to whom something was announced.
    sender: RwLock<Option<Sender>>,
}

type Sender = Box<dyn Fn(&str) + Send + Sync>;

impl Wakes {
    /// From now on, `sender` is told of each PSP to whom a commit announces something, in the place of any before it.
    pub(super) fn tell_announced(&self, sender: Sender) {
        *self.sender.write() = Some(sender);
    }

    /// From now on, commits about `subject` wake.
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

    /// These were committed, or may have been.
    pub(super) fn committed(&self, part: &[Submitted]) {
        let announced = part.iter().filter_map(|submitted| submitted.unit.announcements().first());
        self.announced(announced.map(|event| event.psp_id.as_str()));
        if self.subjects.load(Ordering::SeqCst) == 0 {
            return;
        }
        for unit in part.iter().map(|submitted| &submitted.unit) {
            if let Unit::Transition(transition) = unit {
                self.wake(&transition.payment.id);
            }
            if let Some(event) = unit.announcements().first() {
                self.wake(&event.psp_id);
            }
        }
    }

    /// Something was announced to these PSPs.
    pub(super) fn announced<'a>(&self, psp_ids: impl IntoIterator<Item = &'a str>) {
        if let Some(tell) = &*self.sender.read() {
            psp_ids.into_iter().collect::<BTreeSet<_>>().into_iter().for_each(tell);
        }
    }

    fn wake(&self, subject: &str) {
        if let Some(sender) = self.by_subject.get(subject) {
            sender.send_replace(());
        }
    }

    /// How many subjects somebody waits for.
    pub(super) fn len(&self) -> usize {
        self.subjects.load(Ordering::SeqCst)
    }
}

/// One that waits for commits about a subject. Subscribe first, then read: nothing is missed in between.
pub struct Wake {
    receiver: watch::Receiver<()>,
    subject: String,
    wakes: Arc<Wakes>,
}

impl Wake {
    /// Resolves once something about the subject has been committed since the subscription or the last wake; of many
    /// commits one wake is left.
    pub async fn woken(&mut self) {
        // The sender stands as long as this does.
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
        // This one's own receiver is still there.
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
    async fn each_who_waits_is_woken_once_and_nothing_is_left_behind() {
        let wakes = Arc::new(Wakes::default());
        let (mut one, mut two) = (wakes.subscribe("pay_1".to_owned()), wakes.subscribe("pay_1".to_owned()));
        let mut other = wakes.subscribe("pay_2".to_owned());
        assert_eq!(wakes.len(), 2);
        wakes.wake("pay_1");
        wakes.wake("pay_1");
        wakes.wake("pay_3");
        one.woken().await;
        two.woken().await;
        assert!(one.woken().now_or_never().is_none(), "two commits are one wake");
        assert!(other.woken().now_or_never().is_none());
        drop(one);
        wakes.wake("pay_1");
        two.woken().await;
        drop((two, other));
        assert_eq!((wakes.len(), wakes.by_subject.len()), (0, 0));
    }
}
