//! Forms: converts form input into the fields that programs send, and shows each error next to its field.
//!
//! Every form makes a change, and needs a reason and a confirmation. The audit entries of the change contain the reason.

use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_httpkit::extract::read::TEXT_CHARS_MAX;
use payferry_httpkit::{ApiError, FieldError, Fields};
use payferry_runtime::request;
use serde_json::{Map, Value};

use crate::page::{Failure, NavSection, Page, Refused};

/// Check box that confirms a change. It must be ticked.
const CONFIRM: &str = "confirm";
/// Field with the reason for a change. It must be filled in.
const REASON: &str = "reason";

/// Values of a form, as sent or as shown first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filled {
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

/// Conversion of a form field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sort {
    /// The text. An optional field is left out when empty.
    Text,
    /// A whole number. Left out when empty.
    Whole,
    /// A check box: always sent, as true or false.
    Box,
    /// Several check boxes with the same name.
    Boxes,
}

/// Form that was not carried out, for its page.
pub(crate) struct RefusedForm {
    pub(crate) status: StatusCode,
    /// Reason, as a notice.
    pub(crate) said: Markup,
    /// The form as it was sent, with its errors.
    pub(crate) filled: Filled,
}

impl<S: Send + Sync> FromRequest<S> for Filled {
    type Rejection = FormRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, FormRejection> {
        let Form(pairs) = Form::from_request(request, state).await?;
        let filled = Self { pairs, errors: Vec::new() };
        let reason = filled.value(REASON).trim();
        if !reason.is_empty() {
            request::give_reason(reason);
        }
        Ok(filled)
    }
}

impl Filled {
    /// A form with initial values.
    pub(crate) fn with<const N: usize>(values: [(&str, String); N]) -> Self {
        Self { pairs: values.map(|(name, value)| (name.to_owned(), value)).into(), errors: Vec::new() }
    }

    /// Reads the form in the same way as the body of an API request. Every form also has a reason and a confirmation.
    pub(crate) fn read<T>(
        &self,
        fields: &[(&str, Sort)],
        read: impl FnOnce(&Fields<'_>) -> Option<T>,
    ) -> Result<T, ApiError> {
        let read = || {
            let body = self.json(fields);
            let fields = Fields::of_body(&body)?;
            let request = read(&fields);
            fields.finish(request)
        };
        let request = read();
        let mut errors = match &request {
            Err(ApiError::Validation(errors)) => errors.clone(),
            Err(_) => return request,
            Ok(_) => Vec::new(),
        };
        let mut missing = |field: &str, code: &'static str, message: &str| {
            if errors.iter().all(|error| error.field != field) {
                errors.push(FieldError { field: field.to_owned(), code: code.into(), message: message.to_owned() });
            }
        };
        let reason = self.value(REASON).trim();
        if reason.is_empty() {
            missing(REASON, "required", "is required");
        } else if reason.chars().count() > TEXT_CHARS_MAX {
            missing(REASON, "too_long", &format!("must have at most {TEXT_CHARS_MAX} characters"));
        }
        if self.value(CONFIRM).trim().is_empty() {
            missing(CONFIRM, "required", "must be ticked");
        }
        if errors.is_empty() { request } else { Err(ApiError::Validation(errors)) }
    }

    /// Reads a form with no other fields than the reason and the confirmation.
    pub(crate) fn signed(&self) -> Result<(), ApiError> {
        self.read(&[], |_| Some(()))
    }

    /// Fields as JSON. Text that is no number stays text, so that the reader of the field refuses it.
    pub(crate) fn json(&self, fields: &[(&str, Sort)]) -> Value {
        let read = |&(name, sort): &(&str, Sort)| {
            let text = self.value(name).trim();
            let value = match sort {
                Sort::Text | Sort::Whole if text.is_empty() => return None,
                Sort::Text => text.into(),
                Sort::Whole => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
                Sort::Box => (!text.is_empty()).into(),
                Sort::Boxes => self.values(name).collect(),
            };
            Some((name.to_owned(), value))
        };
        Value::Object(fields.iter().filter_map(read).collect::<Map<_, _>>())
    }

    /// The outcome of the form, or the form with the reason why it was not carried out. Returns an error unchanged that
    /// is no answer to the form.
    pub(crate) fn answered<T>(&self, outcome: Result<T, ApiError>) -> Result<Result<T, RefusedForm>, Failure> {
        let mut filled = self.clone();
        let said = |detail: &str| html! { div.notice.bad role="alert" { "Nothing was changed: " (detail) } };
        let (status, said) = match outcome {
            Ok(done) => return Ok(Ok(done)),
            Err(ApiError::Conflict(_, detail, _) | ApiError::Unprocessable(_, detail, _)) => {
                (StatusCode::CONFLICT, said(&detail))
            }
            Err(ApiError::NotFound(what)) => (StatusCode::NOT_FOUND, said(&format!("{what} not found."))),
            Err(ApiError::Validation(errors)) => {
                filled.errors = errors;
                (StatusCode::UNPROCESSABLE_ENTITY, filled.summary())
            }
            Err(other) => return Err(Failure::of_form(&other)),
        };
        Ok(Err(RefusedForm { status, said, filled }))
    }

