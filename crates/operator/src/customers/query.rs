//! Customers for compliance: their state, missing data, checks, and audit log.
//!
//! Deliberately absent: names, addresses, ids and account numbers, which stay sealed. The email identifies a customer.

use payferry_accounts::{audit, contains};
use payferry_actors::System;
use payferry_actors::observe::Quarantine;
use payferry_domain::customer::{Customer, DocumentKind, KycStatus, Missing, missing};
use payferry_domain::{CustomerId, PspId, Timestamp};
use payferry_entities::{Database, StoreError, checks, customer_documents, customers};
use payferry_httpkit::lists::{DateTime, NewestKey, Page, older};
use payferry_journal::customers::customer_of;
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DbBackend, EntityTrait, Iterable, QueryFilter, QueryOrder, QuerySelect, QueryTrait, Select, Statement,
};

use crate::audit::AuditRecord;
use crate::query::{COUNTED_MAX, Count};

/// Maximum number of checks and documents of one customer, the latest.
const HISTORY_MAX: u64 = 50;

/// Filter of customers. An unset field matches all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub(crate) psp_id: Option<PspId>,
    pub(crate) kyc_status: Option<KycStatus>,
    /// True if the customer is active.
    pub(crate) is_active: Option<bool>,
    /// Part of the email, case-insensitive.
    pub(crate) search: Option<String>,
}

/// State of a customer.
pub(crate) struct CustomerLine {
    pub(crate) customer: Customer,
    /// As submitted.
    pub(crate) email: String,
    /// ISO 3166-1 alpha-3.
    pub(crate) country: String,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

record! {
    /// The customer in a response.
    pub(crate) fn of(line: CustomerLine) {
        let customer = line.customer;
        let missing = missing(&customer);
    }

    /// A customer.
    pub struct CustomerRecord {
        #[schema(example = "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = customer.id.to_string(),
        /// The same as `id`.
        customer_id: String = customer.id.to_string(),
        psp_id: String = customer.psp_id.to_string(),
        /// individual or business.
        #[serde(rename = "type")]
        kind: &'static str = customer.kind.as_str(),
        email: String = line.email,
        /// ISO 3166-1 alpha-3.
        country: String = line.country,
        /// pending, pending_update, approved, success or rejected.
        kyc_status: &'static str = customer.kyc_status.as_str(),
        /// Status to which it returns after the screening of an update. Null if no update is screened.
        before_update: Option<&'static str> = customer.before_update.map(KycStatus::as_str),
        /// True if it can be linked to new objects.
        is_active: bool = customer.is_active,
        /// True if it may transact.
        is_cleared: bool = customer.is_cleared(),
        tos_accepted_at: Option<DateTime> = customer.tos_accepted_at.map(DateTime::from),
        /// Kinds of the stored documents.
        documents: Vec<&'static str> = customer.documents.iter().map(DocumentKind::as_str).collect(),
        /// Missing data that prevents the start of verification.
        missing: Vec<&'static str> = missing.into_iter().map(Missing::as_str).collect(),
        rejection_reasons: Vec<String> = customer.rejection_reasons,
        created_at: DateTime = line.created_at.into(),
        updated_at: DateTime = line.updated_at.into(),
    }
}

/// Page of customers, newest first, and the number of all that match.
pub(crate) type CustomerPage = (Count, Vec<CustomerLine>);

/// All data about one customer for a compliance decision.
pub(crate) struct CustomerView {
    pub(crate) line: CustomerLine,
    /// Checks, the latest first.
    pub(crate) checks: Vec<checks::Model>,
    /// Documents, the latest first.
    pub(crate) documents: Vec<customer_documents::Model>,
    /// Audit log, oldest first.
    pub(crate) history: Vec<audit::AuditEntry>,
    pub(crate) quarantined: Option<Quarantine>,
}

record! {
    fn of(row: checks::Model) {}

