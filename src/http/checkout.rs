//! The part of the settings about the payer's page: its fields, `PUT` and `DELETE /api/v1/settings/logo`, and
//! `GET /checkout/logos/{hash}`, which serves the logo to payers.
//!
//! `payferry_journal::psps` defines the values, `payferry_accounts::logos` verifies and stores logos.
#![allow(clippy::option_option, reason = "of a value to change, its removal, or no change")]

use std::str::FromStr;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use payferry_accounts::logos::{self, LOGO_BYTES_MAX, LOGO_PIXELS_MAX, Logo};
use payferry_accounts::tenants::{self, CheckoutChange, PolicyChange};
use payferry_domain::{KeyId, PspId};
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::optional;
use payferry_httpkit::extract::read_body;
use payferry_httpkit::extract::rule::string;
use payferry_httpkit::{Answer, ApiError, Caller, Fault, Full, HttpState as _, Path, Problem, Rule, read, request};
use payferry_journal::audit::Actor;
use payferry_journal::psps::{Checkout, Color, ReturnUrl};
use payferry_operator::tenant_failure;
use serde_json::Value;
use utoipa::openapi::schema::{KnownFormat, SchemaFormat};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::settings::SettingsAnswer;
use super::state::{AppShared, AppState};

/// Maximum length of the name, in characters.
pub const NAME_CHARS_MAX: usize = 80;
/// Maximum length of the return URL, in characters.
pub const RETURN_URL_CHARS_MAX: usize = 255;
/// Path of the logos. Payers' pages link to it.
pub const LOGOS: &str = "/checkout/logos";
/// Characters of a hash.
const HASH_CHARS: usize = 64;
/// A logo never changes under its hash, so browsers keep it for a year.
const KEEP_LOGO: &str = "public, max-age=31536000, immutable";

request! {
    /// Appearance of the payer's page: the values to change; the others stay. An empty text removes a value.
    pub struct CheckoutRequest refusing(unknown) {
        /// Name above the payment, instead of the merchant's.
        name: Option<Option<String>> = optional(NAME).example("Ferry Shop"),
        /// Colour of the name's background and of buttons. Text on it is black or white, whichever is easier to read.
        color: Option<Option<Color>> = optional(COLOR).example("#0b6e75"),
        /// Target of a link that the page shows once the payment is confirmed or over. `{payment_id}` is replaced.
        return_url: Option<Option<ReturnUrl>> = optional(RETURN_URL).example("https://shop.example/orders/{payment_id}"),
    }
}

/// The name.
const NAME: Rule<Option<String>> = Rule {
    read: |value| if value == "" { Ok(None) } else { read::short(value, NAME_CHARS_MAX).map(Some) },
    schema: || string().max_length(Some(NAME_CHARS_MAX)).pattern(Some(r"^[^\u0000-\u001f\u007f-\u009f]*$")),
};
/// The colour.
const COLOR: Rule<Option<Color>> =
    Rule { read: |value| parsed(value, "invalid_color"), schema: || string().pattern(Some("^(#[0-9a-fA-F]{6})?$")) };
/// The return URL.
const RETURN_URL: Rule<Option<ReturnUrl>> = Rule {
    read: |value| {
        if value != "" {
            read::short(value, RETURN_URL_CHARS_MAX)?;
        }
        parsed(value, "invalid_url")
    },
    schema: || string().max_length(Some(RETURN_URL_CHARS_MAX)).pattern(Some(r"^(https://[^\s\\]+)?$")),
};

/// Reads a value from a text. An empty text is none.
fn parsed<T: FromStr<Err: ToString>>(value: &Value, code: &'static str) -> Result<Option<T>, Fault> {
    let text = read::string(value)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error: T::Err| Fault::new(code, error.to_string()))
}

/// The fault of another field.
fn unknown(name: &str) -> Fault {
    if name == "logo" {
        return Fault::new("read_only", "is set with `PUT /api/v1/settings/logo`");
    }
    Fault::new("unknown_field", "is not a known setting; known settings are name, color, return_url")
}

impl CheckoutRequest {
    /// The change.
    pub fn change(self) -> CheckoutChange {
        CheckoutChange { name: self.name, color: self.color, return_url: self.return_url, logo: None }
    }
}

record! {
    /// The appearance as stored, with the URL of the logo.
    pub fn of(app: &AppShared, checkout: &Checkout) {}

