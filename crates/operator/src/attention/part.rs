//! Page of one kind. A kind may have very many items, and pages must reach each of them.

use std::fmt;
use std::str::FromStr;

use payferry_actors::System;
use payferry_domain::Timestamp;
use sea_orm::{DbErr, Value};
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use crate::attention::{AttentionKind, Found, find, service};
use crate::query::{answers, by, soon};
use crate::webhooks::{self, Webhooks};

/// Position of an item among those of its kind: oldest first, items with the same time in order of id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub(crate) at: Timestamp,
    pub(crate) id: String,
}

/// Error: the text is not a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPosition;

/// Page of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    /// Position after which the page starts.
    pub(crate) after: Option<&'a Position>,
    /// Items of the page. One more is read, to know if a next page exists.
    pub(super) limit: usize,
}

impl Position {
    pub(crate) fn new(at: Timestamp, id: impl Into<String>) -> Self {
        Self { at, id: id.into() }
    }

    /// Splits the id into parts. Parts that a made-up id lacks are empty.
    pub(crate) fn parts<const N: usize>(&self) -> [&str; N] {
        let mut parts = self.id.splitn(N, ':');
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.as_millis(), self.id)
    }
}

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (at, id) = text.split_once('.').ok_or(NoPosition)?;
        Ok(Self::new(Timestamp(at.parse().map_err(|_| NoPosition)?), id))
    }
}

impl Serialize for Position {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Part<'_> {
    /// Number of items to read.
    pub(crate) const fn read_max(&self) -> usize {
        self.limit + 1
    }

    /// Query of a page. `from` is its start with one value, and `order` has the columns of the order. `$1` is the
    /// value, the next parameters are the position.
    pub(crate) fn sql(&self, from: &str, order: &[&str]) -> String {
        let columns = order.join(", ");
        let behind = match self.after {
            Some(_) => {
                let values: Vec<String> = (2..order.len() + 2).map(|number| format!("${number}")).collect();
                format!(" AND ({columns}) > ({})", values.join(", "))
            }
            None => String::new(),
        };
        format!("SELECT * {from}{behind} ORDER BY {columns} LIMIT {}", self.read_max())
    }

    /// Values of such a query if the last column is the id.
    pub(crate) fn values(&self, value: Value) -> Vec<Value> {
        self.values_with(value, |position| vec![position.id.as_str().into()])
    }

    /// The same if several columns are the id.
    pub(super) fn values_with(&self, value: Value, id: impl Fn(&Position) -> Vec<Value>) -> Vec<Value> {
        let mut values = vec![value];
        if let Some(after) = self.after {
            values.push(after.at.as_millis().into());
            values.extend(id(after));
        }
        values
    }
}

/// State of the read.
pub(super) struct AttentionRead<'a> {
    system: &'a System,
    deadline: Instant,
    /// Error after which the database was not asked any more, or that it returned.
    failure: Option<DbErr>,
    is_away: bool,
    webhooks: Option<Webhooks>,
    /// Kinds that the database did not return.
    pub(super) unread: Vec<AttentionKind>,
}

impl<'a> AttentionRead<'a> {
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
    pub(super) async fn find(&mut self, kind: AttentionKind, part: Part<'_>) -> Option<Found> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_position_round_trips_and_other_text_is_refused() {
        for id in ["pay_1", "base:0xab.cd:7", ""] {
            let position = Position::new(Timestamp(1_732_175_655_007), id);
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for text in ["", "pay_1", "x.pay_1", "1"] {
            assert_eq!(text.parse::<Position>(), Err(NoPosition), "{text}");
        }
        let position: Position = "5.base:0xab:7".parse().unwrap();
        assert_eq!(position.parts::<3>(), ["base", "0xab", "7"]);
        assert_eq!(position.parts::<4>(), ["base", "0xab", "7", ""]);
    }

    #[test]
    fn the_next_page_starts_after_the_last_item() {
        let position = Position::new(Timestamp(5), "pay_1");
        let (first, next) = (Part { after: None, limit: 2 }, Part { after: Some(&position), limit: 2 });
        let (from, order) = ("FROM things WHERE a = $1", ["b", "id"]);
        assert_eq!(first.sql(from, &order), "SELECT * FROM things WHERE a = $1 ORDER BY b, id LIMIT 3");
        let behind = "SELECT * FROM things WHERE a = $1 AND (b, id) > ($2, $3) ORDER BY b, id LIMIT 3";
        assert_eq!(next.sql(from, &order), behind);
        assert_eq!((first.values(1.into()).len(), next.values(1.into()).len()), (1, 3));
    }
}
