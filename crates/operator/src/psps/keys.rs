//! `/ops/psps/{psp_id}/keys`: API keys of a PSP.

use axum::extract::Path as UrlPath;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use payferry_accounts::keys::ApiKey;
use payferry_accounts::tenants::{
    self, EXPIRES_DAYS_MAX, KeyMaker, KeyOrder, KeyRecord, KeyState, Name, NewKey, Slice, TenantError,
};
use payferry_domain::{KeyId, KeyScope, PspId, Timestamp};
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::{self, optional, required};
use payferry_httpkit::lists::{DateTime, Page, PageParams};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Fault, JsonBody, Path, QueryFields, RequestBody as _, Rule, request};
use payferry_journal::audit::Actor;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};

use crate::Operator;
use crate::input::{NAME, id_of, tenant_failure, unknown};
use crate::page::form::{ChangeButton, Filled, RefusedForm, Sort, answer_button};
use crate::page::words::{Tone, ago_or, badge, grouped, offset_pages};
use crate::page::{Failure, Refused, id_of as page_id_of, path};
use crate::psps::page::{PspPage, find, policies_of};

/// Fields of the form of a new key.
const FIELDS: [(&str, Sort); 3] = [("name", Sort::Text), ("scopes", Sort::Boxes), ("expires_days", Sort::Whole)];

/// Value of `expires_days` for a key that does not expire.
const NEVER: &str = "never";

/// Days until a key expires; `None`: never.
pub const EXPIRY: Rule<Option<u32>> = Rule {
    read: expiry,
    schema: || {
        let kinds = SchemaType::from_iter([Type::Integer, Type::String]);
        let either = ObjectBuilder::new().schema_type(kinds).pattern(Some(format!("^{NEVER}$")));
        either.minimum(Some(1)).maximum(Some(EXPIRES_DAYS_MAX))
    },
};

request! {
    /// An API key to create.
    pub struct CreateKeyRequest refusing(unknown::<CreateKeyRequest>) {
        /// The purpose of the key.
        name: Option<Name> = optional(NAME).example("checkout"),
        scopes: Vec<KeyScope> = field::names(),
        /// Days until it expires, or `never`.
        expires_days: Option<u32> = required(EXPIRY).example(90),
    }
}

record! {
    fn of(key: KeyRecord, now: Timestamp) {
        let state = key.state(now);
    }

    /// An API key without its secret.
    pub struct KeyView {
        #[schema(example = "key_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = key.id.to_string(),
        /// The same as `id`.
        key_id: String = key.id.to_string(),
        psp_id: String = key.psp_id.to_string(),
        name: String = key.name,
        /// read, payments, customers, money, webhooks or full.
        scopes: Vec<&'static str> = key.scopes.into_iter().map(KeyScope::as_str).collect(),
        /// active, expired or revoked.
        state: &'static str = state.as_str(),
        created_at: DateTime = key.created_at.into(),
        /// The revocation, the rotation, or the creation.
        updated_at: DateTime = key.updated_at.into(),
        expires_at: Option<DateTime> = key.expires_at.map(DateTime::from),
        revoked_at: Option<DateTime> = key.revoked_at.map(DateTime::from),
        /// With a resolution of a minute.
        last_used_at: Option<DateTime> = key.last_used_at.map(DateTime::from),
    }
}

/// A page of API keys.
#[derive(Serialize, ToSchema)]
pub struct KeyList {
    total: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Oldest first.
    keys: Vec<KeyView>,
}

/// List the API keys of a PSP
///
/// Oldest first.
#[utoipa::path(
    get, path = "/ops/psps/{psp_id}/keys", tag = "Administration", operation_id = "listKeys",
    params(("psp_id" = String, Path, description = "The id of the PSP."), PageParams),
    responses((status = 200, description = "A page of keys.", body = KeyList), UnreadableQuery),
)]
pub(crate) async fn list(
    operator: Operator,
    Path(psp_id): Path<String>,
    query: QueryFields,
) -> Result<Answer, ApiError> {
    let psp_id = id_of("psp_id", &psp_id)?;
    let page = Page::read("keys", query)?;
    let slice = Slice { limit: page.rows_max(), offset: page.offset, after: page.after.clone() };
    let system = &operator.system;
    let (total, mut keys) = tenants::list_keys(system.database(), Some(psp_id), KeyOrder::OldestFirst, slice)
        .await
        .map_err(tenant_failure)?;
    let next_cursor = page.next_cursor(&mut keys, |key| (key.created_at.as_millis(), key.id.to_string()))?;
    let now = system.clock().real_now();
    Answer::ok(&KeyList { total, next_cursor, keys: keys.into_iter().map(|key| KeyView::of(key, now)).collect() })
}

