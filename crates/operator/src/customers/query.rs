//! Customers for compliance: their state, missing data, checks, and audit log.
//!
//! Deliberately absent: names, addresses, ids and account numbers, which stay sealed. The email identifies a customer.

use payferry_accounts::search::contains;
use payferry_accounts::{Moment, audit};
use payferry_domain::customer::{Documents, KycStatus, Missing, missing};
use payferry_domain::{CustomerId, PspId, Timestamp};
use payferry_entities::{Database, StoreError, checks, customer_documents, customers};
use payferry_journal::customers::customer_of;
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, Iterable, QueryFilter, QueryOrder, QuerySelect,
    QueryTrait, Select, Statement,
};
use serde::Serialize;

use crate::query::{COUNTED_MAX, Count};

/// Maximum number of checks and documents of one customer, the latest.
const HISTORY_MAX: u64 = 50;

/// Filter of customers. An unset field matches all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// PSP.
    pub psp_id: Option<PspId>,
    /// Verification status.
    pub kyc_status: Option<KycStatus>,
    /// True if the customer is active.
    pub is_active: Option<bool>,
    /// Part of the email, case-insensitive.
    pub search: Option<String>,
}

/// State of a customer.
#[derive(Debug, Serialize)]
pub struct CustomerLine {
    /// Its id.
    pub customer_id: CustomerId,
    /// Its PSP.
    pub psp_id: PspId,
    /// `individual` or `business`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Email, as submitted.
    pub email: String,
    /// ISO 3166-1 alpha-3.
    pub country: String,
    /// Verification status.
    pub kyc_status: KycStatus,
    /// Status to which it returns after the screening of an update. `None` if no update is screened.
    pub before_update: Option<KycStatus>,
    /// True if it can be linked to new objects.
    pub is_active: bool,
    /// True if it may transact.
    pub is_cleared: bool,
    /// Time at which the terms were accepted.
    pub tos_accepted_at: Option<Moment>,
    /// Submitted documents.
    pub documents: Documents,
    /// Missing data that prevents the start of verification.
    pub missing: Vec<Missing>,
    /// Reasons of a rejection.
    pub rejection_reasons: Vec<String>,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last change.
    pub updated_at: Moment,
}

/// Page of customers, newest first.
#[derive(Debug, Serialize)]
pub struct CustomerList {
    /// Number of matching customers.
    pub total: Count,
    /// Customers of the page.
    pub customers: Vec<CustomerLine>,
}

/// Check with an identity provider.
#[derive(Debug, Serialize)]
pub struct CheckLine {
    /// `ver_` id.
    pub verification_id: String,
    /// `identity` or `rescreen`.
    pub purpose: String,
    /// `queued`, `open`, `passed`, `failed`, `lapsed` or `superseded`.
    pub status: String,
    /// Identity provider.
    pub provider: Option<String>,
    /// The provider's id of the check.
    pub provider_ref: Option<String>,
    /// Failed requests to the provider since its last answer.
    pub attempts: i64,
    /// Time of the next attempt.
    pub next_attempt_at: Option<Moment>,
    /// Error of the last failed request.
    pub last_error: Option<String>,
    /// Time of the request for the check.
    pub created_at: Moment,
    /// Time of the last change.
    pub updated_at: Moment,
}

/// Stored document.
#[derive(Debug, Serialize)]
pub struct DocumentLine {
    /// `doc_` id.
    pub document_id: String,
    /// Kind of document.
    pub kind: String,
    /// Media type detected from the content.
    pub media_type: String,
    /// Bytes.
    pub size: i64,
    /// Time of the upload.
    pub uploaded_at: Moment,
    /// Time at which another document replaced it.
    pub replaced_at: Option<Moment>,
}

/// All data about one customer for a compliance decision.
#[derive(Debug, Serialize)]
pub struct CustomerView {
    /// State of the customer.
    #[serde(flatten)]
    pub customer: CustomerLine,
    /// Checks, the latest first.
    pub checks: Vec<CheckLine>,
    /// Documents, the latest first.
    pub stored_documents: Vec<DocumentLine>,
    /// Audit log, oldest first.
    pub history: Vec<audit::Entry>,
}

/// Error of a read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No customer has this id.
    #[error("no such customer")]
    NotFound,
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DbErr),
    /// A row cannot be read.
    #[error(transparent)]
    Unreadable(#[from] StoreError),
}

/// Reads a page of customers, newest first.
pub async fn list(database: &Database, filter: &Filter, limit: u64, offset: u64) -> Result<CustomerList, ReadError> {
    let backend = database.backend();
    let wanted = wanted(backend, filter);
    let total = database.reader().query_one_raw(count(backend, wanted.clone())).await?;
    let total = Count::of(total.map_or(Ok(0), |row| row.try_get_by_index(0))?);
    let rows = page(wanted, limit, offset).all(database.reader()).await?;
    Ok(CustomerList { total, customers: rows.iter().map(line).collect::<Result<_, _>>()? })
}

fn wanted(backend: DbBackend, filter: &Filter) -> Select<customers::Entity> {
    let mut query = customers::Entity::find();
    if let Some(psp_id) = filter.psp_id {
        query = query.filter(customers::Column::PspId.eq(psp_id.to_string()));
    }
    if let Some(status) = filter.kyc_status {
        query = query.filter(customers::Column::KycStatus.eq(status.as_str()));
    }
    if let Some(is_active) = filter.is_active {
        query = query.filter(customers::Column::IsActive.eq(is_active));
    }
    if let Some(search) = &filter.search {
        query = query.filter(contains(backend, customers::Column::EmailSearch, search.to_lowercase()));
    }
    query
}

