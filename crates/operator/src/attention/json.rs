//! `/ops/stuck`: items that need attention.

use axum::extract::State;
use axum::http::Uri;
use payferry_httpkit::Answer;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Fault, QueryFields};

use crate::attention::{ITEMS_DEFAULT, ITEMS_MAX, Position, StuckKind};
use crate::{Operator, attention as stuck};

/// Returns the items that need attention by kind. `?kind=` selects one kind, `?limit=` sets the items of each, and
/// `?after=` selects a page of one kind.
pub(crate) async fn list(State(operator): State<Operator>, uri: Uri) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
    let kind = query.optional("kind", |text| {
        let names: Vec<_> = StuckKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let unknown = |_| Fault::new("unknown_value", format!("must be one of {}", names.join(", ")));
        text.parse::<StuckKind>().map_err(unknown)
    });
    let limit = query.optional("limit", |text| {
        let out = || Fault::new("out_of_range", format!("must be a whole number between 1 and {ITEMS_MAX}"));
        text.parse::<usize>().ok().filter(|limit| (1..=ITEMS_MAX).contains(limit)).ok_or_else(out)
    });
    let no_position = |_| Fault::new("invalid_cursor", "is not the next_after of an earlier page");
    let after = query.optional("after", |text| text.parse::<Position>().map_err(no_position));
    if after.is_some() && kind.is_none() {
        query.fault("after", Fault::new("invalid_cursor", "requires the kind that it belongs to"));
    }
    query.finish()?;
    let (system, limit) = (&operator.system, limit.unwrap_or(ITEMS_DEFAULT));
    Answer::ok(&match kind {
        Some(kind) => stuck::stuck_of(system, kind, after.as_ref(), limit).await?,
        None => stuck::stuck(system, limit).await,
    })
}
