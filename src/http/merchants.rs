//! Merchants: `POST /merchants/sync`, which creates and updates merchants in one transaction, `GET /merchants` and
//! `GET /merchants/{merchant_id}`. Handlers read and write rows, without an actor.

use std::collections::{BTreeMap, HashSet};

use axum::extract::State;
use axum::response::Response;
use payferry_domain::{MerchantId, PspId, Timestamp};
use payferry_entities::Transaction;
use payferry_entities::merchants::{Column, Entity};
use payferry_httpkit::extract::field::required;
use payferry_httpkit::extract::{Field as _, RequestBody as _};
use payferry_httpkit::lists::{DateTime, Found, Page, PageParams, read_page};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{
    Answer, ApiError, Fault, FieldError, Fields, Path, Payments, Problem, Read, Rule, Submission, field, query, read,
    request, rule,
};
use sea_orm::sea_query::SimpleExpr;
use sea_orm::{
    ColumnTrait, Condition, DbBackend, DbErr, DerivePartialModel, EntityTrait, FromQueryResult, QueryFilter,
    QuerySelect, Statement,
};
use serde::Serialize;
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;
use utoipa::ToSchema;

use super::state::{AppState, ListOf, OneOf};

/// Maximum number of merchants in a request.
pub const MERCHANTS_MAX: usize = 1_000;
/// Maximum size of the body in bytes.
pub const BODY_BYTES_MAX: usize = 5 * 1024 * 1024;

request! {
    /// Merchants to create or update.
    pub struct SyncRequest {
        /// 1 to 1,000 merchants.
        merchants: Vec<SyncItem> = field::list::<_, MERCHANTS_MAX>(),
    }
}

request! {
    /// One merchant to create or update.
    pub struct SyncItem {
        /// The PSP's own reference: a new one creates a merchant, a known one updates it. It is stored without spaces around
        /// it and in Unicode's normal form C, unless a merchant with the submitted spelling exists.
        external_id: ExternalId = required(EXTERNAL_ID).example("shop-17"),
        /// Business name.
        name: String = required(rule::text()).example("Harbour Books"),
        /// Contact.
        email: String = required(rule::email()).example("books@harbour.example"),
        /// Legal or tax registration; cannot change once submitted.
        business_id: String = required(rule::text()).example("DE123456789"),
    }
}

/// The rule of an `external_id`.
const EXTERNAL_ID: Rule<ExternalId> = Rule { read: ExternalId::read, schema: || (rule::text().schema)() };

/// A merchant as stored.
#[derive(Serialize)]
struct MerchantRow {
    external_id: String,
    name: String,
    email: String,
    business_id: String,
}

/// Result of a sync.
#[derive(Serialize, ToSchema)]
pub struct SyncAnswer {
    /// Number of created merchants.
    created: usize,
    /// Number of merchants that existed before, changed or not.
    updated: usize,
    /// In the order of the request.
    merchants: Vec<Synced>,
}

/// A merchant's id for an external id.
#[derive(Serialize, ToSchema)]
struct Synced {
    external_id: String,
    #[schema(example = "merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    id: String,
    /// The same as `id`.
    merchant_id: String,
}

/// Create and update merchants
///
/// An upsert by `external_id`: all items or none are written. It may be repeated. A `business_id` cannot change once
/// submitted.
#[utoipa::path(
    post, path = "/merchants/sync", tag = "Merchants", operation_id = "syncMerchants", request_body = SyncRequest,
    responses(
        (status = 200, description = "Created and updated.", body = SyncAnswer),
        (status = 409, description = "`business_id_immutable`: every such item is named.", body = Problem),
        (status = 422, description = "Every invalid field is named, and nothing was written.", body = Problem),
    ),
)]
pub async fn sync(
    State(app): State<AppState>,
    request: Submission<Payments, BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let items = request.read(|body| {
        let items = SyncRequest::read(body);
        refuse_duplicates(body);
        items
    })?;
    let transaction = app.database().begin().await?;
    let items = resolve_spellings(&transaction, request.psp_id, items.merchants).await?;
    let ids = upsert(&transaction, request.psp_id, &items, app.clock().now()).await?;
    let immutable = items.iter().enumerate().filter(|(_, item)| !ids.contains_key(&item.external_id));
    let changed = |field| FieldError::new(field, "business_id_immutable", "cannot change once submitted");
    let errors: Vec<_> = immutable.map(|(index, _)| changed(format!("merchants[{index}].business_id"))).collect();
    if !errors.is_empty() {
        transaction.rollback().await?;
        let detail = "A business_id cannot change once submitted; nothing was written.".to_owned();
        return Err(ApiError::Conflict("business_id_immutable", detail, errors));
    }
    let created = ids.values().filter(|(_, is_new)| *is_new).count();
    let merchants = items.into_iter().filter_map(|item| {
        let id = ids.get(&item.external_id)?.0.clone();
        Some(Synced { external_id: item.external_id, merchant_id: id.clone(), id })
    });
    let answer = Answer::ok(&SyncAnswer { created, updated: ids.len() - created, merchants: merchants.collect() })?;
    request.idempotency.commit(transaction, answer).await
}