/// Counts customers up to the limit.
fn count(backend: DbBackend, wanted: Select<customers::Entity>) -> Statement {
    let counted = wanted.select_only().column(customers::Column::Id).limit(COUNTED_MAX + 1).build(backend);
    Statement { sql: format!("SELECT COUNT(*) FROM ({}) counted", counted.sql), ..counted }
}

/// Selects one page, newest first.
fn page(wanted: Select<customers::Entity>, limit: u64, offset: u64) -> Select<customers::Entity> {
    columns(wanted)
        .order_by_desc(customers::Column::CreatedAt)
        .order_by_desc(customers::Column::Id)
        .limit(limit)
        .offset(offset)
}

/// Reads one customer.
pub async fn one(database: &Database, id: CustomerId) -> Result<CustomerView, ReadError> {
    let id = id.to_string();
    let query = columns(customers::Entity::find_by_id(id.clone()));
    let row = query.one(database.reader()).await?.ok_or(ReadError::NotFound)?;
    let checks = checks::Entity::find()
        .filter(checks::Column::CustomerId.eq(&id))
        .order_by_desc(checks::Column::CreatedAt)
        .order_by_desc(checks::Column::Id)
        .limit(HISTORY_MAX)
        .all(database.reader())
        .await?;
    let stored = customer_documents::Entity::find()
        .filter(customer_documents::Column::CustomerId.eq(&id))
        .order_by_desc(customer_documents::Column::UploadedAt)
        .order_by_desc(customer_documents::Column::Id)
        .limit(HISTORY_MAX)
        .all(database.reader())
        .await?;
    let filter = audit::Filter { subject: Some(id), ..audit::Filter::default() };
    let history = audit::read(database.reader(), &filter, audit::ENTRIES_MAX).await?.entries;
    Ok(CustomerView {
        customer: line(&row)?,
        checks: checks.into_iter().map(CheckLine::from).collect(),
        stored_documents: stored.into_iter().map(DocumentLine::from).collect(),
        history,
    })
}

/// Selects all columns, with an empty value for the sealed one, which is long and not shown.
fn columns(query: Select<customers::Entity>) -> Select<customers::Entity> {
    let open = customers::Column::iter().filter(|column| !matches!(column, customers::Column::Particulars));
    query.select_only().columns(open).column_as(Expr::value(""), customers::Column::Particulars)
}

fn line(row: &customers::Model) -> Result<CustomerLine, StoreError> {
    let customer = customer_of(row)?;
    Ok(CustomerLine {
        missing: missing(&customer),
        is_cleared: customer.is_cleared(),
        customer_id: customer.id,
        psp_id: customer.psp_id,
        kind: customer.kind.as_str(),
        email: row.email.clone(),
        country: row.country.clone(),
        kyc_status: customer.kyc_status,
        before_update: customer.before_update,
        is_active: customer.is_active,
        tos_accepted_at: customer.tos_accepted_at.map(Moment),
        documents: customer.documents,
        rejection_reasons: customer.rejection_reasons,
        created_at: Timestamp(row.created_at).into(),
        updated_at: Timestamp(row.updated_at).into(),
    })
}

impl From<checks::Model> for CheckLine {
    fn from(row: checks::Model) -> Self {
        Self {
            verification_id: row.id,
            purpose: row.purpose,
            status: row.status,
            provider: row.provider,
            provider_ref: row.provider_ref,
            attempts: row.attempts,
            next_attempt_at: row.next_attempt_at.map(Timestamp).map(Moment),
            last_error: row.last_error,
            created_at: Moment(Timestamp(row.created_at)),
            updated_at: Moment(Timestamp(row.updated_at)),
        }
    }
}

impl From<customer_documents::Model> for DocumentLine {
    fn from(row: customer_documents::Model) -> Self {
        Self {
            document_id: row.id,
            kind: row.kind,
            media_type: row.media_type,
            size: row.size,
            uploaded_at: Moment(Timestamp(row.uploaded_at)),
            replaced_at: row.replaced_at.map(Timestamp).map(Moment),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use payferry_migration::{Migrator, MigratorTrait};

    /// A list reads only the rows of its page and sorts nothing, for any number of customers.
    #[tokio::test]
    async fn every_list_uses_an_index_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("payferry.db").display());
        let database = Database::open(&url).await.unwrap();
        Migrator::up(database.long_timeout(), None).await.unwrap();
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
            let rows = page(wanted(backend, &filter), 50, 50).build(backend);
            let plan = plan_of(&database, rows).await;
            assert!(plan.iter().any(|step| step.contains(index)), "{filter:?}: {plan:?}");
            assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE")), "{filter:?} sorts: {plan:?}");
            // A count needs no order. Any index serves that avoids reading the rows.
            let plan = plan_of(&database, count(backend, wanted(backend, &filter))).await;
            assert!(plan.iter().any(|step| step.contains("COVERING INDEX")), "{filter:?}: {plan:?}");
        }
    }

    async fn plan_of(database: &Database, statement: Statement) -> Vec<String> {
        let explain = Statement { sql: format!("EXPLAIN QUERY PLAN {}", statement.sql), ..statement };
        let plan = database.reader().query_all_raw(explain).await.unwrap();
        plan.iter().map(|row| row.try_get("", "detail").unwrap()).collect()
    }

    /// A count stops just above the number that is shown.
    #[test]
    fn a_count_stops_at_its_limit() {
        let counted = count(DbBackend::Sqlite, wanted(DbBackend::Sqlite, &Filter::default())).to_string();
        assert!(counted.ends_with(&format!("LIMIT {}) counted", COUNTED_MAX + 1)), "{counted}");
    }
}
