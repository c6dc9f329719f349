//! API keys: the list, creation, rotation and revocation.

use axum::extract::{Path, Query};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::{KeyScope, Timestamp};
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::form::{FormValues, Sort};
use payferry_httpkit::pages::words::{Tone, ago, ago_or, badge, head, panel};
use serde::Deserialize;
use serde_json::json;

use crate::api::{At, segment, with_query};
use crate::page::{ChangeButton, NavSection, RefusedForm, cursor_pages, form_id, notice, secret, see_other};
use crate::session::{Session, ended};

/// Path of the page.
const PATH: &str = "/dashboard/keys";
/// Path in the API.
const API: &str = "/api/v1/keys";
/// Notices, by the word in the query.
const NOTICES: [(&str, &str); 1] = [("revoked", "The key is revoked. All nodes refuse it within a second.")];
/// Fields of a key, named as in the API.
const FIELDS: [(&str, Sort); 3] = [("name", Sort::Text), ("scopes", Sort::Boxes), EXPIRY];
const EXPIRY: (&str, Sort) = ("expires_days", Sort::Whole);
/// Label of the expiry.
const EXPIRY_LABEL: &str = "Days until it expires, or never";
/// Explanation of a new key.
const EXPLANATION: &str = "Only its keyed hash is stored, and it is not shown again.";
const DAY_MS: i64 = 86_400_000;

#[derive(Debug, Deserialize)]
struct Key {
    id: String,
    name: String,
    scopes: Vec<String>,
    state: String,
    is_current: bool,
    expires_at: Option<At>,
    revoked_at: Option<At>,
    last_used_at: Option<At>,
    created_at: At,
}

#[derive(Debug, Deserialize)]
struct KeyList {
    total: u64,
    next_cursor: Option<String>,
    keys: Vec<Key>,
}

/// A created key. No `Debug`, because it holds the key.
#[derive(Deserialize)]
struct Created {
    api_key: String,
}

/// Query of the page: the result of the last form, and the cursor.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeysQuery {
    done: Option<String>,
    cursor: String,
}

/// `/dashboard/keys`.
pub(crate) async fn show(session: Session, Query(shown): Query<KeysQuery>) -> Response {
    let said = notice(shown.done.as_deref(), &NOTICES);
    session.answer(page(&session, StatusCode::OK, &said, &shown.cursor, &FormValues::default()).await)
}

/// Creates a key, and shows it once.
pub(crate) async fn create(session: Session, form: FormValues) -> Response {
    let created = async {
        match session.submit::<Created>(&form, Method::POST, API, form.json(&FIELDS)).await? {
            Ok(Created { api_key }) => {
                let said = secret("Key created. Copy it now.", EXPLANATION, &api_key);
                page(&session, StatusCode::CREATED, &said, "", &FormValues::default()).await
            }
            Err(RefusedForm { status, said, form, .. }) => page(&session, status, &said, "", &form).await,
        }
    };
    session.answer(created.await)
}

/// Replaces a key, and shows the new one once.
pub(crate) async fn rotate(session: Session, Path(id): Path<String>, form: FormValues) -> Response {
    let rotated = async {
        let path = format!("{API}/{}/rotate", segment(&id, "key")?);
        match session.submit::<Created>(&form, Method::POST, &path, form.json(&[EXPIRY])).await? {
            Ok(Created { api_key }) => {
                let said = secret("Key rotated. Copy the new key now.", EXPLANATION, &api_key);
                page(&session, StatusCode::CREATED, &said, "", &FormValues::default()).await
            }
            Err(refused) => Ok(session.not_changed(&refused, NavSection::Keys, PATH)),
        }
    };
    session.answer(rotated.await)
}

/// Revokes a key. The revocation of the session's own key ends the session.
pub(crate) async fn revoke(session: Session, Path(id): Path<String>, form: FormValues) -> Response {
    let revoked = async {
        let path = format!("{API}/{}/revoke", segment(&id, "key")?);
        Ok(match session.submit::<Key>(&form, Method::POST, &path, json!({})).await? {
            Ok(key) if key.is_current => ended(),
            Ok(_) => see_other(&format!("{PATH}?done=revoked")),
            Err(refused) => session.not_changed(&refused, NavSection::Keys, PATH),
        })
    };
    session.answer(revoked.await)
}