/// An `external_id` as submitted and in the spelling that new merchants get.
struct ExternalId {
    submitted: String,
    normal: String,
}

impl ExternalId {
    fn read(value: &Value) -> Result<Self, Fault> {
        let submitted = read::text(value)?;
        let normal = submitted.trim().nfc().collect::<String>();
        // The normal form can be longer.
        read::text(&normal.as_str().into()).map(|normal| Self { submitted, normal })
    }

    /// Finds the merchants with one of the two spellings.
    fn filter(self) -> SimpleExpr {
        Column::ExternalId.is_in([self.submitted, self.normal])
    }
}

/// Gives each item the `external_id` that is stored for it: the submitted spelling if a merchant has it, because earlier
/// versions stored any, else the normal one.
async fn resolve_spellings(
    transaction: &Transaction,
    psp_id: PspId,
    items: Vec<SyncItem>,
) -> Result<Vec<MerchantRow>, DbErr> {
    let unusual = items
        .iter()
        .map(|item| &item.external_id)
        .filter(|id| id.submitted != id.normal)
        .map(|id| id.submitted.as_str());
    let unusual: Vec<&str> = unusual.collect();
    let stored: HashSet<String> = if unusual.is_empty() {
        HashSet::new()
    } else {
        let ours = Entity::find().select_only().column(Column::ExternalId).filter(Column::PspId.eq(psp_id.to_string()));
        let rows: Vec<String> = ours.filter(Column::ExternalId.is_in(unusual)).into_tuple().all(transaction).await?;
        rows.into_iter().collect()
    };
    let resolved = items.into_iter().map(|SyncItem { external_id: id, name, email, business_id }| {
        let external_id = if stored.contains(&id.submitted) { id.submitted } else { id.normal };
        MerchantRow { external_id, name, email, business_id }
    });
    Ok(resolved.collect())
}

/// Refuses a merchant that occurs twice.
fn refuse_duplicates(body: &Fields<'_>) {
    let mut seen = HashSet::new();
    for (index, item) in body.items("merchants").iter().enumerate() {
        let id = item.get("external_id").and_then(|id| ExternalId::read(id).ok());
        if id.is_some_and(|id| !seen.insert(id.normal)) {
            let name = format!("merchants[{index}].external_id");
            body.fault(&name, Fault::new("duplicate", "occurs twice in this batch"));
        }
    }
}