    /// Appearance of the payer's page. Null: not set.
    #[derive(Debug)]
    pub struct CheckoutRecord {
        /// Name above the payment, instead of the merchant's.
        #[schema(example = "Ferry Shop")]
        name: Option<String> = checkout.name.clone(),
        /// Colour of the name's background and of buttons.
        #[schema(example = "#0b6e75")]
        color: Option<String> = checkout.color.map(|color| color.to_string()),
        /// Target of a link that the page shows once the payment is confirmed or over.
        #[schema(example = "https://shop.example/orders/{payment_id}")]
        return_url: Option<String> = checkout.return_url.as_ref().map(ToString::to_string),
        /// URL of the logo. Anyone can read it.
        logo_url: Option<String> = checkout.logo.as_ref().map(|hash| app.url(&format!("{LOGOS}/{hash}"))),
    }
}

/// A PNG, JPEG or WebP image.
pub struct LogoImage;

impl PartialSchema for LogoImage {
    fn schema() -> RefOr<Schema> {
        let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
        let about = format!(
            "PNG, JPEG or WebP, at most {} KiB, {LOGO_PIXELS_MAX} pixels wide and high.",
            LOGO_BYTES_MAX / 1024
        );
        string().format(Some(binary)).description(Some(about)).build().into()
    }
}

impl ToSchema for LogoImage {}

/// Upload the logo
///
/// The body is the image: PNG, JPEG or WebP, detected from the content, at most 128 KiB and 2,048 pixels wide and high. It
/// replaces the previous logo. Requires a key with full scope.
#[utoipa::path(
    put, path = "/api/v1/settings/logo", tag = "Settings", operation_id = "uploadLogo",
    request_body(content = inline(LogoImage), content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "All settings after the change.", body = SettingsAnswer),
        (status = 408, description = "The body did not arrive in time. The request was not carried out.", body = Problem),
        (status = 413, description = "The image is larger than 128 KiB.", body = Problem),
        (status = 422, description = "The image has another format, has too many pixels, or is damaged.", body = Problem),
    ),
)]
pub async fn upload(State(app): State<AppState>, caller: Caller<Full>, body: Body) -> Result<Answer, ApiError> {
    let content = read_body(body, LOGO_BYTES_MAX).await?;
    let read = tokio::task::spawn_blocking(move || Logo::read(content)).await.map_err(ApiError::internal)?;
    let logo = read.map_err(|error| ApiError::field("logo", "invalid_image", error.to_string()))?;
    replace(&app, caller.psp_id, caller.key_id, Some(&logo)).await
}

/// Delete the logo
///
/// Changes nothing if there is none. Requires a key with full scope.
#[utoipa::path(
    delete, path = "/api/v1/settings/logo", tag = "Settings", operation_id = "deleteLogo",
    responses((status = 200, description = "All settings after the change.", body = SettingsAnswer)),
)]
pub async fn delete(State(app): State<AppState>, caller: Caller<Full>) -> Result<Answer, ApiError> {
    replace(&app, caller.psp_id, caller.key_id, None).await
}

async fn replace(app: &AppState, psp_id: PspId, key_id: KeyId, logo: Option<&Logo>) -> Result<Answer, ApiError> {
    let now = app.clock().real_now();
    let checkout = CheckoutChange { logo: Some(logo.map(|logo| logo.hash.clone())), ..CheckoutChange::default() };
    let change = PolicyChange { checkout, ..PolicyChange::default() };
    let transaction = app.database().begin().await?;
    let changed = tenants::change_psp_in(&transaction, psp_id, None, change, &Actor::ApiKey(key_id), now).await;
    let (psp, is_changed) = changed.map_err(tenant_failure)?;
    match logo {
        Some(logo) => logo.store(&transaction, psp_id, now).await?,
        None => logos::delete(&transaction, psp_id).await?,
    }
    let answer = Answer::ok(&SettingsAnswer::read(app, &psp, SettingsAnswer::message(is_changed)).await?)?;
    transaction.commit().await?;
    app.system.psps().forget(psp_id).await;
    Ok(answer)
}

/// `GET /checkout/logos/{hash}`: a logo. Only a logo that is not in memory counts against the limit of the address.
pub(super) async fn serve(
    State(app): State<AppState>,
    Path(hash): Path<String>,
    parts: Parts,
) -> Result<Response, ApiError> {
    let logo = if let Some(logo) = app.logos.get(&hash) {
        logo
    } else {
        app.limiters().page(&parts)?;
        let is_hash = hash.len() == HASH_CHARS && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let found = if is_hash { Logo::find(app.database(), &hash).await? } else { None };
        let logo = found.ok_or(ApiError::NotFound("logo"))?;
        app.logos.insert(hash, logo.clone());
        logo
    };
    let headers = [
        (CONTENT_TYPE, logo.media_type.as_str()),
        (CACHE_CONTROL, KEEP_LOGO),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    Ok((headers, logo.content).into_response())
}