    /// The text of a field; empty if it was not sent.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.pairs.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.pairs.iter().filter(move |(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    fn errors_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a FieldError> {
        // Errors of a list include the errors of its items.
        self.errors.iter().filter(move |error| error.field == name || error.field.starts_with(&format!("{name}[")))
    }

    /// Summary of all errors of the form.
    fn summary(&self) -> Markup {
        html! {
            div.notice.bad role="alert" {
                "Nothing was changed: "
                @for (index, error) in self.errors.iter().enumerate() {
                    @if index > 0 { "; " }
                    code { (error.field) } " " (error.message)
                }
                "."
            }
        }
    }

    pub(crate) fn line(&self, name: &str, label: &str, hint: &str, is_required: bool) -> Markup {
        let is_wrong = self.errors_of(name).next().is_some();
        html! {
            label {
                (label)
                input type="text" name=(name) value=(self.value(name)) placeholder=(hint) autocomplete="off" required[is_required]
                    aria-invalid=[is_wrong.then_some("true")];
                (self.wrong(name))
            }
        }
    }

    pub(crate) fn whole(&self, name: &str, label: &str, hint: &str, min: i64, max: i64) -> Markup {
        html! {
            label {
                (label)
                input type="number" name=(name) value=(self.value(name)) placeholder=(hint) min=(min) max=(max) inputmode="numeric";
                (self.wrong(name))
            }
        }
    }

    /// Selection of one choice.
    pub(crate) fn choice(&self, name: &str, label: &str, choices: &[(&str, &str)]) -> Markup {
        html! {
            label {
                (label)
                select name=(name) {
                    @for (value, words) in choices {
                        option value=(value) selected[self.value(name) == *value] { (words) }
                    }
                }
                (self.wrong(name))
            }
        }
    }

    pub(crate) fn tick(&self, name: &str, label: &str) -> Markup {
        html! { label.check { input type="checkbox" name=(name) value="true" checked[!self.value(name).is_empty()]; (label) } }
    }

    /// Fields that every form ends with: the reason, and the confirmation of `statement`.
    pub(crate) fn sign(&self, hint: &str, statement: &str) -> Markup {
        html! {
            (self.line(REASON, "Reason, without personal data", hint, true))
            label.check { input type="checkbox" name=(CONFIRM) value="true" required checked[!self.value(CONFIRM).is_empty()]; (statement) }
            (self.wrong(CONFIRM))
        }
    }

    /// Check boxes of which any number can be selected.
    pub(crate) fn ticks(&self, name: &str, legend: &str, choices: &[&str]) -> Markup {
        html! {
            fieldset {
                legend { (legend) }
                @for choice in choices {
                    label { input type="checkbox" name=(name) value=(choice) checked[self.values(name).any(|one| one == *choice)]; (choice) }
                }
            }
            (self.wrong(name))
        }
    }

    fn wrong(&self, name: &str) -> Markup {
        html! { @for error in self.errors_of(name) { span.error { (error.message) } } }
    }
}

/// A change that is made with one button: its form is behind a fold, with a reason and a confirmation.
pub(crate) struct ChangeButton<'a> {
    /// Word on the button.
    pub(crate) label: &'a str,
    /// The changed object, for screen readers.
    pub(crate) subject: &'a str,
    /// Path of the form.
    pub(crate) action: &'a str,
    /// Hidden fields.
    pub(crate) hidden: &'a [(&'a str, &'a str)],
    /// Statement that is confirmed.
    pub(crate) statement: &'a str,
}

impl maud::Render for ChangeButton<'_> {
    fn render(&self) -> Markup {
        let Self { label, subject, action, hidden, statement } = self;
        html! {
            details.act {
                summary aria-label={ (label) " " (subject) } { (label) }
                form.stack method="post" action=(action) {
                    @for (name, value) in *hidden { input type="hidden" name=(name) value=(value); }
                    (Filled::default().sign("basis of the decision", statement))
                    div { button.danger aria-label={ (label) " " (subject) } { (label) } }
                }
            }
        }
    }
}

/// Answers the form of a [`ChangeButton`] on the page `here`: shows the page again, or what is missing.
pub(crate) async fn answer_button(
    filled: &Filled,
    here: &str,
    change: impl Future<Output = Result<(), ApiError>>,
) -> Result<Response, Refused> {
    let outcome = async {
        filled.signed()?;
        change.await
    };
    match filled.answered(outcome.await)? {
        Ok(()) => Ok(Redirect::to(here).into_response()),
        Err(refused) => {
            let body = html! {
                div.title { h1 { "Nothing was changed" } }
                (refused.said)
                p { a #back href=(here) { "Back" } }
            };
            Ok(Page::still("Nothing was changed", NavSection::Overview, body).answer_form(refused.status))
        }
    }
}

/// Form value of a check box.
pub(crate) fn ticked(is_ticked: bool) -> String {
    if is_ticked { "true".to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_form_sends_the_same_fields_as_a_program() {
        let pairs =
            [("name", " Till "), ("days", ""), ("fee", "80"), ("bad", "8o"), ("scopes", "read"), ("scopes", "money")];
        let form = Filled::with(pairs.map(|(name, value)| (name, value.to_owned())));
        let fields = [
            ("name", Sort::Text),
            ("days", Sort::Whole),
            ("fee", Sort::Whole),
            ("bad", Sort::Whole),
            ("flag", Sort::Box),
            ("scopes", Sort::Boxes),
        ];
        assert_eq!(
            form.json(&fields),
            json!({"name": "Till", "fee": 80, "bad": "8o", "flag": false, "scopes": ["read", "money"]})
        );
    }
}