async fn page(
    session: &Session,
    status: StatusCode,
    said: &Markup,
    cursor: &str,
    form: &FormValues,
) -> Result<Response, ApiError> {
    let list: KeyList = session.api.get(&with_query(API, [("cursor", cursor)])).await?;
    let body = html! {
        div.title { h1 { "API keys" } p { "Keys of your programs and of this dashboard." } }
        (said)
        div.grid.two {
            (keys_panel(&list, cursor, session.real_now()))
            (new_panel(form))
        }
    };
    Ok(session.page(status, "API keys", NavSection::Keys, &body))
}

fn keys_panel(list: &KeyList, cursor: &str, now: Timestamp) -> Markup {
    let next = list.next_cursor.as_deref().map(|next| with_query(PATH, [("cursor", next)]));
    let body = html! {
        table {
            (head(&[("", "Key"), ("", "State"), ("wide", "Scopes"), ("n wide", "Last used"), ("n wide", "Ends"), ("", "Change")]))
            tbody { @for key in &list.keys { (row(key, now)) } }
        }
        (cursor_pages("keys", (!cursor.is_empty()).then_some(PATH), next.as_deref()))
    };
    panel("keys", "Keys", &list.total.to_string(), &body)
}

fn row(key: &Key, now: Timestamp) -> Markup {
    let is_active = key.state == "active";
    let ends = key.revoked_at.or(key.expires_at).map(|at| at.0);
    html! {
        tr id=(key.id) {
            th scope="row" {
                @if key.name.is_empty() { span.soft { "unnamed" } } @else { (key.name) }
                @if key.is_current { " " (badge("this session", Tone::Idle)) }
                br; small.mono { (key.id) }
                br; small { "created " (ago(key.created_at, now)) }
            }
            td { (badge(&key.state, if is_active { Tone::Good } else { Tone::Idle })) }
            td.wide { (key.scopes.join(", ")) }
            td.n.wide { (ago_or(key.last_used_at.map(|at| at.0), now, "never")) }
            td.n.wide { (ago_or(ends, now, "never")) }
            td { @if is_active { div.actions { (rotate_button(key)) (revoke_button(key)) } } }
        }
    }
}

fn rotate_button(key: &Key) -> Markup {
    let lifetime = key.expires_at.map(|at| at.0.millis_since(key.created_at.0).div_euclid(DAY_MS).max(1));
    let expiry = lifetime.map_or_else(|| "never".to_owned(), |days| days.to_string());
    let form = FormValues::with([(EXPIRY.0, expiry)]);
    html! {
        (ChangeButton {
            label: "Rotate", subject: &key.id, action: &format!("{PATH}/{}/rotate", key.id),
            fields: form.line(EXPIRY.0, EXPIRY_LABEL, "90", true),
            statement: "For 24 hours, the old and the new key are both accepted",
        })
    }
}

fn revoke_button(key: &Key) -> Markup {
    let statement =
        if key.is_current { "This session uses the key and ends" } else { "No program uses this key any more" };
    html! {
        (ChangeButton {
            label: "Revoke", subject: &key.id, action: &format!("{PATH}/{}/revoke", key.id), fields: html! {}, statement,
        })
    }
}

fn new_panel(form: &FormValues) -> Markup {
    let body = html! {
        div.body {
            form.stack #new-key method="post" action=(PATH) {
                (form_id(form))
                div.pair {
                    (form.line("name", "Name (optional)", "checkout", false))
                    (form.line(EXPIRY.0, EXPIRY_LABEL, "90", true))
                }
                (form.ticks("scopes", "Scopes", &KeyScope::ALL.map(KeyScope::as_str)))
                (form.confirm("The key goes to a program that needs these scopes"))
                div { button { "Create key" } }
            }
        }
    };
    panel("new", "Create a key", "it is shown once", &body)
}
