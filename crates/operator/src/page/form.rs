//! Forms: converts form input into the fields that programs send, and shows each error next to its field.

use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use maud::{Markup, html};
use payferry_httpkit::{ApiError, FieldError, Fields};
use serde_json::{Map, Value};

use crate::page::Failure;

/// Check box that must be ticked, because a transfer cannot be reversed.
const CONFIRM: &str = "confirm";

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
        Ok(Self { pairs, errors: Vec::new() })
    }
}

impl Filled {
    /// A form with initial values.
    pub(crate) fn with<const N: usize>(values: [(&str, String); N]) -> Self {
        Self { pairs: values.map(|(name, value)| (name.to_owned(), value)).into(), errors: Vec::new() }
    }

    /// Reads the form in the same way as the body of an API request.
    pub(crate) fn read<T>(
        &self,
        fields: &[(&str, Sort)],
        read: impl FnOnce(&Fields<'_>) -> Option<T>,
    ) -> Result<T, ApiError> {
        let body = self.json(fields);
        let fields = Fields::of_body(&body)?;
        let request = read(&fields);
        fields.finish(request)
    }

    /// Reads a form that also has to be confirmed.
    pub(crate) fn read_confirmed<T>(
        &self,
        fields: &[(&str, Sort)],
        read: impl FnOnce(&Fields<'_>) -> Option<T>,
    ) -> Result<T, ApiError> {
        let request = self.read(fields, read);
        if !self.value(CONFIRM).trim().is_empty() {
            return request;
        }
        let mut errors = if let Err(ApiError::Validation(errors)) = request { errors } else { Vec::new() };
        let (code, message) = ("required".into(), "must be ticked".to_owned());
        errors.push(FieldError { field: CONFIRM.to_owned(), code, message });
        Err(ApiError::Validation(errors))
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

    fn value(&self, name: &str) -> &str {
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

    /// Check box that confirms a decision.
    pub(crate) fn confirm(&self, words: &str) -> Markup {
        self.tick(CONFIRM, words)
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
