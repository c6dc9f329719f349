//! Replay of stored histories: each transition of a payment, decided and applied again by the rules of this version.
//!
//! [`history_of`] shows what each transition of one payment did. [`replay_all`] compares all payments with what is stored
//! about them. Deliberately absent: changes, and payouts and withdrawals, which have few rules.

mod check;
mod pages;

use std::num::NonZeroUsize;

use payferry_domain::payment::{Command, Event, Payment, Replayed, StoredTransition, replay};
use payferry_domain::{PaymentId, Timestamp};
use payferry_entities::{Database, StoreError, payment_transitions};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Serialize;
use tokio::task::JoinSet;

use check::Checked;
use pages::Pages;

/// Maximum number of transitions of one payment that are shown, the first. A payment normally has a few.
pub const SHOWN_MAX: u64 = 5_000;

/// History of one payment, replayed.
#[derive(Debug)]
pub struct ReplayedHistory {
    /// Its transitions, oldest first.
    pub steps: Vec<ReplayedStep>,
    /// Reason why the rest cannot be replayed.
    pub stopped: Option<String>,
}

/// One transition.
#[derive(Debug)]
pub struct ReplayedStep {
    /// As stored.
    pub stored: StoredTransition,
    /// Time that the decision took, microseconds, if it is stored.
    pub decided_us: Option<i64>,
    /// By the current rules.
    pub replayed: Replayed,
}

/// Replays one payment. The history is empty if the payment is unknown.
pub async fn history_of(database: &Database, id: PaymentId) -> Result<ReplayedHistory, DbErr> {
    let rows = payment_transitions::Entity::find()
        .filter(payment_transitions::Column::PaymentId.eq(id.to_string()))
        .order_by_asc(payment_transitions::Column::Version)
        .limit(SHOWN_MAX)
        .all(database.reader())
        .await?;
    let mut history = ReplayedHistory { steps: Vec::with_capacity(rows.len()), stopped: None };
    let mut before: Option<Payment> = None;
    for row in &rows {
        let step = stored_of(&row.payment_id, row.version, row.at, &row.events, row.command.as_deref())
            .map_err(|error| error.to_string())
            .and_then(|stored| match replay(before.take(), &stored) {
                Ok(replayed) => Ok(ReplayedStep { stored, decided_us: row.decided_us, replayed }),
                Err(error) => Err(error.to_string()),
            });
        match step {
            Ok(step) => {
                before = Some(step.replayed.transition.payment.clone());
                history.steps.push(step);
            }
            Err(reason) => {
                history.stopped = Some(format!("version {}: {reason}", row.version));
                break;
            }
        }
    }
    Ok(history)
}

fn stored_of(
    id: &str,
    version: i64,
    at: i64,
    events: &str,
    command: Option<&str>,
) -> Result<StoredTransition, StoreError> {
    let unreadable = |error: serde_json::Error| StoreError::unreadable("payment", &id, &error);
    let events: Vec<Event> = serde_json::from_str(events).map_err(unreadable)?;
    let command: Option<Command> = command.map(serde_json::from_str).transpose().map_err(unreadable)?;
    let command = command.map(|command| command.completed_from(&events));
    Ok(StoredTransition { version: u32::try_from(version).unwrap_or(u32::MAX), at: Timestamp(at), events, command })
}

payferry_domain::named! {
    /// Part of a payment that comes out differently.
    ReplayPart, "history, invariant, decision, state, announcements, postings" {
        /// The history has a gap, or this version cannot read it.
        History = "history",
        /// The stored events lead to a payment that violates an invariant.
        Invariant = "invariant",
        /// The stored command leads to other events.
        Decision = "decision",
        /// The events lead to another payment than its row contains.
        State = "state",
        /// The events announce something else than the feed contains.
        Announcements = "announcements",
        /// The events post something else than the ledger contains.
        Postings = "postings",
    }
}

/// A difference between what is stored about a payment and what the rules of this version lead to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplayDifference {
    /// Payment.
    pub payment_id: String,
    /// Its version; `None` if the difference is about the end of its history.
    pub version: Option<u32>,
    /// The part that comes out differently.
    pub part: ReplayPart,
    /// Name of the stored command.
    pub command: Option<&'static str>,
    /// As stored.
    pub stored: String,
    /// By the rules of this version.
    pub now: String,
}

/// Extent of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ReplayCounts {
    /// Payments.
    pub payments: u64,
    /// Transitions.
    pub transitions: u64,
    /// Transitions whose command is stored, so that it was decided again.
    pub decided: u64,
}

/// Replays all payments, several pages at a time, and reports the differences of each page. Every page is one snapshot, so the
/// service may run meanwhile.
pub async fn replay_all(
    database: &Database,
    workers: NonZeroUsize,
    mut report: impl FnMut(ReplayCounts, Vec<ReplayDifference>),
) -> Result<ReplayCounts, DbErr> {
    let (mut pages, mut running) = (Pages::default(), JoinSet::new());
    let mut counts = ReplayCounts::default();
    let mut add = |counts: &mut ReplayCounts, Checked { counts: page, differences }: Checked| {
        counts.payments += page.payments;
        counts.transitions += page.transitions;
        counts.decided += page.decided;
        report(*counts, differences);
    };
    loop {
        let page = pages.next(database).await?;
        if let Some(page) = page {
            running.spawn_blocking(move || check::check(page));
            if running.len() <= workers.get() {
                continue;
            }
        }
        match running.join_next().await {
            Some(checked) => {
                add(&mut counts, checked.map_err(|error| DbErr::Custom(format!("a check failed: {error}")))?);
            }
            None => return Ok(counts),
        }
    }
}
