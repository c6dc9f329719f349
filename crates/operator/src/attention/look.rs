//! A look at every kind, during which the database may be away: what it does not tell in time is remembered, not waited for.

use payferry_actors::System;
use sea_orm::DbErr;
use tokio::time::Instant;

use crate::attention::part::Part;
use crate::attention::{Found, StuckKind, find, service};
use crate::query::{answers, by, soon};
use crate::webhooks::{self, Webhooks};

/// What was seen so far.
pub(super) struct Look<'a> {
    system: &'a System,
    deadline: Instant,
    /// Why the database was not asked any more, or did not tell something.
    failure: Option<DbErr>,
    is_away: bool,
    webhooks: Option<Webhooks>,
    /// What it did not tell.
    pub(super) unread: Vec<StuckKind>,
}

impl<'a> Look<'a> {
    /// Asks the database whether it is there, and what all kinds of webhooks are found in.
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

    /// A part of a kind; nothing if the database does not tell.
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

    /// That the database is away, if it is.
    pub(super) fn away(&mut self) -> Option<Found> {
        let failure = self.failure.take()?;
        tracing::warn!(error = %failure, "not all that is stuck could be read for the operator: {failure}");
        Some(service::database(self.system, Some(failure), &self.unread))
    }
}
