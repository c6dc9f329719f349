//! API keys of a PSP: a panel of its page, and the handlers of its forms.

use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_accounts::keys::ApiKey;
use payferry_accounts::tenants::{self, EXPIRES_DAYS_MAX, KeyOrder, KeyRecord, KeyState, Slice};
use payferry_domain::{KeyId, PspId, Timestamp};
use payferry_httpkit::extract::Fields;

use crate::Operator;
use crate::input::tenant_failure;
use crate::page::failure::{Failure, Refused};
use crate::page::form::{Filled, Sort, at};
use crate::page::path;
use crate::page::shell::Page;
use crate::page::words::{Tone, badge, grouped};
use crate::psps::keys;
use crate::psps::page::{Pairs, Site, find, policies_of};

/// Keys on one page.
const KEYS_MAX: u64 = 50;
const SCOPES: [&str; 6] = ["full", "read", "payments", "customers", "money", "webhooks"];
/// Fields of a key, named as in the API.
const FIELDS: [(&str, Sort); 3] = [("name", Sort::Text), ("scopes", Sort::Boxes), ("expires_days", Sort::Whole)];

/// One page of a PSP's keys. Usable keys come first, because only these can be revoked.
pub(super) struct Keys {
    page: Vec<KeyRecord>,
    from: u64,
    total: u64,
}

/// Creates a key and shows it once.
pub(crate) async fn create(
    State(operator): State<Operator>,
    Path(psp_id): Path<String>,
    Form(pairs): Pairs,
) -> Result<Response, Refused> {
    let psp = find(&operator, &psp_id).await?;
    let filled = Filled::sent(pairs);
    let body = filled.json(&FIELDS);
    match Fields::of_body(&body).and_then(|fields| fields.finish(Some(keys::read_new(&fields)))) {
        Ok(new) => {
            let (_, key) = keys::make(&operator, psp.id, new).await?;
            let site = Site::of(&operator, &psp_id).await?;
            let page = site.page(&secret(&key), &policies_of(&site.psp), &Filled::default());
            Ok(Page { status: StatusCode::CREATED, ..page }.into_response())
        }
        Err(error) => {
            let filled = filled.refused(error)?;
            let site = Site::of(&operator, &psp_id).await?;
            let page = site.page(&filled.summary(), &policies_of(&site.psp), &filled);
            Ok(Page { status: StatusCode::UNPROCESSABLE_ENTITY, ..page }.into_response())
        }
    }
}

/// Revokes a key. It is refused from then on.
pub(crate) async fn revoke(
    State(operator): State<Operator>,
    Path((psp_id, key_id)): Path<(String, String)>,
) -> Result<Response, Refused> {
    let psp = find(&operator, &psp_id).await?;
    let id: KeyId = key_id.parse().map_err(|_| Failure::not_found("key", key_id.clone()))?;
    keys::refuse(&operator, psp.id, id).await?;
    Ok(Redirect::to(&format!("{}/{}?done=revoked", path("psps"), psp.id)).into_response())
}

impl Keys {
    /// Reads the page that starts at offset `from`.
    pub(super) async fn of(operator: &Operator, psp: PspId, from: u32, now: Timestamp) -> Result<Self, Failure> {
        let (slice, order) = (Slice { limit: KEYS_MAX, offset: from.into() }, KeyOrder::ActiveFirst(now));
        let listed = tenants::list_keys(operator.system.database(), Some(psp), order, slice).await;
        let (total, page) = listed.map_err(tenant_failure)?;
        Ok(Self { page, from: slice.offset, total })
    }

    /// Keys, with a revoke button for each usable one.
    pub(super) fn panel(&self, here: &str, now: Timestamp) -> Markup {
        html! {
            section.panel #keys aria-labelledby="its-keys" {
                header { h2 #its-keys { "API keys" } p { (grouped(self.total.into())) } }
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
                (self.pages(here))
            }
        }
    }

    fn pages(&self, here: &str) -> Markup {
        let next = self.from + KEYS_MAX;
        html! {
            @if self.from > 0 || next < self.total {
                nav.pages aria-label="Pages of keys" {
                    @if self.from > 0 { a rel="prev" href={ (here) "?keys=" (self.from.saturating_sub(KEYS_MAX)) } { "Previous" } }
                    @if next < self.total { a rel="next" href={ (here) "?keys=" (next) } { "Next " (KEYS_MAX) } }
                }
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
            td.n.wide { (at(key.last_used_at, now, "never")) }
            td.n.wide { (at(key.revoked_at.or(key.expires_at), now, "never")) }
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
                (filled.whole("expires_days", "Days until it expires", "never", 1, EXPIRES_DAYS_MAX.into()))
            }
            (filled.ticks("scopes", "Scopes", &SCOPES))
            div { button { "Create key" } }
        }
    }
}