    /// A check with the identity provider.
    pub struct CheckRecord {
        id: String = row.id.clone(),
        /// The same as `id`.
        verification_id: String = row.id,
        /// identity or rescreen.
        purpose: String = row.purpose,
        /// queued, open, passed, failed, lapsed or superseded.
        status: &'static str = row.status.as_str(),
        provider: Option<String> = row.provider,
        /// The provider's id of the check.
        provider_ref: Option<String> = row.provider_ref,
        /// Failed requests to the provider since its last answer.
        attempts: i64 = row.attempts,
        next_attempt_at: Option<DateTime> = row.next_attempt_at.map(DateTime),
        last_error: Option<String> = row.last_error,
        created_at: DateTime = DateTime(row.created_at),
        updated_at: DateTime = DateTime(row.updated_at),
    }
}

record! {
    fn of(row: customer_documents::Model) {}

    /// A document of a customer.
    pub struct DocumentRecord {
        id: String = row.id.clone(),
        /// The same as `id`.
        document_id: String = row.id,
        kind: String = row.kind,
        /// Media type detected from the content.
        media_type: String = row.media_type,
        /// Bytes.
        size: i64 = row.size,
        uploaded_at: DateTime = DateTime(row.uploaded_at),
        /// Time at which another document replaced it.
        replaced_at: Option<DateTime> = row.replaced_at.map(DateTime),
        created_at: DateTime = DateTime(row.uploaded_at),
        updated_at: DateTime = DateTime(row.replaced_at.unwrap_or(row.uploaded_at)),
    }
}

record! {
    /// The customer in a response.
    pub(crate) fn of(view: CustomerView) {}