/// Writes the merchants. Returns the id of each by its `external_id`, and true if it is new. A merchant is missing from
/// the result if it has another `business_id`.
///
/// One statement in the order of the keys, so that concurrent batches cannot deadlock.
async fn upsert(
    transaction: &Transaction,
    psp_id: PspId,
    items: &[MerchantRow],
    now: Timestamp,
) -> Result<BTreeMap<String, (String, bool)>, DbErr> {
    #[derive(Serialize)]
    struct Row<'a> {
        id: String,
        #[serde(flatten)]
        item: &'a MerchantRow,
    }
    #[derive(FromQueryResult)]
    struct Written {
        id: String,
        external_id: String,
    }
    let mut rows: Vec<_> = items.iter().map(|item| Row { id: MerchantId::generate().to_string(), item }).collect();
    rows.sort_by(|a, b| a.item.external_id.cmp(&b.item.external_id));
    let list = serde_json::to_string(&rows).map_err(|error| DbErr::Json(error.to_string()))?;
    let backend = sea_orm::ConnectionTrait::get_database_backend(transaction);
    let source = match backend {
        DbBackend::Postgres => {
            "SELECT id, $2, external_id, name, email, business_id, $3::bigint, $3::bigint FROM \
             jsonb_to_recordset($1::jsonb) AS item(id text, external_id text, name text, email text, business_id text)"
        }
        _ => {
            "SELECT value ->> 'id', $2, value ->> 'external_id', value ->> 'name', value ->> 'email', \
             value ->> 'business_id', $3, $3 FROM json_each($1)"
        }
    };
    let sql = format!(
        "INSERT INTO merchants (id, psp_id, external_id, name, email, business_id, created_at, updated_at) {source} \
         WHERE true ON CONFLICT (psp_id, external_id) DO UPDATE SET name = excluded.name, email = excluded.email, \
         updated_at = CASE WHEN merchants.name = excluded.name AND merchants.email = excluded.email \
         THEN merchants.updated_at ELSE excluded.updated_at END \
         WHERE merchants.business_id = excluded.business_id RETURNING id, external_id"
    );
    let values = [list.into(), psp_id.to_string().into(), now.as_millis().into()];
    let statement = Statement::from_sql_and_values(backend, sql, values);
    let written = Written::find_by_statement(statement).all(transaction).await?;
    let ours: HashSet<_> = rows.into_iter().map(|row| row.id).collect();
    Ok(written.into_iter().map(|row| (row.external_id, (row.id.clone(), ours.contains(&row.id)))).collect())
}

/// A merchant.
#[derive(Debug, Serialize, ToSchema, DerivePartialModel)]
#[sea_orm(entity = "Entity")]
pub struct Merchant {
    /// Permanent id, assigned by the service.
    #[schema(example = "merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    pub id: String,
    /// The same as `id`.
    #[sea_orm(from_col = "id")]
    pub merchant_id: String,
    /// The PSP's own reference, unique per PSP.
    pub external_id: String,
    /// Business name.
    pub name: String,
    /// Contact email address.
    pub email: String,
    /// Legal or tax registration; cannot change.
    pub business_id: String,
    /// ISO 8601.
    pub created_at: DateTime,
    /// ISO 8601.
    pub updated_at: DateTime,
}

query! {
    /// Filters of the list.
    pub struct MerchantFilters {
        /// The merchant with this reference.
        external_id: ExternalId = EXTERNAL_ID,
    }
}

/// A page of merchants.
#[derive(Serialize, ToSchema)]
pub struct MerchantList {
    message: &'static str,
    /// Number of merchants in the whole list.
    total: u64,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    merchants: Vec<Merchant>,
}

/// List merchants
///
/// Newest first.
#[utoipa::path(
    get, path = "/merchants", tag = "Merchants", operation_id = "listMerchants",
    params(MerchantFilters, PageParams),
    responses((status = 200, description = "A page of merchants.", body = MerchantList), UnreadableQuery),
)]
pub async fn list(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let wanted = Condition::all()
        .add(Column::PspId.eq(caller.psp_id.to_string()))
        .add_option(MerchantFilters::read(&mut query).external_id.map(ExternalId::filter));
    let page = Page::read("merchants", query)?;
    let (own, order) = (Entity::find().filter(wanted), [Column::CreatedAt, Column::Id]);
    let key = |merchant: &Merchant| (merchant.created_at.0, merchant.id.clone());
    let Found { total, rows: merchants, next_cursor } = read_page(app.database(), own, order, &page, key).await?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&MerchantList { message: "Merchants", total, limit, offset, next_cursor, merchants })
}

/// One merchant.
#[derive(Serialize, ToSchema)]
pub struct MerchantAnswer {
    message: &'static str,
    merchant: Merchant,
}

/// Read a merchant
///
/// The record is in `merchant`.
#[utoipa::path(
    get, path = "/merchants/{merchant_id}", tag = "Merchants", operation_id = "getMerchant",
    params(("merchant_id" = String, Path, description = "The id from `sync`.")),
    responses((status = 200, description = "The merchant.", body = MerchantAnswer)),
)]
pub async fn get(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(merchant_id)) = parts;
    let missing = || ApiError::NotFound("merchant");
    let merchant_id: MerchantId = merchant_id.parse().map_err(|_| missing())?;
    let merchant = Entity::find_by_id(merchant_id.to_string())
        .filter(Column::PspId.eq(caller.psp_id.to_string()))
        .into_partial_model()
        .one(app.database().reader())
        .await?
        .ok_or_else(missing)?;
    Answer::ok(&MerchantAnswer { message: "Merchant", merchant })
}