/// A created API key.
#[derive(Serialize, ToSchema)]
pub struct CreatedKey {
    message: &'static str,
    /// The key; shown only once.
    #[schema(example = "sk_test_...")]
    api_key: String,
    #[serde(flatten)]
    key: KeyView,
}

/// Create an API key
///
/// As on the command line, its scopes and its expiry have no default. There is no idempotency key: after a lost
/// response, check the list first.
#[utoipa::path(
    post, path = "/ops/psps/{psp_id}/keys", tag = "Administration", operation_id = "createKey",
    request_body = CreateKeyRequest, params(("psp_id" = String, Path, description = "The id of the PSP.")),
    responses((status = 201, description = "The key with its secret.", body = CreatedKey)),
)]
pub(crate) async fn create(operator: Operator, Path(psp_id): Path<String>, body: JsonBody) -> Result<Answer, ApiError> {
    let psp_id = id_of("psp_id", &psp_id)?;
    let (record, key) =
        make(&operator, psp_id, body.parse::<CreateKeyRequest>()?.into()).await.map_err(tenant_failure)?;
    let now = operator.system.clock().real_now();
    let message = "The key is shown only once and stored as a keyed hash";
    Answer::created(&CreatedKey { message, api_key: key.expose().to_owned(), key: KeyView::of(record, now) })
}

impl From<CreateKeyRequest> for NewKey {
    fn from(CreateKeyRequest { name, scopes, expires_days }: CreateKeyRequest) -> Self {
        Self { name, scopes, expires_days }
    }
}

/// Reads the days until a key expires; `None` if it never does.
fn expiry(value: &Value) -> Result<Option<u32>, Fault> {
    if value == NEVER {
        return Ok(None);
    }
    let days =
        value.as_i64().and_then(|days| u32::try_from(days).ok()).filter(|days| (1..=EXPIRES_DAYS_MAX).contains(days));
    let expected = || format!("must be a number of days between 1 and {EXPIRES_DAYS_MAX}, or \"{NEVER}\"");
    days.map(Some).ok_or_else(|| Fault::new("out_of_range", expected()))
}

/// Creates a key for the operator. Used by the API and the page.
pub(crate) async fn make(operator: &Operator, psp_id: PspId, new: NewKey) -> Result<(KeyRecord, ApiKey), TenantError> {
    let system = &operator.system;
    let (sealer, mode, now) = (system.sealer(), operator.config.key_mode, system.clock().real_now());
    let maker = KeyMaker { sealer, mode, by: &Actor::Operator, now };
    let (record, key) = tenants::create_key(system.database(), &maker, psp_id, new).await?;
    tracing::info!(psp.id = %psp_id, key.id = %record.id, "operator created key {} of {psp_id}", record.id);
    Ok((record, key))
}

/// Revoke an API key
///
/// Refused from now on, everywhere within a second. Can be repeated.
#[utoipa::path(
    post, path = "/ops/psps/{psp_id}/keys/{key_id}/revoke", tag = "Administration", operation_id = "revokeKey",
    params(
        ("psp_id" = String, Path, description = "The id of the PSP."),
        ("key_id" = String, Path, description = "The id of the key."),
    ),
    responses((status = 200, description = "The key.", body = KeyView)),
)]
pub(crate) async fn revoke(
    operator: Operator,
    Path((psp_id, key_id)): Path<(String, String)>,
) -> Result<Answer, ApiError> {
    let (psp_id, key_id): (PspId, KeyId) = (id_of("psp_id", &psp_id)?, id_of("key_id", &key_id)?);
    let key = refuse(&operator, psp_id, key_id).await.map_err(tenant_failure)?;
    Answer::ok(&KeyView::of(key, operator.system.clock().real_now()))
}

/// Revokes a key for the operator. Used by the API and the page.
pub(crate) async fn refuse(operator: &Operator, psp_id: PspId, key_id: KeyId) -> Result<KeyRecord, TenantError> {
    let system = &operator.system;
    let now = system.clock().real_now();
    let key = tenants::revoke_key(system.database(), Some(psp_id), key_id, &Actor::Operator, now).await?;
    operator.config.revoked_keys.add(key_id);
    tracing::info!(psp.id = %psp_id, key.id = %key_id, "operator revoked key {key_id} of {psp_id}");
    Ok(key)
}

const KEYS_MAX: u64 = 50;
const SCOPES: [&str; 6] = ["full", "read", "payments", "customers", "money", "webhooks"];

/// One page of a PSP's keys. Usable keys come first, because only these can be revoked.
pub(super) struct Keys {
    page: Vec<KeyRecord>,
    from: u64,
    total: u64,
}

