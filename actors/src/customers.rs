//! Changes of customers, which have no actor: the locked row is changed directly, and a customer whose change would
//! violate an invariant is quarantined like a payment.

use derive_more::{Deref, DerefMut};
use payferry_domain::customer::{Command, Event};
use payferry_domain::{CustomerId, PspId, Timestamp, TransitionError};
use payferry_entities::{Database, Transaction};
use payferry_journal::audit::Actor;
use payferry_journal::customers::{CustomerChangeError, Opened};

use crate::observe::TreeMetrics;
use crate::system::System;

/// A customer that is not quarantined, opened for a change. Its row is locked until the transaction ends.
#[derive(Deref, DerefMut)]
pub struct CustomerChange {
    #[deref]
    #[deref_mut]
    opened: Opened,
    registry: TreeMetrics,
}

impl CustomerChange {
    /// Locks the customer. If `owner` is set, the customer must belong to this PSP.
    pub(crate) async fn open(
        registry: &TreeMetrics,
        database: &Database,
        id: CustomerId,
        owner: Option<PspId>,
    ) -> Result<Self, CustomerChangeError> {
        // Checked under the lock, under which customers are quarantined.
        let opened = Opened::find(database, id, owner).await?;
        if registry.is_quarantined(id) {
            return Err(CustomerChangeError::Quarantined);
        }
        Ok(Self { opened, registry: registry.clone() })
    }

    /// Decides the command and writes its consequences, as [`Opened::apply`]. If the change would violate an invariant,
    /// nothing is written and the customer is quarantined.
    pub async fn apply(
        &mut self,
        command: &Command,
        by: &Actor,
        now: Timestamp,
    ) -> Result<Vec<Event>, CustomerChangeError> {
        let applied = self.opened.apply(command, by, now).await;
        if let Err(CustomerChangeError::Rejected(TransitionError::Violated(violated))) = &applied {
            self.registry.quarantine_customer(self.opened.customer().id, violated);
        }
        applied
    }

    /// Returns the transaction for the commit.
    pub fn into_transaction(self) -> Transaction {
        self.opened.into_transaction()
    }

    /// Commits.
    pub async fn commit(self) -> Result<(), CustomerChangeError> {
        self.opened.commit().await
    }
}

impl System {
    /// Opens a customer for a change, unless it is quarantined. If `owner` is set, it must belong to this PSP.
    pub async fn open_customer(
        &self,
        id: CustomerId,
        owner: Option<PspId>,
    ) -> Result<CustomerChange, CustomerChangeError> {
        CustomerChange::open(self, self.database(), id, owner).await
    }
}