    /// All data about a customer for a compliance decision.
    pub struct InspectedCustomer {
        #[serde(flatten)]
        customer: CustomerRecord = CustomerRecord::of(view.line),
        /// The latest first.
        checks: Vec<CheckRecord> = view.checks.into_iter().map(CheckRecord::of).collect(),
        /// The latest first.
        stored_documents: Vec<DocumentRecord> = view.documents.into_iter().map(DocumentRecord::of).collect(),
        /// Audit entries, oldest first.
        history: Vec<AuditRecord> = AuditRecord::all(view.history),
        /// Reason of the quarantine, if it is quarantined.
        quarantined: Option<Quarantine> = view.quarantined,
    }
}

/// Reads a page of customers, newest first, with the first one after it.
pub(crate) async fn list(
    database: &Database,
    filter: &Filter,
    page: &Page<NewestKey>,
) -> Result<CustomerPage, StoreError> {
    let backend = database.backend();
    let wanted = wanted(backend, filter);
    let total = Count::read(database, count(backend, wanted.clone())).await?;
    let rows = rows(wanted, page).all(database.reader()).await?;
    Ok((total, rows.into_iter().map(line).collect::<Result<_, _>>()?))
}

fn wanted(backend: DbBackend, filter: &Filter) -> Select<customers::Entity> {
    let Filter { psp_id, kyc_status, is_active, search } = filter;
    customers::Entity::find()
        .apply_if(*psp_id, |query, id| query.filter(customers::Column::PspId.eq(id.to_string())))
        .apply_if(*kyc_status, |query, status| query.filter(customers::Column::KycStatus.eq(status.as_str())))
        .apply_if(*is_active, |query, is_active| query.filter(customers::Column::IsActive.eq(is_active)))
        .apply_if(search.as_deref(), |query, search| {
            query.filter(contains(backend, customers::Column::EmailSearch, search.to_lowercase()))
        })
}

/// Counts customers up to the limit.
fn count(backend: DbBackend, wanted: Select<customers::Entity>) -> Statement {
    let counted = wanted.select_only().column(customers::Column::Id).limit(COUNTED_MAX + 1).build(backend);
    Statement { sql: format!("SELECT COUNT(*) FROM ({}) counted", counted.sql), ..counted }
}

/// Selects one page, newest first.
fn rows(wanted: Select<customers::Entity>, page: &Page<NewestKey>) -> Select<customers::Entity> {
    const ORDER: [customers::Column; 2] = [customers::Column::CreatedAt, customers::Column::Id];
    columns(wanted)
        .apply_if(page.after.clone(), |query, after| query.filter(older::<customers::Entity>(ORDER, after)))
        .order_by_desc(ORDER[0])
        .order_by_desc(ORDER[1])
        .limit(page.rows_max())
        .offset(page.offset)
}

pub(crate) async fn one(system: &System, id: CustomerId) -> Result<Option<CustomerView>, StoreError> {
    let (database, quarantined, id) = (system.database(), system.quarantine_of(id), id.to_string());
    let query = columns(customers::Entity::find_by_id(id.clone()));
    let Some(row) = query.one(database.reader()).await? else { return Ok(None) };
    let checks = checks::Entity::find()
        .filter(checks::Column::CustomerId.eq(&id))
        .order_by_desc(checks::Column::CreatedAt)
        .order_by_desc(checks::Column::Id)
        .limit(HISTORY_MAX)
        .all(database.reader())
        .await?;
    let documents = customer_documents::Entity::find()
        .filter(customer_documents::Column::CustomerId.eq(&id))
        .order_by_desc(customer_documents::Column::UploadedAt)
        .order_by_desc(customer_documents::Column::Id)
        .limit(HISTORY_MAX)
        .all(database.reader())
        .await?;
    let history = audit::of_subject(database.reader(), id).await?;
    Ok(Some(CustomerView { line: line(row)?, checks, documents, history, quarantined }))
}

/// Selects all columns, with an empty value for the sealed one, which is long and not shown.
fn columns(query: Select<customers::Entity>) -> Select<customers::Entity> {
    let open = customers::Column::iter().filter(|column| !matches!(column, customers::Column::Particulars));
    query.select_only().columns(open).column_as(Expr::value(""), customers::Column::Particulars)
}

fn line(row: customers::Model) -> Result<CustomerLine, StoreError> {
    Ok(CustomerLine {
        customer: customer_of(&row)?,
        email: row.email,
        country: row.country,
        created_at: Timestamp(row.created_at),
        updated_at: Timestamp(row.updated_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::test_database;
    use payferry_harness::database::query_plan;

    /// A list reads only the rows of its page and sorts nothing, for any number of customers.
    #[tokio::test]
    async fn every_list_uses_an_index_in_its_order() {
        let (database, _test_database) = test_database().await;
        let psp_id = Some(PspId::generate());
        let kyc_status = Some(KycStatus::Pending);
        let search = Some("ada".to_owned());
        for (filter, index) in [
            (Filter::default(), "customers_newest"),
            (Filter { is_active: Some(false), ..Filter::default() }, "customers_newest"),
            (Filter { search: search.clone(), ..Filter::default() }, "customers_newest"),
            (Filter { kyc_status, ..Filter::default() }, "customers_kyc_status"),
            (Filter { kyc_status, search: search.clone(), ..Filter::default() }, "customers_kyc_status"),
            (Filter { psp_id, ..Filter::default() }, "customers_list"),
        ] {
            let backend = database.backend();
            let rows = rows(wanted(backend, &filter), &Page::at("customers", 50, 50)).build(backend);
            let plan = query_plan(database.reader(), rows).await;
            assert!(plan.iter().any(|step| step.contains(index)), "{filter:?}: {plan:?}");
            assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE")), "{filter:?} sorts: {plan:?}");
            // A count needs no order. Any index serves that avoids reading the rows.
            let plan = query_plan(database.reader(), count(backend, wanted(backend, &filter))).await;
            assert!(plan.iter().any(|step| step.contains("COVERING INDEX")), "{filter:?}: {plan:?}");
        }
    }

    /// A count stops just above the number that is shown.
    #[test]
    fn a_count_stops_at_its_limit() {
        let counted = count(DbBackend::Sqlite, wanted(DbBackend::Sqlite, &Filter::default())).to_string();
        assert!(counted.ends_with(&format!("LIMIT {}) counted", COUNTED_MAX + 1)), "{counted}");
    }
}
