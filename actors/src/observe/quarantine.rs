//! Quarantined payments, payouts, withdrawals and customers: they failed too often, or would have violated an invariant,
//! and do not change until an operator releases them, also after a restart.
//!
//! A defect common to all of them quarantines all of them. So they are counted incrementally and read in pages: no
//! operation iterates over or copies all of them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use derive_more::{Display, From};
use parking_lot::Mutex;
use payferry_domain::outbound::OutboundId;
use payferry_domain::{CustomerId, PaymentId, Timestamp};
use payferry_entities::{Database, quarantines};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use sea_orm::sea_query::OnConflict;
use sea_orm::{DbErr, EntityTrait, IntoActiveModel};
use serde::Serialize;
use serde_with::SerializeDisplay;
use utoipa::ToSchema;

use super::ActorSubject;

/// Pause before a quarantine that could not be stored is stored again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// A subject that can be quarantined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, From, SerializeDisplay)]
pub enum Quarantinable {
    /// A payment, payout or withdrawal. Its actor is stopped.
    #[from(ActorSubject, PaymentId, OutboundId)]
    Actor(ActorSubject),
    /// A customer. Its changes are refused.
    #[from]
    Customer(CustomerId),
}

impl FromStr for Quarantinable {
    type Err = <ActorSubject as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::Customer).or_else(|_| text.parse().map(Self::Actor))
    }
}

/// Reason for a quarantine, which lasts until an operator releases the subject.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Quarantine {
    /// Start, by the wall clock.
    #[schema(value_type = i64)]
    pub since: Timestamp,
    /// The last failure.
    pub reason: String,
}

/// A quarantined subject.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct QuarantinedSubject {
    /// Id of the payment, payout, withdrawal or customer.
    #[schema(value_type = String)]
    pub id: Quarantinable,
    /// Start and reason.
    #[serde(flatten)]
    pub quarantine: Quarantine,
}

/// Numbers of quarantined subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuarantineCounts {
    /// Payments.
    pub payments: usize,
    /// Payouts and withdrawals.
    pub outbound: usize,
    /// Customers.
    pub customers: usize,
}

impl QuarantineCounts {
    /// All of them.
    pub const fn total(self) -> usize {
        self.payments + self.outbound + self.customers
    }

    fn of(&mut self, subject: Quarantinable) -> &mut usize {
        match subject {
            Quarantinable::Actor(ActorSubject::Payment(_)) => &mut self.payments,
            Quarantinable::Actor(ActorSubject::OutboundTransfer(_)) => &mut self.outbound,
            Quarantinable::Customer(_) => &mut self.customers,
        }
    }
}

/// All quarantined subjects, by id and by age.
#[derive(Debug, Default)]
pub(super) struct Quarantined {
    by_id: HashMap<Quarantinable, Quarantine>,
    by_age: BTreeSet<(Timestamp, Quarantinable)>,
    counts: QuarantineCounts,
}

impl Quarantined {
    pub(super) fn insert(&mut self, of: Quarantinable, quarantine: Quarantine) {
        self.remove(of);
        *self.counts.of(of) += 1;
        self.by_age.insert((quarantine.since, of));
        self.by_id.insert(of, quarantine);
    }

    /// Removes a subject; returns true if it was quarantined.
    pub(super) fn remove(&mut self, of: Quarantinable) -> bool {
        let Some(quarantine) = self.by_id.remove(&of) else { return false };
        *self.counts.of(of) -= 1;
        self.by_age.remove(&(quarantine.since, of))
    }

    pub(super) fn contains(&self, of: Quarantinable) -> bool {
        self.by_id.contains_key(&of)
    }

    pub(super) fn get(&self, of: Quarantinable) -> Option<&Quarantine> {
        self.by_id.get(&of)
    }

    /// Those of these subjects that are quarantined.
    fn unstored(&self, subjects: &HashSet<Quarantinable>) -> Vec<(Quarantinable, Quarantine)> {
        subjects.iter().filter_map(|of| Some((*of, self.by_id.get(of)?.clone()))).collect()
    }

    pub(super) const fn counts(&self) -> QuarantineCounts {
        self.counts
    }

    /// A page, oldest quarantine first, after `after` if given, which need not be quarantined any more.
    pub(super) fn page(&self, after: Option<(Timestamp, Quarantinable)>, limit: usize) -> Vec<QuarantinedSubject> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.by_age.range((from, Bound::Unbounded)).take(limit);
        page.filter_map(|(_, id)| Some(QuarantinedSubject { id: *id, quarantine: self.by_id.get(id)?.clone() }))
            .collect()
    }
}

/// Quarantined subjects, cached in memory. The rows are authoritative.
pub(super) struct Quarantines {
    database: Database,
    cache: Mutex<Quarantined>,
    /// Subjects whose row is not stored yet.
    unstored: Mutex<HashSet<Quarantinable>>,
    /// Serialises changes of rows, so that the rows end as the cache does.
    turn: tokio::sync::Mutex<()>,
}