/// Creates a key and shows it once.
pub(crate) async fn create_by_form(
    operator: Operator,
    UrlPath(psp_id): UrlPath<String>,
    filled: Filled,
) -> Result<Response, Refused> {
    let psp = find(&operator, &psp_id).await?;
    let read = filled.read(&FIELDS, CreateKeyRequest::read).map(NewKey::from);
    let (status, said, filled) = match filled.answered(read)? {
        Ok(new) => (StatusCode::CREATED, secret(&make(&operator, psp.id, new).await?.1), Filled::default()),
        Err(RefusedForm { status, said, filled }) => (status, said, filled),
    };
    let site = PspPage::of(&operator, &psp_id).await?;
    Ok(site.page(&said, &policies_of(&site.psp), &filled).answer_form(status))
}

/// Revokes a key. It is refused from then on.
pub(crate) async fn revoke_by_form(
    operator: Operator,
    UrlPath((psp_id, key_id)): UrlPath<(String, String)>,
    filled: Filled,
) -> Result<Response, Refused> {
    let psp = find(&operator, &psp_id).await?;
    let key_id: KeyId = page_id_of("key", &key_id)?;
    let change = async { refuse(&operator, psp.id, key_id).await.map(drop).map_err(tenant_failure) };
    answer_button(&filled, &format!("{}/{}?done=revoked", path("psps"), psp.id), change).await
}

impl Keys {
    /// Reads the page that starts at offset `from`.
    pub(super) async fn of(operator: &Operator, psp: PspId, from: u32, now: Timestamp) -> Result<Self, Failure> {
        let (from, order) = (from.into(), KeyOrder::ActiveFirst(now));
        let slice = Slice { limit: KEYS_MAX, offset: from, after: None };
        let (total, page) = tenants::list_keys(operator.system.database(), Some(psp), order, slice).await?;
        Ok(Self { page, from, total })
    }

    /// Keys, with a revoke button for each usable one.
    pub(super) fn panel(&self, here: &str, now: Timestamp) -> Markup {
        html! {
            section.panel #keys aria-labelledby="its-keys" {
                header { h2 #its-keys { "API keys" } p { (grouped(self.total)) } }
                @if self.total == 0 { p.none { "None. The PSP cannot call the API." } }
                @else if self.page.is_empty() { p.none { "No more keys." } }
                @else {
                    table {
                        thead {
                            tr {
                                th scope="col" { "Key" }
                                th scope="col" { "State" }
                                th.wide scope="col" { "Scopes" }
                                th.n.wide scope="col" { "Last used" }
                                th.n.wide scope="col" { "Expires" }
                                th scope="col" { span.soft { "Revoke" } }
                            }
                        }
                        tbody { @for one in &self.page { (row(here, one, now)) } }
                    }
                }
                (offset_pages("keys", self.from, KEYS_MAX, self.from + KEYS_MAX < self.total, |from| format!("{here}?keys={from}")))
            }
        }
    }
}

fn row(here: &str, key: &KeyRecord, now: Timestamp) -> Markup {
    let state = key.state(now);
    let tone = if state == KeyState::Active { Tone::Good } else { Tone::Idle };
    html! {
        tr id=(key.id) {
            th scope="row" { @if key.name.is_empty() { span.soft { "unnamed" } } @else { (key.name) } br; small.mono { (key.id) } }
            td { (badge(state.as_str(), tone)) }
            td.wide { (key.scopes.iter().filter_map(|scope| serde_json::to_value(scope).ok()?.as_str().map(str::to_owned)).collect::<Vec<_>>().join(", ")) }
            td.n.wide { (ago_or(key.last_used_at, now, "never")) }
            td.n.wide { (ago_or(key.revoked_at.or(key.expires_at), now, "never")) }
            td {
                @if state == KeyState::Active {
                    (ChangeButton {
                        label: "Revoke", subject: &key.id.to_string(), action: &format!("{here}/keys/{}/revoke", key.id), hidden: &[],
                        statement: "The PSP no longer uses this key",
                    })
                }
            }
        }
    }
}

fn secret(key: &ApiKey) -> Markup {
    html! {
        div.notice.good role="status" {
            strong { "Key created. " } "Copy it now: only a keyed hash is stored, and the key is not shown again."
            span.secret { (key.expose()) }
        }
    }
}

/// Form that creates a key.
pub(super) fn form(here: &str, filled: &Filled) -> Markup {
    html! {
        form.stack #new-key method="post" action={ (here) "/keys" } {
            div.pair {
                (filled.line("name", "Name", "purpose of the key", false))
                (filled.line("expires_days", "Days until it expires, or never", "90", true))
            }
            (filled.ticks("scopes", "Scopes", &SCOPES))
            (filled.sign("who asked for it", "The key goes to the PSP only"))
            div { button { "Create key" } }
        }
    }
}
