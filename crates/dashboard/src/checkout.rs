//! Settings of the payer's page: name, colour, link back and logo. They are panels of the page of settings.

use axum::extract::Multipart;
use axum::extract::multipart::MultipartError;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::form::FormValues;
use payferry_httpkit::pages::words::panel;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{ChangeBody, Done};
use crate::page::{ChangeButton, NavSection, RefusedForm, form_id, see_other};
use crate::session::Session;
use crate::settings::{API, PATH, Refused, page};

/// Path of the logo in the API.
const LOGO: &str = "/api/v1/settings/logo";
/// Maximum size of the form with the logo. A larger image is refused by the API, with its own limit.
pub(crate) const FORM_BYTES_MAX: usize = 1024 * 1024;
/// The field with the file, as in the API's errors.
const FILE: &str = "logo";
/// Fields of the form, named as in the API's errors.
const FIELDS: [(&str, &str, &str); 3] = [
    ("name", "Name, instead of the merchant's", "the merchant's"),
    ("color", "Colour", "#0b6e75"),
    ("return_url", "Return URL", "https://shop.example/orders/{payment_id}"),
];

/// Appearance of the payer's page.
#[derive(Debug, Deserialize)]
pub(crate) struct Checkout {
    name: Option<String>,
    color: Option<String>,
    return_url: Option<String>,
    logo_url: Option<String>,
}

/// Name of a field in the form.
fn field(name: &str) -> String {
    format!("checkout.{name}")
}

/// Changes name, colour and link.
pub(crate) async fn change(session: Session, form: FormValues) -> Response {
    let changed = async {
        match session.submit::<Done>(&form, Method::PATCH, API, body_of(&form)).await? {
            Ok(_) => Ok(see_other(&format!("{PATH}?done=checkout"))),
            Err(RefusedForm { status, said, form, .. }) => {
                page(&session, status, &said, Refused { checkout: Some(form), ..Refused::default() }).await
            }
        }
    };
    session.answer(changed.await)
}

/// The request of the form. An empty field removes its value.
fn body_of(form: &FormValues) -> Value {
    let fields = FIELDS.map(|(name, ..)| (name.to_owned(), form.value(&field(name)).trim().into()));
    json!({ "checkout": serde_json::Map::from_iter(fields) })
}

/// Uploads a logo.
pub(crate) async fn upload(session: Session, parts: Multipart) -> Response {
    let uploaded = async {
        let (form, content) = read(parts).await?;
        match session.submit::<Done>(&form, Method::PUT, LOGO, ChangeBody::File(content)).await? {
            Ok(_) => Ok(see_other(&format!("{PATH}?done=checkout"))),
            Err(RefusedForm { status, said, form, .. }) => {
                page(&session, status, &said, Refused { logo: Some(form), ..Refused::default() }).await
            }
        }
    };
    session.answer(uploaded.await)
}

/// Fields of the form, and the content of its file.
async fn read(mut parts: Multipart) -> Result<(FormValues, Vec<u8>), ApiError> {
    let (mut values, mut content) = (Vec::new(), Vec::new());
    while let Some(part) = parts.next_field().await.map_err(|error| unreadable(&error))? {
        let name = part.name().unwrap_or_default().to_owned();
        let bytes = part.bytes().await.map_err(|error| unreadable(&error))?.to_vec();
        if name == FILE {
            content = bytes;
        } else {
            values.push((name, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok((FormValues::with(values), content))
}

fn unreadable(error: &MultipartError) -> ApiError {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return ApiError::TooLarge(FORM_BYTES_MAX);
    }
    ApiError::MalformedMultipart("it ended early, or is not a form of this page")
}

/// Deletes the logo.
pub(crate) async fn delete(session: Session, form: FormValues) -> Response {
    let deleted = async {
        Ok(match session.submit::<Done>(&form, Method::DELETE, LOGO, json!({})).await? {
            Ok(_) => see_other(&format!("{PATH}?done=checkout")),
            Err(refused) => session.not_changed(&refused, NavSection::Settings, PATH),
        })
    };
    session.answer(deleted.await)
}

/// The forms. `refused` are the forms that were refused.
pub(crate) fn form_panel(checkout: &Checkout, refused: Option<FormValues>, refused_logo: Option<FormValues>) -> Markup {
    let form = refused.unwrap_or_else(|| {
        let values = [("name", &checkout.name), ("color", &checkout.color), ("return_url", &checkout.return_url)];
        FormValues::with(values.map(|(name, value)| (field(name), value.clone().unwrap_or_default())))
    });
    let logo = refused_logo.unwrap_or_default();
    let body = html! {
        div.body {
            form.stack #checkout method="post" action={ (PATH) "/checkout" } {
                (form_id(&form))
                @for (name, label, hint) in FIELDS { (form.line(&field(name), label, hint, false)) }
                small { "An empty field removes its value. The payment's id replaces " code { "{payment_id}" } "." }
                (form.confirm("Show this to payers"))
                div { button { "Save" } }
            }
            form.stack #logo method="post" action={ (PATH) "/logo" } enctype="multipart/form-data" {
                (form_id(&logo))
                @if let Some(url) = &checkout.logo_url { (picture(url)) }
                label {
                    "Logo: PNG, JPEG or WebP"
                    input type="file" name=(FILE) accept="image/png,image/jpeg,image/webp" required;
                    (logo.wrong(FILE))
                }
                (logo.confirm("Show this logo to payers"))
                div { button { "Upload" } }
            }
            @if checkout.logo_url.is_some() {
                (ChangeButton {
                    label: "Delete", subject: "the logo", action: &format!("{PATH}/logo/delete"), fields: html! {},
                    statement: "Payers see no logo",
                })
            }
        }
    };
    panel("appearance", "Payer's page", "", &body)
}

/// The appearance, for a key that cannot change it.
pub(crate) fn facts(checkout: &Checkout) -> Markup {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".to_owned());
    let body = html! {
        dl.facts {
            dt { "Name" } dd { @if let Some(name) = &checkout.name { (name) } @else { "the merchant's" } }
            dt { "Colour" } dd { (value(&checkout.color)) }
            dt { "Return URL" } dd { (value(&checkout.return_url)) }
            dt { "Logo" } dd { @if let Some(url) = &checkout.logo_url { (picture(url)) } @else { "–" } }
        }
    };
    panel("appearance", "Payer's page", "", &body)
}

/// The logo. Its path is that of this site, whatever host the browser uses.
fn picture(url: &str) -> Markup {
    let hash = url.rsplit('/').next().unwrap_or_default();
    html! { img.logo src={ "/checkout/logos/" (hash) } alt="The logo"; }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_remove_their_values() {
        let fields = [("checkout.name", " Ferry Shop "), ("checkout.color", ""), ("other", "x")];
        let form = FormValues::with(fields.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(body_of(&form), json!({ "checkout": { "name": "Ferry Shop", "color": "", "return_url": "" } }));
    }
}
