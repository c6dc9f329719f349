//! Forms of pages: convert form input into the fields that programs send, and show each error next to its field.

use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequest, Request};
use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::error::FieldError;

/// Check box that confirms a change. It must be ticked.
const CONFIRM: &str = "confirm";
/// Code of the error of a form without it.
const REQUIRED: &str = "required";

/// Values of a form, as sent or as shown first.
#[derive(Debug, Clone, Default)]
pub struct FormValues {
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

/// Conversion of a form field.
#[derive(Debug, Clone, Copy)]
pub enum Sort {
    /// The text. An optional field is left out when empty.
    Text,
    /// A whole number. Left out when empty.
    Whole,
    /// A list of words, with commas or spaces between them. Left out when empty.
    Words,
    /// A check box: always sent, as true or false.
    Box,
    /// Several check boxes with the same name.
    Boxes,
}

impl<S: Send + Sync> FromRequest<S> for FormValues {
    type Rejection = FormRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, FormRejection> {
        let Form(pairs) = Form::from_request(request, state).await?;
        Ok(Self { pairs, errors: Vec::new() })
    }
}

impl FormValues {
    /// A form with initial values.
    pub fn with<N: Into<String>>(values: impl IntoIterator<Item = (N, String)>) -> Self {
        Self { pairs: values.into_iter().map(|(name, value)| (name.into(), value)).collect(), errors: Vec::new() }
    }

    /// The same values, with these errors.
    pub fn refused(&self, errors: Vec<FieldError>) -> Self {
        Self { pairs: self.pairs.clone(), errors }
    }

    /// Fields as JSON. Text that is no number stays text, so that the reader of the field refuses it.
    pub fn json(&self, fields: &[(&str, Sort)]) -> Value {
        let read = |&(name, sort): &(&str, Sort)| {
            let text = self.value(name).trim();
            let value = match sort {
                Sort::Text | Sort::Whole | Sort::Words if text.is_empty() => return None,
                Sort::Text => text.into(),
                Sort::Whole => whole(text),
                Sort::Words => text.split([',', ' ']).filter(|word| !word.is_empty()).collect(),
                Sort::Box => (!text.is_empty()).into(),
                Sort::Boxes => self.values(name).collect(),
            };
            Some((name.to_owned(), value))
        };
        Value::Object(fields.iter().filter_map(read).collect::<Map<_, _>>())
    }

    /// The text of a field; empty if it was not sent.
    pub fn value(&self, name: &str) -> &str {
        self.pairs.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// The texts of all fields with this name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.pairs.iter().filter(move |(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// True if the confirmation was ticked.
    pub fn is_confirmed(&self) -> bool {
        !self.value(CONFIRM).trim().is_empty()
    }

    /// The error of a form that was not confirmed.
    pub fn unconfirmed() -> FieldError {
        FieldError::new(CONFIRM, REQUIRED, "must be ticked")
    }

    fn errors_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a FieldError> {
        // Errors of a list include the errors of its items.
        self.errors.iter().filter(move |error| error.field == name || error.field.starts_with(&format!("{name}[")))
    }

    /// Summary of all errors of the form.
    pub fn summary(&self) -> Markup {
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

    /// A line of text.
    pub fn line(&self, name: &str, label: &str, hint: &str, is_required: bool) -> Markup {
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

    /// A whole number.
    pub fn whole(&self, name: &str, label: &str, hint: &str, min: i64, max: i64) -> Markup {
        html! {
            label {
                (label)
                input type="number" name=(name) value=(self.value(name)) placeholder=(hint) min=(min) max=(max) inputmode="numeric";
                (self.wrong(name))
            }
        }
    }

    /// Selection of one choice.
    pub fn choice(&self, name: &str, label: &str, choices: &[(&str, &str)]) -> Markup {
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

    /// A check box.
    pub fn tick(&self, name: &str, label: &str) -> Markup {
        html! { label.check { input type="checkbox" name=(name) value="true" checked[!self.value(name).is_empty()]; (label) } }
    }

    /// The confirmation of a statement. Without it, the form is refused. It is never ticked at first: a form that was
    /// refused may be sent with other values.
    pub fn confirm(&self, statement: &str) -> Markup {
        html! {
            label.check { input type="checkbox" name=(CONFIRM) value="true" required; (statement) }
            (self.wrong(CONFIRM))
        }
    }

    /// Check boxes of which any number can be selected.
    pub fn ticks(&self, name: &str, legend: &str, choices: &[&str]) -> Markup {
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

    /// The errors of a field.
    pub fn wrong(&self, name: &str) -> Markup {
        html! { @for error in self.errors_of(name) { span.error { (error.message) } } }
    }
}

/// The form of a sign-in with one secret.
#[derive(Debug, Clone, Copy)]
pub struct SignInForm<'a> {
    /// The pages that it leads to.
    pub area: &'a str,
    /// Path of the form.
    pub action: &'a str,
    /// Name and label of the secret.
    pub secret: (&'a str, &'a str),
    /// User name for password managers: the form has none, but they expect one.
    pub user: &'a str,
    /// Path to open afterwards.
    pub next: &'a str,
    /// Word on the button.
    pub button: &'a str,
    /// Reason why the form is shown again.
    pub said: Option<&'a str>,
}

impl SignInForm<'_> {
    /// The form, with a text below it.
    pub fn with(self, below: &Markup) -> Markup {
        let (name, label) = self.secret;
        html! {
            div.login {
                h1 { "Payferry " span.soft { (self.area) } }
                @if let Some(said) = self.said { p.notice.bad role="alert" { (said) } }
                form.stack method="post" action=(self.action) {
                    label for=(name) { (label) }
                    input type="text" name="username" value=(self.user) autocomplete="username" hidden;
                    input id=(name) type="password" name=(name) autocomplete="current-password" required autofocus;
                    input type="hidden" name="next" value=(self.next);
                    div { button type="submit" { (self.button) } }
                }
                (below)
            }
        }
    }
}

/// The number in a text; else the text itself.
pub fn whole(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
}

/// Form value of a check box.
pub fn ticked(is_ticked: bool) -> String {
    if is_ticked { "true".to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_form_sends_the_same_fields_as_a_program() {
        let pairs = [
            ("name", " Till "),
            ("days", ""),
            ("fee", "80"),
            ("bad", "8o"),
            ("scopes", "read"),
            ("scopes", "money"),
            ("events", "payment.*, refund.sent payin.*"),
            ("none", " "),
        ];
        let form = FormValues::with(pairs.map(|(name, value)| (name, value.to_owned())));
        let fields = [
            ("name", Sort::Text),
            ("days", Sort::Whole),
            ("fee", Sort::Whole),
            ("bad", Sort::Whole),
            ("flag", Sort::Box),
            ("scopes", Sort::Boxes),
            ("events", Sort::Words),
            ("none", Sort::Words),
        ];
        let events = ["payment.*", "refund.sent", "payin.*"];
        assert_eq!(
            form.json(&fields),
            json!({"name": "Till", "fee": 80, "bad": "8o", "flag": false, "scopes": ["read", "money"], "events": events})
        );
    }
}
