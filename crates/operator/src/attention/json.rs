//! `/ops/stuck`: what needs a person, or has waited too long.

use axum::extract::State;
use axum::http::Uri;
use payferry_httpkit::Answer;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Fault, QueryFields};

use crate::attention::{ITEMS_DEFAULT, ITEMS_MAX, Position, StuckKind};
use crate::{Operator, attention as stuck};

/// Everything that is stuck, by kind; `?kind=` of one kind, `?limit=` so many of each, `?after=` a page of one kind.
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
    let no_position = |_| Fault::new("invalid_cursor", "is no next_after of a page before");
    let after = query.optional("after", |text| text.parse::<Position>().map_err(no_position));
    if after.is_some() && kind.is_none() {
        query.fault("after", Fault::new("invalid_cursor", "goes with the kind of which it is"));
    }
    query.finish()?;
    let (system, limit) = (&operator.system, limit.unwrap_or(ITEMS_DEFAULT));
    Answer::ok(&match kind {
        Some(kind) => stuck::stuck_of(system, kind, after.as_ref(), limit).await?,
        None => stuck::stuck(system, limit).await,
    })
}
