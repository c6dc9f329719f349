//! `/ops/audit`: audit log.

use payferry_accounts::audit::{
    self, AuditActorKind, AuditEntry, AuditPage, ENTRIES_DEFAULT, ENTRIES_MAX, Filter, WORD_CHARS_MAX,
};
use payferry_domain::{PspId, Timestamp};
use payferry_httpkit::extract::parameters::number;
use payferry_httpkit::lists::{CURSOR, DateTime, Page};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Fault, QueryFields, Rule, query, read, rule};
use payferry_journal::audit::Actor;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::openapi::FreeObject;

/// A kind of actor.
const ACTOR_KIND: Rule<AuditActorKind> =
    Rule { read: |value| read::word(value, &Actor::KINDS.join(", ")), schema: || rule::one_of(Actor::KINDS) };

/// The number of an entry.
const NUMBER: Rule<i64> = Rule {
    read: |value| {
        let out = || Fault::new("out_of_range", "must be the number of an entry");
        value.as_str().and_then(|text| text.parse().ok()).filter(|number| *number >= 0).ok_or_else(out)
    },
    schema: || (number::<0, { i64::MAX as u64 }>().schema)(),
};

query! {
    /// Filters and page of the audit log.
    pub struct AuditQuery {
        /// Entries about the object with this id.
        subject: String = rule::short::<WORD_CHARS_MAX>(),
        /// Entries about this customer; the same as `subject`.
        customer_id: String = rule::short::<WORD_CHARS_MAX>(),
        /// Entries about objects of this PSP.
        psp_id: PspId = rule::id(),
        /// Kind of the actor.
        actor_kind: AuditActorKind = ACTOR_KIND,
        /// Name of the action.
        action: String = rule::short::<WORD_CHARS_MAX>(),
        /// At or after this time.
        from: Timestamp = rule::moment(),
        /// Before this time.
        to: Timestamp = rule::moment(),
        /// Only entries after the one with this number: the `next_after` of the previous page.
        after: i64 = NUMBER,
        /// Maximum number of entries; 50 if absent.
        limit: u64 = number::<1, ENTRIES_MAX>(),
        /// The `next_cursor` of the previous page, with the same filters. Not together with `after`.
        cursor: String = CURSOR,
    }
}

record! {
    fn of(entry: AuditEntry) {}

    /// An audit entry. It never changes.
    pub struct AuditRecord {
        /// The same as `number`, as text.
        id: String = entry.number.to_string(),
        /// Position in the log.
        number: i64 = entry.number,
        /// Time of the action.
        at: DateTime = entry.at.0.into(),
        /// api_key, operator, provider, customer or service.
        actor_kind: String = entry.actor_kind,
        /// The actor's id, such as a key's id or an operator's name; empty if there is only one actor of the kind, and
        /// for operators on the command line.
        actor: String = entry.actor,
        #[schema(example = "customer.deactivated")]
        action: String = entry.action,
        /// The PSP that owns the object.
        psp_id: Option<String> = entry.psp_id,
        /// Id of the affected object.
        subject: String = entry.subject,
        /// Further details.
        detail: FreeObject = entry.detail.into(),
        /// Address of the client that sent the request; null if there was no request.
        address: Option<String> = entry.address,
        /// Id of the request, as in the log and in `X-Request-Id`.
        request_id: Option<String> = entry.request_id,
        created_at: DateTime = entry.at.0.into(),
        updated_at: DateTime = entry.at.0.into(),
    }
}

impl AuditRecord {
    pub(crate) fn all(entries: Vec<AuditEntry>) -> Vec<Self> {
        entries.into_iter().map(Self::of).collect()
    }
}

/// A page of the audit log.
#[derive(Serialize, ToSchema)]
pub struct AuditList {
    /// Oldest first.
    entries: Vec<AuditRecord>,
    /// Pass it as `after` to get the next page; null if there is none.
    next_after: Option<i64>,
    /// Pass it as `cursor` to get the next page; null if there is none.
    next_cursor: Option<String>,
}

/// Read the audit log
///
/// Oldest first.
#[utoipa::path(
    get, path = "/ops/audit", tag = "Administration", operation_id = "listAuditEntries", params(AuditQuery),
    responses((status = 200, description = "A page of entries.", body = AuditList), UnreadableQuery),
)]
pub(super) async fn list(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let asked = AuditQuery::read(&mut query);
    let limit = asked.limit.unwrap_or(ENTRIES_DEFAULT);
    let page = Page::of_limit("audit", query, limit, asked.after.is_some())?;
    let filter = Filter {
        subject: asked.subject.or(asked.customer_id),
        psp_id: asked.psp_id,
        actor_kind: asked.actor_kind,
        action: asked.action,
        from: asked.from,
        to: asked.to,
        after: asked.after.or(page.after),
    };
    let AuditPage { entries, next_after } = audit::read(operator.system.database().reader(), &filter, limit).await?;
    let next_cursor = next_after.map(|number| page.cursor(&number)).transpose()?;
    Answer::ok(&AuditList { entries: AuditRecord::all(entries), next_after, next_cursor })
}
