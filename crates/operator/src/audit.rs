//! `/ops/audit`: audit log.

use payferry_accounts::audit::{self, ENTRIES_DEFAULT, ENTRIES_MAX, Filter, WORD_CHARS_MAX};
use payferry_domain::Timestamp;
use payferry_httpkit::{Answer, ApiError, Fault, QueryFields, between, read};

use crate::Operator;
use crate::input::query_id;

/// Returns the entries, oldest first. Filters: `?subject=` (or `?customer_id=`), `?psp_id=`, `?actor_kind=`,
/// `?action=`, `?from=`, `?to=`, `?after=`, `?limit=`.
pub(super) async fn list(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let customer = query.optional("customer_id", word);
    let filter = Filter {
        subject: query.optional("subject", word).or(customer),
        psp_id: query.optional("psp_id", query_id),
        actor_kind: query.optional("actor_kind", |text| {
            text.parse().map_err(|error: audit::UnknownAuditActorKind| Fault::new("unknown_value", error.to_string()))
        }),
        action: query.optional("action", word),
        from: query.optional("from", moment),
        to: query.optional("to", moment),
        after: query.optional("after", |text| {
            let out = || Fault::new("out_of_range", "must be the number of an entry");
            text.parse().ok().filter(|number| *number >= 0).ok_or_else(out)
        }),
    };
    let limit = query.optional("limit", |text| between(text, 1, ENTRIES_MAX));
    query.finish()?;
    let database = operator.system.database();
    Answer::ok(&audit::read(database.reader(), &filter, limit.unwrap_or(ENTRIES_DEFAULT)).await?)
}

fn word(text: &str) -> Result<String, Fault> {
    if text.chars().count() > WORD_CHARS_MAX {
        return Err(Fault::new("too_long", format!("may have at most {WORD_CHARS_MAX} characters")));
    }
    if text.chars().any(char::is_control) {
        return Err(Fault::new("invalid_characters", "must not contain control characters"));
    }
    Ok(text.to_owned())
}

fn moment(text: &str) -> Result<Timestamp, Fault> {
    read::moment(&text.into())
}
