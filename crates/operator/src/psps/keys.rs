//! `/ops/psps/{psp_id}/keys`: API keys of a PSP.

use axum::extract::Path as UrlPath;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_accounts::Moment;
use payferry_accounts::keys::ApiKey;
use payferry_accounts::tenants::{self, EXPIRES_DAYS_MAX, KeyOrder, KeyRecord, KeyState, NewKey, Slice, TenantError};
use payferry_domain::{KeyId, KeyScope, PspId, Timestamp};
use payferry_httpkit::{Answer, ApiError, Fault, Fields, JsonBody, Path, QueryFields};
use serde::Serialize;
use serde_json::Value;

use crate::Operator;
use crate::input::{id_of, name, only, tenant_failure};
use crate::page::form::{Filled, RefusedForm, Sort, names};
use crate::page::words::{Tone, ago_or, badge, grouped, offset_pages};
use crate::page::{Failure, Refused, id_of as page_id_of, path};
use crate::psps::page::{PspPage, find, policies_of};

/// Fields of a key that can be set, in the API and in the form.
const FIELDS: [(&str, Sort); 3] = [("name", Sort::Text), ("scopes", Sort::Boxes), ("expires_days", Sort::Whole)];

/// Value of `expires_days` for a key that does not expire.
const NEVER: &str = "never";

/// A key without its secret.
fn shown(key: KeyRecord, now: Timestamp) -> impl Serialize {
    let state = key.state(now);
    record! {
        id: key.id,
        key_id: key.id,
        psp_id: key.psp_id,
        name: key.name,
        scopes: key.scopes,
        state: state,
        created_at: Moment(key.created_at),
        updated_at: Moment(key.updated_at),
        expires_at: key.expires_at.map(Moment),
        revoked_at: key.revoked_at.map(Moment),
        last_used_at: key.last_used_at.map(Moment),
    }
}

/// Returns the keys of a PSP, oldest first.
pub(crate) async fn list(
    operator: Operator,
    Path(psp_id): Path<String>,
    mut query: QueryFields,
) -> Result<Answer, ApiError> {
    let psp_id = id_of("psp_id", &psp_id)?;
    let page = query.page();
    query.finish()?;
    let (system, slice) = (&operator.system, Slice { limit: page.limit, offset: page.offset });
    let (total, keys) = tenants::list_keys(system.database(), Some(psp_id), KeyOrder::OldestFirst, slice)
        .await
        .map_err(tenant_failure)?;
    let now = system.clock().real_now();
    let keys: Vec<_> = keys.into_iter().map(|key| shown(key, now)).collect();
    Answer::ok(&record! { total: total, keys: keys })
}

/// Creates a key and shows it once.
pub(crate) async fn create(operator: Operator, Path(psp_id): Path<String>, body: JsonBody) -> Result<Answer, ApiError> {
    let psp_id = id_of("psp_id", &psp_id)?;
    let (record, key) = make(&operator, psp_id, body.read(read_new)?).await.map_err(tenant_failure)?;
    let now = operator.system.clock().real_now();
    Answer::created(&record! {
        message: "The key is shown only once and stored as a keyed hash",
        api_key: key.expose().to_owned(),
        #[serde(flatten)]
        key: shown(record, now),
    })
}

/// Reads a new key. As on the command line, its scopes and its expiry have no default.
fn read_new(fields: &Fields<'_>) -> Option<NewKey> {
    only(fields, &names(&FIELDS));
    let name = fields.optional("name", name);
    let scopes = fields.required("scopes", scopes);
    let expires_days = fields.required("expires_days", expiry);
    Some(NewKey { name, scopes: scopes?, expires_days: expires_days? })
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
    let now = system.clock().real_now();
    let (record, key) =
        tenants::create_key(system.database(), system.sealer(), operator.config.key_mode, psp_id, new, now).await?;
    tracing::info!(psp.id = %psp_id, key.id = %record.id, "operator created key {} of {psp_id}", record.id);
    Ok((record, key))
}

/// Revokes a key. Idempotent.
pub(crate) async fn revoke(
    operator: Operator,
    Path((psp_id, key_id)): Path<(String, String)>,
) -> Result<Answer, ApiError> {
    let (psp_id, key_id): (PspId, KeyId) = (id_of("psp_id", &psp_id)?, id_of("key_id", &key_id)?);
    let key = refuse(&operator, psp_id, key_id).await.map_err(tenant_failure)?;
    Answer::ok(&shown(key, operator.system.clock().real_now()))
}

/// Revokes a key for the operator. Used by the API and the page.
pub(crate) async fn refuse(operator: &Operator, psp_id: PspId, key_id: KeyId) -> Result<KeyRecord, TenantError> {
    let system = &operator.system;
    let key = tenants::revoke_key(system.database(), Some(psp_id), key_id, system.clock().real_now()).await?;
    operator.config.revoked_keys.add(key_id);
    tracing::info!(psp.id = %psp_id, key.id = %key_id, "operator revoked key {key_id} of {psp_id}");
    Ok(key)
}

fn scopes(value: &Value) -> Result<Vec<KeyScope>, Fault> {
    let list = value.as_array().ok_or_else(|| Fault::new("wrong_type", "must be a list of strings"))?;
    if list.is_empty() {
        return Err(Fault::new("empty", "must not be empty"));
    }
    let unknown = |_| Fault::new("unknown_value", "must be some of read, payments, customers, money, webhooks, full");
    serde_json::from_value(value.clone()).map_err(unknown)
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
    let read = filled.read(&FIELDS, read_new);
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
) -> Result<Response, Refused> {
    let psp = find(&operator, &psp_id).await?;
    refuse(&operator, psp.id, page_id_of("key", &key_id)?).await?;
    Ok(Redirect::to(&format!("{}/{}?done=revoked", path("psps"), psp.id)).into_response())
}

impl Keys {
    /// Reads the page that starts at offset `from`.
    pub(super) async fn of(operator: &Operator, psp: PspId, from: u32, now: Timestamp) -> Result<Self, Failure> {
        let (slice, order) = (Slice { limit: KEYS_MAX, offset: from.into() }, KeyOrder::ActiveFirst(now));
        let (total, page) = tenants::list_keys(operator.system.database(), Some(psp), order, slice).await?;
        Ok(Self { page, from: slice.offset, total })
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
                    form.inline method="post" action={ (here) "/keys/" (key.id) "/revoke" } {
                        button.danger aria-label={ "Revoke " (key.id) } { "Revoke" }
                    }
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
            div { button { "Create key" } }
        }
    }
}