impl Quarantines {
    pub(super) fn new(database: Database) -> Self {
        Self { database, cache: Mutex::default(), unstored: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Reads the rows.
    pub(super) async fn load(&self) -> Result<(), DbErr> {
        let _turn = self.turn.lock().await;
        let mut all = Quarantined::default();
        for row in quarantines::Entity::find().all(self.database.writer()).await? {
            match row.subject.parse() {
                Ok(of) => all.insert(of, Quarantine { since: Timestamp(row.since), reason: row.reason }),
                Err(error) => tracing::error!(subject = row.subject, %error, "unreadable quarantine; it is ignored"),
            }
        }
        let mut cache = self.cache.lock();
        for (of, quarantine) in cache.unstored(&self.unstored.lock()) {
            all.insert(of, quarantine);
        }
        *cache = all;
        Ok(())
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Quarantined) -> T) -> T {
        read(&self.cache.lock())
    }

    /// Quarantines a subject at once, and stores this as soon as the database permits it. If the process ends before that,
    /// nothing is lost: the subject fails again.
    pub(super) fn insert(self: &Arc<Self>, of: Quarantinable, quarantine: Quarantine) {
        self.unstored.lock().insert(of);
        self.cache.lock().insert(of, quarantine);
        let quarantines = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(quarantines) = quarantines.upgrade() {
                let Err(error) = quarantines.store(of).await else { return };
                tracing::warn!(subject = %of, %error, "the quarantine of {of} could not be stored; retrying");
                drop(quarantines);
                tokio::time::sleep(STORE_PAUSE).await;
            }
        });
    }

    async fn store(&self, of: Quarantinable) -> Result<(), DbErr> {
        let _turn = self.turn.lock().await;
        let Some(Quarantine { since, reason }) = self.read(|all| all.get(of).cloned()) else {
            // Released before it was stored.
            self.unstored.lock().remove(&of);
            return Ok(());
        };
        let row = quarantines::Model { subject: of.to_string(), since: since.as_millis(), reason };
        let newer = OnConflict::column(quarantines::Column::Subject)
            .update_columns([quarantines::Column::Since, quarantines::Column::Reason])
            .to_owned();
        let insert = quarantines::Entity::insert(row.into_active_model()).on_conflict(newer);
        insert.exec_without_returning(self.database.writer()).await?;
        self.unstored.lock().remove(&of);
        Ok(())
    }

    /// Ends a quarantine, and writes audit entries of the operator with it; returns true if it was quarantined.
    pub(super) async fn release(
        &self,
        of: Quarantinable,
        audited: Vec<NewAuditEntry>,
        now: Timestamp,
    ) -> Result<bool, DbErr> {
        let _turn = self.turn.lock().await;
        if !self.read(|all| all.contains(of)) {
            return Ok(false);
        }
        let transaction = self.database.begin().await?;
        quarantines::Entity::delete_by_id(of.to_string()).exec(&transaction).await?;
        audit::append(&transaction, &Actor::Operator, now, audited).await?;
        transaction.commit().await?;
        self.cache.lock().remove(of);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use payferry_domain::PayoutId;

    use super::*;

    fn at(ms: i64) -> Quarantine {
        Quarantine { since: Timestamp(ms), reason: format!("at {ms}") }
    }

    #[test]
    fn pages_continue_after_the_last_entry_despite_releases() {
        let mut all = Quarantined::default();
        let payments: Vec<Quarantinable> = (0..5).map(|_| PaymentId::generate().into()).collect();
        let payout = OutboundId::Payout(PayoutId::generate()).into();
        let customer = CustomerId::generate().into();
        // The last one created is quarantined first.
        for (ms, of) in (0..).zip(payments.iter().rev()) {
            all.insert(*of, at(ms));
        }
        all.insert(payout, at(2));
        all.insert(customer, at(8));
        let counts = |payments| QuarantineCounts { payments, outbound: 1, customers: 1 };
        assert_eq!((all.counts(), all.counts().total()), (counts(5), 7));

        let first = all.page(None, 3);
        let ids: Vec<Quarantinable> = first.iter().map(|one| one.id).collect();
        assert_eq!(ids, [payments[4], payments[3], payments[2]], "a payment precedes a payout of the same time");
        let last = first.last().map(|one| (one.quarantine.since, one.id));
        assert!(all.remove(payments[2]) && !all.remove(payments[2]));
        let rest: Vec<Quarantinable> = all.page(last, 9).iter().map(|one| one.id).collect();
        assert_eq!(rest, [payout, payments[1], payments[0], customer]);

        // Quarantined again, it appears once, at the end.
        all.insert(payments[4], at(9));
        assert_eq!(all.counts(), counts(4));
        let ids: Vec<Quarantinable> = all.page(None, 9).iter().map(|one| one.id).collect();
        assert_eq!(ids, [payments[3], payout, payments[1], payments[0], customer, payments[4]]);
        assert_eq!(all.get(payments[4]).map(|one| one.reason.as_str()), Some("at 9"));
        assert!(all.contains(payout) && !all.contains(payments[2]));
    }
}
