//! Reads every kind, even if the database fails: kinds that it does not return in time are recorded as unread.

use payferry_actors::System;
use sea_orm::DbErr;
use tokio::time::Instant;

use crate::attention::part::Part;
use crate::attention::{Found, StuckKind, find, service};
use crate::query::{answers, by, soon};
use crate::webhooks::{self, Webhooks};

/// State of the read.
pub(super) struct Look<'a> {
    system: &'a System,
    deadline: Instant,
    /// Error after which the database was not asked any more, or that it returned.
    failure: Option<DbErr>,
    is_away: bool,
    webhooks: Option<Webhooks>,
    /// Kinds that the database did not return.
    pub(super) unread: Vec<StuckKind>,
}

impl<'a> Look<'a> {
    /// Checks that the database answers, and reads the data of all webhook kinds.
    pub(super) async fn begin(system: &'a System) -> Self {
        let failure = answers(system).await.err();
        let deadline = soon();
        let is_away = failure.is_some();
        let mut look = Self { system, deadline, failure, is_away, webhooks: None, unread: Vec::new() };
        if !is_away {
            let webhooks = by(deadline, webhooks::webhooks(system)).await;
            look.webhooks = webhooks.map_err(|error| look.failure = Some(error)).ok();
        }
        look
    }

    /// Reads a page of a kind. `None` if the database does not return it.
    pub(super) async fn find(&mut self, kind: StuckKind, part: Part<'_>) -> Option<Found> {
        let webhooks = self.webhooks.as_ref().filter(|_| kind.is_of_webhooks());
        let is_untold = kind.is_of_webhooks() && webhooks.is_none();
        if is_untold || self.is_away && kind.is_asked_of_the_database(self.system) {
            self.unread.push(kind);
            return None;
        }
        let found = by(self.deadline, find(self.system, kind, part, webhooks)).await;
        found
            .map_err(|error| {
                self.failure.get_or_insert(error);
                self.unread.push(kind);
            })
            .ok()
    }

    /// Item for a database that does not answer, if any.
    pub(super) fn away(&mut self) -> Option<Found> {
        let failure = self.failure.take()?;
        tracing::warn!(error = %failure, "reading the items that need attention failed: {failure}");
        Some(service::database(self.system, Some(failure), &self.unread))
    }
}
